"""The stamp at the head of each record's payload: which run and topic it is of, its number there, and when it was sent.

Both ends are in one process, so the moments are of one clock.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

FORM = struct.Struct(">4sQHQQ")
MARK = b"HWtr"
STAMP_BYTES = FORM.size


class Stamp(NamedTuple):
    run: int
    topic: int
    number: int
    """Counted from 0 in its topic."""
    sent_ns: int
    """On the monotonic clock."""


def write_stamp(stamp: Stamp, size_bytes: int) -> bytes:
    """Returns a payload of this size, which is at least STAMP_BYTES."""
    return FORM.pack(MARK, *stamp).ljust(size_bytes, b".")


def read_stamp(payload: bytes, run: int) -> Stamp | None:
    """Returns the stamp; None: the record is not of this run."""
    if len(payload) < STAMP_BYTES or not payload.startswith(MARK):
        return None
    stamp = Stamp(*FORM.unpack_from(payload)[1:])
    return stamp if stamp.run == run else None
