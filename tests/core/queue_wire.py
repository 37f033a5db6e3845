"""The wire form of records in queues that tests use."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple

import msgspec

from headway.core.message.record import EncodedRun, Gap, Properties, Record, Run, routing_key_of, topic_of

_SIZES = struct.Struct(">HI")
_HEAD = struct.Struct(">IQ?HB")


class Facts(msgspec.Struct, frozen=True):
    topic: str
    exchange: str
    user: tuple[tuple[str, str], ...] = ()


class Plain(msgspec.Struct, frozen=True):
    """The dialect: two sizes, the facts, the payload."""

    @property
    def form(self) -> object:
        return None

    @property
    def id_bytes(self) -> int:
        return 0

    @property
    def bare(self) -> bool:
        return True

    @property
    def reads_own(self) -> bool:
        return False

    def encode(self, run: Run, first_sequence: int) -> EncodedRun:
        facts = msgspec.json.encode(Facts(run.topic, run.exchange, run.properties.user))
        frames = []
        for index in range(len(run)):
            payload = run.payload(index)
            frames.append(_SIZES.pack(len(facts), len(payload)) + facts + payload)
        return EncodedRun(b"".join(frames), list(accumulate(map(len, frames))))

    def decode(self, frame: bytes) -> Record:
        size, _ = _SIZES.unpack_from(frame)
        facts = msgspec.json.decode(frame[_SIZES.size : _SIZES.size + size], type=Facts)
        properties = Properties(user=facts.user)
        return Record(facts.topic, frame[_SIZES.size + size :], properties, exchange=facts.exchange)

    def encode_record(self, record: Record, delivery_id: int, *, now: float, retain: bool = False,
                      redelivered: bool = False, gap: Gap | None = None) -> bytes:
        return self.encode(record.run(), record.sequence).data

    def with_gap(self, frame: bytes, gap: Gap) -> bytes | None:
        return None

    def redelivered(self, frame: bytes) -> bytes:
        return frame


PLAIN = Plain()


class Cut(NamedTuple):
    frames: list[bytes]
    redelivered: bool


class Wrapping(msgspec.Struct, frozen=True):
    """The envelope of one consumer."""

    channel: int
    tag: str

    @property
    def shape(self) -> object:
        return "plain"

    rewritten = 0

    def opening(self, cut: Cut) -> Cut:
        return cut

    def cut(self, data: bytes | memoryview, ends: Sequence[int], *, redelivered: bool = False) -> Cut:
        starts = [0, *ends[:-1]]
        assert ends[-1] == len(data)
        return Cut([bytes(data[begin:end]) for begin, end in zip(starts, ends, strict=True)], redelivered)

    def write(self, cut: Cut, start: int, stop: int, first_id: int) -> bytes:
        return b"".join(self._one(cut, index, first_id + index - start) for index in range(start, stop))

    def ends(self, cut: Cut, start: int, stop: int) -> list[int]:
        return list(accumulate(len(self._one(cut, index, 0)) for index in range(start, stop)))

    def _one(self, cut: Cut, index: int, delivery_id: int) -> bytes:
        tag, frame = self.tag.encode(), cut.frames[index]
        size = _HEAD.size + len(tag) + len(frame)
        return _HEAD.pack(size, delivery_id, cut.redelivered, self.channel, len(tag)) + tag + frame


class Delivered(NamedTuple):
    """What a peer read; of ``get`` the tag is empty."""

    channel: int
    tag: str
    id: int
    redelivered: bool
    record: Record

    @property
    def number(self) -> int:
        return int(self.record.payload.split()[0])

    @property
    def key(self) -> str:
        return routing_key_of(self.record.topic)


def delivery_length(data: bytes | bytearray) -> int:
    """Of the first delivery; 0 while it is not known."""
    return int(_HEAD.unpack_from(data)[0]) if len(data) >= _HEAD.size else 0


def read_delivery(data: bytes) -> Delivered:
    _, delivery_id, redelivered, channel, size = _HEAD.unpack_from(data)
    begin = _HEAD.size + size
    return Delivered(channel, data[_HEAD.size : begin].decode(), delivery_id, redelivered, PLAIN.decode(data[begin:]))


def run_of(key: str, payloads: list[bytes], *, exchange: str = "", properties: Properties | None = None,
           expires_s: float = inf, headers: dict[str, object] | None = None, qos: int = 1) -> Run:
    """As the codec makes one: with ranges where all are of one size."""
    ends: Sequence[int] = list(accumulate(map(len, payloads)))
    bodies: Sequence[int] = [0, *ends[:-1]]
    size = len(payloads[0])
    if all(len(payload) == size for payload in payloads) and size:
        ends, bodies = range(size, size * len(payloads) + 1, size), range(0, size * len(payloads), size)
    return Run(topic_of(key), b"".join(payloads), ends, bodies, None, qos, False, properties or Properties(), expires_s,
               exchange, headers)
