"""Clients behind a proxy: their own address is in the log and on record, and nobody can lie about it."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.wires.packets import encode_connect
from bench.wires.websocket import frame, upgrade
from tests.certificates import trusting
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
[listeners.secure]
url = "mqtts://127.0.0.1:0"
proxy_protocol = true
[listeners.secureweb]
url = "wss://127.0.0.1:0"
proxy_protocol = true
trusted_proxies = ["127.0.0.1", "10.0.0.0/8"]
"""
TLS = """
[listeners.{name}.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
"""


@pytest.fixture(scope="module")
def house(start: BrokerFactory, certificates: Path) -> Iterator[BrokerProcess]:
    process = start(CONFIG + "".join(TLS.format(name=name, folder=certificates) for name in ("secure", "secureweb")))
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


# -- in front of TLS --------------------------------------------------------------------------------------------------


def shaken(sock: socket.socket, certificates: Path) -> ssl.SSLSocket:
    return trusting(certificates / "ca.pem").wrap_socket(sock, server_hostname="localhost")


@pytest.mark.parametrize(("header", "address"), [GOOD[0], GOOD[2], GOOD[6]], ids=["v1", "unknown", "v2"])
@pytest.mark.parametrize("how", ["apart", "joined", "piecewise"])
def test_the_header_is_in_clear_and_tls_follows(
    house: BrokerProcess, certificates: Path, name: str, header: bytes, address: str | None, how: str
) -> None:
    """``joined``: the header and the first of the handshake come in one piece."""
    with dialled(house, "secure") as plain:
        own = "{}:{}".format(*plain.getsockname())
        for part in [header[i : i + 1] for i in range(len(header))] if how == "piecewise" else [header]:
            plain.send(part, socket.MSG_MORE if how == "joined" else 0)
        with shaken(plain, certificates) as sock:
            sock.sendall(connect(name))
            assert sock.recv(4) == b"\x20\x02\x00\x00"
    assert address_of(house, name) == (address or own)


def test_a_proxy_before_tls_and_one_within(house: BrokerProcess, certificates: Path, name: str) -> None:
    """The first speaks the PROXY protocol, the second has X-Forwarded-For."""
    with dialled(house, "secureweb") as plain:
        plain.sendall(b"PROXY TCP4 10.0.0.9 10.0.0.1 51000 1883\r\n")
        with shaken(plain, certificates) as sock:
            upgrade(sock, "/mqtt", "localhost", "mqtt", "X-Forwarded-For: 203.0.113.9")
            sock.sendall(frame(connect(name)))
            assert sock.recv(6) == b"\x82\x04\x20\x02\x00\x00"
    assert address_of(house, name) == "203.0.113.9:0"


def test_tls_without_the_header_and_the_header_without_tls(house: BrokerProcess, certificates: Path) -> None:
    with dialled(house, "secure") as plain, pytest.raises(OSError):
        shaken(plain, certificates)
    until(lambda: "does not begin with a header of the PROXY protocol" in house.log.read_text())
    with dialled(house, "secure") as plain:
        plain.sendall(GOOD[0][0] + connect("in clear"))
        assert received(plain, PATIENCE_S) == b""
    lines = until(lambda: [one for one in house.log.read_text().splitlines() if "did not begin with TLS" in one])
    assert "192.0.2.7:51000" in lines[0], "whom the proxy named is to blame"
