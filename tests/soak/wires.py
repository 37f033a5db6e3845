"""Worlds of STOMP: readers that stop, acknowledgements that never come, beats that end, frames that are never whole
(see worlds.py)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from bench.wires.packets import encode_publish
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until
from tests.soak.crowd import Crowd
from tests.soak.worlds import Setting, beside, is_full, mqtt

STOMP = '[listeners.stomp]\nurl = "stomp://127.0.0.1:0"\n'
READERS = 300
QUEUES = 100
BEATING = 500
BEAT_MS = 1000
HALF = 1000
CROWD = 3000


def stomp(broker: BrokerProcess, beat: str = "0,0", buffer: int | None = None) -> socket.socket:
    sock = socket.socket()
    if buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    sock.connect(("127.0.0.1", broker.ports["stomp"]))
    sock.sendall(f"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:{beat}\n\n\0".encode())
    assert sock.recv(4096).startswith(b"CONNECTED")
    return sock


def ask(sock: socket.socket, head: str, body: bytes = b"") -> None:
    """Says something, and waits until it is done."""
    sock.sendall(f"{head}\nreceipt:done\n\n".encode() + body + b"\0")
    heard = b""
    while b"RECEIPT" not in heard:
        came = sock.recv(4096)
        assert came, f"the broker ended the connection: {heard!r}"
        heard += came


def flood(broker: BrokerProcess, frames: bytes) -> Callable[[threading.Event], None]:
    """Returns what publishes these frames of MQTT over and over, as fast as the broker takes them."""

    def publish(over: threading.Event) -> None:
        sock = mqtt(broker, "publisher")
        sock.settimeout(0.5)
        at = 0
        while not over.is_set():
            with suppress(TimeoutError):
                at = (at + sock.send(frames[at:])) % len(frames)

    return publish


@contextmanager
def stopped(broker: BrokerProcess) -> Iterator[None]:
    """Readers that stop reading, of two topics, with a selector or without."""
    with ExitStack() as stack:
        for number in range(READERS):
            sock = stack.enter_context(stomp(broker, buffer=4096))
            more = f"\nselector:n > {number}" if number % 3 == 0 else ""
            ask(sock, f"SUBSCRIBE\nid:0\ndestination:/topic/flood.{number % 2}{more}")
        frames = b"".join(encode_publish(f"flood/{at % 2}", bytes(1000)) for at in range(10))
        with beside(flood(broker, frames)):
            until(lambda: is_full(broker, "memory"), what="the memory is full")
            yield


@contextmanager
def unsettled(broker: BrokerProcess) -> Iterator[None]:
    """Consumers of queues and topics that acknowledge nothing, at the pool's disk limit, and a publisher."""
    with ExitStack() as stack:
        for number in range(QUEUES):
            sock = stack.enter_context(stomp(broker, buffer=4096))
            ask(sock, f"SUBSCRIBE\nid:0\ndestination:/queue/jobs.{number}\nack:client-individual\nprefetch-count:100")
            ask(sock, f"SUBSCRIBE\nid:1\ndestination:/topic/jobs.{number}\nack:client\nprefetch-count:100")
        frames = b"".join(encode_publish(f"jobs/{number}", bytes(2000)) for number in range(QUEUES))

        def publish(over: threading.Event) -> None:
            body = bytes(2000)
            with stomp(broker) as sock:
                sock.settimeout(0.5)
                said = b"".join(b"SEND\ndestination:/queue/jobs.%d\ncontent-length:2000\n\n%s\0" % (number, body)
                                for number in range(QUEUES))  # fmt: skip
                at = 0
                while not over.is_set():
                    with suppress(TimeoutError):
                        at = (at + sock.send(said[at:])) % len(said)

        with beside(publish), beside(flood(broker, frames)):
            until(lambda: is_full(broker, "disk"), what="the disk is full")
            yield


@contextmanager
def beats(broker: BrokerProcess) -> Iterator[None]:
    """Clients whose heart-beats stop: all are ended in the same moment, and the next come."""

    def come(over: threading.Event) -> None:
        ended = 0
        while not over.is_set():
            socks = [stomp(broker, f"{BEAT_MS},{BEAT_MS}") for _ in range(BEATING)]
            for number, sock in enumerate(socks):
                ask(sock, f"SUBSCRIBE\nid:0\ndestination:/topic/beats.{number % 10}")
            for sock in socks:
                sock.settimeout(10)
                with suppress(ConnectionError):
                    while sock.recv(1 << 16) and not over.is_set():
                        pass
                sock.close()
            ended += 1
        assert ended, "nobody was ended"

    with beside(come):
        yield


@contextmanager
def half(broker: BrokerProcess) -> Iterator[None]:
    """Heads without an end, and bodies that never end, of known sizes and of unknown ones; each goes on a little."""
    beginnings = (
        b"SEND\ndestination:/queue/half\nlong:" + b"x" * 50_000,
        b"SEND\ndestination:/queue/half\ncontent-length:1000000\n\n" + b"x" * 200_000,
        b"SEND\ndestination:/queue/half\n\n" + b"x" * 200_000,
    )
    socks = [stomp(broker) for _ in range(HALF)]

    def say(over: threading.Event) -> None:
        left = [bytearray(beginnings[number % 3]) for number in range(HALF)]
        for sock in socks:
            sock.setblocking(False)
        while not over.is_set():
            for sock, rest in zip(socks, left, strict=True):
                if over.is_set():
                    return
                with suppress(OSError):  # the broker may have ended it
                    del rest[: sock.send(rest or b"x")]
            over.wait(0.05)

    with beside(say):
        yield
    for sock in socks:
        sock.close()


@contextmanager
def vanish(broker: BrokerProcess) -> Iterator[None]:
    """3,000 clients whose process is killed, again and again."""

    def come(over: threading.Event) -> None:
        vanished = 0
        while not over.is_set():
            with Crowd(broker.ports["stomp"], CROWD) as crowd:
                crowd.wait()
            vanished += 1
        assert vanished, "nobody has vanished"

    with beside(come):
        yield


WORLDS = {
    "stomp stopped": Setting(stopped, "64MB", "256MB", STOMP),
    "stomp unsettled": Setting(unsettled, "64MB", "128MB", STOMP),
    "stomp beats": Setting(beats, "64MB", "256MB", STOMP),
    "stomp vanish": Setting(vanish, "64MB", "256MB", STOMP),
    "stomp half": Setting(half, "64MB", "256MB", STOMP),
}
