"""Numberings (wire/numbered.py) in AMQP's properties:

    flags … headers … ``timestamp_in_ms`` | ms | … | size of the id | stem | number | seconds | rest
    `-------------- ahead ---------------'      `-'
                                              between

Messages without a time have neither of the three; those of a whole second have no milliseconds (common.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import Any

import msgspec

from headway.core.message import Properties
from headway.wire.amqp.kept.common import TIMESTAMP_MS, read_common
from headway.wire.amqp.primitives import SHORT_BYTES_MAX, write_short
from headway.wire.amqp.properties import NAMES, property_values
from headway.wire.amqp.properties import read as read_facts

_MARK = write_short(TIMESTAMP_MS) + b"l"
_BEFORE_ID = NAMES[: NAMES.index("message-id")]
_NUMBER_DIGITS = 18
STEM_BYTES_MAX = SHORT_BYTES_MAX - _NUMBER_DIGITS
_I64 = Struct(">q")
_SECONDS = 8
_FIRST = itemgetter(0)


class AmqpNumbering:
    """``native``: the properties of one of the messages, split at these places; ``ms_at`` 0: there are none."""

    __slots__ = (
        "_ahead", "_base", "_between", "_id_at", "_rest", "_stem", "_user", "common", "stem", "timed", "written",
    )  # fmt: skip

    def __init__(self, native: bytes, ms_at: int, id_at: int, id_bytes: int, stem: bytes, *, timed: bool) -> None:
        self.timed = timed
        self.stem = stem.decode()
        self._stem = stem
        self._id_at = id_at
        self._ahead = native[: ms_at or id_at]
        self._between = native[ms_at + 8 : id_at] if ms_at else None
        self._rest = native[id_at + 1 + id_bytes + (_SECONDS if timed else 0) :]
        facts = read_facts(native)
        self._base = facts.properties
        names = [name for name, _ in self._base.user]
        self._user = names.index(TIMESTAMP_MS) if ms_at else -1
        self.common = msgspec.structs.replace(read_common(facts.properties), message_id=None, timestamp_ms=None)
        self.written: dict[Hashable, Any] = {}

    def fits(self, time_ms: int) -> bool:
        if not time_ms:
            return not self.timed
        return self.timed and time_ms > 0 and (self._between is None) == (time_ms % 1000 == 0)

    def natives(self, numbers: Sequence[int], times_ms: Sequence[int]) -> Sequence[bytes]:
        natives = list[bytes]()
        for time_ms, some in groupby(zip(times_ms, numbers, strict=True), _FIRST):
            its_numbers = [number for _, number in some]
            natives += self._natives(its_numbers, time_ms)
        return natives

    def _natives(self, numbers: Sequence[int], time_ms: int) -> Iterable[bytes]:
        """Returns the properties of messages of one time."""
        before, behind = self._around(time_ms)
        digits = len(str(max(numbers)))
        if len(str(min(numbers))) == digits:
            lead = b"%b%c%b" % (before, len(self._stem) + digits, self._stem)
            return map((lead.replace(b"%", b"%%") + b"%d" + behind.replace(b"%", b"%%")).__mod__, numbers)
        names = [b"%b%d" % (self._stem, number) for number in numbers]
        return [b"%b%c%b%b" % (before, len(name), name, behind) for name in names]

    def _around(self, time_ms: int) -> tuple[bytes, bytes]:
        """Returns what stands before the id and behind it in a message of this time."""
        before, seconds = self._ahead, _I64.pack(time_ms // 1000) if self.timed else b""
        if self._between is not None:
            before = b"".join((before, _I64.pack(time_ms), self._between))
        return before, seconds + self._rest

    def properties(self, number: int, time_ms: int) -> Properties:
        base, user, at = self._base, self._base.user, self._user
        if at >= 0:
            user = (*user[:at], (TIMESTAMP_MS, str(time_ms)), *user[at + 1 :])
        return Properties(
            base.payload_format, base.content_type, base.response_topic, base.correlation_data, user,
            self.natives((number,), (time_ms,))[0],
        )  # fmt: skip

    def read(self, native: bytes) -> tuple[int, int] | None:
        id_at, stem = self._id_at, self._stem
        start = id_at + 1 + len(stem)
        if not (native.startswith(self._ahead) and native.startswith(stem, id_at + 1)):
            return None
        id_end = id_at + 1 + native[id_at]
        after = id_end + _SECONDS if self.timed else id_end
        digits = native[start:id_end]
        if native[after:] != self._rest or len(native) < after or not _is_number(digits):
            return None
        time_ms = 0
        if self._between is not None:
            ms_at = len(self._ahead)
            (time_ms,) = _I64.unpack_from(native, ms_at)
            if native[ms_at + 8 : id_at] != self._between or time_ms % 1000 == 0:
                return None
            if time_ms // 1000 != int.from_bytes(native[id_end:after], "big"):
                return None
        elif self.timed:
            time_ms = 1000 * int.from_bytes(native[id_end:after], "big")
        return int(digits), time_ms

    def spans(self, native: bytes) -> tuple[tuple[int, int], ...]:
        start, id_end = self._id_at + 1 + len(self._stem), self._id_at + 1 + native[self._id_at]
        ms_at = len(self._ahead)
        ms = ((ms_at, ms_at + 8),) if self._between is not None else ()
        seconds = ((id_end, id_end + _SECONDS),) if self.timed else ()
        return (*ms, (start, id_end), *seconds)

    def values(self, columns: Sequence[Sequence[bytes]]) -> tuple[Sequence[int], Sequence[int]] | None:
        digits = columns[0 if self._between is None else 1]
        if not b"".join(digits).isdigit() or (len(digits[0]) > 1 and min(digits)[0] == 0x30):
            return None
        numbers = list(map(int, digits))
        if not self.timed:
            return numbers, [0] * len(numbers)
        times = dict[bytes, int]()
        if self._between is None:
            for raw in set(columns[1]):
                times[raw] = 1000 * int.from_bytes(raw, "big")
            return numbers, list(map(times.__getitem__, columns[1]))
        for raw, seconds in set(zip(columns[0], columns[2], strict=True)):
            times[raw] = time_ms = int.from_bytes(raw, "big")
            if time_ms % 1000 == 0 or time_ms // 1000 != int.from_bytes(seconds, "big"):
                return None
        return numbers, list(map(times.__getitem__, columns[0]))


def _is_number(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= _NUMBER_DIGITS and (digits[0] != 0x30 or len(digits) == 1)


def numbering_of(native: bytes) -> AmqpNumbering | None:
    """Returns the numbering of messages like the one with these properties; None: it has no number."""
    values = property_values(native)
    raw = values.get("message-id", b"\0")[1:]
    stem, colon, digits = raw.rpartition(b":")
    stem += colon
    if not stem or len(stem) > STEM_BYTES_MAX or not _is_number(digits) or not _is_text(stem):
        return None
    id_at = 2 + sum(len(values[name]) for name in _BEFORE_ID if name in values)
    timed, ms_at, headers = "timestamp" in values, 0, values.get("headers", b"")
    if timed and int.from_bytes(values["timestamp"], "big") == 0:
        return None
    if timed and TIMESTAMP_MS.encode() in headers:
        if headers[-len(_MARK) - 8 : -8] != _MARK:
            return None
        ms_at = 2 + sum(len(values.get(name, b"")) for name in ("content-type", "content-encoding", "headers")) - 8
        (time_ms,) = _I64.unpack_from(native, ms_at)
        if time_ms % 1000 == 0 or time_ms // 1000 != int.from_bytes(values["timestamp"], "big"):
            return None
    return AmqpNumbering(native, ms_at, id_at, len(raw), stem, timed=timed)


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
