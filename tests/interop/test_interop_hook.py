"""A login service, with real clients."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pika
import pika.exceptions
import pytest
from tests.interop.amqp_pika import Pika
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until
from tests.login_service import Asked, LoginService, login_service
from tests.passwords import cheap_hash

CONFIG = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[listeners.amqp]
url = "amqp://127.0.0.1:0"
[auth.users]
local = "{hashed}"
[auth.hook]
url = "{url}"
timeout = "5s"
when_away = "{when_away}"
[[permission]]
group = "desks"
publish = ["orders/%u"]
subscribe = ["orders/%u"]
[[permission]]
user = "local"
admin = ["change"]
"""


def answer(asked: Asked) -> tuple[int, str]:
    """Everybody's password is its name, twice; those of the desk are in a group."""
    user = asked.fields["username"]
    if asked.fields["password"] != 2 * user:
        return 200, '{"result": "deny"}'
    return 200, '{"result": "allow", "groups": ["desks"]}' if user != "eve" else "allow"


@pytest.fixture(scope="module")
def service() -> Iterator[LoginService]:
    with login_service(answer) as one:
        yield one


def config(service: LoginService, when_away: str = "deny") -> str:
    return CONFIG.format(hashed=cheap_hash("secret"), url=service.url, when_away=when_away)


@pytest.fixture(scope="module")
def house(start: BrokerFactory, service: LoginService) -> BrokerProcess:
    broker = start(config(service))
    broker.login = "local:secret"
    return broker


def paho(house: BrokerProcess, user: str, password: str, client: str = "", version: int = 5) -> Paho:
    return Paho(house.ports["mqtt"], client or f"of-{user}", version, user=(user, password))


def test_whom_the_service_allows_has_the_permissions_of_its_name_and_its_groups(
    house: BrokerProcess, service: LoginService
) -> None:
    ann = paho(house, "ann", "annann")
    assert ann.connack.value == 0
    assert [code.value for code in ann.subscribe([("orders/ann", 0), ("orders/bob", 0)])] == [0, 0x87]
    ann.publish("orders/ann", b"x", 1)
    assert ann.wait(1)[0].payload == b"x"
    asked = service.asked[-1].fields
    assert (asked["clientid"], asked["peerhost"], asked["listener"]) == ("of-ann", "127.0.0.1", "mqtt")
    before = len(service.asked)
    again = paho(house, "ann", "annann")
    assert again.connack.value == 0
    assert len(service.asked) == before  # it is remembered
    assert paho(house, "eve", "eveeve").connack.value == 0x87  # no [[permission]] is for it
    house.signal(signal.SIGHUP)
    until(lambda: "reload: " in house.log.read_text(), what="the reload")
    assert [code.value for code in again.subscribe([("orders/ann", 0)])] == [0]
    Pika(house.ports["amqp"], credentials=pika.PlainCredentials("bob", "bobbob")).close()
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        Pika(house.ports["amqp"], credentials=pika.PlainCredentials("bob", "bob"))
    again.close()


@pytest.mark.parametrize("version", [4, 5])
def test_whom_it_denies_is_refused_and_the_config_has_the_only_word_on_its_own_users(
    house: BrokerProcess, service: LoginService, version: int
) -> None:
    assert paho(house, "ann", "wrong", version=version).connack.value == 0x86
    before = len(service.asked)
    assert paho(house, "local", "locallocal", version=version).connack.value == 0x86
    assert len(service.asked) == before


@pytest.mark.parametrize("when_away", ["deny", "allow"])
def test_when_it_is_away(start: BrokerFactory, when_away: str) -> None:
    with login_service(answer) as service:
        broker = start(config(service, when_away))
        broker.login = "local:secret"
    carl = paho(broker, "carl", "x")
    if when_away == "deny":
        assert carl.connack.value == 0x88
        assert carl.connect_properties.ReasonString == (
            "the service that checks logins does not answer: try again later"
        )
    else:
        assert carl.connack.value == 0x87  # let in, and no [[permission]] is for it
    assert "cannot be reached" in broker.log.read_text()
    _, page = broker.call("/metrics")
    assert b'headway_hook_answers_total{answer="away"} 1.0' in page
    carl.close()
