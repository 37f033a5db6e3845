"""The form in which queues keep messages of other protocols."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import Any

import msgspec

from headway.core.message import NO_PROPERTIES, Properties, read_said_with, routing_key_of, topic_of
from headway.wire.amqp.primitives import SHORT_BYTES_MAX, write_short, write_table
from headway.wire.amqp.properties import (
    CORRELATION_HEADER,
    NAMES,
    PERSISTENT,
    REPLY_TOPIC,
    joined,
    property_values,
    read_lately,
    reply_topic,
    user_texts,
)
from headway.wire.amqp.properties import read as read_facts
from headway.wire.common import NO_COMMON, Address, CommonProperties

# -- common ------------------------------------------------------------------------------------------------------------
#
# Common properties (wire/common.py) to AMQP's, which queues keep, and back.
#
# What AMQP has no property for is in headers with names of their own:
#
# - ``timestamp_in_ms``: a time that is not of whole seconds (RabbitMQ's name for it);
# - ``x-headway-reply-topic``: the reply address is a topic. AMQP's is a routing key, which is a queue's name elsewhere;
# - ``x-correlation-id``: a correlation id longer than a short string.
#
# Texts that do not fit into AMQP's short strings are headers, under the names of their properties. Reading undoes all
# of this.


TIMESTAMP_MS = "timestamp_in_ms"
MS_LARGEST = (1 << 62) - 1
"""The largest time that is told. With a lifetime it fits into the 64 bits that other protocols have for the sum."""
_TEXTS = {
    "content-type": "content_type", "content-encoding": "content_encoding", "correlation-id": "correlation_id",
    "message-id": "message_id", "type": "type", "user-id": "user_id", "app-id": "app_id",
}  # fmt: skip
"""Properties that are texts, and their fields."""
_REMEMBERED_BYTES_MAX = 512


def write_common(common: CommonProperties) -> Properties:
    headers = {name: value for name, value in common.headers.items() if len(name.encode()) <= SHORT_BYTES_MAX}
    values: dict[str, bytes] = {}
    for name, field in _TEXTS.items():
        text = getattr(common, field)
        if text is None:
            continue
        if len(text.encode()) <= SHORT_BYTES_MAX:
            values[name] = write_short(text)
        else:
            headers.setdefault(CORRELATION_HEADER if name == "correlation-id" else name, text)
    if common.reply_to is not None:
        _write_reply_to(common.reply_to, values, headers)
    if common.timestamp_ms is not None and common.timestamp_ms >= 0:
        values["timestamp"] = (common.timestamp_ms // 1000).to_bytes(8, "big")
        if common.timestamp_ms % 1000:
            headers[TIMESTAMP_MS] = common.timestamp_ms
    if common.priority is not None:
        values["priority"] = bytes((max(0, min(common.priority, 255)),))
    if common.expiration_ms is not None:
        values["expiration"] = write_short(str(max(0, common.expiration_ms)))
    if common.persistent:
        values["delivery-mode"] = bytes((PERSISTENT,))
    if headers:
        values["headers"] = write_table(headers)
    if not values:
        return NO_PROPERTIES
    reply_to, priority = values.get("reply-to"), values.get("priority")
    correlation, content_type = values.get("correlation-id"), values.get("content-type")
    return Properties(  # what reading these values would give, for less
        content_type=None if content_type is None or 0 in content_type[1:] else content_type[1:].decode(),
        response_topic=None if reply_to is None else reply_topic(reply_to[1:].decode()),
        correlation_data=None if correlation is None else correlation[1:],
        user=user_texts(headers, None if priority is None else priority[0]),
        native=joined(values),
    )


def _write_reply_to(address: Address, values: dict[str, bytes], headers: dict[str, object]) -> None:
    key = routing_key_of(address.name) if address.is_topic else address.name
    if len(key.encode()) <= SHORT_BYTES_MAX:
        values["reply-to"] = write_short(key)
        if address.is_topic:
            headers[REPLY_TOPIC] = True


def find_bytes(raw: bytes, name: str) -> bytes | None:
    """Returns a header of bytes, found by how its name is written."""
    mark = _mark(name)
    at = raw.find(mark)
    if at < 0:
        return None
    start = at + len(mark) + 4
    return raw[start : start + int.from_bytes(raw[start - 4 : start], "big")]


@lru_cache(16)
def _mark(name: str) -> bytes:
    return write_short(name) + b"x"


def read_common(properties: Properties) -> CommonProperties:
    if properties is NO_PROPERTIES:
        return NO_COMMON
    native = properties.native
    if native is None:
        return _of_texts(properties)
    return _read_lately(native) if len(native) <= _REMEMBERED_BYTES_MAX else _read(native)


def _of_texts(properties: Properties) -> CommonProperties:
    """Reads properties that came by MQTT, or that the broker made."""
    headers: dict[str, object] = {}
    for name, text in properties.user:
        headers.setdefault(name, text)
    raw, topic = properties.correlation_data, properties.response_topic
    return CommonProperties(
        content_type=properties.content_type,
        correlation_id=None if raw is None else _decoded(raw),
        reply_to=None if topic is None else Address(topic, is_topic=True),
        expiration_ms=properties.lifetime_ms,
        headers=headers,
    )


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _read(native: bytes) -> CommonProperties:
    facts, values = read_lately(native), property_values(native)
    headers = dict(facts.headers)
    texts = {field: _decoded(values[name][1:]) for name, field in _TEXTS.items() if name in values}
    long = headers.pop(CORRELATION_HEADER, None)
    if isinstance(long, str | bytes) and "correlation_id" not in texts:
        texts["correlation_id"] = long if isinstance(long, str) else _decoded(long)
    for name, field in _TEXTS.items():
        text = headers.get(name)
        if field not in texts and isinstance(text, str) and len(text.encode()) > SHORT_BYTES_MAX:
            texts[field] = text
            del headers[name]
    reply_to = None
    if facts.reply_to is not None:
        is_topic = headers.pop(REPLY_TOPIC, False) is True
        reply_to = Address(topic_of(facts.reply_to) if is_topic else facts.reply_to, is_topic)
    return CommonProperties(
        reply_to=reply_to, timestamp_ms=_timestamp_ms(values, headers), expiration_ms=facts.expiration_ms,
        priority=values["priority"][0] if "priority" in values else None, persistent=bool(facts.qos), headers=headers,
        **texts,
    )  # fmt: skip


def _timestamp_ms(values: Mapping[str, bytes], headers: dict[str, object]) -> int | None:
    if "timestamp" not in values:
        return None
    seconds, exact = int.from_bytes(values["timestamp"], "big"), headers.get(TIMESTAMP_MS)
    if isinstance(exact, int) and exact // 1000 == seconds:
        del headers[TIMESTAMP_MS]
    else:
        exact = seconds * 1000
    return exact if exact <= MS_LARGEST else None  # a time that other protocols cannot tell


_read_lately = lru_cache(256)(_read)
read_said_with(read_common, lambda native: read_lately(native).headers)


# -- numbering ---------------------------------------------------------------------------------------------------------
#
# Numberings (wire/dialect.py) in AMQP's properties:
#
#     flags … headers … ``timestamp_in_ms`` | ms | … | size of the id | stem | number | seconds | rest
#     `-------------- ahead ---------------'      `-'
#                                               between
#
# Messages without a time have neither of the three; those of a whole second have no milliseconds.


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
