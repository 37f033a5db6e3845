"""Clients behind a proxy: their own address is in the log and on record, and nobody can lie about it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from bench.wires.packets import encode_connect
from bench.wires.websocket import frame, upgrade
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.waiting import PATIENCE_S, received, until
from tests.server.test_proxied import BAD, GOOD

from headway.wire.mqtt.packets import Connect

CONFIG = """
[listeners.behind]
url = "mqtt://127.0.0.1:0"
proxy_protocol = true
connect_timeout = "500ms"
[listeners.distrusts]
url = "mqtt://127.0.0.1:0"
proxy_protocol = true
trusted_proxies = ["192.0.2.0/24"]
[listeners.web]
url = "ws://127.0.0.1:0"
trusted_proxies = ["127.0.0.1"]
[listeners.plainweb]
url = "ws://127.0.0.1:0"
[listeners.both]
url = "ws://127.0.0.1:0"
proxy_protocol = true
trusted_proxies = ["127.0.0.1", "10.0.0.0/8"]
"""


@pytest.fixture(scope="module")
def house(start: BrokerFactory) -> Iterator[BrokerProcess]:
    process = start(CONFIG)
    yield process
    process.stop()


def connect(client: str) -> bytes:
    return encode_connect(Connect(4, client, clean_start=True))


def dialled(house: BrokerProcess, listener: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", house.ports[listener]), PATIENCE_S)


def address_of(house: BrokerProcess, client: str) -> str:
    """From the line of the log that tells its end."""
    line = until(lambda: next((one for one in house.log.read_text().splitlines() if f" {client} (" in one), None))
    assert line is not None
    return line.partition(f" {client} (")[2].partition(")")[0].partition(", ")[2]


@pytest.mark.parametrize(("header", "address"), GOOD)
@pytest.mark.parametrize("piecewise", [False, True])
def test_the_address_is_the_clients(
    house: BrokerProcess, name: str, header: bytes, address: str | None, piecewise: bool
) -> None:
    with dialled(house, "behind") as sock:
        data = header + connect(name)
        for part in ([data[i : i + 1] for i in range(len(data))] if piecewise else [data]):
            sock.sendall(part)
        assert sock.recv(4) == b"\x20\x02\x00\x00"
        own = "{}:{}".format(*sock.getsockname())
    assert address_of(house, name) == (address or own)


@pytest.mark.parametrize("data", BAD)
def test_a_bad_header_ends_the_connection(house: BrokerProcess, data: bytes) -> None:
    with dialled(house, "behind") as sock:
        sock.sendall(data + connect("liar"))
        assert received(sock, PATIENCE_S) == b""


def test_a_header_that_does_not_come_whole_ends_the_connection(house: BrokerProcess) -> None:
    with dialled(house, "behind") as sock:
        sock.sendall(GOOD[0][0][:20])
        assert received(sock, PATIENCE_S) == b""
    with dialled(house, "behind") as sock:
        sock.sendall(GOOD[0][0][:20])
        sock.shutdown(socket.SHUT_WR)
        assert received(sock, PATIENCE_S) == b""
    assert "the proxy left before it had said whose connection it was" in house.log.read_text()


def test_who_is_not_trusted_is_not_listened_to(house: BrokerProcess) -> None:
    with dialled(house, "distrusts") as sock:
        with contextlib.suppress(OSError):
            sock.sendall(GOOD[0][0] + connect("liar"))
        assert received(sock, PATIENCE_S) == b""
    assert "listeners.distrusts takes the PROXY protocol from trusted_proxies only" in house.log.read_text()


@pytest.mark.parametrize(
    ("listener", "first", "header", "address"),
    [
        ("web", b"", "203.0.113.9", "203.0.113.9:0"),
        ("web", b"", "1.2.3.4, 203.0.113.9", "203.0.113.9:0"),
        ("plainweb", b"", "203.0.113.9", None),
        ("both", GOOD[0][0], "203.0.113.9", "192.0.2.7:51000"),
        ("both", b"PROXY TCP4 10.0.0.9 10.0.0.1 51000 1883\r\n", "203.0.113.9", "203.0.113.9:0"),
    ],
)
def test_forwarded_for(
    house: BrokerProcess, name: str, listener: str, first: bytes, header: str, address: str | None
) -> None:
    with dialled(house, listener) as sock:
        sock.sendall(first)
        upgrade(sock, "/mqtt", "localhost", "mqtt", f"X-Forwarded-For: {header}")
        sock.sendall(frame(connect(name)))
        assert sock.recv(6) == b"\x82\x04\x20\x02\x00\x00"
        own = "{}:{}".format(*sock.getsockname())
    assert address_of(house, name) == (address or own)
