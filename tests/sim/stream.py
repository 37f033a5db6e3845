"""The far side of one connection: the bytes it was sent, taken apart again, and where in the stream each frame lies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tests.sim.outlet import PretendedOutlet

from headway.core.consumer.session import Session
from headway.core.message.record import Run
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import Item, Publish
from headway.wire.mqtt.replies import Replies


class Frame(NamedTuple):
    start: int
    stop: int
    item: Item


def frame_length(data: bytes | bytearray) -> int:
    """Of the first frame; 0 while its length is not known."""
    size, shift, at = 0, 0, 1
    while True:
        if at >= len(data):
            return 0
        size |= (data[at] & 0x7F) << shift
        if not data[at] & 0x80:
            return at + 1 + size
        shift += 7
        at += 1


def as_publish(item: Item) -> Publish | None:
    if isinstance(item, Run):
        assert len(item) == 1
        return Publish(item)
    return item if isinstance(item, Publish) else None


class Stream:
    """Everything one connection carried to the client."""

    def __init__(self, number: int, version: int, replies: Replies, now: float, capacity: int, rng: Random, shy: float,
                 packet_bytes_max: int, on_frame: Callable[[Stream, Frame], None]) -> None:
        self.number = number
        self.version = version
        self.replies = replies
        self.outlet = PretendedOutlet(now, capacity, rng, shy, self._took)
        self.session: Session | None = None
        self.unread: deque[Frame] = deque()
        self.outstanding: dict[int, int] = {}
        """Packet ids sent in this connection and not acknowledged by the client: what credit is about."""
        self._packet_bytes_max = packet_bytes_max
        self._on_frame = on_frame
        self._tail = bytearray()
        self._start = 0
        self._decoder = MqttDecoder(role="client", version=version)

    def _took(self, data: bytes) -> None:
        self._tail += data
        while (size := frame_length(self._tail)) and len(self._tail) >= size:
            frame = bytes(self._tail[:size])
            del self._tail[:size]
            start, self._start = self._start, self._start + size
            taken = Frame(start, self._start, self._decode(self._decoder, frame))
            self.unread.append(taken)
            self._on_frame(self, taken)

    def _decode(self, decoder: MqttDecoder, frame: bytes) -> Item:
        items = decoder.feed(frame)
        assert decoder.error is None, f"not a valid frame: {decoder.error}: {frame[:80]!r}"
        assert len(items) == 1, frame[:80]
        limit = self._packet_bytes_max
        assert len(frame) <= limit, f"{len(frame)} bytes to a client that takes {limit}"
        return items[0]

    @property
    def boundary(self) -> int:
        """Where in the stream that begins which is not written yet."""
        session, outlet = self.session, self.outlet
        rest = len(session.rest) + session.held_back.size if session is not None and session.outlet is outlet else 0
        return self._start + len(self._tail) + rest + len(outlet.out)

    def pending(self) -> list[Frame]:
        """Frames written for this client alone that the socket has not taken whole."""
        session, outlet = self.session, self.outlet
        if session is not None and session.outlet is outlet:
            later = bytes(outlet.out) + getattr(session.held_back, "all", b"")
            if session.half_sent is not None:
                return self.peek(later, self._start + len(self._tail))
            return self.peek(bytes(self._tail) + session.rest + later, self._start)
        return []

    def on_their_way(self) -> list[Frame]:
        """What the connection breaks off: also a record half sent, if it is in flight already. The cursor passes that,
        and it comes again by its id."""
        half = self.session.half_sent if self.session is not None else None
        if half is None or not half.cursor.owes(half.cursor.number):
            return self.pending()
        assert self.session is not None
        chunk = half.cursor.chunk
        start, stop = half.cursor.position - chunk.start, chunk.ends[chunk.index_at(half.cursor.position)]
        later = bytes(self.outlet.out) + getattr(self.session.held_back, "all", b"")
        rest = bytes(self.session.rest) + bytes(chunk.read(start, stop))
        return self.peek(bytes(self._tail) + rest + later, self._start)

    def peek(self, data: bytes, start: int) -> list[Frame]:
        """Whole frames, the first of which begins there."""
        decoder = MqttDecoder(role="client", version=self.version)
        decoder.feed(b"\x20\x03\0\0\0" if self.version == 5 else b"\x20\x02\0\0")
        frames = []
        while data:
            size = frame_length(data)
            assert size, f"half a frame in the outlet: {data[:40]!r}"
            assert len(data) >= size, f"half a frame in the outlet: {data[:40]!r}"
            if data[0] >> 4 != 2:
                frames.append(Frame(start, start + size, self._decode(decoder, data[:size])))
            data, start = data[size:], start + size
        return frames

    def finish(self, data: bytes) -> None:
        """The broker's last words, sent in the background after what was taken."""
        self._took(data)
        assert not self._tail, "the connection was closed in the middle of a frame"
