"""A world of TLS handshakes that do not end, and of some that do (see worlds.py)."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bench.wires.packets import connect
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until
from tests.soak.worlds import Setting, beside

SLOW = 3000


@contextmanager
def slow_handshakes(broker: BrokerProcess) -> Iterator[None]:
    """3,000 handshakes under way at the same time: a third has said one byte, a third says one now and then, and a
    third has had the broker's answer and says no more. Beside them others come in, one after the other."""
    port = broker.ports["mqtts"]
    context = ssl.create_default_context(cafile=broker.folder / "certs" / "ca.pem")
    hello = _hello(context)
    slow = []
    for number in range(SLOW):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall((hello[:1], hello[:50], hello)[number % 3])
        slow.append(sock)
    until(lambda: _waiting(broker) == SLOW, what="all handshakes are under way")

    def go_on(over: threading.Event) -> None:
        for at in range(50, len(hello) - 1):
            for sock in slow[1::3]:
                if over.is_set():
                    return
                sock.send(hello[at : at + 1])
            over.wait(0.01)

    def come(over: threading.Event) -> None:
        number = 0
        while not over.is_set():
            plain = socket.create_connection(("127.0.0.1", port))
            with context.wrap_socket(plain, server_hostname="localhost") as sock:
                sock.sendall(connect(f"newcomer {number}", 4))
                assert sock.recv(4) == b"\x20\x02\0\0"
            number += 1
        assert number, "somebody has come in"

    with beside(go_on), beside(come):
        yield
    assert _waiting(broker) >= SLOW, "they were under way to the end"
    for sock in slow:
        sock.close()


def _hello(context: ssl.SSLContext) -> bytes:
    """Returns the first words of a client."""
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def _waiting(broker: BrokerProcess) -> int:
    page = broker.call("/metrics")[1].decode()
    return next(int(float(line.split()[1])) for line in page.splitlines()
                if line.startswith("headway_tls_handshakes_waiting "))  # fmt: skip


WORLDS = {"slow handshakes": Setting(slow_handshakes, "64MB", "256MB", tls=True)}
