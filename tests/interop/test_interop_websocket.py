"""MQTT over WebSocket: with the clients that people have, and with those that nobody should have."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from bench.errors import PeerFailed
from bench.wires.packets import encode_connect, encode_publish
from bench.wires.websocket import CLOSE, PING, PONG, TEXT, frame, request, upgrade
from tests.certificates import trusting
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import PATIENCE_S, received, until
from tests.interop.web import WebRaw
from tests.server.test_websocket_decoder import REFUSED

from headway.server.websocket.stream import FRAME_BYTES
from headway.wire.mqtt.packets import Connect, DisconnectPacket

HANDSHAKES = 3000
CONFIG = (
    LISTENER
    + """
[listeners.web]
url = "ws://127.0.0.1:0"
[listeners.hasty]
url = "ws://127.0.0.1:0"
connect_timeout = "500ms"
[listeners.app]
url = "ws://127.0.0.1:0"
path = "/only"
origins = ["https://app.example.com"]
[[policy]]
name = "cut"
topics = ["cut/#"]
[[policy.rule]]
when = { blocked_time = "300ms" }
then = "disconnect"
[[policy]]
name = "oldest"
topics = ["oldest/#"]
[[policy.rule]]
when = { lag_records = 100 }
then = { action = "discard", which = "oldest", keep_records = 1 }
"""
)


SECURE = """
[listeners.secure]
url = "wss://127.0.0.1:0"
[listeners.secure.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
"""
Web = Callable[..., WebRaw]
"""Connects a client, with the arguments of ``WebRaw`` but for the port."""


@pytest.fixture(scope="module")
def house(start: BrokerFactory, certificates: Path) -> Iterator[BrokerProcess]:
    process = start(CONFIG + SECURE.format(folder=certificates), server={"send_buffer": "16KiB"})
    yield process
    process.stop()


@pytest.fixture(params=["ws", "wss"])
def web(house: BrokerProcess, certificates: Path, request: pytest.FixtureRequest) -> Web:
    """Without TLS, and with it."""
    if request.param == "ws":
        return partial(WebRaw, house.ports["web"])
    return partial(WebRaw, house.ports["secure"], tls=trusting(certificates / "ca.pem"))


# -- clients that people have -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5])
def test_paho(house: BrokerProcess, name: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = mqtt.Client
    monkeypatch.setattr(mqtt, "Client", lambda *a, **more: plain(*a, transport="websockets", **more))
    client = Paho(house.ports["web"], name, version)
    client.subscribe(f"{name}/#", qos=2)
    sizes = [0, 1, 120, 130, 16_384, 70_000, 300_000]
    for at, size in enumerate(sizes):
        client.publish(f"{name}/{at}", b"x" * size, at % 3)
    assert sorted(len(message.payload) for message in client.wait(len(sizes))) == sizes
    with Raw(house.port, f"{name}-plain") as other:
        other.published(f"{name}/plain", b"from TCP")
    assert client.wait(len(sizes) + 1)[-1].payload == b"from TCP"


@pytest.mark.parametrize("version", [4, 5])
def test_paho_with_tls(
    house: BrokerProcess, name: str, version: int, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = mqtt.Client

    def client(*arguments: Any, **more: Any) -> mqtt.Client:
        made = plain(*arguments, transport="websockets", **more)
        made.tls_set(str(certificates / "ca.pem"))
        return made

    monkeypatch.setattr(mqtt, "Client", client)
    secure = Paho(house.ports["secure"], name, version, host="localhost")
    secure.subscribe(f"{name}/#", qos=2)
    sizes = [0, 1, 120, 130, 16_383, 16_384, 16_385, 70_000, 300_000]
    for at, size in enumerate(sizes):
        secure.publish(f"{name}/{at}", b"x" * size, at % 3)
    assert sorted(len(message.payload) for message in secure.wait(len(sizes))) == sizes
    with Raw(house.port, f"{name}-plain") as other:
        other.published(f"{name}/plain", b"from TCP")
    assert secure.wait(len(sizes) + 1)[-1].payload == b"from TCP"
    secure.close()


# -- slow consumers ---------------------------------------------------------------------------------------------------


def test_all_in_one_flight(house: BrokerProcess, name: str, certificates: Path) -> None:
    """The end of the TLS handshake, the request, and the first packets come in one piece: nothing of it is left lying,
    although the kernel shows no more of it."""
    context, incoming, outgoing = trusting(certificates / "ca.pem"), ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", house.ports["secure"]), PATIENCE_S) as sock:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(100_000))
        tls.write(request("/mqtt", "localhost", "mqtt")[0])
        tls.write(frame(encode_connect(Connect(5, name, True, 60))))
        tls.write(frame(encode_publish(f"{name}/x", b"there", retain=True)))
        sock.sendall(outgoing.read())
        with Raw(house.port, f"{name}-other") as other:
            other.subscribed(f"{name}/#")
            assert other.message().payload == b"there"


def flood(port: int, topic: str, count: int = 3000, size: int = 1000) -> None:
    with Raw(port, f"flood-{topic}") as writer:
        writer.send(b"".join(encode_publish(topic, b"%06d" % i + b"." * (size - 6)) for i in range(count)))
        writer.published("flood/end")


@pytest.mark.parametrize("version", [4, 5])
def test_a_slow_consumer_is_told_why_it_is_cut(house: BrokerProcess, web: Web, name: str, version: int) -> None:
    """MQTT 5: by a DISCONNECT, and then by the Close; 3.1.1: by the Close. What comes before are whole records."""
    with web(name, version, receive_buffer=4096) as slow:
        slow.subscribed(f"cut/{name}")
        flood(house.port, f"cut/{name}")
        verdict = until(lambda: next(iter(house.verdicts(name)), None), what="a verdict")
        slow.wait_end()
        assert slow.decoder.buffered_bytes == 0, "the stream ends within a packet"
        assert slow.closed is not None
        code, text = slow.closed
        assert code == 1013
        assert len(text.encode()) <= 123
        assert "no bytes taken for" in text
        assert verdict["text"].startswith(text[:100])
        ends = [item for item in slow.inbox if isinstance(item, DisconnectPacket)]
        assert len(ends) == (1 if version == 5 else 0)
        if ends:
            assert ends[0].code == 0x97
            assert ends[0].reason == verdict["text"]


def test_a_frame_that_was_half_sent_is_completed_when_its_records_are_dropped(
    house: BrokerProcess, web: Web, name: str
) -> None:
    """The cursor moves to the last record while a frame is announced; the client reads a stream without a flaw, and
    has the last record at once: no frame waits for what is published next."""
    with web(name, receive_buffer=4096) as slow:
        slow.subscribed(f"oldest/{name}")
        flood(house.port, f"oldest/{name}", 5000)
        until(lambda: any(row["action"]["kind"] == "discard" for row in house.verdicts(name)), what="a verdict")
        until(lambda: slow.read(1.0) and any(b"004999" in m.payload for m in slow.inbox if hasattr(m, "payload")))
        slow.so_far()
        assert not slow.ended


def test_a_consumer_that_reads_late_gets_everything(house: BrokerProcess, web: Web, name: str) -> None:
    with web(name, receive_buffer=4096) as late:
        late.subscribed(f"late/{name}")
        flood(house.port, f"late/{name}", 3000)
        got = late.payloads(3000)
        assert [int(payload[:6]) for payload in got] == list(range(3000))
        assert max(late.frames.sizes) <= FRAME_BYTES
        assert 16_384 in late.frames.sizes


# -- clients that nobody should have ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "code"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_who_breaks_the_protocol_is_told_and_hurts_nobody(web: Web, name: str, data: bytes, code: int) -> None:
    with web(name) as bad, web(f"{name}-good") as good:
        good.subscribed(f"{name}/#")
        bad.publish(f"{name}/before", b"counts")
        bad.sock.sendall(data)
        bad.wait_end()
        assert bad.closed is not None
        assert bad.closed[0] == code
        assert isinstance(bad.inbox[-1], DisconnectPacket)
        assert good.message().payload == b"counts"


def test_a_client_that_closes_gets_a_close(house: BrokerProcess, web: Web, name: str) -> None:
    with web(name) as client:
        client.sock.sendall(frame(b"\x03\xe9bye", CLOSE))
        client.wait_end()
        assert client.closed == (1001, "bye")
    assert until(lambda: "the client closed the WebSocket (1001): bye" in house.log.read_text())


def test_a_ping_is_answered(web: Web, name: str) -> None:
    with web(name) as client:
        client.sock.sendall(frame(b"are you there", PING))
        until(lambda: client.read(1.0) and client.frames.control)
        assert client.frames.control == [(PONG, b"are you there")]


def test_a_packet_that_is_too_large(web: Web, name: str) -> None:
    with web(name) as client:
        with contextlib.suppress(ConnectionError):
            client.send(encode_publish("a", bytes(2_000_000), version=5))
        client.wait_end()
        assert client.closed is not None
        assert client.closed[0] == 1009


def test_inside_tls_a_page_of_the_hosts_own_name_is_let_in(house: BrokerProcess, certificates: Path) -> None:
    own = ("/mqtt", "broker.example.com", "mqtt", "Origin: https://broker.example.com")
    context = trusting(certificates / "ca.pem")
    with context.wrap_socket(
        socket.create_connection(("127.0.0.1", house.ports["secure"])), server_hostname="localhost"
    ) as secure:
        upgrade(secure, *own)
    with socket.create_connection(("127.0.0.1", house.ports["web"])) as sock, pytest.raises(PeerFailed, match="403"):
        upgrade(sock, *own)


def test_what_is_no_handshake_is_answered(house: BrokerProcess) -> None:
    for listener, path, headers, status in (
        ("app", "/mqtt", (), "404"),
        ("app", "/only", ("Origin: https://evil.example",), "403"),
        ("app", "/only", ("Origin: http://localhost",), "403"),
        ("web", "/mqtt", ("Origin: https://evil.example",), "403"),
        ("web", "/mqtt", ("Origin: http://evil.example",), "403"),
    ):
        with socket.create_connection(("127.0.0.1", house.ports[listener])) as sock, pytest.raises(
            PeerFailed, match=status
        ):
            upgrade(sock, path, "evil.example", "mqtt", *headers)
    with socket.create_connection(("127.0.0.1", house.ports["app"])) as sock:
        upgrade(sock, "/only", "broker.example.com", "mqtt", "Origin: https://app.example.com")
    with socket.create_connection(("127.0.0.1", house.ports["web"])) as sock:
        sock.sendall(b"\x16\x03\x01")
        answer = sock.recv(4096)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"this is TLS" in answer


def answer_of(sock: socket.socket) -> bytes:
    try:
        return sock.recv(4096)
    except ConnectionError:
        return b""


def test_slow_handshakes_hold_nobody_up(house: BrokerProcess, name: str) -> None:
    """Three thousand that never end: others come in and are served meanwhile, and each is told in the end."""
    data = request("/mqtt", "localhost", "mqtt")[0]
    slow: list[socket.socket] = []
    try:
        with WebRaw(house.ports["web"], name) as client:
            for at in range(HANDSHAKES):
                sock = socket.create_connection(("127.0.0.1", house.ports["hasty"]), PATIENCE_S)
                sock.send(data[: at % (len(data) - 1)] or b"G")
                slow.append(sock)
            client.subscribed(f"{name}/#")
            client.publish(f"{name}/x", b"hello")
            assert client.message().payload == b"hello"
        told = sum(answer_of(sock).startswith(b"HTTP/1.1 408 ") for sock in slow)
        assert told == HANDSHAKES
    finally:
        for sock in slow:
            sock.close()


def test_a_stranger_in_text_is_not_let_in(web: Web) -> None:
    with web("x", connect=False) as stranger:
        stranger.sock.sendall(frame(b'{"hello": 1}', TEXT))
        while data := received(stranger.sock, PATIENCE_S):
            stranger.frames.feed(data)
        assert stranger.closed is not None
        assert stranger.closed[0] == 1003


