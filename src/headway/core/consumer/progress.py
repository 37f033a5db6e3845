"""How far a subscription is: what it counts, what it leaves out, and what it reads before its lane."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from math import inf
from typing import Final, NamedTuple, Protocol

from headway.core.base import Reason
from headway.core.consumer.connection import Outlet
from headway.core.log import NO_PROGRESS, Chunk, Cursor, OutOfOrderProgress
from headway.core.message import Record

# -- counters ----------------------------------------------------------------------------------------------------------
#
# Counters: the records that one consumer was sent, and those that it was not.
#
# A record that goes from the consumer's lane to its outlet as it is touches no counter: the cursor's distance from its
# start tells the number of these records. The counters hold only the difference to that distance. So they change only
# when a record takes another way, or is left out:
#
# - *written*: records that were encoded for this consumer alone, from a backfill or from its queue;
# - *passed over*: records that the cursor has passed in the lane and that were not sent from there;
# - *gaps*: records that the consumer never gets, by reason;
# - *rewound*: bytes of a record that were sent to a connection that broke in the middle of it.
#
# ``telemetry/stats.py`` adds these up for each consumer; the registry does so for the whole broker.


NO_GAPS: Final[Counter[Reason]] = Counter()
"""Shared by all consumers without a gap, because a Counter takes 80 bytes. It is never written to."""


class Volume(NamedTuple):
    """An amount of records, and their bytes."""

    records: int
    bytes: int


NO_VOLUME: Final = Volume(0, 0)


class Counters:
    """The counters of one consumer. They only grow."""

    __slots__ = (
        "gap_records", "handed_bytes", "passed_over_bytes", "passed_over_records", "rewound_bytes", "skipped_bytes",
        "start_number", "start_position", "totalled_bytes", "totalled_gaps", "totalled_records", "written_bytes",
        "written_records",
    )  # fmt: skip

    def __init__(self, number: int, position: int) -> None:
        self.start_number, self.start_position = number, position
        """The position in the lane at which the consumer began. For a member of a queue these are the records and bytes
        that the queue had handed out by then."""
        self.written_records = 0
        self.written_bytes = 0
        self.passed_over_records = 0
        self.passed_over_bytes = 0
        self.skipped_bytes = 0
        """The bytes of the lane that the consumer never gets."""
        self.rewound_bytes = 0
        self.handed_bytes = 0
        """The bytes, in the queue's lane, of the records that the queue has handed to the consumer."""
        self.gap_records = NO_GAPS
        self.totalled_gaps = NO_GAPS
        """Gaps that are already part of the broker's totals."""
        self.totalled_records = self.totalled_bytes = 0
        """Records and bytes sent that are already part of the broker's totals."""

    def start_at(self, number: int, position: int) -> None:
        """Counts from here on; see ``start_number``."""
        self.start_number, self.start_position = number, position

    # -- counting ---------------------------------------------------------------------------------------------------

    def write(self, records: int, size: int) -> None:
        self.written_records += records
        self.written_bytes += size

    def pass_over(self, records: int, size: int) -> None:
        self.passed_over_records += records
        self.passed_over_bytes += size

    def skip(self, records: int, size: int) -> None:
        """Counts records that the cursor passes and that the consumer never gets."""
        self.pass_over(records, size)
        self.skipped_bytes += size

    def gap(self, records: int, reason: Reason) -> None:
        if self.gap_records is NO_GAPS:
            self.gap_records = Counter()
        self.gap_records[reason] += records

    # -- sums -------------------------------------------------------------------------------------------------------

    @property
    def written(self) -> Volume:
        return Volume(self.written_records, self.written_bytes)

    @property
    def skipped(self) -> Volume:
        return Volume(self.gap_records.total(), self.skipped_bytes)

    @property
    def taken_from_queue(self) -> Volume:
        """The records that its queue has handed to the consumer."""
        return Volume(self.written_records, self.handed_bytes)

    def sent(self, cursor: Cursor) -> Volume:
        """Returns the volume sent to a consumer that reads its lane with this cursor."""
        return Volume(
            cursor.number - self.start_number - self.passed_over_records + self.written_records,
            cursor.position - self.start_position - self.passed_over_bytes + self.written_bytes + self.rewound_bytes,
        )

    def given_to_others(self, handed_records: int, handed_bytes: int) -> Volume:
        """Returns the volume that the queue gave to other members since this one joined. The arguments are the queue's
        totals."""
        return Volume(
            handed_records - self.start_number - self.written_records,
            handed_bytes - self.start_position - self.handed_bytes,
        )

    def add_to_total(self, sent: Volume, gap_records: Counter[Reason]) -> Volume:
        """Adds the gaps since the last call to the broker's ``gap_records``. Returns the part of ``sent`` since the
        last call."""
        new = Volume(sent.records - self.totalled_records, sent.bytes - self.totalled_bytes)
        self.totalled_records, self.totalled_bytes = sent
        if self.gap_records is not NO_GAPS and self.gap_records != self.totalled_gaps:
            gap_records.update(self.gap_records)
            gap_records.subtract(self.totalled_gaps)
            self.totalled_gaps = self.gap_records.copy()
        return new


# -- skip --------------------------------------------------------------------------------------------------------------
#
# Skips: the records of its lane that a policy leaves out for one consumer.
#
# A ``Skip`` is a rule's order, for what waits and for what comes until the rule steps back. A look applies it to the
# records that wait: they are *left out* at once, which counts and tells them. The cursor passes them when it comes to
# them (``LeftOut``). What came since the last look is left out when it would be sent.


_WAITING, _LEFT_OUT = re.compile(b"\0+"), re.compile(b"\1+")


class Predicate:
    """A test of records, or a figure of each from 0 to 255. Each chunk caches the results, and consumers with equal
    ``key`` share them."""

    __slots__ = ("key", "test")

    def __init__(self, key: tuple[object, ...], test: Callable[[Record], int]) -> None:
        self.key = key
        self.test = test


class Skip:
    """Leaves out the records for which ``predicate`` is true, or all records if it is None.

    It applies to the records from ``first`` to the one before ``stop``; while it is *open*, to all that follow.
    ``order`` is the action that it carries out."""

    __slots__ = ("first", "order", "position", "predicate", "reason", "stop", "upto")

    def __init__(self, first: int, predicate: Predicate | None, reason: Reason, order: object = None) -> None:
        self.first = self.upto = first
        """``upto``: looks have applied it to all records before this one."""
        self.stop = inf
        self.predicate = predicate
        self.reason = reason
        self.order = order
        self.position = 0
        """The lane position of record ``upto``. Only set if every record is left out: the lag ends there."""

    @property
    def open(self) -> bool:
        """Tells whether records that are published from now on are left out, too."""
        return self.stop == inf


def rest_skipped(skips: list[Skip]) -> Skip | None:
    """Returns the skip in force that leaves out everything from some record on, if there is one."""
    for skip in skips:
        if skip.predicate is None and skip.open:
            return skip
    return None


class LeftOut:
    """The records ahead of a consumer's cursor that were left out: a byte for each, in the chunks that have any."""

    __slots__ = ("_flags", "bytes", "looks", "records", "whole_bytes")

    def __init__(self) -> None:
        self._flags: dict[Chunk, bytearray] = {}
        self.records = 0
        self.bytes = 0
        self.whole_bytes = 0
        """The bytes of chunks of which nothing else is left. They are not held for this consumer."""
        self.looks: set[object] = set()
        """The orders that are being applied to what waits (deferred.py)."""

    def waiting(self, chunk: Chunk, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yields the ranges of records ``first`` … ``last - 1`` of a chunk that are not left out."""
        flags = self._flags.get(chunk)
        if flags is None:
            if first < last:
                yield first, last
            return
        flags.extend(bytes(len(chunk) - len(flags)))
        for found in _WAITING.finditer(bytes(flags), first, last):  # who stops early would keep them from growing
            yield found.span()

    def has(self, chunk: Chunk, index: int) -> bool:
        flags = self._flags.get(chunk)
        return flags is not None and index < len(flags) and flags[index] > 0

    def all_waiting(self, chunk: Chunk | None, number: int, stop: int) -> Iterator[tuple[Chunk, int, int]]:
        """Yields the ranges of records that are not left out from ``number`` on, which is in the chunk or follows it,
        before ``stop``. There may be as many as records."""
        while chunk is not None and chunk.first_number < stop:
            here = chunk.first_number
            for first, last in self.waiting(chunk, max(0, number - here), min(stop - here, len(chunk))):
                yield chunk, first, last
            chunk = chunk.next

    def add(self, chunk: Chunk, ranges: list[tuple[int, int]], size: int) -> None:
        """Adds ranges of records that wait, which have so many bytes."""
        flags = self._flags.setdefault(chunk, bytearray())
        flags.extend(bytes(len(chunk) - len(flags)))
        for first, last in ranges:
            flags[first:last] = b"\1" * (last - first)
            self.records += last - first
        self.bytes += size

    def passed(self, chunk: Chunk, number: int, stop: int) -> int:
        """Forgets what was left out from ``number`` on, which is in the chunk or follows it, before ``stop``: the
        cursor passes it. Returns how many records that is."""
        before = self.records
        one: Chunk | None = chunk
        while one is not None and one.first_number < stop:
            first, last = max(0, number - one.first_number), min(stop - one.first_number, len(one))
            if (flags := self._flags.get(one)) is not None:
                for found in _LEFT_OUT.finditer(flags, first, last):
                    self.records -= found.end() - found.start()
                    self.bytes -= one.ends[found.end() - 1] - one.record_start(found.start())
                if flags.find(1, last) < 0:
                    if self.is_whole(one):
                        self.whole_bytes = max(0, self.whole_bytes - one.size)
                    del self._flags[one]
            one = one.next
        return before - self.records

    def is_whole(self, chunk: Chunk) -> bool:
        """Tells whether nothing else is left of a chunk, to which no more is added."""
        flags = self._flags.get(chunk)
        return flags is not None and len(flags) == len(chunk) and chunk.next is not None and flags.find(0) < 0

    def whole(self) -> list[Chunk]:
        """Returns the chunks of which nothing else is left. Their bytes are counted anew."""
        found = [chunk for chunk in self._flags if self.is_whole(chunk)]
        self.whole_bytes = sum(chunk.size for chunk in found)
        return found

    def clear(self) -> None:
        self._flags.clear()
        self.records = self.bytes = self.whole_bytes = 0

    def check(self, cursor: Cursor) -> None:
        """Asserts the invariants. It visits every record."""
        found = [(chunk, index) for chunk, flags in self._flags.items() for index, flag in enumerate(flags) if flag
                 and chunk.first_number + index >= cursor.number]  # fmt: skip
        assert self.records == len(found)
        assert self.bytes == sum(chunk.size_of(index) for chunk, index in found)
        assert all(chunk.next is not None or chunk is cursor.lane.tail for chunk in self._flags)


NONE_LEFT_OUT: Final = LeftOut()
"""Shared by all consumers for which nothing is left out ahead. It is never written to."""


# -- view age ----------------------------------------------------------------------------------------------------------
#
# The view age of a consumer: how old the records are that its client reads now.
#
# It is more than the age of what waits here, for the kernels of both sides hold what was taken: half a megabyte of a
# connection, which is half a minute of a client that reads 20 kB a second. At each look at a lagging consumer a *mark*
# notes how many bytes its outlet has taken, and when the record was published that comes next. What the client reads
# now lies between two marks, or behind the last one.


MARKS_MAX = 128
"""The number of marks of one consumer. With one for each look they cover half a minute; then they lie further apart."""


class ViewAge:
    __slots__ = ("_apart_bytes", "_marks")

    def __init__(self) -> None:
        self._marks: deque[tuple[int, float]] = deque()
        """(bytes taken, when the record was published that comes next)."""
        self._apart_bytes = 1
        """Marks are so far apart, at least."""

    def note(self, taken_bytes: int, next_s: float) -> None:
        """Notes that of ``taken_bytes`` all were published before this time."""
        marks = self._marks
        if marks and taken_bytes < marks[-1][0]:
            marks.clear()  # it is another connection
        if marks and taken_bytes == marks[-1][0]:
            marks[-1] = (taken_bytes, next_s)
        elif not marks or taken_bytes - marks[-1][0] >= self._apart_bytes:
            marks.append((taken_bytes, next_s))
        if len(marks) > MARKS_MAX:
            self._apart_bytes = 2 * (marks[-1][0] - marks[0][0]) // MARKS_MAX
            self._marks = deque(list(marks)[::2])

    def seconds(self, read_bytes: int, next_s: float, now: float) -> float:
        """Returns how old the record is that comes after the first ``read_bytes``. ``next_s``: when the record was
        published that comes after the bytes that were taken; ``inf``: none waits."""
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= read_bytes:
            marks.popleft()
        if not marks or read_bytes >= marks[-1][0]:
            return max(0.0, now - next_s)
        taken_bytes, at_s = marks[0]
        if len(marks) > 1 and read_bytes > taken_bytes:
            upto_bytes, upto_s = marks[1]
            at_s += (upto_s - at_s) * (read_bytes - taken_bytes) / (upto_bytes - taken_bytes)
        return max(0.0, now - at_s)


# -- backfill ----------------------------------------------------------------------------------------------------------
#
# A backfill is a source of records that a consumer gets before any more from its lane.


class BackfillSource(Protocol):
    """An iterator over the records of a backfill. It yields None if one step found no matching record; there may be
    more. It is closed when the consumer needs no more records."""

    @property
    def held_bytes(self) -> int:
        """Returns the memory that is held for this source alone."""

    def __next__(self) -> Record | None: ...
    def close(self) -> None: ...
    def waiting(self) -> tuple[int, int]:
        """Returns how many records it still has, at most, and their bytes, about. Asked at each look at its consumer:
        it is counted as the source is read. Records that a conflation owes are not among them."""


class Backfill:
    """Records that come before any more from the lane: retained records, a snapshot, a pass over a state, recorded
    records, or the unsent records of a replaced subscription.

    It stays until its client has taken its last batch: one that stands still before that is behind."""

    __slots__ = ("_batch_bytes", "_batch_end", "_batch_records", "done", "out_of_order", "records", "retained", "since",
                 "since_s")  # fmt: skip

    def __init__(
        self, records: BackfillSource, retained: bool, since: int, since_s: float,
        out_of_order: OutOfOrderProgress = NO_PROGRESS,
    ) -> None:  # fmt: skip
        self.records = records
        self.retained = retained
        """Set if the records are sent with the retain flag."""
        self.since = since
        """The last sequence before the subscription began. Later records also passed in its lane; if this backfill
        sends them from a state, they are owed no longer."""
        self.since_s = since_s
        """The time when it was asked for: its records wait since then."""
        self.out_of_order = out_of_order
        """Notes which records were sent and settled, if the subscription is durable."""
        self.done = False
        """Set if all records are in the outlet."""
        self._batch_records = self._batch_bytes = self._batch_end = 0

    def wrote(self, records: int, outlet: Outlet) -> None:
        """Notes a batch, which is in the outlet now."""
        self._batch_records, self._batch_bytes = records, len(outlet.out)
        self._batch_end = outlet.taken_bytes + self._batch_bytes

    def unsent(self, outlet: Outlet) -> Volume:
        """Returns what its client has not taken of the last batch."""
        left = min(self._batch_end - outlet.taken_bytes, len(outlet.out))
        if left <= 0 or not self._batch_bytes:
            return NO_VOLUME
        return Volume(-(-self._batch_records * left // self._batch_bytes), left)
