"""Acknowledgements in batches: an ack frame has 21 bytes, and a busy consumer sends one per message."""

from __future__ import annotations

import struct
from typing import NamedTuple

from headway.wire.columns import same_frames

FRAME_BYTES = 21
ACK = 60 << 16 | 80
_HEADER_BYTES = 7 + 4
_FLAG_AT = _HEADER_BYTES + 8
_TAG = f"{_HEADER_BYTES}xQ2x"


class AckBatch(NamedTuple):
    """Neighbouring ``basic.ack`` of one channel, all single or all ``multiple``; tags in the order in which they
    came."""

    channel: int
    tags: tuple[int, ...]
    multiple: bool


def read_acks(data: bytes, pos: int, channel: int) -> tuple[int, AckBatch]:
    """Reads the acks from ``pos`` on, the first of which is complete. Returns their end, and the acks."""
    flag = pos + _FLAG_AT
    header, trailer = data[pos : pos + _HEADER_BYTES], data[flag : flag + 2]
    stop = pos + FRAME_BYTES
    if data.startswith(header, stop):
        stop = same_frames(data, header, stop, FRAME_BYTES, trailer)
    count = (stop - pos) // FRAME_BYTES
    tags = struct.Struct(">" + _TAG * count).unpack_from(data, pos)
    return stop, AckBatch(channel, tags, bool(data[flag] & 1))
