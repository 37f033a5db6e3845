"""Columns: scans frames of one size, many at a time. These are the innermost loops of all scanners: they find how far
frames with one header reach, and where their parts are.

A few frames are compared one by one. For many frames with a short header, the bytes at one position of all headers form
a *column*: a slice whose step is the frame size. C compares a column, in a nanosecond per byte of a frame's header.
Long headers are cut out with one call of ``struct`` and counted, in 50 ns per frame.

Where parts that are equal stand between others that are not, whole frames are cut, each part a column (``same_rows``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any

form_of = lru_cache(256)(Struct)
"""Returns the form of this text; those used lately are known."""

KNOWN_MAX = 4096
"""A form of more parts takes much memory, so it is not kept."""
FEW = 16
"""Frames compared one by one before a method is tried that takes time to set up."""
COLUMNS_MAX = 32
"""Longer headers are cut out."""
PIECES_MAX, PIECES_A_UNIT = 1024, 2
"""Pieces of a run, each of frames of one size: as many as it may have, and that take the time of one small item."""


def pieces_work(ends: Sequence[int]) -> int:
    """Returns the work of finding a run of frames with these ends, besides the first. They are a range if all frames
    have one size; else it may be as many pieces as frames."""
    return 0 if type(ends) is range else min(len(ends), PIECES_MAX) // PIECES_A_UNIT


def same_frames(data: bytes, header: bytes, pos: int, size: int, trailer: bytes = b"") -> int:
    """Returns the end of the frames of ``size`` bytes from ``pos`` on that begin with ``header`` and end with
    ``trailer``."""
    startswith = data.startswith
    last = len(data) - size
    few = min(last, pos + FEW * size)
    if trailer:
        while pos <= few and startswith(header, pos) and data.endswith(trailer, pos, pos + size):
            pos += size
    else:
        while pos <= few and startswith(header, pos):
            pos += size
    if pos <= few or pos > last:
        return pos
    if len(header) > COLUMNS_MAX:
        return _same_pieces(data, header, pos, size, trailer)
    count = same_column(data, header, pos, size, (len(data) - pos) // size)
    if trailer:
        count = same_column(data, trailer, pos + size - len(trailer), size, count)
    return pos + count * size


def same_column(data: bytes, wanted: bytes, pos: int, size: int, count: int) -> int:
    """Counts the frames in a row, of ``count``, that have these bytes; ``pos`` is where the first frame has them."""
    for at in range(len(wanted) - 1, -1, -1):  # topics mostly differ at their ends
        byte = wanted[at : at + 1]
        column = data[pos + at : pos + count * size : size]
        if column != byte * count:
            count -= len(column.lstrip(byte))
            if not count:
                break
    return count


def _same_pieces(data: bytes, header: bytes, pos: int, size: int, trailer: bytes) -> int:
    """Cuts out headers in growing portions, so that few are cut out in vain."""
    left = (len(data) - pos) // size
    tried = FEW
    while left:
        tried = min(2 * tried, left)
        headers = equal_pieces(data, pos, len(header), size, tried)
        same = headers.count(header)
        if same != tried:
            same = next(index for index, other in enumerate(headers) if other != header)
        same = same_column(data, trailer, pos + size - len(trailer), size, same)
        pos += same * size
        left -= same
        if same != tried:
            break
    return pos


def same_rows(
    form: Struct, data: bytes, pos: int, most: int, wanted: dict[int, object]
) -> Iterator[list[tuple[Any, ...]]]:
    """Cuts up to ``most`` frames of one size, whose parts ``form`` gives, in growing portions. Yields the columns of
    each. They end before the first frame that does not have what is ``wanted`` in these columns."""
    view, tried = memoryview(data), FEW
    while most:
        tried = min(2 * tried, most)
        columns = list(zip(*form.iter_unpack(view[pos : pos + tried * form.size]), strict=True))
        same = tried
        for at, value in wanted.items():
            if columns[at].count(value) != tried:
                same = min(same, next(index for index, other in enumerate(columns[at]) if other != value))
        if same < tried:
            if same:
                yield [column[:same] for column in columns]
            return
        yield columns
        most -= tried
        pos += tried * form.size


def equal_pieces(data: bytes, start: int, size: int, step: int, count: int) -> tuple[bytes, ...]:
    """Returns ``count`` pieces of ``size`` bytes, each ``step`` bytes after the one before. It takes less than half the
    time of as many slices."""
    if not count:
        return ()
    return _form(f"{size}s{step - size}x", count - 1, f"{size}s").unpack_from(data, start)


def equal_pairs(data: bytes, sizes: tuple[int, int], count: int) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Splits ``data``, which is ``count`` pairs of pieces of these sizes, into all first and all second pieces."""
    one, other = sizes
    pieces = _form(f"{one}s{other}s", count).unpack_from(data)
    return pieces[::2], pieces[1::2]


def _form(part: str, count: int, last: str = "") -> Struct:
    """Returns the form of ``count`` equal parts, and a last one. Reads of one size bring the same ones again and again.
    To make one takes as long as to use it."""
    return _known_form(part, count, last) if count <= KNOWN_MAX else Struct(part * count + last)


@lru_cache(32)
def _known_form(part: str, count: int, last: str) -> Struct:
    return Struct(part * count + last)
