"""Records for subscribers in the broker's own program: frames of a lane, and the objects that the program gets of them.

A subscriber in the program is a consumer as any other, so its records are bytes in a lane, which all with the same
filter and options share. They become objects one by one, when the program asks for the next (``Frames``). A frame::

    size 4 | kind 1 | sequence 8 | key's size 2 | head's size 4 | key | head | payload

``size`` counts what follows it. The head has what all records of a run have in common, in MessagePack. A gap is a frame
of its own before the record that follows it, and so are the broker's marks.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any, Final

import msgspec

from headway.core.message import NO_PROPERTIES, TOLD_KEY, EncodedRun, Properties, Run, compile_key
from headway.core.message import Gap as SkippedRecords
from headway.core.message import Record as Published
from headway.wire.common import Remembered
from headway.wire.dialect import PlainDialect, event_of, mark_of

_FRAME = Struct(">IBQHI")
_SIZE = Struct(">I")
_RECORD, _GAP, _MARK = range(3)
_NO_KEY = 0xFFFF
_encode = msgspec.msgpack.Encoder().encode


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record as its subscriber in the program gets it.

    ``event`` is empty for an ordinary record; else ``delete`` (its key is gone), ``delta`` (the payload has only the
    fields that changed: option ``delta``), or ``out_of_focus`` (option ``out_of_focus``).
    """

    topic: str
    payload: bytes
    offset: int
    """The broker's number of the record; ``from_=record.offset`` continues behind it, where records are kept."""
    key: str | None = None
    """The key, where the topic is keyed."""
    event: str = ""
    qos: int = 0
    retain: bool = False
    """Set for a retained record, from before the subscription."""
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user: tuple[tuple[str, str], ...] = ()
    """The user properties of the publisher, in their order."""

    def json(self) -> Any:
        """Returns the payload as JSON says it. Raises ValueError (msgspec.DecodeError)."""
        return msgspec.json.decode(self.payload)

    def text(self) -> str:
        """Returns the payload as text. Raises UnicodeDecodeError."""
        return self.payload.decode()


class Gap(msgspec.Struct, frozen=True, gc=False):
    """Records that this subscriber did not get, before what follows: how many, and why (the word that ``headway why``,
    metrics and other protocols use, such as ``conflated``)."""

    topic: str
    """The subscription's filter."""
    count: int
    reason: str
    first_offset: int
    last_offset: int


class Mark(msgspec.Struct, frozen=True):
    """A mark of the broker's own (option ``marks``): ``snapshot_begin``, ``snapshot_end`` or ``snapshot_broken``, and
    what it tells, such as the offset as of which the snapshot is."""

    event: str
    told: Mapping[str, str | int]


Delivered = Record | Gap | Mark


class _Head(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The head of a frame: all that the records of a run have in common."""

    topic: str
    event: str
    qos: int
    retain: bool
    content_type: str | None
    response_topic: str | None
    correlation_data: bytes | None
    user: tuple[tuple[str, str], ...]


class ProgramDialect(PlainDialect, frozen=True):
    """The form of a subscription in the program. ``key`` finds the key of each record; empty: they have none."""

    key: str

    @property
    def form(self) -> object:
        return "program"

    def encode(self, run: Run, first_sequence: int) -> EncodedRun:
        head, told = _head(run.topic, run.properties, run.qos, retain=False)
        keys = compile_key(self.key).of_run(run) if self.key else [None] * len(run)
        return EncodedRun.of([
            _frame(_RECORD, first_sequence + index, told if key is None else key, head, run.payload(index))
            for index, key in enumerate(keys)
        ])

    def decode(self, frame: bytes) -> Published:
        """Behind gaps, which selectors do not see."""
        at = 0
        while frame[at + 4] == _GAP:
            at += _SIZE.unpack_from(frame, at)[0] + _SIZE.size
        _, _, _, key_bytes, head_bytes = _FRAME.unpack_from(frame, at)
        start = at + _FRAME.size + (0 if key_bytes == _NO_KEY else key_bytes)
        head = msgspec.msgpack.decode(frame[start : start + head_bytes], type=_Head)
        properties = Properties(
            content_type=head.content_type, response_topic=head.response_topic,
            correlation_data=head.correlation_data, user=head.user,
        )  # fmt: skip
        return Published(head.topic, bytes(frame[start + head_bytes :]), properties, head.qos)

    def encode_record(
        self, record: Published, delivery_id: int, *, now: float, retain: bool = False, redelivered: bool = False,
        gap: SkippedRecords | None = None,
    ) -> bytes:  # fmt: skip
        before = b"" if gap is None else _gap(gap)
        if not record.sequence and (mark := mark_of(record.properties)):
            return before + _frame(_MARK, 0, None, _encode(mark), b"")
        head, told_key = _head(record.topic, record.properties, record.qos, retain=retain)
        key = compile_key(self.key).of(record) if self.key else None
        return before + _frame(_RECORD, record.sequence, told_key if key is None else key, head, record.payload)

    def with_gap(self, frame: bytes, gap: SkippedRecords) -> bytes | None:
        return _gap(gap) + frame


def _head(topic: str, said: Properties, qos: int, *, retain: bool) -> tuple[bytes, str | None]:
    """Returns the head of a run's frames, and the key that the broker has told with it."""
    if said is NO_PROPERTIES:
        return _encode(_Head(topic, "", qos, retain, None, None, None, ())), None
    head = _Head(
        topic, event_of(said), qos, retain, said.content_type, said.response_topic, said.correlation_data, said.user
    )
    return _encode(head), said.user_value(TOLD_KEY)


def _frame(kind: int, sequence: int, key: str | None, head: bytes, payload: bytes) -> bytes:
    named = b"" if key is None else key.encode()
    size = _FRAME.size - _SIZE.size + len(named) + len(head) + len(payload)
    mark = _NO_KEY if key is None else len(named)
    return b"%b%b%b%b" % (_FRAME.pack(size, kind, sequence, mark, len(head)), named, head, payload)


def _gap(gap: SkippedRecords) -> bytes:
    told = (gap.records, gap.first_sequence, gap.last_sequence, str(gap.reason))
    return _frame(_GAP, 0, None, _encode(told), b"")


class Frames:
    """Reads objects out of bytes as they come, in pieces of any size. A record is copied out when it is asked for."""

    __slots__ = ("_at", "_data", "_filter", "_heads", "_rest")

    def __init__(self, filter: str) -> None:
        self._filter = filter
        self._data = b""
        self._at = 0
        self._rest: list[bytes] = []
        """Pieces of a frame that has not come whole."""
        self._heads: Final = Remembered[bytes, _Head]()

    @property
    def unread_bytes(self) -> int:
        return len(self._data) - self._at + sum(map(len, self._rest))

    def feed(self, piece: bytes) -> None:
        """Takes more bytes. Only to be called when ``next`` has returned None."""
        self._rest.append(piece)
        if len(self._rest) > 1:
            size = sum(map(len, self._rest))
            if size < _SIZE.size or size < self._whole_bytes():
                return  # a large frame is put together once, not again for each piece
        self._data, self._at = b"".join(self._rest), 0
        self._rest.clear()

    def _whole_bytes(self) -> int:
        start = b"".join(piece[: _SIZE.size] for piece in self._rest[: _SIZE.size])
        return int(_SIZE.unpack_from(start)[0]) + _SIZE.size if len(start) >= _SIZE.size else 0

    def next(self) -> Delivered | None:
        """Returns the next object; None: more bytes have to come first."""
        data, at = self._data, self._at
        left = len(data) - at
        if left < _SIZE.size or left < (size := _SIZE.unpack_from(data, at)[0] + _SIZE.size):
            if left:
                self._rest.insert(0, data[at:])
            self._data, self._at = b"", 0
            return None
        self._at = at + size
        _, kind, sequence, key_bytes, head_bytes = _FRAME.unpack_from(data, at)
        start, key = at + _FRAME.size, None
        if key_bytes != _NO_KEY:
            key = data[start : start + key_bytes].decode()
            start += key_bytes
        told = data[start : start + head_bytes]
        if kind != _RECORD:
            return self._own(kind, told)
        head = self._heads.get(told)
        if head is None:
            head = msgspec.msgpack.decode(told, type=_Head)
            self._heads.keep(told, head, 4 * head_bytes + 200)
        return Record(
            head.topic, data[start + head_bytes : at + size], sequence, key, head.event, head.qos, head.retain,
            head.content_type, head.response_topic, head.correlation_data, head.user,
        )  # fmt: skip

    def _own(self, kind: int, told: bytes) -> Gap | Mark:
        if kind == _MARK:
            event, figures = msgspec.msgpack.decode(told)
            return Mark(event, figures)
        records, first, last, reason = msgspec.msgpack.decode(told)
        return Gap(self._filter, records, reason, first, last)
