"""Publishers of persistent messages that want each confirmed, in one process: with a window, or at a pace.

A publisher has a window: at most so many messages are sent and not confirmed. Whenever confirms come, all the room they
made is filled with one write. So brokers that confirm many at once are asked for many at once.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from bench.driver.message import Template
from bench.driver.subscribers import LOOK_S, percentiles
from bench.driver.worker import cpu_s, say
from bench.errors import PeerFailed
from bench.wires.durable import AmqpDurable, Confirms
from bench.wires.mqtt import PubAcks, PubComps
from bench.wires.wire import Levels

READ_BYTES = 256 * 1024
UNCONFIRMED_S = 60.0
"""The time for which the last confirms are waited for."""
TICK_S = 0.001


def flood(
    pipe: Connection, wire: AmqpDurable, port: int, queue: Levels, payload_bytes: int, number: int, window: int,
    seconds: float,
) -> dict[str, Any]:  # fmt: skip
    """Runs ``number`` publishers to one queue for so long, and says how that went; then waits for what is unconfirmed.
    The messages confirmed when the time was over are what counts."""
    publishers = [opened(wire, port, queue, payload_bytes, window) for _ in range(number)]
    say(pipe, "ready")
    pipe.recv()
    began, cpu = time.monotonic(), cpu_s()
    end = began + seconds
    round_ = _Round(publishers)
    for publisher in publishers:
        publisher.publish()
    while (now := time.monotonic()) < end:
        for publisher in round_.read(end - now):
            publisher.publish()
    say(pipe, {"seconds": now - began, "cpu_s": cpu_s() - cpu, "confirmed": round_.confirmed})
    round_.finish()
    return {"published": sum(publisher.published for publisher in publishers), "confirmed": round_.confirmed,
            "unconfirmed_s": time.monotonic() - now}  # fmt: skip


def steady(
    pipe: Connection, wire: AmqpDurable, port: int, queue: Levels, payload_bytes: int, rate_per_s: int, window: int
) -> dict[str, Any]:
    """Runs one publisher, so many a second, until it is told to stop. How long confirms took is counted from when a
    message was sent; a window that is full holds up the publisher."""
    publisher = opened(wire, port, queue, payload_bytes, window)
    say(pipe, "ready")
    pipe.recv()
    round_ = _Round([publisher])
    began = time.monotonic()
    while not pipe.poll():
        due = int((time.monotonic() - began) * rate_per_s) - publisher.published
        if due > 0:
            publisher.publish(due)
        round_.read(TICK_S)
    pipe.recv()
    seconds = time.monotonic() - began
    confirmed = round_.confirmed
    round_.finish()
    waits = percentiles(sorted(publisher.waits_ns))
    return {"published": publisher.published, "confirmed": round_.confirmed, "confirmed_per_s": confirmed / seconds,
            **{f"confirm_{key}": value for key, value in waits.items()}}  # fmt: skip


def fill(
    pipe: Connection, wire: AmqpDurable, port: int, queues: list[Levels], payload_bytes: int, each: int, window: int
) -> dict[str, Any]:
    """Publishes ``each`` messages to each queue in turn, a whole window to one; each message of a queue has its number,
    from 0 on. All are confirmed when it is done."""
    publishers = [opened(wire, port, queue, payload_bytes, window, numbered=True) for queue in queues]
    say(pipe, "ready")
    pipe.recv()
    began = time.monotonic()
    round_ = _Round(publishers)
    for publisher in publishers:
        publisher.publish(each)
    while any(publisher.published < each for publisher in publishers):
        for publisher in round_.read(LOOK_S):
            publisher.publish(each - publisher.published)
    round_.finish()
    return {"confirmed": round_.confirmed, "seconds": time.monotonic() - began}


def opened(
    wire: AmqpDurable, port: int, queue: Levels, payload_bytes: int, window: int, *, numbered: bool = False
) -> ConfirmedPublisher:
    """Connects, declares the queue and asks for confirms. ``numbered``: the payload begins with the message's number
    from 0 on, 8 bytes."""
    sock = wire.open(port, "publisher")
    wire.declare(sock, queue)
    wire.confirms(sock)
    sock.setblocking(False)
    template = Template(wire, sock, queue, payload_bytes)
    if numbered:
        return ConfirmedPublisher(sock, window, lambda first, count: template.stamped(range(first, first + count)))
    whole = memoryview(template.frame * window)
    return ConfirmedPublisher(sock, window, lambda first, count: whole[: count * template.size_bytes])


class ConfirmedPublisher:
    """A publisher with a window of unconfirmed messages. ``make``: the bytes of so many messages, given the number of
    the first, from 0 on. ``confirms`` counts what the broker answers. ``published`` counts what was given to be sent;
    ``waits_ns`` has, for each write, how long it was until all of it was confirmed."""

    def __init__(
        self, sock: socket.socket, window: int, make: Callable[[int, int], bytes | bytearray | memoryview],
        confirms: Confirms | PubAcks | PubComps | None = None,
    ) -> None:  # fmt: skip
        self.sock = sock
        self.confirms = confirms or Confirms()
        self.published = 0
        self.waits_ns: list[int] = []
        self._window, self._make = window, make
        self._rest = memoryview(b"")
        self._sent: deque[tuple[int, int]] = deque()

    def publish(self, most: int | None = None) -> None:
        """Publishes as many as there is room for in the window, and no more than ``most``."""
        room = self._window - (self.published - self.confirms.count)
        count = room if most is None else min(room, most)
        if count > 0 and self.finish():
            self._rest = memoryview(self._make(self.published, count))
            self.published += count
            self._sent.append((self.published, time.monotonic_ns()))
            self.finish()

    def finish(self) -> bool:
        """Sends on what is begun; returns whether all of that went."""
        try:
            while self._rest or self.confirms.answers:
                if not self._rest:
                    self._rest, self.confirms.answers = memoryview(self.confirms.answers), b""
                self._rest = self._rest[self.sock.send(self._rest) :]
        except BlockingIOError:
            return False
        return True

    def read(self) -> None:
        """Raises PeerFailed when the broker closed the connection or refused a message."""
        try:
            while True:
                data = self.sock.recv(READ_BYTES)
                if not data:
                    raise PeerFailed("closed the publisher's connection")
                self.confirms.take(data)
        except BlockingIOError:
            pass
        if self.confirms.answers:
            self.finish()
        now, count = time.monotonic_ns(), self.confirms.count
        while self._sent and self._sent[0][0] <= count:
            self.waits_ns.append(now - self._sent.popleft()[1])


class _Round:
    """All publishers of the process."""

    def __init__(self, publishers: list[ConfirmedPublisher]) -> None:
        self._publishers = {publisher.sock.fileno(): publisher for publisher in publishers}
        self._poll = select.epoll()
        for fd in self._publishers:
            self._poll.register(fd, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)

    @property
    def confirmed(self) -> int:
        return sum(publisher.confirms.count for publisher in self._publishers.values())

    def read(self, within_s: float) -> list[ConfirmedPublisher]:
        """Reads for so long; returns the publishers that were told something, or can be written to."""
        told = [self._publishers[fd] for fd, _ in self._poll.poll(max(0.0, within_s))]
        for publisher in told:
            publisher.finish()
            publisher.read()
        return told

    def finish(self) -> None:
        """Waits until everything is confirmed. Raises PeerFailed where the broker does not confirm."""
        until = time.monotonic() + UNCONFIRMED_S
        while any(publisher.confirms.count < publisher.published for publisher in self._publishers.values()):
            if time.monotonic() > until:
                raise PeerFailed(f"{self.confirmed} were confirmed and no more within {UNCONFIRMED_S:g} s")
            self.read(LOOK_S)
