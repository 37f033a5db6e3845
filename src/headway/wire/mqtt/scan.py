"""The hot loop of the MQTT decoder: finds the end of a run of QoS 0 messages.

Rules. The *lead* of a PUBLISH is everything between fixed header and payload: topic, and in version 5 the properties.
Frames of one run have the same first byte and leads that are equal byte for byte, so topic and properties are read once
per run. The scan raises no errors: it stops at the first frame that does not fit, and the decoder parses that one
again.

Speed. Neighbours of one size also have equal fixed headers, so one comparison of header and lead checks type, flags,
length and topic at once, and many frames are compared without a step of the interpreter per frame (columns.py). Their
positions are a range. The length is decoded only where the size changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from headway.wire.columns import PIECES_MAX, same_frames


def extend_run(
    data: bytes, start: int, body: int, payload: int, end: int, frame_bytes_max: int
) -> tuple[int, Sequence[int], Sequence[int]]:
    """Extends the run that begins with the frame ``data[start:end]``, whose lead is ``data[body:payload]``.

    Returns the end of the run in ``data``, and the ends and payload starts of its records, counted from ``start``: as
    ranges if all have one size.
    """
    startswith = data.startswith
    first = data[start]
    lead = data[body:payload]
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
        header = data[at:payload]
        pos = same_frames(data, header, end, size) if end + size <= n and startswith(header, end) else end
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
