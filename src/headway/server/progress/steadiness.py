"""Tells whether a peer reads slowly and steadily, as far as its own kernel's buffer shows.

Theory of operation. A conflated client gets newer records if less waits in our kernel's buffer, a quarter of a
megabyte: the state replaces what waits here, and nothing replaces what the kernel has. A client that reads steadily
loses no byte by that, for its own kernel's buffer (110 to 200 kB) is never empty. A client that reads all at once, and
then nothing for seconds, takes both buffers at a time. It would get less, so it is left alone.

What a peer acknowledges shows how it reads only while bytes wait for its window (*unsent*): before, its kernel takes
what comes, read or not. Even then its kernel frees a buffer at a time, so its pace is measured from *mark* to mark, the
ends of its pauses. A peer is *steady* when bytes were unsent at every look for ``LEARN_S`` at least, and it has taken
``LEARN_BYTES`` meanwhile, without a *gulp*: after a pause it takes, within a second, more than its own buffer holds. It
is so until it gulps, gets fast (then the buffers make it no later), nobody has looked for a while, or its pace falls:
smaller gulps than that look steady, and show only by this. A peer whose pace fell is left alone for ``ALONE_S``.

Times are seconds on the broker's clock.
"""

from __future__ import annotations

from typing import NamedTuple

LEARN_S = 10.0
LEARN_BYTES = 160 * 1024
GULP_BYTES = 256 * 1024
"""Linux has a buffer of 110 to 200 kB for whoever asks for nothing else, and may free all of it at a time."""
FAST_BYTES = 1024 * 1024
"""A peer that takes so much in ``STRIDE_S`` is fast."""
STRIDE_S = 1.0
GULP_PAUSE_S = 2.0
MARK_PAUSE_S = 0.5
MARKS_S = 5.0
"""A peer that never pauses is marked so often."""
PACE_S = 40.0
PACE_SHARE = 0.8
IDLE_SHARE = 0.5
"""A pace says nothing if there was nothing unsent at more than this share of the looks."""
LEFT_BYTES = 96 * 1024
"""Our kernel's surplus has gone when no more than this is unsent."""
ALONE_S = 300.0
ALONE_MAX_S = 3600.0
UNSEEN_S = 1.0


class Mark(NamedTuple):
    """The end of a pause, before the peer's next step."""

    time_s: float
    acked_bytes: int


class Steadiness:
    __slots__ = (
        "_acked_bytes", "_alone_s", "_alone_until_s", "_first", "_idle", "_looked_s", "_looks", "_moved_s", "_pace",
        "_stride", "steady",
    )  # fmt: skip

    def __init__(self) -> None:
        self.steady = False
        self._looked_s = self._moved_s = float("-inf")
        self._acked_bytes = 0
        self._first: Mark | None = None
        """The mark from which the pace is measured."""
        self._looks = self._idle = 0
        """Looks since then, and those at which nothing was unsent."""
        self._pace = 0.0
        """Bytes a second, before the peer was steady."""
        self._stride = (Mark(float("-inf"), 0), FAST_BYTES)
        """The mark at which a second begins, and how much in that second is too much."""
        self._alone_until_s = float("-inf")
        self._alone_s = ALONE_S

    def look(self, now: float, acked_bytes: int, unsent_bytes: int) -> None:
        """Takes in what the kernel knows now."""
        if now - self._looked_s > UNSEEN_S or not (unsent_bytes or self.steady):
            self._restart()
            self._moved_s = now
        self._looks += 1
        self._idle += not unsent_bytes
        if acked_bytes > self._acked_bytes:
            self._step(now, acked_bytes, unsent_bytes)
            self._moved_s = now
        self._looked_s, self._acked_bytes = now, acked_bytes

    def _step(self, now: float, acked_bytes: int, unsent_bytes: int) -> None:
        mark, pause_s = Mark(now, self._acked_bytes), now - self._moved_s
        if pause_s >= GULP_PAUSE_S:
            self._stride = (mark, GULP_BYTES)
        elif now - self._stride[0].time_s > STRIDE_S:
            self._stride = (mark, FAST_BYTES)
        begun, too_much = self._stride
        if acked_bytes - begun.acked_bytes > too_much:
            self._restart()
        elif self._first is None:
            self._begin(mark, unsent_bytes)
        elif pause_s >= MARK_PAUSE_S or now - self._first.time_s > MARKS_S:
            self._measure(self._first, mark, unsent_bytes)

    def _measure(self, first: Mark, mark: Mark, unsent_bytes: int) -> None:
        """Takes the pace between two marks. Says that the peer is steady, or no longer is."""
        passed_s, taken = mark.time_s - first.time_s, mark.acked_bytes - first.acked_bytes
        if not self.steady:
            if passed_s >= LEARN_S and taken >= LEARN_BYTES and mark.time_s >= self._alone_until_s:
                self.steady, self._first, self._pace = True, None, taken / passed_s
        elif passed_s >= PACE_S:
            if self._idle < IDLE_SHARE * self._looks and taken < PACE_SHARE * self._pace * passed_s:
                self._alone_until_s = mark.time_s + self._alone_s
                self._alone_s = min(2 * self._alone_s, ALONE_MAX_S)
                self._restart()
            else:
                self._begin(mark, unsent_bytes)

    def _begin(self, mark: Mark, unsent_bytes: int) -> None:
        if not self.steady or unsent_bytes <= LEFT_BYTES:
            self._first, self._looks, self._idle = mark, 0, 0

    def _restart(self) -> None:
        self.steady, self._first = False, None
