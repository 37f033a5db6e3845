"""The hot loop of the MQTT decoder: finds the end of a run of messages of one topic.

Rules. The *lead* of a PUBLISH is everything between fixed header and payload: topic, from QoS 1 on a packet id, and in
version 5 the properties. Frames of one run have the same first byte and leads that are equal byte for byte but for the
packet ids, so topic and properties are read once per run. The scan raises no errors: it stops at the first frame that
does not fit, and the decoder parses that one again.

Speed. Neighbours of one size also have equal fixed headers, so one comparison of header and lead checks type, flags,
length and topic at once, and many frames are compared without a step of the interpreter per frame (wire/dialect.py).
Their positions are a range. The length is decoded only where the size changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import unpack

from headway.wire.dialect import PIECES_MAX, same_column, same_frames


def extend_run(
    data: bytes, start: int, body: int, payload: int, end: int, frame_bytes_max: int, id_at: int = 0
) -> tuple[int, Sequence[int], Sequence[int]]:
    """Extends the run that begins with the frame ``data[start:end]``, whose lead is ``data[body:payload]``. ``id_at``:
    the position of its packet id; 0: it has none. The other frames may have any packet ids.

    Returns the end of the run in ``data``, and the ends and payload starts of its records, counted from ``start``: as
    ranges if all have one size.
    """
    startswith = data.startswith
    first = data[start]
    behind = payload - id_at if id_at else 0
    """The packet id and what comes between it and the payload."""
    lead, rest = data[body : payload - behind], data[id_at + 2 : payload] if id_at else b""
    n = len(data)
    header_max = n - 1
    # A run of one frame, the usual case when topics alternate, is detected before anything is prepared.
    if end >= header_max or data[end] != first:
        return end, [end - start], [payload - start]
    following = end + (2 if data[end + 1] < 128 else 3)
    if following <= n and data[following - 1] < 128 and not startswith(lead, following):
        return end, [end - start], [payload - start]
    lead_bytes = payload - body
    ends: list[int] = []
    bodies: list[int] = []
    pieces = 1
    at = start
    while True:
        # The frame data[at:end] is known to fit, and so do the next ones with the same header.
        size = end - at
        header = data[at : payload - behind]
        pos = same_frames(data, header, end, size) if end + size <= n and startswith(header, end) else end
        if rest and pos > end:
            pos = end + size * same_column(data, rest, payload - len(rest) + size, size, (pos - end) // size)
        # Next: a frame of another size, another message, or the end of the data.
        if pieces == PIECES_MAX or pos >= header_max or data[pos] != first:
            break
        length = data[pos + 1]
        next_body = pos + 2
        if length > 127:
            length, next_body = read_length(data, pos + 1, n)
        next_end = next_body + length
        if length < lead_bytes or next_end > n or next_end - pos > frame_bytes_max or not startswith(lead, next_body):
            break
        if rest and not startswith(rest, next_body + lead_bytes - len(rest)):
            break
        if pos == end:
            ends.append(end - start)
            bodies.append(payload - start)
        else:
            ends += range(end - start, pos - start + 1, size)
            bodies += range(payload - start, pos - start + 1, size)
        pieces += 1
        at, payload, end = pos, next_body + lead_bytes, next_end
    # The + 1 is also needed for payload starts: an empty payload starts where its frame ends.
    last_ends, last_bodies = range(end - start, pos - start + 1, size), range(payload - start, pos - start + 1, size)
    if not ends:
        return pos, last_ends, last_bodies
    ends += last_ends
    bodies += last_bodies
    return pos, ends, bodies


def packet_ids(data: bytes, bodies: Sequence[int], lead_bytes: int) -> bytes:
    """Returns the packet ids of a run, which come so many bytes before the payloads, up to the first that is 0."""
    if type(bodies) is range:
        at, stop, size = bodies.start - lead_bytes, bodies.stop - lead_bytes, bodies.step
        high, low = data[at:stop:size], data[at + 1 : stop + 1 : size]
    else:
        high = bytes([data[body - lead_bytes] for body in bodies])
        low = bytes([data[body - lead_bytes + 1] for body in bodies])
    if 0 in high and 0 in low:
        count = next((at for at, pair in enumerate(zip(high, low, strict=True)) if pair == (0, 0)), len(high))
        high, low = high[:count], low[:count]
    ids = bytearray(2 * len(high))
    ids[::2], ids[1::2] = high, low
    return bytes(ids)


def numbers_of(packet_ids: bytes) -> tuple[int, ...]:
    return unpack(f">{len(packet_ids) // 2}H", packet_ids)


def read_length(data: bytes, pos: int, n: int) -> tuple[int, int]:
    """Returns the remaining length at ``pos``, and its end; (-1, pos): it is incomplete, (-2, pos): it is longer than
    allowed or needed."""
    value = 0
    for shift in (0, 7, 14, 21):
        if pos >= n:
            return -1, pos
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (-2, pos) if byte == 0 and shift else (value, pos)
    return -2, pos
