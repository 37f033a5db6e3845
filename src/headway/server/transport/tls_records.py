"""Records of TLS: what goes into each. However little that is, it costs a call of the cipher, and 22 bytes or more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.server.transport.byte_stream import Buffer

RECORD_BYTES = 16 * 1024
"""The most that a record has."""


def contents(views: Sequence[Buffer]) -> Iterator[Buffer]:
    """Yields what goes into each record. All are full but the last, also where a view ends: the header of a frame takes
    up no record of its own."""
    begun: list[Buffer] = []
    begun_bytes = 0
    for view in views:
        whole, at = memoryview(view), 0
        if begun:
            at = min(len(whole), RECORD_BYTES - begun_bytes)
            begun.append(whole[:at])
            begun_bytes += at
            if begun_bytes < RECORD_BYTES:
                continue
            yield b"".join(begun)
            begun = []
        end = len(whole) - (len(whole) - at) % RECORD_BYTES
        for start in range(at, end, RECORD_BYTES):
            yield whole[start : start + RECORD_BYTES]
        if end < len(whole):
            begun.append(whole[end:])
            begun_bytes = len(whole) - end
    if begun:
        yield b"".join(begun) if len(begun) > 1 else begun[0]
