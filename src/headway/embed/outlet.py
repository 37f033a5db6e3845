"""The outlet of a subscription in the program: it holds what the kernel would hold for a client elsewhere.

It takes ``ROOM_BYTES`` from the lane and no more before the program has asked for the next record. All else waits in
the lane, at a cursor, as for any consumer: so a program that does not iterate costs these bytes, is measured from the
first moment on, and its policy decides what becomes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf

from headway.core.base import Reason
from headway.core.consumer import ConnectionlessOutlet, Pace, PeerState
from headway.core.log import SpillHandle
from headway.wire.program import Delivered, Frames

ROOM_BYTES = 64 * 1024
FRESH_BYTES = 4 * 1024
"""The room where newer records may replace those that wait in the lane."""


class ProgramOutlet(ConnectionlessOutlet):
    """``go_on`` is called when there is room again, and not in the middle of a turn."""

    __slots__ = ("_frames", "_go_on", "_loop", "_moved_s", "_room_bytes", "_seen_bytes", "_waiting", "came")
    told_of_ends = keeps_its_name = True

    def __init__(self, now: float, loop: asyncio.AbstractEventLoop, filter: str, go_on: Callable[[], None]) -> None:
        super().__init__(now)
        self.blocked = False
        self._loop = loop
        self._go_on = go_on
        self._frames = Frames(filter)
        self._waiting = bytearray()
        self._room_bytes = ROOM_BYTES
        self._seen_bytes = 0
        """Bytes that the program had read when it was last looked at."""
        self._moved_s = now
        """When it was last seen to have read any."""
        self.came: asyncio.Future[None] | None = None
        """Done when there is something to read, or the session is over; None: nobody waits for it."""

    @property
    def unread_bytes(self) -> int:
        return len(self._waiting) + self._frames.unread_bytes

    # -- from the broker ----------------------------------------------------------------------------------------------

    def send(self, views: Sequence[bytes | bytearray | memoryview], total: int) -> int:
        room = self._room_bytes - len(self._waiting)
        if room <= 0 or self.last_word is not None:
            return 0
        before = len(self._waiting)
        for view in views:
            self._waiting += view[: room - (len(self._waiting) - before)]
        self.wake()
        return len(self._waiting) - before

    def send_file(self, handle: SpillHandle, start: int, count: int) -> int:
        room = self._room_bytes - len(self._waiting)
        if room <= 0:
            return 0
        data = handle.read(start, start + min(count, room))
        return self.send([data], len(data))

    def freshen(self, *, soon: bool = False) -> None:
        if not soon:  # no kernels hold anything between it and the program
            self._room_bytes = FRESH_BYTES

    @property
    def blocked_since_s(self) -> float:
        return max(self.progress_s, self._moved_s) if self.blocked else inf

    def pace(self, now: float) -> Pace:
        if (seen_bytes := self.seen_bytes()) != self._seen_bytes:
            self._seen_bytes, self._moved_s = seen_bytes, now
        return Pace(self.blocked_since_s, unacknowledged_bytes=self.unread_bytes)

    def seen_bytes(self) -> int:
        return self.taken_bytes - self.unread_bytes

    def peer(self) -> PeerState:
        """The program is here, and does not ask for more."""
        return PeerState(window_closed=True)

    def ended(self, reason: Reason, text: str, rest: bytes | memoryview | None) -> None:
        super().ended(reason, text, rest)
        if rest is not None:
            self._waiting += rest
            self._waiting += self.out  # the rest of what was written one by one
        self.wake()

    def cancelled(self) -> None:
        self.wake()

    def wake(self) -> None:
        if self.came is not None:
            if not self.came.done():
                self.came.set_result(None)
            self.came = None

    # -- to the program -----------------------------------------------------------------------------------------------

    def next(self) -> Delivered | None:
        """Returns the next record, gap or mark; None: nothing is here."""
        found = self._frames.next()
        if found is not None or not self._waiting:
            return found
        self._frames.feed(bytes(self._waiting))
        self._waiting.clear()
        if self.blocked and self.last_word is None:
            self._loop.call_soon(self._go_on)
        return self._frames.next()

