"""Frames of one size, looked at many at a time. The innermost loops of all scanners: how far do frames with one header
reach, and where are their parts?

A few frames are compared one by one. Of many with a short header the bytes at one place of all headers are a slice with
the size as its step, a *column*, and whether these are all equal is found in C: a nanosecond for each byte of a frame's
header. Long headers are cut out, all with one call of ``struct``, and counted: 50 ns for each frame.
"""

from __future__ import annotations

from struct import Struct

FEW = 16
"""So many are compared one by one before anything is tried that takes some time to set up."""
COLUMNS_MAX = 32
"""A longer header is cut out."""


def same_frames(data: bytes, header: bytes, pos: int, size: int, trailer: bytes = b"") -> int:
    """Where the frames of ``size`` bytes from ``pos`` on stop to begin with ``header`` and to end with ``trailer``."""
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
    count = _same_columns(data, header, pos, size, (len(data) - pos) // size)
    if trailer:
        count = _same_columns(data, trailer, pos + size - len(trailer), size, count)
    return pos + count * size


def _same_columns(data: bytes, wanted: bytes, pos: int, size: int, count: int) -> int:
    """In how many frames in a row, of ``count``, do these bytes stand, ``pos`` being their place in the first?"""
    for at in range(len(wanted) - 1, -1, -1):  # topics that differ do so at their ends
        byte = wanted[at : at + 1]
        column = data[pos + at : pos + count * size : size]
        if column != byte * count:
            count -= len(column.lstrip(byte))
            if not count:
                break
    return count


def _same_pieces(data: bytes, header: bytes, pos: int, size: int, trailer: bytes) -> int:
    """By more and more at a time, so that not much is cut out in vain."""
    left = (len(data) - pos) // size
    tried = FEW
    while left:
        tried = min(2 * tried, left)
        headers = equal_pieces(data, pos, len(header), size, tried)
        same = headers.count(header)
        if same != tried:
            same = next(index for index, other in enumerate(headers) if other != header)
        same = _same_columns(data, trailer, pos + size - len(trailer), size, same)
        pos += same * size
        left -= same
        if same != tried:
            break
    return pos


def equal_pieces(data: bytes, start: int, size: int, step: int, count: int) -> tuple[bytes, ...]:
    """``count`` pieces of ``size`` bytes, each ``step`` bytes behind the one before, in less than half the time that
    as many slices take."""
    form = f"{size}s{step - size}x" * (count - 1) + f"{size}s" if count else ""
    return Struct(form).unpack_from(data, start)


def equal_pairs(data: bytes, sizes: tuple[int, int], count: int) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """``data`` is ``count`` pairs of pieces of these sizes: the first of all, and the second."""
    one, other = sizes
    pieces = Struct(f"{one}s{other}s" * count).unpack_from(data)
    return pieces[::2], pieces[1::2]
