"""Chunks: a stretch of a lane, whole records only, in memory or on disk.

The bytes are the wire bytes. Beside them stand plain integer arrays and nothing else, so that a chunk can be written,
mapped or sent as it is:

- ``ends``: where each record ends, relative to the chunk;
- the run index (``run_first``, ``run_sequence``, ``run_time``, ``run_expires``, ``run_publisher``,
  ``run_durability``): what neighbouring records share. Record *i* belongs to the last run whose ``run_first`` is at
  most *i*, and its sequence is that run's plus the rest. A run that goes on where the one before ended has no entry of
  its own: a burst over many topics, which is one run per record, would otherwise need ten times the memory for its
  index;
- ``holes`` and ``expiries`` (see ``record.EncodedRun``): None while every record so far can be sent as it is.

What is appended to an empty chunk is not copied: all lanes that were given the same run share its bytes, and where
everybody is caught up, which empties the chunk each turn, none is ever copied. With the next run it is.

The index stays in memory when the bytes go to disk. The bytes of records that the journal has are not written once
more: they are made again from there.

A chunk knows which cursors stand in it (``standing``), so that who keeps it is found without a search. It may be
dropped when it is the first of its lane, is not the tail, and nobody stands in it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from math import inf
from operator import lt, sub
from typing import TYPE_CHECKING, Protocol

from headway.core.message import ACCEPTED, JOURNALED, TRANSIENT, Durability, EncodedRun, Run

if TYPE_CHECKING:
    from headway.core.log.cursor import Cursor

CHUNK_BYTES = 64 * 1024
_NO_ENDS, _NO_NUMBERS, _NO_TIMES, _NO_DURABILITIES = array("I"), array("Q"), array("d"), array("B")
_NO_PUBLISHERS: dict[int, int] = {}
"""Of all chunks without records: most lanes are idle most of the time. Nobody writes into them."""


@lru_cache(256)
def multiples(size: int) -> array[int]:
    """Where the records of a chunk end that are all of this size."""
    return array("I", range(size, CHUNK_BYTES + 1, size))


class SpillHandle(Protocol):
    """A chunk's bytes on disk. Handed in by the store; the core only passes it on, reads through it and releases it."""

    @property
    def fd(self) -> int:
        """The file they are in (for ``sendfile``); -1: they are in none as they are."""

    @property
    def offset(self) -> int:
        """Where in that file they begin."""

    @property
    def disk_bytes(self) -> int:
        """What they take up of the pool's disk; 0: the journal has them."""

    def read(self, start: int, stop: int) -> bytes:
        """Bytes ``start`` to ``stop`` of the chunk. Raises OSError."""

    def release(self) -> None:
        """No cursor needs the bytes any more."""


class Chunk:
    """Records ``first_number`` … of a lane, at lane positions ``start`` … ``start + size``."""

    __slots__ = (
        "bound",
        "by_publisher",
        "data",
        "ends",
        "expiries",
        "first_number",
        "free",
        "holes",
        "journaled",
        "largest",
        "last_sequence",
        "marks",
        "next",
        "run_durability",
        "run_expires",
        "run_first",
        "run_publisher",
        "run_sequence",
        "run_time",
        "size",
        "soonest_s",
        "spill",
        "spilling",
        "standing",
        "start",
    )  # fmt: skip

    def __init__(self, start: int, first_number: int) -> None:
        self.standing: dict[Cursor, None] = {}
        self.next: Chunk | None = None
        self.ends, self.run_first = _NO_ENDS, _NO_ENDS
        self.run_sequence = self.run_publisher = _NO_NUMBERS
        self.run_time = self.run_expires = _NO_TIMES
        self.run_durability = _NO_DURABILITIES
        self.reset(start, first_number)

    def reset(self, start: int, first_number: int) -> None:
        """Empty the chunk in place; cursors that stand in it keep standing, at ``start``."""
        self.start = start
        self.first_number = first_number
        self.data: bytes | bytearray | memoryview = b""
        self.size = 0
        if self.ends is not _NO_ENDS:  # what had records once is going to have more: it keeps its index, empty
            del self.ends[:], self.run_first[:], self.run_sequence[:], self.run_publisher[:]
            del self.run_time[:], self.run_expires[:], self.run_durability[:]
        self.holes: array[int] | None = None
        self.expiries: array[int] | None = None
        self.by_publisher = _NO_PUBLISHERS
        self.last_sequence = 0
        """Of its last record; 0: it has none."""
        self.largest = 0
        self.soonest_s = inf
        """When the first of its records expires."""
        self.spill: SpillHandle | None = None
        self.spilling = False
        self.journaled = True
        """The journal has all its records, or is given them in this turn."""
        self.bound = False
        """Some of them were promised, and are not in the journal."""
        self.free = True
        """None of them was promised to anybody."""
        self.marks: dict[object, bytes] | None = None
        """Per predicate one byte a record, 1 where it holds; see ``marked``."""

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def stop(self) -> int:
        """Lane position just behind the last record."""
        return self.start + self.size

    @property
    def resident(self) -> bool:
        return self.spill is None

    @property
    def plain(self) -> bool:
        """Every record can be sent to every consumer as it is."""
        return self.holes is None and self.expiries is None

    @property
    def index_bytes(self) -> int:
        """What stays in memory when the bytes have gone to disk."""
        per_record = 4 * (1 + (self.holes is not None) + (self.expiries is not None))
        return 512 + per_record * len(self.ends) + 37 * len(self.run_first)

    # -- writing ----------------------------------------------------------------------------------------------------

    def append(self, run: Run, frames: EncodedRun, first: int, last: int, sequence: int, now: float) -> None:
        """Append records ``first`` … ``last - 1`` of ``frames``; ``sequence`` is that of record ``first``."""
        source = frames.ends
        begin = source[first - 1] if first else 0
        stop = source[last - 1]
        shift = self.size - begin
        if self.ends is _NO_ENDS:
            self._begin()
        before = len(self.ends)
        count = last - first
        part = frames.data if count == len(source) else memoryview(frames.data)[begin:stop]
        if not self.size:
            self.data = part
        else:
            if type(self.data) is not bytearray:
                self.data = bytearray(self.data)
            self.data += part
        fresh = source if count == len(source) else source[first:last]
        largest = self._add_ends(fresh, begin, shift)
        self.size += stop - begin
        if frames.holes is not None or self.holes is not None:
            self.holes = _extended(self.holes, frames.holes, first, last, shift, before)
        if frames.expiries is not None or self.expiries is not None:
            self.expiries = _extended(self.expiries, frames.expiries, first, last, shift, before)
        expires = inf if run.expires_s is None else run.expires_s
        durability = run.durability
        if not before or not self._goes_on(before, sequence, now, expires, run.publisher, durability):
            self.run_first.append(before)
            self.run_sequence.append(sequence)
            self.run_time.append(now)
            self.run_expires.append(expires)
            self.run_publisher.append(run.publisher)
            self.run_durability.append(durability)
            if durability is not JOURNALED:
                self.journaled = False
            if durability is not TRANSIENT:
                self.free = False
            if durability is ACCEPTED:
                self.bound = True
        self.last_sequence = sequence + count - 1
        if self.by_publisher is _NO_PUBLISHERS:
            self.by_publisher = {run.publisher: count}
        else:
            self.by_publisher[run.publisher] = self.by_publisher.get(run.publisher, 0) + count
        if largest > self.largest:
            self.largest = largest
        if expires < self.soonest_s:
            self.soonest_s = expires

    def _begin(self) -> None:
        """It gets an index of its own with its first record."""
        self.ends, self.run_first = array("I"), array("I")
        self.run_sequence, self.run_publisher = array("Q"), array("Q")
        self.run_time, self.run_expires = array("d"), array("d")
        self.run_durability = array("B")

    def _add_ends(self, fresh: Sequence[int], begin: int, shift: int) -> int:
        """Where more records end, the first of which begins at ``begin``. Returns the size of the largest."""
        if type(fresh) is not range:
            self.ends.extend([end + shift for end in fresh] if shift else fresh)
            largest = fresh[0] - begin
            return max(largest, *map(sub, fresh[1:], fresh)) if len(fresh) > 1 else largest
        # All of one size, as so often: nothing is worked out for each. If it is that of all before them, not even for
        # the first of them: their ends are the multiples that come next.
        size, before = fresh.step, len(self.ends)
        known = multiples(size)
        if self.size == before * size and before + len(fresh) <= len(known):
            self.ends.extend(known[before : before + len(fresh)])
        else:
            self.ends.extend(range(fresh.start + shift, fresh.stop + shift, size))
        return size

    def _goes_on(
        self, index: int, sequence: int, now: float, expires: float, publisher: int, durability: Durability
    ) -> bool:
        """Record ``index``, the next one, belongs to the last run."""
        runs = self.run_first
        return (
            self.run_time[-1] == now and self.run_sequence[-1] + index - runs[-1] == sequence
            and self.run_publisher[-1] == publisher and self.run_expires[-1] == expires
            and self.run_durability[-1] == durability
        )  # fmt: skip

    # -- reading ----------------------------------------------------------------------------------------------------

    def index_at(self, position: int) -> int:
        """Which record the lane position falls in; ``len(self)`` at or behind the end."""
        return bisect_right(self.ends, position - self.start)

    def record_start(self, index: int) -> int:
        """Relative position of record ``index``; ``size`` for the one behind the last."""
        return self.ends[index - 1] if index else 0

    def at_boundary(self, position: int) -> bool:
        return self.record_start(self.index_at(position)) == position - self.start

    def run_of(self, index: int) -> int:
        return bisect_right(self.run_first, index) - 1

    def sequence_of(self, index: int) -> int:
        run = self.run_of(index)
        return self.run_sequence[run] + index - self.run_first[run]

    def held_from(self, index: int) -> int:
        """The first record from ``index`` on that may not be given up; their number if none is."""
        if self.free or index >= len(self.ends):
            return len(self.ends)
        for run in range(self.run_of(index), len(self.run_first)):
            if self.run_durability[run] != TRANSIENT:
                return max(index, self.run_first[run])
        return len(self.ends)

    def time_of(self, index: int) -> float:
        return self.run_time[self.run_of(index)]

    def read(self, start: int, stop: int) -> bytes | memoryview:
        """Bytes between two relative positions, from memory or disk. Raises OSError when the disk fails."""
        if self.spill is not None:
            return self.spill.read(start, stop)
        return memoryview(self.data)[start:stop]

    def readable(self) -> bool:
        """All of it can be had."""
        try:
            self.read(0, self.size)
        except OSError:
            return False
        return True

    def publishers(self, first: int, last: int) -> dict[int, int]:
        """How many of records ``first`` … ``last - 1`` each publisher wrote. Cheap for the whole chunk."""
        if first == 0 and last >= len(self.ends):
            return self.by_publisher
        counts: dict[int, int] = {}
        index = first
        while index < last:
            run = self.run_of(index)
            stop = self.run_first[run + 1] if run + 1 < len(self.run_first) else len(self.ends)
            stop = min(stop, last)
            publisher = self.run_publisher[run]
            counts[publisher] = counts.get(publisher, 0) + stop - index
            index = stop
        return counts

    # -- invariants -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what always holds. It goes through all records."""
        count, ends, runs = len(self.ends), self.ends, self.run_first
        assert all(map(lt, ends, ends[1:])), "records end behind each other"
        assert not count or ends[0] > 0
        assert self.size == (ends[-1] if count else 0), "a chunk is as long as its records"
        assert self.spill is not None or len(self.data) == self.size, "its bytes are in memory, or on disk"
        assert all(map(lt, runs, runs[1:])), "runs begin behind each other"
        assert not count or (runs[0] == 0 and runs[-1] < count)
        columns = (self.run_sequence, self.run_time, self.run_expires, self.run_publisher, self.run_durability)
        assert all(len(column) == len(runs) for column in columns)
        assert all(map(lt, self.run_sequence, self.run_sequence[1:])), "sequences only grow"
        assert self.last_sequence == (self.sequence_of(count - 1) if count else 0)
        assert self.holes is None or len(self.holes) == count
        assert self.expiries is None or len(self.expiries) == count
        assert sum(self.by_publisher.values()) == count, "every record has one publisher"
        assert self.soonest_s == min(self.run_expires, default=inf)
        assert self.free == all(durability == TRANSIENT for durability in self.run_durability)
        for cursor in self.standing:
            assert cursor.floor is self, "a cursor stands in its floor, and nowhere else"


def _extended(
    have: array[int] | None, fresh: Sequence[int] | None, first: int, last: int, shift: int, before: int
) -> array[int]:
    """``have`` with the positions of the new records behind it; 0 stands for "none" and is never shifted."""
    if have is None:
        have = array("I", bytes(4 * before))
    if fresh is None:
        have.extend([0] * (last - first))
    else:
        have.extend([position + shift if position else 0 for position in fresh[first:last]])
    return have
