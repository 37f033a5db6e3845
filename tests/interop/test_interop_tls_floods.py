"""Floods of handshakes, and clients that die in the middle of one: nothing is left of them, and others come in."""

from __future__ import annotations

import re
import signal
import socket
import ssl
import struct
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.tls_house import MINIMAL, House, ask
from tests.interop.waiting import PATIENCE_S, until

pytest_plugins = ("tests.interop.tls_fixtures",)
MANY = 300
"""More than the admin API, or the listener, lets be under way."""
PORTS = ("admin", "mqtt")


def with_more(folder: Path, line: str) -> str:
    """With one more setting of the listener."""
    return MINIMAL.format(folder=folder).replace("[listeners.mqtt.tls]", f"{line}\n[listeners.mqtt.tls]", 1)


@pytest.fixture(scope="module")
def flooded(start: BrokerFactory, tls_folder: Path) -> House:
    config = with_more(tls_folder, "handshakes_max = 50")
    return House(start(config, server={"admin": "https://127.0.0.1:0"}), tls_folder, tls_folder / "ca.pem")


def hello(house: House) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        house.context().wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def cut(sock: socket.socket) -> None:
    """As a client that dies: with a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def nothing(sock: socket.socket) -> None: ...


WAYS: dict[str, tuple[Callable[[bytes], bytes], Callable[[socket.socket], None]]] = {
    "silent": (lambda _: b"", nothing),
    "a few bytes": (lambda said: said[:3], nothing),
    "dies in its hello": (lambda said: said[: len(said) // 2], cut),
    "dies before the answer": (lambda said: said, cut),
    "leaves before the answer": (lambda said: said, nothing),
    "a hello twice": (lambda said: said * 2, cut),
}


def counts(house: House) -> tuple[int, int]:
    """Handshakes under way, and those that are over."""
    url = house.broker.admin.replace("127.0.0.1", "localhost") + "/metrics"
    with urllib.request.urlopen(url, timeout=PATIENCE_S, context=house.context()) as answer:
        page = answer.read().decode()
    waiting = re.search(r"^headway_tls_handshakes_waiting (\S+)$", page, re.MULTILINE)
    over = re.findall(r"^headway_tls_handshakes_total\{.*\} (\S+)$", page, re.MULTILINE)
    assert waiting is not None
    return int(float(waiting[1])), sum(int(float(one)) for one in over)


def files_of(house: House) -> int:
    return len(list(Path(f"/proc/{house.broker.pid}/fd").iterdir()))


@pytest.mark.parametrize("listener", PORTS)
def test_a_flood_of_handshakes_that_lead_nowhere_leaves_nothing(flooded: House, listener: str) -> None:
    port = int(flooded.broker.admin.rpartition(":")[2]) if listener == "admin" else flooded.port()
    said, (_, before), files, asked = hello(flooded), counts(flooded), files_of(flooded), 0

    def is_let_in(come: Callable[[], object] = lambda: ask(flooded, "/v1/broker")) -> bool:
        """Whoever comes while the threads have a queue of handshakes may be refused."""
        nonlocal asked
        asked += 1
        try:
            come()
        except (OSError, AssertionError):
            return False
        return True

    def over_mqtt() -> None:
        with flooded.raw("healthy"):
            pass

    for begin, end in WAYS.values():
        socks = [socket.create_connection(("127.0.0.1", port)) for _ in range(MANY)]
        for sock in socks:
            with suppress(OSError):  # the slowest are cut for those who came later
                sock.sendall(begin(said))
        until(is_let_in, what="a healthy client of the admin API")
        until(lambda: is_let_in(over_mqtt), what="a healthy client of MQTT")
        for sock in socks:
            end(sock)
            sock.close()

    def all_over() -> bool:
        nonlocal asked
        asked += 1
        waiting, over = counts(flooded)
        return (waiting, over - before) == (0, len(WAYS) * MANY + asked)

    until(all_over, what="each handshake is over, and counted once")
    until(lambda: files_of(flooded) <= files + 2, what="no socket is left")


def test_a_handshake_that_takes_too_long_counts_as_failed(start: BrokerFactory, tls_folder: Path) -> None:
    config = with_more(tls_folder, 'connect_timeout = "300ms"')
    house = House(start(config, server={"admin": "https://127.0.0.1:0"}), tls_folder, tls_folder / "ca.pem")
    _, before = counts(house)
    with socket.create_connection(("127.0.0.1", house.port())) as sock:
        sock.settimeout(PATIENCE_S)
        with suppress(ConnectionResetError):
            assert sock.recv(1) == b""
    assert counts(house) == (0, before + 2)


@pytest.mark.parametrize("accepted", [True, False])
def test_a_client_that_dies_right_behind_some_bytes_is_noticed(
    start: BrokerFactory, tls_folder: Path, accepted: bool
) -> None:
    """The loop tells only once of a reset, and then there are bytes to be read before it."""
    house = House(start(with_more(tls_folder, 'connect_timeout = "10m"'), server={"admin": "https://127.0.0.1:0"}),
                  tls_folder, tls_folder / "ca.pem")  # fmt: skip
    said, files = hello(house), files_of(house)
    if not accepted:
        house.broker.signal(signal.SIGSTOP)
    sock = socket.create_connection(("127.0.0.1", house.port()))
    if accepted:
        until(lambda: counts(house)[0] == 1, what="it is accepted")
        house.broker.signal(signal.SIGSTOP)
    sock.sendall(said[:100])
    cut(sock)
    sock.close()
    house.broker.signal(signal.SIGCONT)
    house.says("the connection was lost")
    until(lambda: counts(house)[0] == 0 and files_of(house) <= files, what="nothing is left")
