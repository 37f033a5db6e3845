"""The hot loop: how far does a run of QoS 0 messages reach?

Rules. A *lead* is what a PUBLISH has between fixed header and payload: topic, and the properties in version 5. Frames
belong to one run when their first byte and their lead are equal, byte for byte; so topic and properties are read once
per run. Nothing is raised here: the scan stops before whatever does not fit, and the decoder looks at that afresh.

Why it is fast. Neighbours of the same size also have equal fixed headers, so one comparison of header and lead answers
for type, flags, length and topic at once; and many are compared without a step of the interpreter for each
(columns.py). Their positions are a range and stay one. Only where the size changes is the length decoded.
"""

from __future__ import annotations

from collections.abc import Sequence

from headway.wire.columns import same_frames


def extend_run(
    data: bytes, start: int, body: int, payload: int, end: int, frame_bytes_max: int
) -> tuple[int, Sequence[int], Sequence[int]]:
    """The run whose first frame is ``data[start:end]``, with the lead ``data[body:payload]``.

    Returns where it stops in ``data``, and the ends and the payload starts of its records, counted from ``start``:
    ranges where all are of one size.
    """
    startswith = data.startswith
    first = data[start]
    lead = data[body:payload]
    n = len(data)
    header_max = n - 1
    # The run of one, which is all there is when topics alternate, is found out before anything is prepared.
    if end >= header_max or data[end] != first:
        return end, [end - start], [payload - start]
    following = end + (2 if data[end + 1] < 128 else 3)
    if following <= n and data[following - 1] < 128 and not startswith(lead, following):
        return end, [end - start], [payload - start]
    lead_bytes = payload - body
    ends: list[int] = []
    bodies: list[int] = []
    at = start
    while True:
        # One frame, data[at:end], is known to fit. Those after it with the very same header fit as well.
        size = end - at
        header = data[at:payload]
        pos = same_frames(data, header, end, size) if end + size <= n and startswith(header, end) else end
        # Another size, or another message, or the end of what has come.
        if pos >= header_max or data[pos] != first:
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
        at, payload, end = pos, next_body + lead_bytes, next_end
    # The + 1 matters here too: an empty payload starts where its frame ends.
    last_ends, last_bodies = range(end - start, pos - start + 1, size), range(payload - start, pos - start + 1, size)
    if not ends:
        return pos, last_ends, last_bodies
    ends += last_ends
    bodies += last_bodies
    return pos, ends, bodies


def read_length(data: bytes, pos: int, n: int) -> tuple[int, int]:
    """The remaining length at ``pos`` and where it ends; (-1, pos) when not all of it is there, (-2, pos) when it is
    longer than allowed or than needed."""
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
