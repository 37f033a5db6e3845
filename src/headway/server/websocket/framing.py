"""Framing lays a stream's bytes out in frames, without a copy: each header is a small buffer in front of the bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headway.server.transport import Buffer
from headway.server.websocket.frames import header

FRAMES_MAX = 64
"""Frames of one portion."""


class Portion(NamedTuple):
    """A portion is what is handed to the kernel at once.

    ``parts``: headers and bytes. ``lead``: how many of the bytes complete a frame that was announced before. ``sizes``:
    those of the frames that are announced. ``rest``: the bytes that follow; the kernel seldom has room for them."""

    parts: list[Buffer]
    lead: int
    sizes: list[int]
    rest: Sequence[Buffer]


def framed(views: Sequence[Buffer], owed: int, frame_bytes: int, room_bytes: int) -> Portion:
    """Returns the first ``room_bytes`` of the views in frames of ``frame_bytes`` at most, the ``owed`` ones first."""
    parts: list[Buffer] = []
    sizes: list[int] = []
    lead, left, full = 0, room_bytes, header(frame_bytes)
    for number, data in enumerate(views):
        whole = memoryview(data)
        view, at = whole[:left], 0
        left -= len(view)
        if owed:
            at = min(owed, len(view))
            parts.append(view[:at])
            lead += at
            owed -= at
        while len(view) - at >= frame_bytes and len(sizes) < FRAMES_MAX:
            parts += (full, view[at : at + frame_bytes])
            sizes.append(frame_bytes)
            at += frame_bytes
        if at < len(view) and len(sizes) < FRAMES_MAX:
            parts += (header(len(view) - at), view[at:])
            sizes.append(len(view) - at)
            at = len(view)
        if not left or len(sizes) == FRAMES_MAX:
            rest = (whole[at:], *views[number + 1 :])
            return Portion(parts, lead, sizes, rest if rest[0] else rest[1:])
    return Portion(parts, lead, sizes, ())
