"""A stretch: records ``first`` … ``last - 1`` of a lane, counted from the beginning of a chunk. They may go on in the
chunks behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.core.log.lanes.chunk import Chunk


def stretch_bytes(chunk: Chunk, first: int, last: int) -> int:
    """Returns the size of its records."""
    if last <= len(chunk.ends):
        return chunk.ends[last - 1] - chunk.record_start(first)
    return sum(one.ends[stop - 1] - one.record_start(start) for one, start, stop in _pieces(chunk, first, last))


def read_stretch(chunk: Chunk, first: int, last: int) -> tuple[bytes | memoryview, Sequence[int]]:
    """Returns the bytes of its records, and their ends there. Raises OSError if a disk fails."""
    begin = chunk.record_start(first)
    if last <= len(chunk.ends):
        ends: Sequence[int] = chunk.ends[first:last]
        return chunk.read(begin, chunk.ends[last - 1]), [end - begin for end in ends] if begin else ends
    pieces = list(_pieces(chunk, first, last))
    data = b"".join([one.read(one.record_start(start), one.ends[stop - 1]) for one, start, stop in pieces])
    size = chunk.ends[first] - begin
    if all(one.largest == size and one.size == size * len(one) for one, _, _ in pieces):  # no end is computed in Python
        return data, range(size, len(data) + 1, size)
    ends, shift = [], 0
    for one, start, stop in pieces:
        begin = one.record_start(start)
        ends += [end - begin + shift for end in one.ends[start:stop]]
        shift = ends[-1]
    return data, ends


def _pieces(chunk: Chunk, first: int, last: int) -> Iterator[tuple[Chunk, int, int]]:
    """Yields the part of each chunk."""
    while last > (count := len(chunk.ends)):
        yield chunk, first, count
        assert chunk.next is not None, "a stretch ends within its lane"
        chunk, first, last = chunk.next, 0, last - count
    yield chunk, first, last
