"""Deliveries to one consumer of STOMP, from the bytes of a lane, which is in the form of queues (``QueueForm``).

    MESSAGE, subscription | id | headers, empty line | body | NUL
    `------- own -------'  own  `--------- equal for all consumers --------'

The id is the number of the delivery, as ``message-id``. It has 15 digits, zeros in front, so all deliveries
of records of one size have one size. Where the consumer acknowledges, and by 1.2, the same number is ``ack``, too.

Theory of operation. ``cut`` writes the part that is equal, once for all consumers of one version: the head of each
distinct lead is written once and remembered. ``write`` does what is left per consumer.

- If all records of a cut have one size, ``write`` joins their bodies with the bytes between two of them as the
  separator, and fills in the ids by columns: the last digit of all ids is one slice with the frame's size as its step,
  and so is each other digit that changes. So a delivery costs a copy and a few bytes.
- Otherwise three parts per delivery are joined: the last three digits of an id are one of a thousand constants.
- Consumers of one subscription id at one position get the same bytes: the last bytes written are kept in the cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from io import BytesIO

from headway.core.message import Record
from headway.wire.codecs import queue_form
from headway.wire.common import EXPIRATION_MS_MAX, Address, CommonProperties, header_text, told_headers
from headway.wire.dialect import Cut, equal_pairs
from headway.wire.stomp.destinations import destination_of, text_of
from headway.wire.stomp.versions import V1_2, Headers, Version, header_line

# -- message -----------------------------------------------------------------------------------------------------------
#
# Headers of messages: those of SEND to common properties (wire/common.py), and back for MESSAGE.
#
# Names are those that ActiveMQ and RabbitMQ share, and both names where they differ: ``expires`` is a time,
# ``expiration`` a lifetime, both in milliseconds. Headers of other types are written as text. Headers that are the
# frame's own are no message's.


OWN = frozenset({
    "destination", "content-length", "receipt", "transaction", "message-id", "subscription", "ack", "redelivered",
})  # fmt: skip
"""Headers of a frame that do not belong to its message."""
_TEXTS = {
    "content-type": "content_type", "content-encoding": "content_encoding", "correlation-id": "correlation_id",
    "amqp-message-id": "message_id", "type": "type", "user-id": "user_id", "app-id": "app_id",
}  # fmt: skip
_KNOWN = OWN | set(_TEXTS) | {"persistent", "priority", "timestamp", "expires", "expiration", "reply-to"}
SECONDS_BELOW = 100_000_000_000
"""A timestamp below this is in seconds, as RabbitMQ has it."""


def common_of(headers: Headers, reply_to: Address | None, wall_ms: int) -> CommonProperties:
    """Returns what a SEND says of its message. ``reply_to``: its reply address, resolved. ``wall_ms``: the time now, in
    milliseconds since 1970."""
    lifetime_ms, timestamp_ms = _number(headers, "expiration"), _timestamp_ms(headers)
    expires_ms = _number(headers, "expires")
    if expires_ms:  # 0: never
        lifetime_ms = max(0, expires_ms - wall_ms)
        if timestamp_ms is None:
            timestamp_ms = expires_ms - lifetime_ms
    if lifetime_ms is not None:
        lifetime_ms = min(lifetime_ms, EXPIRATION_MS_MAX)
    priority = _number(headers, "priority")
    return CommonProperties(
        priority=None if priority is None else min(priority, 255), timestamp_ms=timestamp_ms, reply_to=reply_to,
        expiration_ms=lifetime_ms, persistent=headers.get("persistent", "").lower() == "true",
        headers={name: value for name, value in headers.items() if name not in _KNOWN},
        **{field: headers[name] for name, field in _TEXTS.items() if name in headers},
    )  # fmt: skip


def _number(headers: Headers, name: str) -> int | None:
    """Returns the value of a header; None: there is none, or it is no number from 0 on."""
    text = headers.get(name, "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


def _timestamp_ms(headers: Headers) -> int | None:
    value = _number(headers, "timestamp")
    return value * 1000 if value is not None and value < SECONDS_BELOW else value


def head_of(record: Record, body_bytes: int, version: Version, redelivered: bool | None) -> bytes:
    """Returns the part of a MESSAGE's head that is the same for all consumers, with the empty line behind it.
    ``redelivered`` None: it cannot be, for its consumer acknowledges nothing."""
    lines = [header_line("destination", destination_of(record), version)]
    lines += [header_line(name, value, version) for name, value in _headers(record)]
    if redelivered is not None:
        lines.append(f"redelivered:{str(redelivered).lower()}\n")
    lines.append(f"content-length:{body_bytes}\n\n")
    return "".join(lines).encode("utf-8", "replace")


def _headers(record: Record) -> Iterator[tuple[str, str]]:
    common = queue_form().read_common(record.properties)
    for name, field in _TEXTS.items():
        text = getattr(common, field)
        if text is not None:
            yield name, text
    if common.reply_to is not None:
        yield "reply-to", text_of(common.reply_to)
    if common.persistent or record.qos:
        yield "persistent", "true"
    if common.priority is not None:
        yield "priority", str(common.priority)
    if common.timestamp_ms is not None:
        yield "timestamp", str(common.timestamp_ms)
    if common.expiration_ms is not None:
        yield "expiration", str(common.expiration_ms)
        if common.timestamp_ms is not None:
            yield "expires", str(common.timestamp_ms + common.expiration_ms)
    for name, value in told_headers(common).items():
        if isinstance(value, bytes):  # a text whose encoding nobody said
            value = value.decode("utf-8", "replace")
        text = header_text(value)
        if text is not None and name and name not in _KNOWN:
            yield name, text


# -- envelope ----------------------------------------------------------------------------------------------------------


OPENS = b"\nJMSXGroupFirstForConsumer:true"
"""The header of the first message of a group that a consumer gets, before the others."""
FEW = 8
"""Fewer deliveries are joined from parts, for columns take time to set up."""
_LAST = [b"%03d" % value for value in range(1000)]
_COLUMN_MAX = 10_000
REMEMBERED_BYTES_MAX = 1024
"""Heads are remembered for leads up to this size."""
_COLUMNS = tuple(
    bytes(0x30 + value // 10**place % 10 for value in range(2 * _COLUMN_MAX)) for place in range(4)
)  # fmt: skip
"""The last digit of n at index n; the last but one; and so on."""


class StompCut(Cut):
    """``between``: the bytes between an id and a piece. A piece is a body if all records have one lead, else the rest
    of a delivery."""

    __slots__ = ("between",)

    def __init__(self, pieces: Sequence[bytes], between: bytes = b"", size: int = 0) -> None:
        super().__init__(pieces, size)
        self.between = between


def _rest(lead: bytes, body_bytes: int, version: Version, redelivered: bool | None) -> bytes:
    """Returns the bytes between an id and the body, for records with this lead."""
    write = _written_lately if len(lead) <= REMEMBERED_BYTES_MAX else _written
    return write(lead, body_bytes, version, redelivered)


def _written(lead: bytes, body_bytes: int, version: Version, redelivered: bool | None) -> bytes:
    record = queue_form().dialect.decode(lead)
    return b"\n" + head_of(record, body_bytes, version, redelivered)


_written_lately = lru_cache(1024)(_written)


class StompEnvelope:
    """Writes the deliveries for one consumer; ``acks``: it acknowledges. ``queue``: it reads a queue, whose records may
    come a second time."""

    __slots__ = ("_acks", "_front", "_queue", "_version", "rewritten", "shape")

    def __init__(self, subscription: str | None, version: Version, *, acks: bool, queue: bool = True) -> None:
        named = "" if subscription is None else header_line("subscription", subscription, version)
        self._version = version
        self.rewritten = 0
        self._acks = acks and version is V1_2
        self._front = f"MESSAGE\n{named}message-id:".encode()
        self._queue = queue
        self.shape = ("stomp", version, queue)

    # -- for all consumers ------------------------------------------------------------------------------------------

    def cut(self, data: bytes | memoryview, ends: Sequence[int], *, redelivered: int = 0) -> StompCut:
        data, again = bytes(data), redelivered > 0 if self._queue else None
        return self._cut_even(data, ends, again) or self._cut_each(data, ends, again)

    def _cut_even(self, data: bytes, ends: Sequence[int], redelivered: bool | None) -> StompCut | None:
        """Cuts records that all have one lead; None: they do not, or are too few."""
        count, size = len(ends), ends[0]
        if count < FEW or ends[-1] != count * size:
            return None
        lead_bytes = queue_form().lead_bytes(data, 0)
        if lead_bytes >= size:
            return None
        leads, bodies = equal_pairs(data, (lead_bytes, size - lead_bytes), count)
        if leads.count(leads[0]) != count:  # a lead says how large its body is
            return None
        between = _rest(leads[0], size - lead_bytes, self._version, redelivered)
        return StompCut(bodies, between, len(between) + size - lead_bytes + 1)

    def _cut_each(self, data: bytes, ends: Sequence[int], redelivered: bool | None) -> StompCut:
        lead_bytes, version, start = queue_form().lead_bytes, self._version, 0
        pieces: list[bytes] = []
        known = _written_lately.cache_info().hits
        for end in ends:
            body_at = start + lead_bytes(data, start)
            rest = _rest(data[start:body_at], end - body_at, version, redelivered)
            pieces.append(b"%b%b\0" % (rest, data[body_at:end]))
            start = end
        self.rewritten += len(ends) - (_written_lately.cache_info().hits - known)
        return StompCut(pieces)

    def opening(self, cut: StompCut) -> StompCut:
        return StompCut([OPENS + piece for piece in cut.pieces])

    # -- for each consumer ------------------------------------------------------------------------------------------

    def write(self, cut: StompCut, start: int, stop: int, first_id: int) -> bytes:
        whom = (self._front, self._acks, start, stop, first_id)
        known = cut.written(whom)
        if known is not None:
            return known
        if self._acks or stop - start < FEW:
            frames = self._write_each(cut, start, stop, first_id)
        elif cut.size:
            frames = self._fill_in(cut, start, stop, first_id)
        else:
            frames = self._join(cut, start, stop, first_id)
        return cut.keep(whom, frames)

    def ends(self, cut: StompCut, start: int, stop: int) -> list[int]:
        return cut.ends(start, stop, len(self._own(0)))

    def _own(self, delivery_id: int) -> bytes:
        """Returns the bytes of a delivery up to the end of its last id."""
        if self._acks:
            return b"%b%015d\nack:%015d" % (self._front, delivery_id, delivery_id)
        return b"%b%015d" % (self._front, delivery_id)

    def _write_each(self, cut: StompCut, start: int, stop: int, first_id: int) -> bytes:
        own, even = self._own, cut.size > 0
        parts: list[bytes] = []
        for delivery_id, piece in enumerate(cut.pieces[start:stop], first_id):
            parts += (own(delivery_id), cut.between, piece, b"\0") if even else (own(delivery_id), piece)
        return b"".join(parts)

    def _fill_in(self, cut: StompCut, start: int, stop: int, first_id: int) -> bytes:
        """Joins records of one size, and fills in the ids."""
        high, low = divmod(first_id, _COLUMN_MAX)
        count = stop - start
        if low + count > _COLUMN_MAX:
            middle = start + _COLUMN_MAX - low
            return self._fill_in(cut, start, middle, first_id) + self._fill_in(
                cut, middle, stop, (high + 1) * _COLUMN_MAX
            )
        own = self._own(first_id)
        lead = own + cut.between
        pieces = list(cut.pieces[start:stop])
        pieces[0] = lead + pieces[0]
        pieces[-1] += b"\0"
        # BytesIO.getvalue returns the buffer itself, not a copy.
        frames = BytesIO((b"\0" + lead).join(pieces))
        size, last = len(own) + cut.size, low + count - 1
        with frames.getbuffer() as view:
            for place, column in enumerate(_COLUMNS):
                if low // 10**place == last // 10**place:
                    break
                view[len(own) - 1 - place :: size] = column[low : low + count]
        return frames.getvalue()

    def _join(self, cut: StompCut, start: int, stop: int, first_id: int) -> bytes:
        """Joins records of any sizes, three parts each: up to the id's last digits, these, and the rest."""
        count = stop - start
        parts = [b""] * (3 * count)
        parts[2::3] = cut.pieces[start:stop]
        at = 0
        while at < count:
            high, low = divmod(first_id + at, 1000)
            upto = min(count, at + 1000 - low)
            parts[3 * at : 3 * upto : 3] = [b"%b%012d" % (self._front, high)] * (upto - at)
            parts[3 * at + 1 : 3 * upto : 3] = _LAST[low : low + upto - at]
            at = upto
        return b"".join(parts)
