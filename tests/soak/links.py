"""Worlds of AMQP 1.0 and JMS: links without credit, with little of it, with credit for what nobody reads, and consumers
that are stuck in their first message (see worlds.py)."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from selectors import EVENT_READ, DefaultSelector
from struct import pack

from bench.wires.packets import encode_publish
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until
from tests.soak.wires import flood
from tests.soak.worlds import Setting, beside, is_full
from tests.wire import openwire_frames

from headway.wire.amqp1.performatives import Attach, Begin, Flow, Open, Source, Target
from headway.wire.amqp1.replies import write

JMS = '[listeners.openwire]\nurl = "openwire://127.0.0.1:0"\n'
CLIENTS, LINKS = 40, 50
WINDOW = 1 << 30
MANY = 10_000
"""Credit that does not end."""
STUCK = 200
PREFETCH = 1000
ATTACH, TRANSFER = b"\0\x53\x12", b"\0\x53\x14"
FRAME_HEADER = 8


def client(broker: BrokerProcess, name: str, buffer: int | None = None) -> socket.socket:
    """A connection of AMQP 1.0 with one session."""
    sock = socket.socket()
    if buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    sock.connect(("127.0.0.1", broker.ports["amqp"]))
    begin = write(0, Begin(None, 0, WINDOW, WINDOW, 4095))
    sock.sendall(b"AMQP\0\1\0\0" + write(0, Open(name, None, 65_536, 255)) + begin)
    return sock


def receivers(sock: socket.socket, addresses: Iterable[str], credit: int) -> None:
    """Begins links with so much credit, and waits until all are there."""
    count = 0
    for handle, address in enumerate(addresses):
        source = Source(address)
        sock.sendall(write(0, Attach(f"r{handle}", handle, True, 0, source=source, target=Target())))
        if credit:
            sock.sendall(write(0, Flow(0, WINDOW, 0, WINDOW, handle, 0, credit)))
        count += 1
    heard = b""
    while heard.count(ATTACH) < count:
        came = sock.recv(1 << 16)
        assert came, "the broker ended the connection"
        heard += came


def topics(number: int) -> list[str]:
    return [f"topic://links/{number}/{part}" for part in range(LINKS)]


def everywhere(size: int) -> bytes:
    """A message to each of the topics."""
    return b"".join(encode_publish(f"links/{number}/{part}", bytes(size)) for number in range(CLIENTS)
                    for part in range(LINKS))  # fmt: skip


@contextmanager
def dry(broker: BrokerProcess) -> Iterator[None]:
    """2,000 links to topics that never give credit, and 40 to queues."""
    with ExitStack() as stack:
        for number in range(CLIENTS):
            sock = stack.enter_context(client(broker, f"dry {number}"))
            receivers(sock, [*topics(number), f"queue://dry.{number}"], 0)
        with beside(flood(broker, everywhere(500))):
            until(lambda: is_full(broker, "memory"), what="the memory is full")
            yield


@contextmanager
def tiny(broker: BrokerProcess) -> Iterator[None]:
    """2,000 links that give credit for one message at a time, which they read at once."""
    with ExitStack() as stack:
        socks = [stack.enter_context(client(broker, f"tiny {number}")) for number in range(CLIENTS)]
        for number, sock in enumerate(socks):
            receivers(sock, topics(number), 1)
        with beside(_reader(socks)), beside(flood(broker, everywhere(100))):
            yield


def _reader(socks: list[socket.socket]) -> Callable[[threading.Event], None]:
    """Returns what reads them all, and gives credit for one more message on each link that had one."""

    def read(over: threading.Event) -> None:
        counts: dict[tuple[int, int], int] = {}
        rest = dict.fromkeys(socks, b"")
        out: dict[socket.socket, deque[bytes]] = {sock: deque() for sock in socks}
        with DefaultSelector() as ready:
            for number, sock in enumerate(socks):
                sock.setblocking(False)
                ready.register(sock, EVENT_READ, number)
            while not over.is_set():
                for key, _ in ready.select(0.1):
                    sock = key.fileobj
                    assert isinstance(sock, socket.socket)
                    data = rest[sock] + sock.recv(1 << 16)
                    at = 0
                    while at + FRAME_HEADER <= len(data):
                        size = int.from_bytes(data[at : at + 4], "big")
                        if at + size > len(data):
                            break
                        handle = _handle(data[at + FRAME_HEADER : at + size])
                        if handle is not None:
                            count = counts[key.data, handle] = counts.get((key.data, handle), 0) + 1
                            out[sock].append(write(0, Flow(0, WINDOW, 0, WINDOW, handle, count, 1)))
                        at += size
                    rest[sock] = data[at:]
                for sock, flows in out.items():
                    if flows:
                        said = b"".join(flows)
                        flows.clear()
                        try:
                            taken = sock.send(said)
                        except BlockingIOError:
                            taken = 0
                        if taken < len(said):
                            flows.append(said[taken:])

    return read


def _handle(body: bytes) -> int | None:
    """Returns the handle of a transfer; None: the frame is none."""
    if not body.startswith(TRANSFER):
        return None
    at = 3 + (3 if body[3] == 0xC0 else 9)
    return {0x43: 0, 0x52: body[at + 1], 0x70: int.from_bytes(body[at + 1 : at + 5], "big")}[body[at]]


@contextmanager
def unread(broker: BrokerProcess) -> Iterator[None]:
    """Links with credit for ten thousand messages, whose clients do not read them."""
    with ExitStack() as stack:
        for number in range(CLIENTS):
            sock = stack.enter_context(client(broker, f"unread {number}", buffer=4096))
            receivers(sock, topics(number), MANY)
        with beside(flood(broker, everywhere(500))):
            until(lambda: is_full(broker, "memory"), what="the memory is full")
            yield


@contextmanager
def stuck(broker: BrokerProcess) -> Iterator[None]:
    """JMS: consumers that are in ``onMessage`` for ever. Their clients read on until the prefetch is full, and
    acknowledge nothing."""
    with ExitStack() as stack:
        socks = []
        no_beats = {"MaxInactivityDuration": b"\6" + pack(">q", 0)}
        for number in range(STUCK):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", broker.ports["openwire"])))
            sock.sendall(openwire_frames.wire_format(known=no_beats) + openwire_frames.connection_info(f"s{number}"))
            of = openwire_frames.topic("stuck") if number % 2 else openwire_frames.queue(f"stuck.{number % 20}")
            sock.sendall(openwire_frames.consumer_info(openwire_frames.consumer_id(), of, prefetch=PREFETCH))
            socks.append(sock)

        def read(over: threading.Event) -> None:
            with DefaultSelector() as ready:
                for sock in socks:
                    ready.register(sock, EVENT_READ)
                while not over.is_set():
                    for key, _ in ready.select(0.1):
                        sock = key.fileobj
                        assert isinstance(sock, socket.socket)
                        if not sock.recv(1 << 18):  # a policy may have cut it
                            ready.unregister(sock)

        def publish(over: threading.Event) -> None:
            with socket.create_connection(("127.0.0.1", broker.ports["openwire"])) as sock:
                sock.sendall(openwire_frames.wire_format(known=no_beats) + openwire_frames.connection_info("sends"))
                sock.settimeout(0.5)
                kinds = [openwire_frames.queue(f"stuck.{number}") for number in range(20)]
                said = b"".join(openwire_frames.message(24, of, bytes(1000)) for of in kinds)
                at = 0
                while not over.is_set():
                    with suppress(TimeoutError):
                        at = (at + sock.send(said[at:])) % len(said)

        with beside(read), beside(publish), beside(flood(broker, encode_publish("stuck", bytes(1000)) * 10)):
            until(lambda: is_full(broker, "memory"), what="the memory is full")
            yield


WORLDS = {
    "links dry": Setting(dry, "64MB", "256MB"),
    "links tiny": Setting(tiny, "64MB", "256MB"),
    "links unread": Setting(unread, "64MB", "256MB"),
    "jms stuck": Setting(stuck, "64MB", "256MB", JMS),
}
