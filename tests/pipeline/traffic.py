"""The same traffic, as often as wanted: a publisher and consumers that do as their part says, over real sockets.

Everybody is driven by one loop and one clock. What a part does is a function of the seconds since the start, so that
two brokers with different policies are put before the same thing.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from bench.wires.packets import encode_ack
from tests.interop.raw import Raw

from headway.wire.mqtt.packets import TopicRequest

TICK_S = 0.01
READ_BYTES = 65_536
RECEIVE_BUFFER = 4_096
"""Small, so that a consumer that stops reading is felt by the broker, not hidden by the kernel."""


def always(_: float) -> bool:
    return True


@dataclass(frozen=True)
class Part:
    """One consumer. ``reads``: bytes a second it takes at this moment; ``acks``: whether it acknowledges then."""

    name: str
    topic: str
    reads: Callable[[float], float] = lambda _: inf
    qos: int = 0
    receive_max: int = 65_535
    acks: Callable[[float], bool] = always


@dataclass
class _Consumer:
    part: Part
    raw: Raw
    room: float = 0.0
    unacked: list[int] = field(default_factory=list)

    def turn(self, at: float, step_s: float) -> None:
        """Read as much as the part allows in this step."""
        rate = self.part.reads(at)
        self.room = inf if rate == inf else min(self.room + rate * step_s if self.room < inf else 0.0, rate)
        while self.room >= 1 and not self.raw.ended:
            if not select.select([self.raw.sock], [], [], 0)[0]:
                break
            try:
                data = self.raw.sock.recv(int(min(self.room, READ_BYTES)))
            except ConnectionError:
                data = b""
            if not data:
                self.raw.ended = True
            self.room -= len(data)
            self._note(data)
        if self.unacked and not self.raw.ended and self.part.acks(at):
            self._acknowledge()

    def _note(self, data: bytes) -> None:
        if self.part.qos:
            for item in self.raw.decoder.feed(data):
                packet_id = getattr(item, "packet_id", 0)
                if packet_id:
                    self.unacked.append(packet_id)

    def _acknowledge(self) -> None:
        try:
            self.raw.send(b"".join(encode_ack(4, packet_id) for packet_id in self.unacked))
        except OSError:
            self.raw.ended = True
        self.unacked = []


def play(port: int, parts: Sequence[Part], topics: Mapping[str, int], seconds: float, *, records_per_s: int,
         payload_bytes: int) -> None:
    """Publish so many records a second on each topic (with its QoS), and let everybody play; until the time is over."""
    with _everybody(port, parts) as (publisher, consumers):
        payload = b"x" * payload_bytes
        nothing = select.poll()
        begin = last = time.monotonic()
        sent = 0
        while (now := time.monotonic()) - begin < seconds:
            due = int((now - begin) * records_per_s)
            for topic, qos in topics.items():
                for _ in range(due - sent):
                    publisher.publish(topic, payload, qos)
            sent = due
            while publisher.read():
                publisher.inbox.clear()  # its own acknowledgements
            for consumer in consumers:
                consumer.turn(now - begin, now - last)
            last = now
            nothing.poll(max(0.0, now + TICK_S - time.monotonic()) * 1000)


@contextmanager
def _everybody(port: int, parts: Sequence[Part]) -> Iterator[tuple[Raw, list[_Consumer]]]:
    publisher = Raw(port, "publisher")
    raws = [
        Raw(port, part.name, receive_buffer=RECEIVE_BUFFER, receive_max=part.receive_max).subscribed(
            TopicRequest(part.topic, qos=part.qos)
        )
        for part in parts
    ]
    try:
        yield publisher, [_Consumer(part, raw) for part, raw in zip(parts, raws, strict=True)]
    finally:
        for raw in (publisher, *raws):
            raw.close()
