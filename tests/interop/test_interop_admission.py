"""Who may come in, and for how much: passwords, time limits, counts, open files."""

from __future__ import annotations

import resource
import socket

import pytest
from bench.wires.packets import connect, encode_connect, encode_publish
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import paho
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import until

from headway.server.config.auth import hash_password
from headway.wire.mqtt.packets import ConnAck, Connect, TopicRequest

BOTH = pytest.mark.parametrize("version", [4, 5])


@BOTH
def test_keep_alive(broker: BrokerProcess, name: str, version: int) -> None:
    with (
        Raw(broker.port, f"{name}-silent", version, keep_alive_s=1) as silent,
        Raw(broker.port, name, keep_alive_s=1) as lively,
    ):
        while not silent.ended:
            silent.read(0.1)
            assert lively.so_far() == []
        if version == 5:
            assert silent.wait_disconnect().code == 0x8D


@pytest.fixture(scope="module")
def limited(start: BrokerFactory) -> BrokerProcess:
    users = f'[auth.users]\nann = "{hash_password("secret")}"\n'
    broker = start(f"""
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
allow_anonymous = true
connections_max = 20
connect_timeout = "500ms"
subscriptions_max = 3
in_flight_max = 5
keep_alive_max = "60s"
session_expiry_max = "90s"
packet_max = "1KB"
[listeners.closed]
url = "mqtt://127.0.0.1:0"
allow_anonymous = false
{users}
""")
    broker.login = "ann:secret"
    return broker


@BOTH
def test_a_password_lets_in(limited: BrokerProcess, name: str, version: int) -> None:
    for _ in range(2):
        with paho(limited.ports["closed"], name, version, user=("ann", "secret")) as client:
            assert not client.connack.is_failure
            client.subscribe(name, 1)
            client.publish(name, b"x", 1)
            client.wait(1)


@BOTH
@pytest.mark.parametrize(
    ("username", "password", "codes"),
    [(None, None, (5, 0x87)), ("ann", b"wrong", (4, 0x86)), ("bob", b"secret", (4, 0x86)), ("ann", None, (4, 0x86))],
)
def test_nobody_else_comes_in(
    limited: BrokerProcess, version: int, username: str | None, password: bytes | None, codes: tuple[int, int]
) -> None:
    with Raw(limited.ports["closed"], "x", version, granted=False, username=username, password=password) as client:
        assert client.connack.code == codes[version - 4]
        client.wait_end()


def test_a_wrong_password_is_not_asked_for_again_by_what_follows(limited: BrokerProcess, name: str) -> None:
    """Packets sent behind CONNECT, before its answer, are not carried out if it is refused."""
    with Raw(limited.port) as reader, Raw(limited.ports["closed"], connect=False) as client:
        reader.subscribed(name)
        client.send(encode_connect(Connect(5, "x", True, username="ann", password=b"no")) + encode_publish(name, b"x"))
        assert client.expect(ConnAck).code == 0x86
        client.wait_end()
        assert reader.so_far() == []
        with Raw(limited.ports["closed"], connect=False) as right:
            right.send(
                encode_connect(Connect(5, "x", True, username="ann", password=b"secret")) + encode_publish(name, b"x")
            )
            assert right.expect(ConnAck).code == 0
            assert reader.message().payload == b"x"


def test_who_does_not_say_who_it_is_has_to_go(limited: BrokerProcess) -> None:
    with Raw(limited.port, connect=False) as silent, Raw(limited.port, connect=False) as slow:
        slow.send(connect("slow")[:5])
        silent.wait_end()
        slow.wait_end()


def test_connections_max(limited: BrokerProcess, name: str) -> None:
    with Raw(limited.port, f"{name}-first") as first:
        others = [Raw(limited.port, f"{name}-{i}") for i in range(19)]
        refused = limited.get("/v1/broker")["connections_refused"]
        with Raw(limited.port, connect=False) as one_more:
            one_more.wait_end()
        assert limited.get("/v1/broker")["connections_refused"] == refused + 1
        others[0].goodbye()
        until(lambda: limited.get("/v1/broker")["connections"] < 20)
        with Raw(limited.port, f"{name}-late"):
            pass
        for other in others:
            other.close()
        assert first.so_far() == []


def test_limits_of_a_session(limited: BrokerProcess, name: str) -> None:
    with Raw(limited.port, name, keep_alive_s=600, session_expiry_s=1000) as client, Raw(limited.port) as writer:
        assert client.connack.fields.server_keep_alive == 60
        assert client.connack.fields.session_expiry == 90
        assert client.connack.fields.max_packet_bytes == 1000
        answer = client.subscribe(*(TopicRequest(f"{name}/{i}", 1) for i in range(4)))
        assert answer.codes == (1, 1, 1, 0x97)
        assert "3" in (answer.reason or "")
        client.unsubscribe(f"{name}/0")
        client.subscribed(TopicRequest(f"{name}/3", 1))
        for i in range(20):
            writer.publish(f"{name}/3", b"%d" % i, 1)
        writer.so_far()
        assert len(client.so_far()) == 5  # in_flight_max, whatever the client would take
        writer.send(b"\x30\xff\x07")
        assert writer.wait_disconnect().code == 0x95


def test_too_many_open_files(start: BrokerFactory, name: str) -> None:
    """Whoever comes too late waits at the door; those who are in notice nothing, and the door opens again."""

    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))

    broker = start("", before=few_files)
    with Raw(broker.port, name) as reader, Raw(broker.port) as writer:
        reader.subscribed(name)
        waiting = list[socket.socket]()
        for number in range(80):
            waiting.append(socket.create_connection(("127.0.0.1", broker.port)))
            waiting[-1].sendall(connect(f"{name}-{number}"))  # a silent one would make room
        until(lambda: "cannot accept" in broker.log.read_text(), what="the broker says that it is out of files")
        writer.published(name, b"x")
        assert reader.message().payload == b"x"
        for sock in waiting:
            sock.close()
        with Raw(broker.port, f"{name}-late") as late:
            late.subscribed(name)
            writer.published(name, b"y")
            assert [late.message().payload, reader.message().payload] == [b"y", b"y"]
    assert broker.log.read_text().count("cannot accept") < 20
    broker.stop()
