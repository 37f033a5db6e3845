"""A model of a journal: the commits of a simulated broker, in the bytes that would go to disk, and a broker that is
restored from them.

The checker compares both brokers' cursors: the unsettled records of the one must be the unsettled records of the other,
in the same order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise

from tests.sim.in_rows import unacknowledged

from headway.core.broker import Broker
from headway.core.clients.durability import DurableQueueTerms, SubscriptionTerms
from headway.core.log.durable import MAIN, DurablePosition, Ledger, OutOfOrderProgress
from headway.core.log.lanes.chunk import Chunk
from headway.core.log.lanes.cursor import Cursor
from headway.core.log.lanes.pool import Pool
from headway.core.message.record import Dialect
from headway.core.policy.evaluation import FlapControl
from headway.core.policy.rules.rule import Policy
from headway.core.routing import registry as recorded_topics
from headway.core.routing.registry import Limits
from headway.server.journal.compaction import RETAINED, Needs, RetainedLog, SequenceRange, Snapshot, UnneededRanges
from headway.server.journal.entries import ChunkCache, encode_metadata, encode_positions, encode_run
from headway.server.journal.recovery import SetAside, restore, restore_retained
from headway.store.journal.segments.batch import Entry, StoredEntry

WALL_OFFSET_S = 1e9


class TapeStream:
    """As much of a ``store.journal.stream.Stream`` as a start needs. Segments begin where a snapshot does."""

    def __init__(self) -> None:
        self.segments: list[list[tuple[int, list[StoredEntry]]]] = [[]]
        self.starts = [0]
        self.last_sequence = 0

    def write(self, entries: list[Entry], now: float) -> None:
        stored = [StoredEntry(kind, sequence, count, b"".join(data)) for kind, sequence, count, data in entries]
        self.segments[-1].append((int((now + WALL_OFFSET_S) * 1e6), stored))
        ends = [entry.sequence + entry.count - 1 for entry in entries if entry.count]
        assert not ends or ends[0] > self.last_sequence, "sequences go up"
        self.last_sequence = max([self.last_sequence, *ends])

    def roll(self, sequence: int) -> None:
        self.segments.append([])
        self.starts.append(sequence)

    def free(self, needed: int) -> int:
        freed = 0
        while len(self.segments) > 1 and self.starts[1] < needed:
            del self.segments[0], self.starts[0]
            freed += 1
        return freed

    def ranges(self) -> list[SequenceRange]:
        """Of each segment but the last: the sequences of its records."""
        return [SequenceRange(first + 1, last) for first, last in pairwise(self.starts)]

    def free_between(self, idle: list[SequenceRange]) -> int:
        """Segments between others, if nobody wants a record of them."""
        gone = [at for at, range_ in enumerate(self.ranges()) if at and range_ in idle]
        for at in reversed(gone):
            del self.segments[at], self.starts[at]
        return len(gone)

    @property
    def batches(self) -> list[tuple[int, list[StoredEntry]]]:
        return [batch for segment in self.segments for batch in segment]

    @property
    def first_sequence(self) -> int:
        return min((stored.sequence for _, batch in self.batches for stored in batch if stored.count), default=1)

    def scan(self, kinds: Collection[int] | None) -> Iterator[tuple[int, list[StoredEntry]]]:
        for time_us, batch in self.batches:
            yield time_us, [stored for stored in batch if kinds is None or stored.kind in kinds]

    def read(self, first: int, last: int) -> Iterator[tuple[int, list[StoredEntry]]]:
        for time_us, batch in self.batches:
            if any(stored.count and stored.sequence <= last and stored.sequence + stored.count > first
                   for stored in batch):  # fmt: skip
                yield time_us, batch

    def batch_with(self, sequence: int) -> list[StoredEntry] | None:
        return next((batch for _, batch in self.read(sequence, 2**62)), None)


class NothingRecorded(recorded_topics.NothingRecorded):
    wall_offset_s = WALL_OFFSET_S


class Tape:
    def __init__(self, broker: Broker, dialect: Dialect, *, slices: int = 10**9) -> None:
        """``slices`` is the number of objects that each pass over all objects looks at in a turn."""
        self.slices = slices
        self.sliced = 0
        """Snapshots that took several turns."""
        self.seen: Callable[[Snapshot, float], object] | None = None
        """Called with each snapshot that is about to be written."""
        self._snapshot: Snapshot | None = None
        self._needs: Needs | None = None
        self._search: UnneededRanges | None = None
        self.main, self.retained = TapeStream(), TapeStream()
        self.broker = broker
        self.dialect = dialect
        self.ledger = Ledger()
        broker.keep(self.ledger, NothingRecorded())
        self._log = RetainedLog(broker.retained, self.retained, NothingRecorded())  # type: ignore[arg-type]
        self.freed = self.freed_between = 0
        self.began: dict[int, int] = {}
        """The last sequence before each durable position began, by the position's number."""
        self.written: set[int] = set()
        """The sequences of the journaled records; others need not come back."""

    def take(self, now: float) -> None:
        """The end of a turn."""
        self._take(now)
        self._go_through(now)

    def _take(self, now: float) -> None:
        commit = self.ledger.take(self.broker.registry.sequence, now)
        if commit is None:
            return
        entries = [encode_run(position, WALL_OFFSET_S) for position in commit.runs]
        for position in commit.runs:
            self.written.update(range(position.sequence, position.sequence + len(position.run)))
        told = [(change, encode_metadata(change, WALL_OFFSET_S)) for change in commit.changes]
        entries += [entry for _, entry in told]
        if self._snapshot is not None:
            self._snapshot.on_commit(told, commit.positions)
        if self._needs is not None:
            self._needs.on_commit(commit.positions)
        if self._search is not None:
            self._search.on_commit(commit.positions)
        for change in commit.changes:
            if isinstance(change.terms, SubscriptionTerms | DurableQueueTerms):
                self.began.setdefault(change.terms.position_number, change.sequence)
        if commit.positions:
            entries.append(encode_positions(commit.positions, commit.sequence))
        if entries:
            self.main.write(entries, now)
        self.broker.written(commit.number)
        if commit.retained:
            self.retained.write([self._log.entry(topic) for topic in commit.retained], now)

    def roll(self, now: float) -> None:
        """A new segment, as soon as all that stands at its beginning has been looked at; old ones go if nobody needs
        them. The real one has a mark in it with a sequence of its own, which the simulator's models would take for a
        record."""
        self._take(now)
        if self._snapshot is None:
            self._snapshot = Snapshot(self.broker, self.ledger, NothingRecorded())
            self._go_through(now)
            self.sliced += self._snapshot is not None

    def _go_through(self, now: float) -> None:
        """The real one looks at both in a slice, and writes what was not whole before it in the next turn."""
        if self._snapshot is not None:
            self._snapshot.advance(self.slices)
            if self._snapshot.done:
                self._begin_segment(self._snapshot, now)
                self._snapshot = None
        if self._needs is not None:
            self._needs.advance(self.slices)
            if self._needs.done:
                self.freed += self.main.free(self._needs.main)
                self._needs, self._search = None, UnneededRanges(self.broker, self.ledger, (), self.main.ranges())
        if self._search is not None:
            self._search.advance(self.slices)
            if self._search.done:
                self.freed_between += self.main.free_between(list(self._search.found))
                self._search = None

    def _begin_segment(self, snapshot: Snapshot, now: float) -> None:
        sequence = self.broker.registry.sequence
        if self.seen is not None:
            self.seen(snapshot, now)
        self.main.roll(sequence)
        self.main.write(snapshot.entries(sequence, self.ledger.reserved)[1:], now)
        if self._needs is None and self._search is None:
            self._needs = Needs(self.ledger, sequence, ())

    def restored(self, now: float, policies: tuple[Policy, ...] = ()) -> tuple[Broker, Ledger]:
        """A broker as it would be if the process had died now, and been started again."""
        pool = Pool("global", 2_000_000, 0, 1.0)
        broker = Broker({"": Limits()}, {"": pool}, policies, flap=FlapControl(base_s=0.0))
        ledger = Ledger()
        broker.keep(ledger, NothingRecorded())
        set_aside = SetAside()
        restore_retained(broker, self.retained, now, WALL_OFFSET_S, set_aside)  # type: ignore[arg-type]
        streams = {MAIN: self.main, RETAINED: self.retained}
        chunk_cache = ChunkCache([], NothingRecorded())
        restore(broker, streams, chunk_cache, lambda: now, WALL_OFFSET_S, self.dialect, set_aside)  # type: ignore[arg-type]
        assert not set_aside, set_aside.told
        return broker, ledger


def slices_of(seed: int) -> int:
    """With some seeds what looks at all there is takes many turns, in which the process may die."""
    return (10**9, 2, 7)[seed % 3]


class UnsettledRecord:
    """A record that is not settled."""

    __slots__ = ("expires_s", "sent", "sequence")

    def __init__(self, chunk: Chunk, number: int, *, sent: bool) -> None:
        index = number - chunk.first_number
        assert 0 <= index < len(chunk), "the record is there"
        self.sequence = chunk.sequence_of(index)
        self.expires_s = chunk.run_expires[chunk.run_of(index)]
        self.sent = sent
        """Set if it was sent and not settled."""


def _records(cursor: Cursor, numbers: Iterable[int], *, sent: bool) -> list[UnsettledRecord]:
    chunks = sorted((one for one in cursor.lane.all_chunks() if len(one)), key=lambda one: one.first_number)
    firsts = [one.first_number for one in chunks]
    return [UnsettledRecord(chunks[bisect_right(firsts, number) - 1], number, sent=sent) for number in numbers]


def unsettled(position: DurablePosition) -> list[UnsettledRecord]:
    found: list[UnsettledRecord] = []
    for cursor in position.cursors:
        if isinstance(cursor, OutOfOrderProgress):
            continue
        standing = [row.chunk.first_number + at for row in getattr(cursor, "rows", ()) for at, flag in
                    enumerate(row.flags) if flag]  # fmt: skip
        sent = sorted([*cursor.aside, *unacknowledged(cursor), *standing])
        found += _records(cursor, sent, sent=True)
        if cursor.attached and cursor.position < cursor.end_position:
            unsent = _records(cursor, range(cursor.number, cursor.end_number), sent=False)
            found += [one for one in unsent if not cursor.ended or one.sequence <= cursor.ended]
    return found


def assert_the_same(tape: Tape, again: Broker, ledger: Ledger, now: float, *, ttl: bool) -> int:
    """Returns how many records were compared. ``ttl``: queues may have lifetimes of their own."""
    there, compared = tape.ledger.positions, 0
    assert sorted(there) == sorted(ledger.positions), "the same positions are durable"
    for number, position in there.items():
        out_of_order = [one for one in position.cursors if isinstance(one, OutOfOrderProgress)]
        if out_of_order and any(one.unsettled_sequence() for one in out_of_order):
            firsts = [one.unsettled_sequence() for one in out_of_order if one.unsettled_sequence()]
            got = [one.sequence for one in unsettled(ledger.positions[number])]
            # No record of the replaced subscription is before that; its successor's terms may leave some of them out.
            assert not got or got[0] >= min(firsts)
            continue
        began = tape.began[number]
        want = [one for one in unsettled(position) if one.sequence in tape.written and one.sequence > began]
        have = unsettled(ledger.positions[number])
        got = [one.sequence for one in have]
        assert got == sorted(got), "in order"
        missing = [one for one in want if one.sequence not in set(got)]
        assert all(one.expires_s <= now or ttl for one in missing), [one.sequence for one in missing]
        conflated = any(not cursor.attached and not cursor.ended for cursor in position.cursors)
        extra = set() if conflated else set(got) - {one.sequence for one in want}
        assert not extra, f"{sorted(extra)[:10]} of position {number} come back"
        compared += len(got)
    return compared


