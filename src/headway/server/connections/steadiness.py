"""Tells whether a peer reads slowly and steadily, as far as its own kernel's buffer shows.

Theory of operation. A conflated client gets newer records if less waits in our kernel's buffer, a quarter of a
megabyte: the state replaces what waits here, and nothing replaces what the kernel has. A client that reads steadily
loses no byte by that, for its own kernel's buffer (110 kB and more) is full all the time. A client that reads all at
once, and then nothing for seconds, takes both buffers at a time. It would get less, so it is left alone.

What a peer acknowledges shows how it reads only while bytes wait for its window (*unsent*): before, its kernel takes
what comes, read or not. So a peer is *steady* when bytes were unsent at every look for ``LEARN_S``, and it has taken
``LEARN_BYTES`` meanwhile, without a *gulp*: more than its kernel frees at a time, within a second, after a pause. It is
so until it gulps, gets fast (then the buffers make it no later), or nobody has looked for a while.

Times are seconds on the broker's clock.
"""

from __future__ import annotations

LEARN_S = 10.0
LEARN_BYTES = 160 * 1024
GULP_BYTES = 160 * 1024
"""Linux frees up to 110 kB at a time for a steady reader (``peer_progress.py``)."""
FAST_BYTES = 1024 * 1024
"""A peer that takes so much in ``STRIDE_S`` is fast."""
STRIDE_S = 1.0
PAUSE_S = 2.0
UNSEEN_S = 1.0


class Steadiness:
    __slots__ = ("_acked_bytes", "_learns", "_looked_s", "_moved_s", "_stride", "steady")

    def __init__(self) -> None:
        self.steady = False
        self._looked_s = self._moved_s = float("-inf")
        self._acked_bytes = 0
        self._learns = (0.0, 0)
        """(time, acknowledged bytes) since which bytes have been unsent at every look, and there was no gulp."""
        self._stride = (float("-inf"), 0, 0)
        """(time, acknowledged bytes before it, bytes that are too much for it): what it takes within a second."""

    def look(self, now: float, acked_bytes: int, unsent_bytes: int) -> None:
        """Takes in what the kernel knows now."""
        if now - self._looked_s > UNSEEN_S:
            self._restart(now, acked_bytes)
            self._moved_s = now
        elif acked_bytes > self._acked_bytes:
            self._step(now, acked_bytes)
        self._looked_s, self._acked_bytes = now, acked_bytes
        if self.steady:
            return
        since, before = self._learns
        if not unsent_bytes:
            self._restart(now, acked_bytes)
        elif now - since >= LEARN_S and acked_bytes - before >= LEARN_BYTES:
            self.steady = True

    def _step(self, now: float, acked_bytes: int) -> None:
        if now - self._moved_s >= PAUSE_S:
            self._stride = (now, self._acked_bytes, GULP_BYTES)
        elif now - self._stride[0] > STRIDE_S:
            self._stride = (now, self._acked_bytes, FAST_BYTES)
        self._moved_s = now
        _, before, too_much = self._stride
        if acked_bytes - before > too_much:
            self._restart(now, acked_bytes)

    def _restart(self, now: float, acked_bytes: int) -> None:
        self.steady, self._learns = False, (now, acked_bytes)
