"""The outlet of a consumer over server-sent events: one piece at a time, which its HTTP answer writes.

There is no buffer of records for it: while a piece waits for its client, the outlet is blocked, and its records stay in
the lane, where policies judge the consumer as any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from headway.core.base import Reason
from headway.core.consumer import ConnectionlessOutlet, Outlet, Pace
from headway.core.log import SpillHandle
from headway.wire.event_stream import END

PIECE_BYTES = 64 * 1024


class AnswerOutlet(ConnectionlessOutlet):
    """The outlet of a client that an answer is sent to, which writes by itself (state.py)."""

    __slots__ = ("_over",)
    is_one_stream = True

    def __init__(self, now: float, over: Callable[[], object]) -> None:
        """``over`` is called when the session is ended."""
        super().__init__(now)
        self._over = over

    def pace(self, now: float) -> Pace:
        return Outlet.pace(self, now)

    def ended(self, reason: Reason, text: str, rest: bytes | memoryview | None) -> None:
        super().ended(reason, text, rest)
        self._over()


class EventOutlet(AnswerOutlet):
    __slots__ = ("changed", "is_whole", "piece", "rest")

    def __init__(self, now: float, over: Callable[[], object]) -> None:
        super().__init__(now, over)
        self.blocked = False
        self.piece = b""
        """The piece that is to be written next, or that is being written."""
        self.is_whole = True
        """The last piece ended with the end of an event."""
        self.rest: bytes | None = b""
        """The rest of a half-sent event, when the broker has ended the session; None: it cannot be had."""
        self.changed = asyncio.Event()
        """Set when there is a piece, or the session is over."""

    def send(self, views: Sequence[bytes | bytearray | memoryview], total: int) -> int:
        if self.piece or self.last_word is not None:
            return 0
        self.piece = b"".join(views)[:PIECE_BYTES]
        self.is_whole = self.piece.endswith(END)
        self.changed.set()
        return len(self.piece)

    def send_file(self, handle: SpillHandle, start: int, count: int) -> int:
        if self.piece:
            return 0
        data = handle.read(start, start + min(count, PIECE_BYTES))
        return self.send([data], len(data))

    def ended(self, reason: Reason, text: str, rest: bytes | memoryview | None) -> None:
        self.rest = None if rest is None else bytes(rest) + self.out  # of what was written one by one, too
        super().ended(reason, text, rest)
        self.changed.set()
