"""A tally: what one consumer got of the run's records, and what it can tell that it did not get.

A gap in a topic's numbers is a loss; a number that comes after a higher one fills its gap, and one that was there
already is a repetition. Records of other people are counted and nothing else.
"""

from __future__ import annotations

from headway.trouble.figures.delays import Delays
from headway.trouble.figures.stamp import read_stamp

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
