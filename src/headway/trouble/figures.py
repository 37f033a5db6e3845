"""Figures of a run: stamps on its records, delays, tallies, and its own lateness."""

from __future__ import annotations

import asyncio
import struct
import time
from collections import Counter
from typing import NamedTuple

# -- delays ------------------------------------------------------------------------------------------------------------
#
# Delays, counted in buckets that are 1.6 % wide at most, so that an hour of them takes up no more than a second's.


_BITS = 6


class Delays:
    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.count = 0

    def add(self, nanoseconds: int) -> None:
        shift = max(0, nanoseconds.bit_length() - _BITS - 1)
        self._counts[nanoseconds >> shift << shift] += 1
        self.count += 1

    def add_all(self, others: Delays) -> None:
        self._counts.update(others._counts)
        self.count += others.count

    def quantile_ms(self, share: float) -> float | None:
        """Returns the delay that this share of them did not exceed, in milliseconds; None: there are none."""
        left = share * self.count
        for nanoseconds in sorted(self._counts):
            left -= self._counts[nanoseconds]
            if left <= 0:
                return nanoseconds / 1e6
        return None


# -- stamp -------------------------------------------------------------------------------------------------------------
#
# The stamp at the head of each record's payload: which run and topic it is of, its number there, and when it was sent.
#
# Both ends are in one process, so the moments are of one clock.


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


# -- lateness ----------------------------------------------------------------------------------------------------------
#
# How late this program is itself: a loop that wakes up late measures its own lateness as the broker's.


STEP_S = 0.005


class Lateness:
    def __init__(self) -> None:
        self.before, self.beside = Delays(), Delays()
        self._began_s, self._cpu_s = time.monotonic(), time.process_time()
        self._now = self.before
        self.cpu_share = 0.0
        """The share of a core that this process used beside the trouble."""

    def trouble_begins(self) -> None:
        self._now = self.beside
        self._began_s, self._cpu_s = time.monotonic(), time.process_time()

    def trouble_ends(self) -> None:
        self.cpu_share = (time.process_time() - self._cpu_s) / max(1e-9, time.monotonic() - self._began_s)
        self._now = Delays()  # what comes now is of no interest

    async def watch(self) -> None:
        """Measures until it is cancelled."""
        while True:
            due_ns = time.monotonic_ns() + int(STEP_S * 1e9)
            await asyncio.sleep(STEP_S)
            self._now.add(max(0, time.monotonic_ns() - due_ns))


# -- tally -------------------------------------------------------------------------------------------------------------
#
# A tally: what one consumer got of the run's records, and what it can tell that it did not get.
#
# A gap in a topic's numbers is a loss; a number that comes after a higher one fills its gap, and one that was there
# already is a repetition. Records of other people are counted and nothing else.


MISSING_MAX = 100_000
"""Numbers of lost records that a tally remembers, in case they come late."""


class Tally:
    def __init__(self, run: int, trouble_ns: int | None = None, *, from_start: bool = False) -> None:
        """``from_start``: the consumer was there before the first record, so it misses those before its first, too."""
        self._run = run
        self._from_start = from_start
        self._next: dict[int, int] = {}
        self._missing: set[tuple[int, int]] = set()
        self.trouble_ns = trouble_ns
        """Since when there is trouble; None: not yet."""
        self.records = self.bytes = self.lost = self.repeated = self.foreign = 0
        self.before, self.beside = Delays(), Delays()
        """Delays of records sent before the trouble began, and since."""
        self.foreign_before = 0
        """Records of others until the trouble began."""
        self.last_sent_ns: int | None = None
        """When the latest record that it saw was sent."""

    def add(self, payload: bytes, now_ns: int) -> None:
        stamp = read_stamp(payload, self._run)
        self.records += 1
        self.bytes += len(payload)
        if stamp is None:
            self.foreign += 1
            self.foreign_before += self.trouble_ns is None
            return
        self._count(stamp.topic, stamp.number)
        beside = self.trouble_ns is not None and stamp.sent_ns >= self.trouble_ns
        (self.beside if beside else self.before).add(max(0, now_ns - stamp.sent_ns))
        self.last_sent_ns = max(self.last_sent_ns or 0, stamp.sent_ns)

    def _count(self, topic: int, number: int) -> None:
        due = self._next.get(topic, 0 if self._from_start else number)
        if number >= due:
            self.lost += number - due
            room = MISSING_MAX - len(self._missing)
            self._missing.update((topic, one) for one in range(due, min(number, due + room)))
            self._next[topic] = number + 1
        elif (topic, number) in self._missing:
            self._missing.remove((topic, number))
            self.lost -= 1
        else:
            self.repeated += 1

    def start_anew(self) -> None:
        """A connection has ended: what is sent until the next one begins is not this consumer's, unless it is to have
        all."""
        if not self._from_start:
            self._next.clear()
            self._missing.clear()

    def has_all(self, sent: list[int]) -> bool:
        """``sent``: records of each topic."""
        return all(self._next.get(topic, 0) >= count for topic, count in enumerate(sent))

    def close(self, sent: list[int]) -> None:
        """Counts those that never came as lost, for a consumer that was there from the start."""
        self.lost += sum(max(0, count - self._next.get(topic, 0)) for topic, count in enumerate(sent))
