"""A chunk is a part of a lane: whole records, in memory or on disk.

The bytes are the wire bytes. A chunk has plain integer arrays beside them and nothing else, so that it can be written,
mapped or sent as it is:

- ``ends``: the end of each record, relative to the chunk;
- the run index (``run_first``, ``run_sequence``, ``run_time``, ``run_expires``, ``run_publisher``,
  ``run_durability``): the values that neighbouring records share. Record *i* belongs to the last run whose
  ``run_first`` is at most *i*. Its sequence is the run's sequence plus *i* minus ``run_first``. A run that continues
  the run before it has no entry of its own. Otherwise a burst over many topics, with one run per record, would need
  ten times the memory for its index;
- ``holes`` and ``expiries`` (see ``record.EncodedRun``): empty while every record so far can be sent as it is.

An empty chunk does not copy the first run that is appended to it: all lanes with this run share its bytes. The second
run makes the chunk copy both. Caught-up consumers empty the chunk each turn, so their lanes never copy.

The index stays in memory when the bytes go to disk. A chunk whose records are all in the journal is not written to disk
a second time; its bytes are encoded again from the journal.

A chunk knows the cursors whose floor it is (``cursors_here``), so its readers are found without a search. A chunk may
be dropped when it is the first of its lane, is not the tail, has no cursors, and is not kept for records that were set
aside (``kept_by``).
"""

from __future__ import annotations

import errno
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import inf
from operator import lt, sub
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headway.core.message import ACCEPTED, JOURNALED, TRANSIENT, Durability, EncodedRun, Run, job_patience_s

if TYPE_CHECKING:
    from headway.core.log.lanes.cursor import Cursor


# -- open receipts -----------------------------------------------------------------------------------------------------
#
# The receipts that are open on one lane, as the rooms between the log and the receipts report to them.
#
# While no receipt is open on a record of its own, a lane has ``NO_RECEIPTS``, which ignores all reports. The rooms of
# the log know no subscriptions; ``reader`` is one.


class OpenReceipts:
    def lost(self, reader: object, first: int, last: int, reason: str) -> None:
        """Notes that a subscription does not get the lane's records with these sequences."""

    def sent(self, reader: object, sequence: int, delivery_id: int) -> None:
        """Notes that a record was sent to a subscription from elsewhere than its lane. ``delivery_id`` 0: nothing
        acknowledges it."""

    def conflating(self, reader: object) -> None:
        """Notes that a subscription will read what waits for it from a state. Called before its cursor moves."""

    def leaving(self, reader: object, reason: str) -> None:
        """Notes that a subscription ends. Called before its cursor moves."""

    def replaced(self, reader: object, heir: object) -> None:
        """Notes that another subscription will read what waits for this one. Called before its deliveries are detached
        from the lane."""


NO_RECEIPTS: Final = OpenReceipts()


# -- spill handle ------------------------------------------------------------------------------------------------------
#
# A spill handle is the place of a chunk on disk.


class SpillHandle(Protocol):
    """A chunk's bytes on disk. The store creates it; the core passes it on, reads through it and releases it."""

    @property
    def fd(self) -> int:
        """The file with the bytes (for ``sendfile``); -1 if no file has them as they are."""

    @property
    def offset(self) -> int:
        """The position of the bytes in that file."""

    @property
    def disk_bytes(self) -> int:
        """The bytes' share of the pool's disk; 0 if the journal has them."""

    def read(self, start: int, stop: int) -> bytes:
        """Returns bytes ``start`` to ``stop`` of the chunk. Raises OSError."""

    def release(self) -> None:
        """Frees the bytes, which no cursor needs any more."""


class NoBytes:
    """Stands for the bytes of a chunk that nobody will read."""

    __slots__ = ()
    fd = -1
    offset = 0
    disk_bytes = 0

    def read(self, start: int, stop: int) -> bytes:
        raise OSError(errno.ENODATA, "these records were left out for all who had not read them")

    def release(self) -> None:
        pass


NO_BYTES: Final = NoBytes()


# -- chunk -------------------------------------------------------------------------------------------------------------


CHUNK_BYTES = 64 * 1024
_NO_ENDS, _NO_NUMBERS, _NO_TIMES, _NO_DURABILITIES = array("I"), array("Q"), array("d"), array("B")
_NO_PUBLISHERS: dict[int, int] = {}
"""All chunks without records share these, because most lanes are idle most of the time. They are never written to."""
_NOBODY: dict[Cursor, int] = {}
"""Shared by all chunks that are kept for nobody. It is never written to."""


@lru_cache(256)
def multiples(size: int) -> array[int]:
    """Returns the ends of a chunk's records if all have this size."""
    return array("I", range(size, CHUNK_BYTES + 1, size))


class Chunk:
    """Records ``first_number`` … of a lane, at lane positions ``start`` … ``start + size``."""

    __slots__ = (
        "_by_publisher",
        "_counted",
        "bound",
        "cursors_here",
        "data",
        "ends",
        "expiries",
        "first_number",
        "free",
        "holes",
        "journaled",
        "kept_by",
        "largest",
        "last_sequence",
        "marks",
        "next",
        "run_durability",
        "run_expires",
        "run_first",
        "run_patience",
        "run_publisher",
        "run_sequence",
        "run_time",
        "size",
        "soonest_s",
        "spill",
        "spilling",
        "start",
    )  # fmt: skip

    def __init__(self, start: int, first_number: int) -> None:
        self.cursors_here: dict[Cursor, None] = {}
        self.kept_by = _NOBODY
        """The cursors that have set records of this chunk aside, and how many."""
        self.next: Chunk | None = None
        self.ends, self.run_first = _NO_ENDS, _NO_ENDS
        self.run_sequence = self.run_publisher = _NO_NUMBERS
        self.run_time = self.run_expires = _NO_TIMES
        self.run_durability = _NO_DURABILITIES
        self.reset(start, first_number)

    def reset(self, start: int, first_number: int) -> None:
        """Empties the chunk in place. Its cursors stay, and are now at ``start``."""
        self.start = start
        self.first_number = first_number
        self.data: bytes | bytearray | memoryview = b""
        self.size = 0
        if self.ends is not _NO_ENDS:  # a chunk that had records will have more, so it keeps its empty index
            del self.ends[:], self.run_first[:], self.run_sequence[:], self.run_publisher[:]
            del self.run_time[:], self.run_expires[:], self.run_durability[:]
        self.holes = self.expiries = _NO_ENDS
        self.run_patience = _NO_TIMES
        """Seconds of patience that each run's messages ask for; empty: none of them does."""
        self._by_publisher, self._counted = _NO_PUBLISHERS, 0
        self.last_sequence = 0
        """The sequence of the last record; 0 if there is none."""
        self.largest = 0
        """The size of the largest record."""
        self.soonest_s = inf
        """The time when the first of the records expires."""
        self.spill: SpillHandle | None = None
        self.spilling = False
        """Set while a worker writes the bytes to disk."""
        self.journaled = True
        """All records are in the journal, or will be with this turn's commit."""
        self.bound = False
        """Some records were promised to a publisher and are not in the journal, so they must stay."""
        self.free = True
        """No record was promised to a publisher, so all may be given up."""
        self.marks: dict[object, bytes] | None = None
        """For each predicate one byte per record: 1 where the predicate holds. See ``marked``."""

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def stop(self) -> int:
        """The lane position behind the last record."""
        return self.start + self.size

    @property
    def resident(self) -> bool:
        return self.spill is None

    @property
    def plain(self) -> bool:
        """Tells whether every record can be sent to every consumer as it is."""
        return not (self.holes or self.expiries)

    @property
    def index_bytes(self) -> int:
        """The size of the index, which stays in memory when the bytes are on disk."""
        per_record = 4 * (1 + bool(self.holes) + bool(self.expiries))
        per_run = 37 + 8 * bool(self.run_patience)
        return 512 + per_record * len(self.ends) + per_run * len(self.run_first)

    def keep(self, cursor: Cursor, count: int) -> None:
        """Keeps the chunk for ``count`` records that the cursor sets aside."""
        if self.kept_by is _NOBODY:
            self.kept_by = {}
        self.kept_by[cursor] = self.kept_by.get(cursor, 0) + count

    # -- writing ----------------------------------------------------------------------------------------------------

    def append(self, run: Run, frames: EncodedRun, first: int, last: int, sequence: int, now: float) -> None:
        """Appends records ``first`` … ``last - 1`` of ``frames``. ``sequence`` is the sequence of record ``first``."""
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
        if frames.holes or self.holes:
            self.holes = _extended(self.holes, frames.holes, first, last, shift, before)
        if frames.expiries or self.expiries:
            self.expiries = _extended(self.expiries, frames.expiries, first, last, shift, before)
        expires, durability = run.expires_s, run.durability
        patience_s = job_patience_s(run.properties) if run.properties.user else 0.0
        if not before or not self._goes_on(before, sequence, now, expires, run.publisher, durability, patience_s):
            if patience_s or self.run_patience:
                self.run_patience = self.run_patience or array("d", bytes(8 * len(self.run_first)))
                self.run_patience.append(patience_s)
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
        if largest > self.largest:
            self.largest = largest
        if expires < self.soonest_s:
            self.soonest_s = expires

    def _begin(self) -> None:
        """Gives the chunk an index of its own, for its first record."""
        self.ends, self.run_first = array("I"), array("I")
        self.run_sequence, self.run_publisher = array("Q"), array("Q")
        self.run_time, self.run_expires = array("d"), array("d")
        self.run_durability = array("B")

    def _add_ends(self, fresh: Sequence[int], begin: int, shift: int) -> int:
        """Adds the ends of more records, the first of which begins at ``begin``. Returns the size of the largest."""
        if type(fresh) is not range:
            self.ends.extend([end + shift for end in fresh] if shift else fresh)
            largest = fresh[0] - begin
            return max(largest, *map(sub, fresh[1:], fresh)) if len(fresh) > 1 else largest
        # All records have one size, which is common, so no end is computed in Python. If all records of the chunk have
        # this size, the new ends are the next multiples of it.
        size, before = fresh.step, len(self.ends)
        known = multiples(size)
        if self.size == before * size and before + len(fresh) <= len(known):
            self.ends.extend(known[before : before + len(fresh)])
        else:
            self.ends.extend(range(fresh.start + shift, fresh.stop + shift, size))
        return size

    def _goes_on(
        self, index: int, sequence: int, now: float, expires: float, publisher: int, durability: Durability,
        patience_s: float,
    ) -> bool:  # fmt: skip
        """Tells whether record ``index``, the next one, continues the last run."""
        runs = self.run_first
        return (
            self.run_time[-1] == now and self.run_sequence[-1] + index - runs[-1] == sequence
            and self.run_publisher[-1] == publisher and self.run_expires[-1] == expires
            and self.run_durability[-1] == durability
            and (self.run_patience[-1] if self.run_patience else 0.0) == patience_s
        )  # fmt: skip

    # -- reading ----------------------------------------------------------------------------------------------------

    def patience_s(self, index: int) -> float:
        """Returns the patience that record ``index`` asks for; 0: none."""
        return self.run_patience[self.run_of(index)] if self.run_patience else 0.0

    def index_at(self, position: int) -> int:
        """Returns the index of the record at this lane position; ``len(self)`` at or behind the end."""
        return bisect_right(self.ends, position - self.start)

    def record_start(self, index: int) -> int:
        """Returns the relative position of record ``index``; ``size`` for the one behind the last."""
        return self.ends[index - 1] if index else 0

    def size_of(self, index: int) -> int:
        """Returns the bytes of record ``index``."""
        return self.ends[index] - self.record_start(index)

    def at_boundary(self, position: int) -> bool:
        return self.record_start(self.index_at(position)) == position - self.start

    def run_of(self, index: int) -> int:
        return bisect_right(self.run_first, index) - 1

    def sequence_of(self, index: int) -> int:
        run = self.run_of(index)
        return self.run_sequence[run] + index - self.run_first[run]

    def index_from(self, sequence: int) -> int:
        """Returns the index of the first record with this sequence or a later one; ``len(self)`` if there is none."""
        run = bisect_right(self.run_sequence, sequence) - 1
        if run < 0:
            return 0
        stop = self.run_first[run + 1] if run + 1 < len(self.run_first) else len(self.ends)
        return min(stop, self.run_first[run] + sequence - self.run_sequence[run])

    def held_from(self, index: int) -> int:
        """Returns the first index from ``index`` on whose record may not be given up; ``len(self)`` if all may."""
        if self.free or index >= len(self.ends):
            return len(self.ends)
        for run in range(self.run_of(index), len(self.run_first)):
            if self.run_durability[run] != TRANSIENT:
                return max(index, self.run_first[run])
        return len(self.ends)

    def time_of(self, index: int) -> float:
        return self.run_time[self.run_of(index)]

    def read(self, start: int, stop: int) -> bytes | memoryview:
        """Returns the bytes between two relative positions, from memory or disk. Raises OSError if the disk fails."""
        if self.spill is not None:
            return self.spill.read(start, stop)
        return memoryview(self.data)[start:stop]

    def readable(self) -> bool:
        """Tells whether all bytes can be read."""
        try:
            self.read(0, self.size)
        except OSError:
            return False
        return True

    @property
    def by_publisher(self) -> dict[int, int]:
        """The number of records of each publisher. It is asked for when records are lost, and counts each once."""
        count = len(self.ends)
        if self._counted < count:
            if self._by_publisher is _NO_PUBLISHERS:
                self._by_publisher = {}
            self._count_publishers(self._counted, count, self._by_publisher)
            self._counted = count
        return self._by_publisher

    def publishers(self, first: int, last: int) -> dict[int, int]:
        """Counts records ``first`` … ``last - 1`` by publisher. This is cheap for the whole chunk, and for one
        publisher."""
        if first == 0 and last >= len(self.ends):
            return self.by_publisher
        if first >= last:
            return {}
        if len(self.by_publisher) == 1:
            return dict.fromkeys(self.by_publisher, last - first)
        counts: dict[int, int] = {}
        self._count_publishers(first, last, counts)
        return counts

    def _count_publishers(self, first: int, last: int, counts: dict[int, int]) -> None:
        run, begin = self.run_of(first), first
        for stop in (*self.run_first[run + 1 : self.run_of(last - 1) + 1], last):
            publisher = self.run_publisher[run]
            counts[publisher] = counts.get(publisher, 0) + stop - begin
            run, begin = run + 1, stop

    # -- invariants -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Asserts the invariants. It visits every record."""
        count, ends, first, sequences = len(self.ends), self.ends, self.run_first, self.run_sequence
        runs = len(first)
        assert _rising(ends), "each record ends behind the one before"
        assert not count or ends[0] > 0
        assert self.size == (ends[-1] if count else 0), "a chunk is as long as its records"
        assert len(self.data) == (self.size if self.spill is None else 0), "the bytes are in memory or on disk"
        assert _rising(first), "each run begins behind the one before"
        assert not count or (first[0] == 0 and first[-1] < count)
        assert runs == len(sequences) == len(self.run_time) == len(self.run_expires)
        assert runs == len(self.run_publisher) == len(self.run_durability)
        assert len(self.run_patience) in (0, runs)
        assert _rising(sequences), "sequences only grow"
        assert self.last_sequence == (self.sequence_of(count - 1) if count else 0)
        assert {len(self.holes), len(self.expiries)} <= {0, count}
        assert sum(self.by_publisher.values()) == count, "every record has one publisher"
        assert self.soonest_s == min(self.run_expires, default=inf)
        assert self.free == (self.run_durability.count(TRANSIENT) == runs)
        for cursor in self.cursors_here:
            assert cursor.floor is self, "a cursor is in the table of its floor and of no other chunk"


def _rising(numbers: Sequence[int]) -> bool:
    return len(numbers) < 2 or all(map(lt, numbers, numbers[1:]))


def _extended(
    have: array[int], fresh: Sequence[int], first: int, last: int, shift: int, before: int
) -> array[int]:
    """Returns ``have`` with the positions of the new records behind it. Position 0 means "none" and is not shifted."""
    column = have or array("I", bytes(4 * before))
    some = fresh[first:last]
    if type(some) is range:  # of records of one size
        column.extend(range(some.start + shift, some.stop + shift, some.step))
    else:
        column.extend([position + shift if position else 0 for position in some] or [0] * (last - first))
    return column


# -- between -----------------------------------------------------------------------------------------------------------
#
# Records between two numbers of a lane, as those need them who leave all of them out.


class Between(NamedTuple):
    first_sequence: int
    """0: there are none."""
    last_sequence: int
    by_publisher: Counter[int]


def records_between(chunk: Chunk | None, number: int, stop_number: int) -> Between:
    """Returns what there is from record ``number`` on, which is in the chunk or follows it, before ``stop_number``."""
    first, last = 0, 0
    by_publisher: Counter[int] = Counter()
    while chunk is not None and chunk.first_number < stop_number:
        begin, stop = number - chunk.first_number, min(stop_number - chunk.first_number, len(chunk))
        if stop > begin:
            by_publisher.update(chunk.publishers(begin, stop))
            last = chunk.sequence_of(stop - 1)
            first = first or chunk.sequence_of(begin)
        number = chunk.first_number + stop
        chunk = chunk.next
    return Between(first, last, by_publisher)


# -- stretch -----------------------------------------------------------------------------------------------------------
#
# A stretch: records ``first`` … ``last - 1`` of a lane, counted from the beginning of a chunk. They may go on in the
# chunks behind it.


def stretch_bytes(chunk: Chunk, first: int, last: int) -> int:
    """Returns the size of its records."""
    if last <= len(chunk.ends):
        return chunk.ends[last - 1] - chunk.record_start(first)
    return sum(one.ends[stop - 1] - one.record_start(start) for one, start, stop in _pieces(chunk, first, last))


def read_stretch(chunk: Chunk, first: int, last: int) -> tuple[bytes | memoryview, Sequence[int]]:
    """Returns the bytes of its records, and their ends there. Raises OSError if a disk fails."""
    begin = chunk.record_start(first)
    if last <= len(chunk.ends):
        ends: Sequence[int] = chunk.ends[first:last]
        return chunk.read(begin, chunk.ends[last - 1]), [end - begin for end in ends] if begin else ends
    pieces = list(_pieces(chunk, first, last))
    data = b"".join([one.read(one.record_start(start), one.ends[stop - 1]) for one, start, stop in pieces])
    size = chunk.ends[first] - begin
    if all(one.largest == size and one.size == size * len(one) for one, _, _ in pieces):  # no end is computed in Python
        return data, range(size, len(data) + 1, size)
    ends, shift = [], 0
    for one, start, stop in pieces:
        begin = one.record_start(start)
        ends += [end - begin + shift for end in one.ends[start:stop]]
        shift = ends[-1]
    return data, ends


def _pieces(chunk: Chunk, first: int, last: int) -> Iterator[tuple[Chunk, int, int]]:
    """Yields the part of each chunk."""
    while last > (count := len(chunk.ends)):
        yield chunk, first, count
        assert chunk.next is not None, "a stretch ends within its lane"
        chunk, first, last = chunk.next, 0, last - count
    yield chunk, first, last
