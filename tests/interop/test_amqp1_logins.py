"""Logins of AMQP 1.0 beside passwords: clients' certificates (SASL EXTERNAL) and SCRAM-SHA-256.

Proton's own SCRAM is Cyrus', which its packages for Python come without. So the three steps are taken by hand
(scram_client.py), and Proton's engine has the connection from there.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from proton import (
    Connection,
    ConnectionException,
    Data,
    Described,
    Message,
    SSLDomain,
    Terminus,
    Transport,
    symbol,
    ulong,
)
from proton.reactor import Container, DurableSubscription, LinkOption
from proton.utils import BlockingConnection
from tests.interop.conftest import BrokerFactory
from tests.interop.permitted import SECRET, config, permission
from tests.interop.process import BrokerProcess
from tests.interop.tls_house import House, ask
from tests.interop.waiting import until
from tests.passwords import cheap_hash
from tests.scram_client import ScramClient

pytest_plugins = ("tests.interop.tls_fixtures",)

TIMEOUT_S = 10.0
MECHANISM = "SCRAM-SHA-256"
SASL, AMQP = b"AMQP\3\1\0\0", b"AMQP\0\1\0\0"
MECHANISMS, INIT, CHALLENGE, RESPONSE, OUTCOME = range(0x40, 0x45)
CONFIG = f"""
[listeners.amqp]
url = "amqp://127.0.0.1:0"
allow_anonymous = false
[auth.users]
ann = "{cheap_hash("secret", scram_able=True)}"
old = "{cheap_hash("secret")}"
[[permission]]
publish = ["queue:of-%u", "of/%u"]
subscribe = ["queue:of-%u", "of/%u"]
declare = ["queue:of-%u"]
"""


# -- certificates ------------------------------------------------------------------------------------------------------


def known(house: House, certificate: str | None, name: str, **more: Any) -> BlockingConnection:
    """A client with the certificate of a user."""
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(house.ca))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    if certificate is not None:
        pair = house.folder / f"{certificate}.pem", house.folder / f"{certificate}-key.pem"
        domain.set_credentials(*map(str, pair), None)
    container = Container()
    container.container_id = name
    how = {"allowed_mechs": "EXTERNAL", **more}
    return BlockingConnection(f"amqps://localhost:{house.port('known-amqp')}", timeout=TIMEOUT_S, ssl_domain=domain,
                              container=container, **how)  # fmt: skip


def test_the_certificate_says_who_it_is(house: House, name: str) -> None:
    client = known(house, "alice", name)
    client.create_sender(f"topic://{name}").send(Message("hello"))
    client.close()
    end = until(lambda: ask(house, f"/v1/why/{name}")["ends"])[0]
    assert (end["username"], end["admitted"]) == ("alice", True)


def test_who_has_none_does_not_come_in(house: House, name: str) -> None:
    with pytest.raises(ConnectionException):
        known(house, None, name)


def test_external_is_not_for_those_without_certificates(house: House) -> None:
    with pytest.raises(ConnectionException, match="amqp:unauthorized-access"):
        BlockingConnection(f"amqp://127.0.0.1:{house.port('plain-amqp')}", timeout=TIMEOUT_S, allowed_mechs="EXTERNAL")


@pytest.mark.parametrize(("user", "fine"), [("alice", True), ("bob", False)])
def test_a_name_beside_the_certificate_has_to_be_its_own(house: House, name: str, user: str, fine: bool) -> None:
    how = {"allowed_mechs": "PLAIN", "user": user, "password": "x"}
    if fine:
        known(house, "alice", name, **how).close()
        return
    with pytest.raises(ConnectionException, match="amqp:unauthorized-access"):
        known(house, "alice", name, **how)


# -- SCRAM -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def users(start: BrokerFactory) -> BrokerProcess:
    return start(CONFIG)


class Sasl:
    """A login by hand: frames of SASL over a socket."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.sock = socket.create_connection(("127.0.0.1", broker.ports["amqp"]), timeout=TIMEOUT_S)
        self.sock.sendall(SASL)
        assert self._read(8) == SASL

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            came = self.sock.recv(size - len(data))
            assert came, "the broker ended the connection"
            data += came
        return data

    def hear(self) -> tuple[int, list[Any]]:
        size = int.from_bytes(self._read(4), "big")
        data = Data()
        data.decode(self._read(size - 4)[4:])
        data.next()
        said = data.get_object()
        # bytes are Proton's own memory, which is gone with ``data``
        return int(said.descriptor), [bytes(one) if isinstance(one, memoryview) else one for one in said.value]

    def say(self, what: int, *fields: Any) -> None:
        data = Data()
        data.put_object(Described(ulong(what), list(fields)))
        body = data.encode()
        self.sock.sendall((8 + len(body)).to_bytes(4, "big") + b"\2\1\0\0" + body)

    def ended(self) -> bool:
        return not self.sock.recv(1)


def proved(users: BrokerProcess, user: str, password: str) -> tuple[Sasl, list[Any], ScramClient]:
    """Returns the outcome of a login by SCRAM."""
    sasl, scram = Sasl(users), ScramClient(user, password)
    what, [offered] = sasl.hear()
    assert what == MECHANISMS
    assert MECHANISM in offered
    sasl.say(INIT, symbol(MECHANISM), scram.first())
    what, [challenge] = sasl.hear()
    assert what == CHALLENGE
    sasl.say(RESPONSE, scram.final(challenge))
    what, outcome = sasl.hear()
    assert what == OUTCOME
    return sasl, outcome, scram


def pump(transport: Transport, sock: socket.socket, done: Callable[[], bool]) -> None:
    """Moves bytes between Proton's engine and the broker."""
    while not done():
        pending = transport.pending()
        if pending > 0:
            sock.sendall(transport.peek(pending))
            transport.pop(pending)
            continue
        came = sock.recv(1 << 16)
        assert came, "the broker ended the connection"
        transport.push(came)


def test_a_client_shows_that_it_knows_the_password_and_has_its_user_s_permissions(users: BrokerProcess) -> None:
    sasl, outcome, scram = proved(users, "ann", "secret")
    assert outcome[0] == 0
    assert scram.knows(outcome[1]), "the broker knows the password, too"
    transport, connection = Transport(), Connection()
    connection.container = "by scram"
    transport.bind(connection)
    connection.open()
    session = connection.session()
    session.open()
    fine, other = session.sender("fine"), session.sender("other")
    fine.target.address, other.target.address = "topic://of/ann", "queue://of-somebody"
    fine.open()
    other.open()
    pump(transport, sasl.sock, lambda: fine.credit > 0 and bool(other.state & Connection.REMOTE_CLOSED))
    assert other.remote_condition.name == "amqp:unauthorized-access"
    connection.close()
    pump(transport, sasl.sock, lambda: bool(connection.state & Connection.REMOTE_CLOSED))


@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("nobody", "secret"), ("old", "secret")])
def test_who_does_not_know_it_is_told_after_the_last_step(users: BrokerProcess, user: str, password: str) -> None:
    sasl, outcome, _ = proved(users, user, password)
    assert outcome[0] == 1
    assert sasl.ended()


@pytest.mark.parametrize("first", [b"", b"nonsense", b"p=tls-unique,,n=ann,r=abc", b"n,a=bob,n=ann,r=abc"])
def test_a_first_message_that_is_none_is_refused(users: BrokerProcess, first: bytes) -> None:
    sasl = Sasl(users)
    sasl.hear()
    sasl.say(INIT, symbol(MECHANISM), first)
    assert sasl.hear() == (OUTCOME, [1])
    assert sasl.ended()


@pytest.mark.parametrize(
    "again", [(INIT, symbol(MECHANISM), b"n,,n=ann,r=abc"), (INIT, symbol("PLAIN"), b"\0ann\0secret")]
)  # fmt: skip
def test_a_login_that_has_begun_does_not_begin_again(users: BrokerProcess, again: tuple[Any, ...]) -> None:
    sasl = Sasl(users)
    sasl.hear()
    sasl.say(INIT, symbol(MECHANISM), ScramClient("ann", "secret").first())
    assert sasl.hear()[0] == CHALLENGE
    sasl.say(*again)
    assert sasl.ended(), "there is no word for it in SASL"


def test_a_response_before_the_mechanism_is_chosen_is_refused(users: BrokerProcess) -> None:
    sasl = Sasl(users)
    sasl.hear()
    sasl.say(RESPONSE, b"x")
    assert sasl.ended(), "there is no word for it in SASL"


# -- permissions -------------------------------------------------------------------------------------------------------


def test_to_close_a_link_deletes_only_a_subscription_that_its_user_may_declare(start: BrokerFactory) -> None:
    """One who may read another's durable subscription, and asks for it by its name alone, leaves it there."""
    broker = start(config(permission("bob", subscribe=["$queue/#"])))

    def client(user: str) -> BlockingConnection:
        container = Container()
        container.container_id = "desk"
        url = f"amqp://{user}:{SECRET}@127.0.0.1:{broker.ports['amqp']}"
        return BlockingConnection(url, timeout=TIMEOUT_S, container=container, allowed_mechs="PLAIN")

    def queues() -> list[str]:
        broker.login = f"root:{SECRET}"
        return [one["name"] for one in broker.get("/v1/queues")["queues"]]

    owner = client("root")
    owner.create_receiver("topic://prices", name="sub", options=DurableSubscription()).link.detach()
    owner.close()
    for user, left in (("bob", ["durable.desk.sub"]), ("root", [])):
        there = client(user)
        link = there.create_receiver(None, name="sub", options=ByNameAlone(), credit=0)
        assert link.link.remote_source.address == "queue://durable.desk.sub"
        link.close()
        there.close()
        assert queues() == left


class ByNameAlone(LinkOption):
    def apply(self, link: Any) -> None:
        link.source.type = Terminus.UNSPECIFIED
