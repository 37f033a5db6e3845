"""Users whom only their certificates name: they have the rights of their names, over every protocol, and a reload that
removes a user of the same name cuts the one with the password alone."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from bench.wires.packets import encode_connect, encode_subscribe
from tests.certificates import make, trusting
from tests.interop.conftest import BrokerFactory
from tests.interop.permitted import ROOT, SECRET, permission, reload
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import PATIENCE_S
from tests.interop.web import WebRaw
from tests.passwords import cheap_hash

from headway.wire.mqtt.packets import Connect, PubAck, TopicRequest

HASH = cheap_hash(SECRET)
ALICE = permission(
    "alice", publish=["orders/%u/#"], subscribe=["orders/%u/#", "$queue/%u/#"], declare=["$queue/%u/#"], admin=["read"]
)
CAROL = permission("carol", publish=["of/%u"], subscribe=["of/%u"])
TLS = """
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
ca = "{folder}/ca.pem"
verify = "{verify}"
"""
LISTENERS = {"mqtt": "mqtts", "web": "wss", "amqp": "amqps"}
DENIED = 0x87
BY = pytest.mark.parametrize(("listener", "client"), [("mqtt", Raw), ("web", WebRaw)], ids=["mqtts", "wss"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of alice, who is also a user with a password, and of carol and mallory, who stand nowhere else."""
    folder = tmp_path_factory.mktemp("certs")
    make(folder, "ca", is_ca=True)
    make(folder, "server", ca="ca", hosts=("localhost",))
    for user in ("alice", "carol", "mallory"):
        make(folder, user, ca="ca")
    return folder


def given(folder: Path, *permissions: str, users: tuple[str, ...] = ("alice", "root"), more: str = "") -> str:
    required, optional = (TLS.format(folder=folder, verify=verify) for verify in ("required", "optional"))
    tables = [f"[server.tls]{optional}", *(
        f'[listeners.{name}]\nurl = "{scheme}://127.0.0.1:0"\n[listeners.{name}.tls]{required}'
        for name, scheme in LISTENERS.items()
    )]  # fmt: skip
    auth = "[auth.users]\n" + "".join(f'{user} = "{HASH}"\n' for user in users)
    passwords = '[listeners.passwords]\nurl = "mqtt://127.0.0.1:0"\n'
    return "".join((*tables, passwords if users else "", auth, more, *permissions))


@pytest.fixture(scope="module")
def guarded(start: BrokerFactory, folder: Path) -> BrokerProcess:
    return start(given(folder, ROOT, ALICE, CAROL), server={"admin": "https://127.0.0.1:0"})


@pytest.fixture(autouse=True)
def restored(guarded: BrokerProcess, folder: Path) -> Iterator[None]:
    """What a test has revoked is given back."""
    before = guarded.config.read_text()
    yield
    if guarded.config.read_text() != before:
        reload(guarded, given(folder, ROOT, ALICE, CAROL))


def ask(
    broker: BrokerProcess, folder: Path, method: str, path: str, *, user: str = "", login: str = ""
) -> tuple[int, str]:
    """``user``: whose certificate is shown; ``login``: who logs in by password."""
    context = trusting(folder / "ca.pem", pair(folder, user) if user else None)
    port = int(broker.admin.rpartition(":")[2])
    headers = {"Authorization": f"Basic {base64.b64encode(f'{login}:{SECRET}'.encode()).decode()}"} if login else {}
    asking = http.client.HTTPSConnection("localhost", port, context=context, timeout=60)
    try:
        asking.request(method, path, headers=headers)
        answer = asking.getresponse()
        return answer.status, answer.read().decode()
    finally:
        asking.close()


def pair(folder: Path, user: str) -> tuple[Path, Path]:
    return folder / f"{user}.pem", folder / f"{user}-key.pem"


def raw(broker: BrokerProcess, folder: Path, user: str, name: str, listener: str = "mqtt", client: type[Raw] = Raw,
        **more: object) -> Raw:
    return client(broker.ports[listener], name, tls=trusting(folder / "ca.pem", pair(folder, user)), **more)


def rabbit(broker: BrokerProcess, folder: Path, user: str) -> pika.BlockingConnection:
    options = pika.SSLOptions(trusting(folder / "ca.pem", pair(folder, user)), "localhost")
    return pika.BlockingConnection(pika.ConnectionParameters(
        "localhost", broker.ports["amqp"], ssl_options=options, credentials=pika.credentials.ExternalCredentials(),
        heartbeat=0,
    ))  # fmt: skip


# -- rights ------------------------------------------------------------------------------------------------------------


@BY
def test_mqtt(guarded: BrokerProcess, folder: Path, name: str, listener: str, client: type[Raw]) -> None:
    with raw(guarded, folder, "alice", name, listener, client) as alice:
        assert list(alice.subscribe("orders/alice/#", "orders/carol/#", "#").codes) == [0, DENIED, DENIED]
        for topic, code in (("orders/alice/1", 0), ("orders/carol/1", DENIED)):
            alice.publish(topic, b"x", 1)
            assert alice.expect(PubAck).code == code, topic
        assert alice.message().topic == "orders/alice/1"
    with raw(guarded, folder, "carol", name, listener, client) as carol:
        assert list(carol.subscribe("of/carol", "orders/alice/#").codes) == [0, DENIED]
    with raw(guarded, folder, "mallory", name, listener, client, granted=False) as mallory:
        assert mallory.connack.code == DENIED


def test_a_session_belongs_to_the_user_of_the_certificate(guarded: BrokerProcess, folder: Path, name: str) -> None:
    kept = {"clean_start": False, "session_expiry_s": 600}
    with raw(guarded, folder, "alice", name, **kept) as alice:
        alice.subscribed("orders/alice/#")
        alice.goodbye(session_expiry_s=600)
    with raw(guarded, folder, "carol", name, granted=False, **kept) as carol:
        assert carol.connack.code == DENIED
    by_password = {"username": "alice", "password": SECRET.encode(), **kept}
    with Raw(guarded.ports["passwords"], name, **by_password) as alice:
        assert alice.connack.session_present, "a user is a user, however it has logged in"
        alice.goodbye(session_expiry_s=0)


def test_amqp(guarded: BrokerProcess, folder: Path) -> None:
    connection = rabbit(guarded, folder, "alice")
    connection.channel().queue_declare("alice.jobs", exclusive=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        connection.channel().queue_declare("carol.jobs")
    assert refused.value.reply_code == 403
    connection.close()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        rabbit(guarded, folder, "mallory")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda version: version.name)
def test_a_ticket_is_of_the_user_whose_certificate_was_shown(
    guarded: BrokerProcess, folder: Path, name: str, version: ssl.TLSVersion
) -> None:
    """With a ticket the client does not show it again."""
    context = trusting(folder / "ca.pem", pair(folder, "alice"))
    context.minimum_version = context.maximum_version = version
    session = None
    for reused in (False, True):
        plain = socket.create_connection(("127.0.0.1", guarded.ports["mqtt"]), PATIENCE_S)
        with context.wrap_socket(plain, server_hostname="localhost", session=session) as sock:
            assert sock.session_reused is reused
            sock.sendall(encode_connect(Connect(4, name, clean_start=True)))
            assert sock.recv(4) == b"\x20\x02\x00\x00"
            sock.sendall(encode_subscribe(1, ["orders/alice/1", "of/carol"], version=4))
            assert sock.recv(6) == b"\x90\x04\x00\x01\x00\x80"
            session = sock.session


# -- reload ------------------------------------------------------------------------------------------------------------


@BY
def test_who_has_a_certificate_stays_when_its_name_is_no_user_any_more(
    guarded: BrokerProcess, folder: Path, name: str, listener: str, client: type[Raw]
) -> None:
    """The one with the password goes. Also a session that is away is kept."""
    kept = {"clean_start": False, "session_expiry_s": 600}
    with raw(guarded, folder, "alice", f"{name}-away", listener, client, **kept) as away:
        away.subscribed("orders/alice/#")
        away.goodbye(session_expiry_s=600)
    queue = rabbit(guarded, folder, "alice")
    with (
        raw(guarded, folder, "alice", name, listener, client) as alice,
        raw(guarded, folder, "carol", f"{name}-carol", listener, client) as carol,
        Raw(guarded.ports["passwords"], f"{name}-pass", username="alice", password=SECRET.encode()) as by_password,
    ):
        alice.subscribed("orders/alice/#")
        carol.subscribed("of/carol")
        by_password.subscribed("orders/alice/#")
        reload(guarded, given(folder, ROOT, ALICE, CAROL, users=("root",)))
        assert by_password.wait_disconnect().code == DENIED
        alice.published("orders/alice/1", b"still here")
        assert alice.message().payload == b"still here"
        carol.published("of/carol", b"I too")
        assert carol.message().payload == b"I too"
        queue.channel().queue_declare("alice.jobs", exclusive=True)
        queue.close()
    with raw(guarded, folder, "alice", f"{name}-away", listener, client, **kept) as back:
        assert back.connack.session_present
        assert back.message().payload == b"still here"
        back.goodbye(session_expiry_s=0)
    assert ask(guarded, folder, "GET", "/v1/broker", user="alice")[0] == 200
    with Raw(guarded.ports["passwords"], name, granted=False, username="alice", password=SECRET.encode()) as gone:
        assert gone.connack.code != 0


def test_what_is_revoked_ends_for_certificates_too(guarded: BrokerProcess, folder: Path, name: str) -> None:
    with raw(guarded, folder, "alice", name) as alice, raw(guarded, folder, "carol", f"{name}-carol") as carol:
        alice.subscribed("orders/alice/#")
        reload(guarded, given(folder, ROOT, CAROL))
        assert alice.wait_disconnect().code == DENIED
        carol.published("of/carol", b"stays")
    with raw(guarded, folder, "alice", name, granted=False) as again:
        assert again.connack.code == DENIED


def test_sessions_of_certificates_after_a_crash_and_then_a_reload(
    start: BrokerFactory, folder: Path, tmp_path: Path
) -> None:
    """The journal knows a session's user, and not what showed its name: it stays while a permission is for the name,
    though the name is no user with a password any more."""
    more = f'[journal]\npath = "{tmp_path / "journal"}"\n'
    server = {"admin": "https://127.0.0.1:0"}
    kept = {"clean_start": False, "session_expiry_s": 3600}
    topics = {"alice": "orders/alice/1", "carol": "of/carol"}
    broker = start(given(folder, ROOT, ALICE, CAROL, more=more), server=server)
    for user, topic in topics.items():
        with raw(broker, folder, user, f"{user}-kept", **kept) as session:
            session.subscribed(TopicRequest(topic, 1))
        with raw(broker, folder, user, f"{user}-writes") as writer:
            writer.published(topic, b"before")
    broker.kill()

    broker = start(given(folder, ROOT, ALICE, CAROL, more=more), server=server)
    reload(broker, given(folder, ROOT, ALICE, users=("root",), more=more))
    with raw(broker, folder, "alice", "alice-writes") as writer:
        writer.published(topics["alice"], b"after")
    with raw(broker, folder, "alice", "alice-kept", **kept) as alice:
        assert alice.connack.session_present
        assert alice.payloads(2) == [b"before", b"after"]
    with raw(broker, folder, "carol", "carol-kept", granted=False, **kept) as carol:
        assert carol.connack.code == DENIED, "its permission is gone"

    reload(broker, given(folder, ROOT, ALICE, CAROL, users=("root",), more=more))
    with raw(broker, folder, "carol", "carol-writes") as writer:
        writer.published(topics["carol"], b"nobody waits for it")
    with raw(broker, folder, "carol", "carol-kept", **kept) as carol:
        assert carol.so_far() == [], "the subscription was ended, and a permission that comes back brings none"


# -- the admin API -----------------------------------------------------------------------------------------------------


def test_the_admin_api_with_permissions(guarded: BrokerProcess, folder: Path) -> None:
    end = "/v1/clients/nobody"
    assert ask(guarded, folder, "GET", "/v1/broker")[0] == 401, "neither a certificate nor a password"
    assert ask(guarded, folder, "GET", "/v1/broker", user="alice")[0] == 200
    assert ask(guarded, folder, "DELETE", end, user="alice")[0] == 403
    status, body = ask(guarded, folder, "GET", "/v1/broker", user="carol")
    assert (status, "carol may not read here" in json.loads(body)["error"]) == (403, True)
    assert ask(guarded, folder, "GET", "/v1/topics", user="carol")[0] == 200, "its rights are those of the topics"
    assert ask(guarded, folder, "DELETE", end, login="root")[0] == 404, "who has no certificate logs in as ever"


def test_the_admin_api_without_permissions(start: BrokerFactory, folder: Path) -> None:
    """Nobody has a password here: a certificate is a login all the same, and [auth.admin] holds."""
    text = given(folder, users=(), more='[auth.admin]\nchange = ["alice"]\n')
    broker = start(text, server={"admin": "https://127.0.0.1:0"})
    for user, answers in (("alice", (200, 404)), ("carol", (200, 403))):
        asked = ("GET", "/v1/broker"), ("DELETE", "/v1/clients/nobody")
        assert tuple(ask(broker, folder, *one, user=user)[0] for one in asked) == answers, user
