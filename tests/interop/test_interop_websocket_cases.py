"""What a WebSocket server has to take, to answer and to refuse, by the numbers of the Autobahn test suite's cases, over
real sockets with and without TLS. What a case sends as text is sent as binary messages of MQTT here, because text is
refused (1.1, 6); what comes back is not an echo but what a subscriber gets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from bench.wires.packets import encode_publish
from bench.wires.websocket import BINARY, CLOSE, PING, PONG, frame
from tests.certificates import trusting
from tests.interop.conftest import BrokerFactory
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.test_interop_websocket import SECURE, Web
from tests.interop.waiting import until
from tests.interop.web import DeflatedRaw, WebRaw
from tests.server.test_websocket_deflate import message as compressed

CONTINUATION = 0
NO_CODE = 0
"""A Close without a code is answered with one without."""
TOPIC = "case"
SMALL = encode_publish(TOPIC, b"fragment1fragment2")


class Case(NamedTuple):
    name: str
    data: bytes
    payload: bytes | None = None
    """What the subscriber gets."""
    pongs: tuple[bytes, ...] = ()
    code: int | None = None
    """Of the Close that the broker answers with."""
    chop: int = 0
    """So many bytes are sent at a time; 0: all."""


def packet(size: int) -> bytes:
    """A packet of so many bytes."""
    for spare in range(9, 14):
        found = encode_publish(TOPIC, b"*" * (size - spare))
        if len(found) == size:
            return found
    raise AssertionError(size)


def body(size: int) -> bytes:
    found = packet(size)
    return found[found.index(b"*") :]


def cut(data: bytes, size: int, between: bytes = b"") -> bytes:
    """One message in fragments of so many bytes."""
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    last = len(parts) - 1
    frames = (frame(one, CONTINUATION if n else BINARY, final=n == last) for n, one in enumerate(parts))
    return between.join(frames)


def closing(code: int, reason: bytes = b"") -> bytes:
    return frame(code.to_bytes(2, "big") + reason, CLOSE)


WHOLE = b"fragment1fragment2"
PINGED = frame(b"ping payload", PING)
HALF = cut(SMALL, len(SMALL) // 2 + 1)
MIXED = cut(SMALL, len(SMALL) // 2 + 1, PINGED)
MANY = cut(SMALL, 5, PINGED)
SIZES = [125, 126, 127, 128, 65_535, 65_536]
FIRST = frame(SMALL[:5], final=False)
CASES = [
    Case("1.2.1", frame(b"") + frame(SMALL), WHOLE),
    *[Case(f"1.2.{n}", frame(packet(size)), body(size)) for n, size in enumerate(SIZES, 2)],
    Case("1.2.8", frame(packet(65_536)), body(65_536), chop=997),
    Case("2.1", frame(b"", PING), pongs=(b"",)),
    Case("2.2", frame(b"Hello, world!", PING), pongs=(b"Hello, world!",)),
    Case("2.3", frame(b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff", PING), pongs=(b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff",)),
    Case("2.4", frame(b"\xfe" * 125, PING), pongs=(b"\xfe" * 125,)),
    Case("2.5", frame(b"\xfe" * 126, PING), code=1002),
    Case("2.6", frame(b"\xfe" * 125, PING), pongs=(b"\xfe" * 125,), chop=1),
    Case("2.7", frame(b"", PONG) + frame(SMALL), WHOLE),
    Case("2.8", frame(b"unsolicited", PONG) + frame(SMALL), WHOLE),
    Case("2.9", frame(b"unsolicited", PONG) + PINGED, pongs=(b"ping payload",)),
    Case("5.1", frame(b"x", PING, final=False), code=1002),
    Case("5.2", frame(b"x", PONG, final=False), code=1002),
    *[Case(f"5.{n}", HALF, WHOLE, chop=chop) for n, chop in ((3, 0), (4, 12), (5, 1))],
    *[Case(f"5.{n}", MIXED, WHOLE, (b"ping payload",), chop=chop) for n, chop in ((6, 0), (7, 12), (8, 1))],
    *[Case(f"5.{9 + n}", frame(b"x", CONTINUATION) + frame(SMALL), code=1002, chop=n * n) for n in range(3)],
    *[Case(f"5.{12 + n}", frame(b"x", CONTINUATION, final=False) + frame(SMALL), code=1002, chop=n * n)
      for n in range(3)],
    Case("5.15", HALF + frame(b"x", CONTINUATION, final=False) + frame(b"y"), WHOLE, code=1002),
    Case("5.16", (frame(b"x", CONTINUATION, final=False) + HALF) * 2, code=1002),
    Case("5.17", (frame(b"x", CONTINUATION) + HALF) * 2, code=1002),
    Case("5.18", FIRST + frame(SMALL), code=1002),
    Case("5.19", MANY, WHOLE, (b"ping payload",)),
    Case("5.20", MANY, WHOLE, (b"ping payload",), chop=11),
    Case("7.1.1", frame(SMALL) + closing(1000), WHOLE, code=1000),
    Case("7.1.2", closing(1000) + frame(b"", CLOSE), code=1000),
    Case("7.1.3", closing(1000) + frame(b"", PING), code=1000),
    Case("7.1.4", closing(1000) + frame(SMALL), code=1000),
    Case("7.1.5", FIRST + closing(1000) + frame(SMALL[5:], CONTINUATION), code=1000),
    Case("7.1.6", frame(packet(262_144)) + closing(1000) + frame(b"", PING), body(262_144), code=1000),
    Case("7.3.1", frame(b"", CLOSE), code=NO_CODE),
    Case("7.3.2", frame(b"a", CLOSE), code=1002),
    Case("7.3.3", closing(1000), code=1000),
    Case("7.3.4", closing(1000, b"Hello World!"), code=1000),
    Case("7.3.5", closing(1000, b"*" * 123), code=1000),
    Case("7.3.6", frame(b"\x03\xe8" + b"*" * 124, CLOSE), code=1002),
    Case("7.5.1", closing(1000, b"\xce\xba\xe1\xbd\xb9\xed\xa0\x80"), code=1007),
    *[Case(f"7.7.{n}", closing(code), code=code) for n, code in enumerate(
        (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999), 1)],
    *[Case(f"7.9.{n}", closing(code), code=1002) for n, code in enumerate(
        (0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999), 1)],
    Case("7.13.1", closing(5000), code=1002),
    Case("7.13.2", frame((65_536).to_bytes(4, "big"), CLOSE), code=1002),
    *[Case(f"9.2.{n}", frame(packet(size << 10)), body(size << 10)) for n, size in enumerate((64, 256, 900), 1)],
    *[Case(f"9.4.{n}", cut(packet(1_000_000), 64 << 2 * (n - 1)), body(1_000_000)) for n in range(1, 8)],
    *[Case(f"9.6.{n}", frame(packet(100_000)), body(100_000), chop=64 << (n - 1)) for n in range(1, 7)],
    Case("10.1.1", cut(packet(65_536), 1300), body(65_536)),
]  # fmt: skip


@pytest.fixture(scope="module")
def house(start: BrokerFactory, certificates: Path) -> BrokerProcess:
    web = '[listeners.web]\nurl = "ws://127.0.0.1:0"\ncompression = true\n'
    return start(LISTENER + web + SECURE.format(folder=certificates))


@pytest.fixture(params=["ws", "wss"])
def web(house: BrokerProcess, certificates: Path, request: pytest.FixtureRequest) -> Web:
    if request.param == "ws":
        return partial(WebRaw, house.ports["web"])
    return partial(WebRaw, house.ports["secure"], tls=trusting(certificates / "ca.pem"))


def sent(client: WebRaw, data: bytes, chop: int) -> Iterator[None]:
    size = chop or len(data)
    for at in range(0, len(data), size):
        client.sock.sendall(data[at : at + size])
        yield


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_case(web: Web, name: str, case: Case) -> None:
    with web(name) as client, web(f"{name}-reader") as reader:
        reader.subscribed(TOPIC)
        for _ in sent(client, case.data, case.chop):
            pass
        if case.payload is not None:
            assert reader.message().payload == case.payload
        if case.code is None:
            client.sock.sendall(frame(b"\xc0\0"))
        until(lambda: client.read(1.0) and (client.closed or client.inbox), what="the answer")
        if case.code is not None:
            client.wait_end()
            assert client.closed is not None
            assert client.closed[0] == case.code
        pongs = [payload for opcode, payload in client.frames.control if opcode == PONG]
        assert set(pongs) == set(case.pongs)
        assert len(pongs) >= len(case.pongs), "of several that came at once, the last is answered (RFC 6455, 5.5.3)"
        reader.so_far()


def test_2_10_and_2_11_of_ten_pings_the_last_is_answered_at_least(web: Web, name: str) -> None:
    for chop in (0, 1):
        with web(name) as client:
            pings = [b"payload-%d" % number for number in range(10)]
            for _ in sent(client, b"".join(frame(one, PING) for one in pings), chop):
                pass
            until(lambda: client.read(1.0) and (PONG, pings[-1]) in client.frames.control, what="the pong")  # noqa: B023
            got = [payload for _, payload in client.frames.control]
            assert got == sorted(set(got)), "in order, each once"


@pytest.mark.parametrize("size", [16, 64, 256, 1024, 4096, 8192, 16_384, 32_768, 65_536, 131_072])
def test_9_8_and_12_round_trips_in_clear_and_compressed(house: BrokerProcess, name: str, size: int) -> None:
    """12: compressed both ways; of payloads of random letters, JSON-like text, and what cannot be compressed."""
    rounds = 50
    with DeflatedRaw(house.ports["web"], name) as client:
        client.subscribed(f"{TOPIC}/{name}")
        for number in range(rounds):
            text = (b'{"number": %d, "text": "abc"}' % number * (size // 20 + 1))[:size]
            data = encode_publish(f"{TOPIC}/{name}", text)
            client.sock.sendall(compressed(data) if number % 2 else frame(data))
            assert client.message().payload == text
        if size >= 256:
            assert client.frames.compressed > 0
