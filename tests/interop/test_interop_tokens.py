"""Tokens as logins, with real clients."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

import pika
import pika.exceptions
import pytest
from pamqp.commands import Basic, Connection
from tests.interop.amqp_pika import Pika
from tests.interop.amqp_raw import Raw as AmqpRaw
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.test_interop_writers import arrow
from tests.interop.waiting import until
from tests.server.test_tokens import JWKS, OTHER, public, token

CONFIG = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[listeners.amqp]
url = "amqp://127.0.0.1:0"
[auth.jwt]
keys_file = "{keys}"
issuer = "us"
audience = "headway"
groups = "roles"
[[permission]]
group = "desks"
publish = ["orders/%u"]
subscribe = ["orders/%u"]
[[permission]]
user = "ops"
admin = ["read"]
"""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "jwks.json"
    path.write_text(json.dumps(JWKS))
    return path


@pytest.fixture(scope="module")
def house(start: BrokerFactory, keys: Path) -> BrokerProcess:
    return start(CONFIG.format(keys=keys))


def paho(house: BrokerProcess, said: bytes, version: int = 5, client: str = "c") -> Paho:
    return Paho(house.ports["mqtt"], client, version, user=("whoever", said.decode()))


@pytest.mark.parametrize("version", [4, 5])
def test_a_token_says_who_it_is_whatever_name_comes_with_it(house: BrokerProcess, version: int) -> None:
    client = paho(house, token(), version)
    assert client.connack.value == 0
    denied = {4: 0x80, 5: 0x87}[version]
    assert [code.value for code in client.subscribe([("orders/ann", 0), ("orders/whoever", 0)])] == [0, denied]
    client.publish("orders/ann", b"x", 1)
    assert client.wait(1)[0].payload == b"x"
    client.close()
    for wrong in (token(key=OTHER), token(iss="them"), b"x"):
        refused = paho(house, wrong, version)
        assert refused.connack.value == 0x86
        refused.close()


def test_a_token_without_a_name_and_over_amqp_and_http(house: BrokerProcess) -> None:
    with Raw(house.ports["mqtt"], "r", password=token("EdDSA")) as raw:
        raw.subscribed("orders/ann")
    Pika(house.ports["amqp"], credentials=pika.PlainCredentials("", token("ES256").decode())).close()
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        Pika(house.ports["amqp"], credentials=pika.PlainCredentials("", token(aud="others").decode()))
    for said, status in ((token(sub="ops", roles=None), 200), (token(), 403), (token(key=OTHER), 401)):
        assert status_of(house, said) == status


def status_of(house: BrokerProcess, said: bytes) -> int:
    request = urllib.request.Request(house.admin + "/v1/broker")
    request.add_header("Authorization", f"Bearer {said.decode()}")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_connection_ends_with_its_token_and_a_client_of_amqp_may_bring_another(house: BrokerProcess) -> None:
    until_s = int(time.time()) + 3
    soon = token(exp=until_s)
    raw = Raw(house.ports["mqtt"], "soon", password=soon)
    first, second = (AmqpRaw(house.ports["amqp"], user=("", soon.decode())) for _ in range(2))
    second.call(Connection.UpdateSecret(token().decode(), "it expires"), Connection.UpdateSecretOk, 0)
    ended = raw.wait_disconnect()
    assert (ended.code, ended.reason) == (0x87, "the token by which the client came in has expired")
    assert time.time() >= until_s
    assert "has expired" in first.expect(Connection.Close, 0).reply_text
    second.sync()
    second.do(Connection.UpdateSecret(token(sub="bob").decode(), "another"), 0)
    assert "of another user" in second.expect(Connection.Close, 0).reply_text


def test_a_reload_takes_other_keys_and_keeps_the_old_ones_if_they_are_bad(
    start: BrokerFactory, tmp_path: Path
) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [public("RS256")]}))
    broker = start(CONFIG.format(keys=path))

    def reload() -> str:
        before = broker.log.read_text().count("reload: ")
        broker.signal(signal.SIGHUP)
        until(lambda: broker.log.read_text().count("reload: ") > before, what="the reload")
        return broker.log.read_text().rpartition("reload: ")[2]

    def codes() -> list[int]:
        clients = [paho(broker, token(algorithm)) for algorithm in ("RS256", "ES256")]
        for client in clients:
            client.close()
        return [client.connack.value for client in clients]

    assert codes() == [0, 0x86]
    path.write_text("{")
    assert "nothing was changed: auth.jwt.keys_file: " in reload()
    assert codes() == [0, 0x86]
    path.write_text(json.dumps({"keys": [public("ES256")]}))
    reload()
    assert codes() == [0x86, 0]


def test_a_new_token_has_the_groups_that_it_says(start: BrokerFactory, keys: Path) -> None:
    """What the groups of the first token allowed ends, and what those of the new one allow is allowed."""
    more = '[[permission]]\ngroup = "guests"\nsubscribe = ["news"]\n'
    house = start(CONFIG.format(keys=keys) + more)
    with AmqpRaw(house.ports["amqp"], user=("", token(roles=["desks"]).decode())) as raw:

        def consume(key: str) -> Basic.Consume:
            return Basic.Consume(queue="amq.topic", consumer_tag=key, no_ack=True, arguments={"x-headway-topics": key})

        def bring(role: str) -> None:
            raw.call(Connection.UpdateSecret(token(roles=[role]).decode(), "another"), Connection.UpdateSecretOk, 0)

        raw.call(consume("orders.ann"), Basic.ConsumeOk)
        bring("guests")
        assert raw.expect(Basic.Cancel).consumer_tag == "orders.ann"
        raw.call(consume("news"), Basic.ConsumeOk)
        raw.do(consume("orders.ann"))
        assert raw.channel_closed().reply_code == 403
        bring("desks")
        raw.open_channel(2)
        raw.call(consume("orders.ann"), Basic.ConsumeOk, 2)
        house.signal(signal.SIGHUP)
        until(lambda: "reload: " in house.log.read_text(), what="the reload")
        raw.sync(2)


def test_a_batch_that_is_under_way_ends_with_its_token_and_goes_on_by_another(
    start: BrokerFactory, keys: Path, tmp_path: Path
) -> None:
    more = """
[[limit]]
user = "ann"
publish_rate = 400
[[permission]]
user = "ann"
publish = ["rows/+"]
declare = ["$writer/w"]
[[topic]]
filter = "rows/+"
keep = "7d"
"""
    broker = start(f'[journal]\npath = "{tmp_path}"\n' + CONFIG.format(keys=keys) + more)

    def call(said: bytes, method: str, path: str, body: bytes) -> tuple[int, dict[str, object]]:
        request = urllib.request.Request(f"{broker.admin}/v1/writers/w/{path}", body, method=method)
        request.add_header("Authorization", f"Bearer {said.decode()}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(answer.status), json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    rows = [(f"rows/{number % 2}", None, None, b"%d" % number) for number in range(3_000)]
    soon = token(exp=int(time.time()) + 5)
    part = call(soon, "POST", "parts", arrow(rows))[1]["part"]
    batch = json.dumps({"parts": [part], "wait_ms": 0}).encode()
    assert call(soon, "PUT", "batches/1", batch)[0] == 202

    ended = "batch 1 of w: the token by which the client came in has expired"
    until(lambda: ended in broker.log.read_text(), what="the batch has ended with its token")
    assert call(soon, "PUT", "batches/1", batch)[0] == 401
    status, said = call(token(), "PUT", "batches/1", batch)
    assert (status, said["done"]) == (202, False)
    assert 400 <= int(str(said["rows"])) < 3_000
    until(lambda: call(token(), "PUT", "batches/1", batch)[0] == 200, what="the rest")
    assert call(token(), "PUT", "batches/1", batch)[1]["rows"] == 3_000
