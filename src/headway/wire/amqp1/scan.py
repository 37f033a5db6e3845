"""Scans transfers: finds the neighbouring messages of one link that differ only in their bodies.

    size, channel | descriptor, list, handle | delivery id | delivery tag | other fields, sections | body
    `--------- head: equal -----------------'                             `---- rest: equal -----'

Theory of operation. The first transfer is read field by field, and its message section by section. Of the transfers
behind it, those of the same size are compared with it in two pieces: ``head`` and ``rest``. The id has to be the next
one. Others are read as the first was, and belong to the run if their content is equal but for the size of the body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from headway.core.base import ProtocolError
from headway.core.message import Run
from headway.wire.amqp1.items import Content, Transfers, split
from headway.wire.amqp1.performatives import TRANSFER, Transfer, build, descriptor_of
from headway.wire.amqp1.values import Described, malformed, read, skip

HEADER_BYTES = 8
LEAD_BYTES_MAX = 128 * 1024
"""A million properties would take a second to read."""
FEW = 16
"""Messages of one size from which on their positions are ranges."""
ALIKE_MAX = 64
"""Messages of a run that were read one by one because they are of other sizes than the first, or looked so."""
_TRANSFER = b"\0\x53\x14"
_FIELDS = {0xC0: 6, 0xD0: 12}
"""Where the fields of a transfer begin, by the kind of its list: some clients always write the large one."""
_IDS = {0x43: 0, 0x52: 1, 0x70: 4}


class Fields(NamedTuple):
    """A transfer, and where its parts are. ``id_at``, ``tag_end``: 0 if it was not written in the usual form."""

    transfer: Transfer
    id_at: int
    tag_end: int
    payload_at: int


def is_transfer(data: bytes, at: int, end: int) -> bool:
    if data.startswith(_TRANSFER, at):
        return True
    if data[at : at + 2] in (b"\0\x80", b"\0\xa3", b"\0\xb3"):
        said, _ = read(data, at + 1, end)
        return descriptor_of(said) == TRANSFER
    return False


def read_transfer(data: bytes, at: int, end: int) -> Fields:
    """Reads the performative at ``at``. Raises ProtocolError."""
    value, payload_at = read(data, at, end)
    transfer = build(value)
    if not isinstance(value, Described) or not isinstance(transfer, Transfer):
        raise malformed("is no transfer")
    fields = _FIELDS.get(data[at + 3], 0) if data.startswith(_TRANSFER, at) else 0
    if not fields or not transfer.delivery_tag:
        return Fields(transfer, 0, 0, payload_at)
    id_at = skip(data, at + fields, end)
    tag_at = skip(data, id_at, end)
    return Fields(transfer, id_at, skip(data, tag_at, end), payload_at)


def content_of(data: bytes, at: int, end: int) -> tuple[Content, tuple[int, int], bytes | None]:
    """Returns what a message says beside its body, where its payload is, and the payload itself if it is in pieces."""
    parts = split(data, at, end)
    if parts.lead[1] - parts.lead[0] > LEAD_BYTES_MAX:
        raise malformed(f"has {parts.lead[1] - parts.lead[0]} bytes before its body (at most {LEAD_BYTES_MAX})")
    content = Content(data[slice(*parts.lead)], data[slice(*parts.header)], parts.body)
    if parts.pieces:
        return content, parts.payload, b"".join(data[start:stop] for start, stop in parts.pieces)
    return content, parts.payload, None


def whole_message(channel: int, first: Transfer, data: bytes, frames: int) -> Transfers:
    """Returns a message that came in several frames. Raises ProtocolError."""
    content, (start, stop), joined = content_of(data, 0, len(data))
    payload = data[start:stop] if joined is None else joined
    run = Run("", payload, [len(payload)], [0])
    return Transfers(channel, first.handle, first.delivery_id or 0, bool(first.settled), content, run, frames,
                     first.state, first.delivery_tag or b"")  # fmt: skip


def extend(data: bytes, pos: int, end: int, channel: int, fields: Fields, most: int) -> tuple[Transfers, int, int]:
    """Returns the run that begins with the whole message in the frame at ``data[pos:end]``, the end of its last frame,
    and how many frames behind the first were read one by one. ``most``: the messages that it may have. Raises
    ProtocolError if the first has no form."""
    first, alike = fields.transfer, 0
    content, (start, stop), joined = content_of(data, fields.payload_at, end)
    if joined is not None:
        run = Run("", joined, [len(joined)], [0])
        done = end
    else:
        ends: Sequence[int] = [stop - pos]
        bodies: Sequence[int] = [start - pos]
        done = end
        if fields.id_at:
            ends, bodies = [stop - pos], [start - pos]
            done, alike = _more(data, pos, end, fields, content, (start, stop), ends, bodies, most)
            size, count = end - pos, len(ends)
            if count > FEW and done - pos == size * count and ends[-1] - ends[0] == size * (count - 1):
                ends = range(stop - pos, stop - pos + size * count, size)
                bodies = range(start - pos, start - pos + size * count, size)
        run = Run("", data[pos : pos + ends[-1]], ends, bodies)
    item = Transfers(channel, first.handle, first.delivery_id or 0, bool(first.settled), content, run, len(run.ends),
                     first.state, first.delivery_tag or b"")  # fmt: skip
    return item, done, alike


def _more(data: bytes, pos: int, end: int, fields: Fields, content: Content, payload: tuple[int, int],
          ends: list[int], bodies: list[int], most: int) -> tuple[int, int]:  # fmt: skip
    """Adds the messages behind the first one, by their positions from ``pos`` on. Returns the end of the last, and how
    many frames were read one by one."""
    first, n = fields.transfer, len(data)
    size, expected = end - pos, (first.delivery_id or 0) + 1
    id_off, tag_off, payload_off = fields.id_at - pos, fields.tag_end - pos, payload[0] - pos
    head, rest = data[pos : fields.id_at], data[fields.tag_end : payload[0]]
    code = data[fields.id_at]
    id_bytes = _IDS.get(code, 0)
    tag_code = data[fields.id_at + 1 + id_bytes : fields.id_at + 3 + id_bytes]
    tag_at = id_off + 1 + id_bytes
    trailer = data[payload[1] : end]
    at, alike = end, 0
    while len(ends) < most and at + HEADER_BYTES < n:
        if (
            at + size <= n and data.startswith(head, at) and data[at + id_off] == code
            and data.startswith(tag_code, at + tag_at) and data.startswith(rest, at + tag_off)
            and int.from_bytes(data[at + id_off + 1 : at + id_off + 1 + id_bytes], "big") == expected
            and (not trailer or data.endswith(trailer, at, at + size))
        ):  # fmt: skip
            ends.append(at + size - len(trailer) - pos)
            bodies.append(at + payload_off - pos)
            at += size
        else:
            if alike == ALIKE_MAX:
                break
            alike += 1
            other = _alike(data, at, fields, content, expected, head)
            if other is None:
                break
            (start, stop), at = other
            ends.append(stop - pos)
            bodies.append(start - pos)
        expected += 1
    return at, alike


def _alike(data: bytes, at: int, fields: Fields, content: Content, expected: int, head: bytes) -> Any:
    """Returns where the payload of a message of another size is, and its end, if it belongs to the run; else None."""
    size = int.from_bytes(data[at : at + 4], "big")
    end = at + size
    if end > len(data) or size < HEADER_BYTES + 4 or not data.startswith(head[4:8], at + 4):
        return None
    if not data.startswith(_TRANSFER, at + HEADER_BYTES):
        return None
    try:
        other = read_transfer(data, at + HEADER_BYTES, end)
        first = fields.transfer
        wanted = first._replace(delivery_id=expected, delivery_tag=other.transfer.delivery_tag)
        if other.transfer != wanted or not other.id_at:
            return None
        its, payload, joined = content_of(data, other.payload_at, end)
    except ProtocolError:
        return None  # it is read again, as the first of a run, and the error is told then
    return None if its != content or joined is not None else (payload, end)
