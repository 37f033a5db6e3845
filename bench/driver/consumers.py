"""The clients of one queue: consumers that acknowledge, and the publisher that keeps step with them, in one process.
Or the subscribers of one topic at QoS 1 or 2, each of which gets all messages.

Each delivery is acknowledged on its own, and what one read brought in one write, as pika's callback connections do. The
publisher is ahead of the consumers by ``AHEAD`` messages at most: the queue neither grows, which would measure
something else, nor runs dry. A queue's publisher has no confirms; a topic's has at most ``WINDOW`` messages
unacknowledged. Nothing is parsed: deliveries are of one size and, in a queue, numbered from 1 on.
"""

from __future__ import annotations

import select
import socket
import time
from multiprocessing.connection import Connection
from typing import Any

from bench.driver.confirmed import ConfirmedPublisher
from bench.driver.message import Template
from bench.driver.publisher import opened as publisher_opened
from bench.driver.subscribers import BUFFER_BYTES, DRAIN_S, LOOK_S, QUIET_S, opened
from bench.driver.worker import cpu_s, say
from bench.wires.mqtt import MqttAcknowledged, MqttExactlyOnce, PubAcks, PubComps
from bench.wires.wire import Frame, Levels, NamedQueueWire, QueueWire

AHEAD, STEP = 2_000, 500
"""The most messages that are published and not yet delivered; and how many are published at once."""
WINDOW = 100
"""The most messages of a topic's publisher that the broker has not acknowledged."""


def work(
    pipe: Connection, wire: QueueWire | NamedQueueWire, port: int, queue: Levels, number: int, payload_bytes: int,
    frame: Frame, seconds: float, pause_s: float,
) -> dict[str, Any]:  # fmt: skip
    """Runs ``number`` consumers that rest for ``pause_s`` before each look, and a publisher for so long; says how that
    went, and then has the rest of the queue delivered."""
    copies = number if isinstance(wire, MqttAcknowledged) else 1
    socks = opened(wire, port, [queue], number)
    sock = publisher_opened(wire, port)
    sock.setblocking(False)
    template = Template(wire, sock, queue, payload_bytes)
    publisher: QueuePublisher | TopicPublisher
    if isinstance(wire, MqttAcknowledged):
        publisher = TopicPublisher(sock, template, PubComps() if isinstance(wire, MqttExactlyOnce) else PubAcks())
    else:
        publisher = QueuePublisher(sock, template)
    consumers = Consumers(wire, socks, queue, frame)
    poll = select.epoll()
    for fd in socks:
        poll.register(fd, select.EPOLLIN)
    poll.register(sock, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
    say(pipe, "ready")
    pipe.recv()
    began, cpu = time.monotonic(), cpu_s()
    end = began + seconds
    while (now := time.monotonic()) < end:
        publisher.publish(consumers.delivered // copies)
        if pause_s:
            time.sleep(pause_s)
        for fd in consumers.read(poll.poll(min(LOOK_S, end - now))):
            poll.unregister(fd)
    said = {"seconds": now - began, "cpu_s": cpu_s() - cpu}
    said |= {"published_at_stop": publisher.published, "delivered_at_stop": consumers.delivered}
    say(pipe, said)
    stopped = last = now
    events: list[tuple[int, int]] = []
    while not (complete := publisher.finish() and consumers.delivered >= publisher.published * copies):
        events = poll.poll(LOOK_S)
        for fd in consumers.read(events):
            poll.unregister(fd)
        now = time.monotonic()
        last = now if events else last
        if now - last >= QUIET_S or now - stopped > DRAIN_S:
            break
    return {
        "published": publisher.published, "deliveries": consumers.delivered, "disconnected": consumers.disconnected,
        "drain_s": last - stopped, "drained": complete or not events,
    }  # fmt: skip


class QueuePublisher:
    """The queue's publisher. ``published`` counts whole messages handed to the kernel; it never blocks."""

    def __init__(self, sock: socket.socket, template: Template) -> None:
        self._sock, self._template, self._size_bytes = sock, template, template.size_bytes
        self._batch = template.batch(STEP * template.size_bytes)
        self._rest = memoryview(self._batch)[:0]
        self._sent_bytes = 0

    @property
    def published(self) -> int:
        return self._sent_bytes // self._size_bytes

    def publish(self, delivered: int) -> None:
        """Publishes as many batches as there is room for, so many having been delivered."""
        while self.finish() and self.published + STEP - delivered <= AHEAD:
            self._template.number(self._batch)
            self._rest = memoryview(self._batch)

    def finish(self) -> bool:
        """Sends on what is begun; returns whether all of that went."""
        try:
            while self._rest:
                sent = self._sock.send(self._rest)
                self._sent_bytes += sent
                self._rest = self._rest[sent:]
        except BlockingIOError:
            return False
        return True


class TopicPublisher:
    """The publisher of a topic at QoS 1 or 2. ``published`` counts the messages that were given to be sent."""

    def __init__(self, sock: socket.socket, template: Template, confirms: PubAcks | PubComps) -> None:
        self._publisher = ConfirmedPublisher(sock, WINDOW, template.acknowledged, confirms)

    @property
    def published(self) -> int:
        return self._publisher.published

    def publish(self, delivered: int) -> None:
        """Publishes as many as there is room for, so many having been delivered to every subscriber."""
        self._publisher.read()
        self._publisher.publish(delivered + AHEAD - self.published)

    def finish(self) -> bool:
        """Sends on what is begun, handshakes too; returns whether all of that went."""
        self._publisher.read()
        return self._publisher.finish()


class Consumers:
    """The queue's consumers. ``delivered`` counts whole deliveries: each of them is acknowledged."""

    def __init__(
        self, wire: QueueWire | NamedQueueWire, socks: dict[int, socket.socket], queue: Levels, frame: Frame
    ) -> None:
        self._wire, self._socks, self._queue, self._frame = wire, socks, queue, frame
        if isinstance(wire, QueueWire):
            wire.acknowledgements(0, 1)
        self._taken = dict.fromkeys(socks, 0)
        self._rests = dict.fromkeys(socks, b"")
        self._buffer = bytearray(BUFFER_BYTES)
        self.delivered = self.disconnected = 0

    def read(self, events: list[tuple[int, int]]) -> list[int]:
        """Reads those that can be read; returns those that the broker has disconnected."""
        gone = []
        for fd, _ in events:
            if fd in self._socks:
                try:
                    there = self._read(fd, self._socks[fd])
                except BlockingIOError:
                    there = True
                except ConnectionError:
                    there = False
                if not there:
                    gone.append(fd)
        self.disconnected += len(gone)
        return gone

    def _read(self, fd: int, sock: socket.socket) -> bool:
        """A prefetch is less than a socket takes, so acknowledgements are never held up."""
        got = sock.recv_into(self._buffer)
        if isinstance(self._wire, QueueWire):
            count, acknowledgements = self._by_number(self._wire, fd, got)
        else:
            count, acknowledgements = self._by_name(self._wire, fd, sock, got)
        if acknowledgements:
            sock.sendall(acknowledgements)
        self.delivered += count
        return got > 0

    def _by_number(self, wire: QueueWire, fd: int, got: int) -> tuple[int, bytes]:
        before = self._taken[fd] // self._frame.size_bytes
        self._taken[fd] += got
        count = self._taken[fd] // self._frame.size_bytes - before
        return count, wire.acknowledgements(before + 1, count) if count else b""

    def _by_name(self, wire: NamedQueueWire, fd: int, sock: socket.socket, got: int) -> tuple[int, bytes]:
        data = self._rests[fd] + self._buffer[:got]
        count, answers, used = wire.answers_to(sock, self._queue, data, self._frame)
        self._rests[fd] = data[used:]
        return count, answers
