"""How many bytes may be on their way to a peer on this host that wants what is new, and reads slowly.

Theory of operation. What two kernels hold for a slow reader, up to half a megabyte, is old when it is read. What a peer
on this host has not read is known (peer_sockets.py), so it is sent no more than it is about to read. The *limit* is
found by what the peer does:

- It is ``START_BYTES`` at first. A peer that had read all there was, while more waited here, may have wanted more. Its
  limit is doubled, as in TCP's slow start, until it was found to be enough; later it is half as much again. Beyond
  ``WIDEST_BYTES`` there is none.
- Who reads all at once, once in a while, gets as much as without: a peer that has read nothing for ``RELEASE_S`` has no
  limit, and one that had read all after a pause of ``PAUSE_S`` is left alone for ``ALONE_S``, each time for twice as
  long.
- A peer without a limit that reads something every second for ``LEARN_S``, and always has ``SURPLUS_BYTES`` unread,
  gets one: twice what it read between two looks at most.
- If an eighth of the limit stayed unread at ``NARROW_LOOKS`` looks at which the peer had read, half of that is taken
  off the limit.

Times are seconds on the broker's clock.
"""

from __future__ import annotations

from math import inf

START_BYTES = 16 * 1024
LEARN_S = 3.0
PAUSE_S = 1.0
RELEASE_S = 3.0
SURPLUS_BYTES = 16 * 1024
LEAST_BYTES = 3 * 1024
WIDEST_BYTES = 128 * 1024
DOUBLES, WIDENS = 2.0, 1.5
NARROW_LOOKS = 60
ALONE_S = 60.0
ALONE_MAX_S = 3600.0
UNSEEN_S = 1.0
LOOK_S, STARTING_LOOK_S = 0.025, 0.005
"""A peer that is starting, and may be fast, is looked at more often."""
STARTING_S = 0.2
STILL_LOOK_S = 0.2
RESTS_S = 5.0
"""A peer that has read nothing for so long is looked at less often."""
LOOKS_A_S = 2000
"""Looks in a second at all peers that are sent less; each has its even share."""


class RoomLooks:
    """The looks at all peers on this host that are sent less than there is."""

    __slots__ = ("peers",)

    def __init__(self) -> None:
        self.peers = 0
        """Peers that are sent less than there is."""

    def every_s(self) -> float:
        """Returns how often each of them is looked at."""
        return max(LOOK_S, self.peers / LOOKS_A_S)


class FreshWindow:
    """The limit of one peer."""

    __slots__ = (
        "_alone_s", "_alone_until_s", "_gulp_bytes", "_looked_s", "_looks", "_lowest_bytes", "_read_bytes", "_read_s",
        "_sent_bytes", "_since_s", "_starts_until_s", "held_bytes", "limit_bytes", "looks",
    )  # fmt: skip

    def __init__(self, looks: RoomLooks) -> None:
        self.looks = looks
        self.limit_bytes: float = inf
        """Only ``_limit`` sets it."""
        self.held_bytes = 0
        """Bytes that were sent and not read, at the last look."""
        self._sent_bytes = 0
        """Bytes that had been sent at that time."""
        self._looked_s = self._since_s = self._read_s = -inf
        """When the peer was looked at, when it began to be measured, and when it last read."""
        self._read_bytes = self._gulp_bytes = 0
        """Bytes that it had read, and the most that it read between two looks."""
        self._looks, self._lowest_bytes = 0, inf
        """Looks at which it had read since it was last limited, and the least that was unread at one of them."""
        self._alone_until_s, self._alone_s = -inf, ALONE_S
        self._starts_until_s = -inf
        """Until then its limit has not been found to be enough."""

    def look(self, now: float, held_bytes: int, read_bytes: int, sent_bytes: int, starved: bool) -> None:
        """Takes in what waits below here, and what was read and sent in all. ``starved``: the peer has read all that it
        was sent, and there is more."""
        passed_s, read, paused_s = now - self._looked_s, read_bytes - self._read_bytes, now - self._read_s
        self._looked_s, self._read_bytes, self.held_bytes, self._sent_bytes = now, read_bytes, held_bytes, sent_bytes
        if read > 0:
            self._read_s = now
        if passed_s > UNSEEN_S:
            self._start(now)
        elif self.limit_bytes == inf:
            self._learn(now, held_bytes, read)
        elif starved:
            self._widen(now, paused_s)
        elif read > 0:
            self._starts_until_s = -inf
            self._narrow(now, held_bytes)
        elif paused_s > RELEASE_S:
            self._limit(inf)
            self._begin(now)

    def room_bytes(self, sent_bytes: int) -> float:
        """Returns how much more may be sent, as far as the last look knows. ``sent_bytes``: in all, until now."""
        return self.limit_bytes - self.held_bytes - (sent_bytes - self._sent_bytes)

    @property
    def look_s(self) -> float:
        """Returns after how many seconds there may be room again."""
        if self._looked_s < self._starts_until_s:
            return STARTING_LOOK_S
        still = self._looked_s - self._read_s > RESTS_S or self.held_bytes > 4 * self.limit_bytes
        return max(self.looks.every_s(), STILL_LOOK_S if still else 0.0)

    def asked_s(self, now: float) -> float:
        """Returns for how many seconds nobody has looked."""
        return now - self._looked_s

    def end(self) -> None:
        """Takes the limit away, because nobody knows any more what is read, or wants what is new."""
        self._limit(inf)

    def _start(self, now: float) -> None:
        """Begins with one that nobody has looked at of late."""
        if now >= self._alone_until_s:
            self._limit(START_BYTES)
            self._read_s, self._starts_until_s = now, now + STARTING_S
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._since_s, self._gulp_bytes, self._looks, self._lowest_bytes = now, 0, 0, inf

    def _learn(self, now: float, held_bytes: int, read: int) -> None:
        self._gulp_bytes = max(self._gulp_bytes, read)
        if held_bytes < SURPLUS_BYTES or now - self._read_s > PAUSE_S:
            self._begin(now)
        elif now - self._since_s >= LEARN_S and now >= self._alone_until_s:
            self._limit(max(LEAST_BYTES, min(2 * self._gulp_bytes, WIDEST_BYTES)))
            self._begin(now)

    def _widen(self, now: float, paused_s: float) -> None:
        self._limit((DOUBLES if now < self._starts_until_s else WIDENS) * self.limit_bytes)
        if paused_s >= PAUSE_S:
            self._alone_until_s, self._alone_s = now + self._alone_s, min(2 * self._alone_s, ALONE_MAX_S)
        if paused_s >= PAUSE_S or self.limit_bytes > WIDEST_BYTES:
            self._limit(inf)
        self._begin(now)

    def _narrow(self, now: float, held_bytes: int) -> None:
        if held_bytes > 2 * self.limit_bytes:  # what came before the limit
            self._begin(now)
            return
        self._looks, self._lowest_bytes = self._looks + 1, min(self._lowest_bytes, held_bytes)
        if self._looks >= NARROW_LOOKS:
            if self._lowest_bytes > self.limit_bytes / 8:
                self._limit(max(LEAST_BYTES, self.limit_bytes - self._lowest_bytes / 2))
            self._begin(now)

    def _limit(self, limit_bytes: float) -> None:
        self.looks.peers += (self.limit_bytes == inf) - (limit_bytes == inf)
        self.limit_bytes = limit_bytes
