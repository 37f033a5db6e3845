"""Compaction: keeps the journal small. Snapshots repeat what still counts; unneeded segments are removed."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import inf
from typing import NamedTuple

from headway.core.broker import Broker
from headway.core.clients import RecoveredPosition, SubscriptionTerms
from headway.core.log import (
    MAIN,
    Chunk,
    CommittedPosition,
    DurablePosition,
    JournaledRun,
    Ledger,
    MetadataChange,
    OutOfOrderProgress,
    Retained,
)
from headway.core.message import Record, overlaps
from headway.core.routing import Binding, Destination
from headway.server.config import Keep, TopicTable
from headway.server.journal.entries import (
    SNAPSHOT_MARK,
    SNAPSHOT_METADATA,
    SNAPSHOT_POSITIONS,
    Archive,
    ChunkCache,
    Clock,
    encode_metadata,
    encode_positions,
    encode_run,
    stream_name,
)
from headway.store.journal import Buffer, Entry, Stream, joined

# -- retained ----------------------------------------------------------------------------------------------------------
#
# Retained records in the journal: a stream of its own in which the last entry of each topic counts.
#
# Theory of operation. Each change appends an entry; an empty payload ends a topic. When the stream is twice as large as
# the entries that count, every topic is written once more, some with each commit. Then everything before the first of
# these entries is freed.


RETAINED = "retained"
"""The stream of retained records. The last one of each topic counts."""
AGAIN_RECORDS = 500
"""Topics that are written once more with one commit."""
SPARE_BYTES = 16 * 1024 * 1024
"""A stream is not rewritten for less than this."""
RECORD_BYTES = 100
"""Overhead of an entry beside its payload, about."""


class RetainedLog:
    def __init__(self, retained: Retained, stream: Stream, clock: Clock) -> None:
        self._retained = retained
        self._stream = stream
        self._clock = clock
        self._number = stream.last_sequence
        self._left: list[str] = []
        """Topics to be written once more."""
        self._since = 0
        self._done = 0

    def entry(self, topic: str) -> Entry:
        """Returns an entry with the topic's current record."""
        self._number += 1
        record = self._retained.get(topic) or Record(topic, b"", retain=True)
        run = record.run()
        return encode_run(JournaledRun("", run, self._number, ""), self._clock.wall_offset_s)

    def some_again(self) -> list[Entry]:
        """Entries that repeat older ones, to be written with the next commit."""
        if not self._left and not self._done:
            live = self._retained.bytes + RECORD_BYTES * len(self._retained)
            if self._stream.bytes > 2 * live + SPARE_BYTES:
                self._left, self._since = self._retained.topics(), self._number + 1
        if not self._left:
            return []
        some = self._left[-AGAIN_RECORDS:]
        del self._left[-AGAIN_RECORDS:]  # no copy of the rest: there may be a million topics
        entries = [self.entry(topic) for topic in some]
        if not self._left:
            self._done = self._since
        return entries

    def done_upto(self) -> int:
        """Entries before this one count no longer; 0: nothing changed since the last call."""
        done, self._done = self._done, 0
        return done


# -- slices ------------------------------------------------------------------------------------------------------------
#
# Slices: a pass over everything there is, done a part at a time at the ends of turns.
#
# A ``SlicedPass`` is the work. ``SlicePacer`` says when the next slice is due, so that other work runs between slices.


PAUSE_S = 0.01
"""From the end of one slice to the next."""


class SlicedPass(ABC):
    """A pass over everything there is; each call of ``advance`` does a slice of it."""

    def __init__(self) -> None:
        self.done = False
        self._remaining = self._steps()

    @abstractmethod
    def _steps(self) -> Iterator[int]:
        """Does one step at a time and yields how many items it looked at."""

    def advance(self, items: int | None = None) -> None:
        """Looks at about this many items; None looks at all that remain."""
        for looked_at in self._remaining:
            if items is not None:
                items -= looked_at
                if items <= 0:
                    return
        self.done = True


class SlicePacer:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, now: Callable[[], float], turn_soon: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._now = now
        self._turn_soon = turn_soon
        self._next_s = now()
        self._timer: asyncio.TimerHandle | None = None

    def due(self, now: float) -> bool:
        return now >= self._next_s

    def slice_done(self, *, more: bool) -> None:
        """Starts the pause after a slice. ``more`` asks for a turn at its end."""
        self._next_s = self._now() + PAUSE_S
        if more and self._timer is None:
            self._timer = self._loop.call_later(PAUSE_S, self._ring)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        self._timer = None
        self._turn_soon()


# -- needs -------------------------------------------------------------------------------------------------------------
#
# Needs: finds the first record that is still needed, of the main stream and of each recorded topic.
#
# Theory of operation. A pass looks at all durable positions and at all unloaded chunks, in slices. The first record
# that a position needs only moves forward, so a finding stays valid until the pass is done. Positions and chunks that
# are new meanwhile are looked at as they come. So is a position that moved back.


LOOKED_ITEMS = 1024


class Needs(SlicedPass):
    def __init__(self, ledger: Ledger, sequence: int, filters: Iterable[str], unloaded: Iterable[int] = ()) -> None:
        """``sequence`` is the newest of the broker. ``filters`` are those of recorded topics. ``unloaded`` are the
        first sequences of unloaded chunks."""
        super().__init__()
        self.main = sequence + 1
        """The first sequence of the main stream that a durable position needs."""
        self.of_topic = dict.fromkeys(filters, sequence + 1)
        """The first sequence that a durable position needs, by recorded topic."""
        self.unloaded: float = inf
        """The first sequence that an unloaded chunk needs, in any stream."""
        self._ledger = ledger
        self._nothing = sequence + 1
        self._positions = list(ledger.positions.values())
        self._chunks = list(unloaded)
        self._last_number = ledger.last_number
        self._seen: dict[int, int] = {}
        """The first sequence that each position needed at its last look, by the position's number."""

    def _steps(self) -> Iterator[int]:
        """Looks at one position or chunk in each step. Advanced right after a commit."""
        while self._positions:
            self._look(self._positions.pop())
            yield 1
        while self._chunks:
            self.on_unload(self._chunks.pop())
            yield 1

    def on_commit(self, positions: Iterable[CommittedPosition]) -> None:
        """Looks at positions that are new since the last commit, and at those that moved back."""
        for position in reversed(self._ledger.positions.values()):
            if position.number <= self._last_number:
                break
            self._look(position)
        self._last_number = self._ledger.last_number
        for committed in positions:
            if committed.upto < self._seen.get(committed.number, 0) and committed.number in self._ledger.positions:
                self._look(self._ledger.positions[committed.number])

    def on_unload(self, sequence: int) -> None:
        """Notes an unloaded chunk, which begins with this sequence."""
        self.unloaded = min(self.unloaded, sequence)

    def _look(self, position: DurablePosition) -> None:
        first = min(
            (found for cursor in position.cursors if (found := cursor.unsettled_sequence())), default=self._nothing
        )
        self._seen[position.number] = first
        if not position.recorded_only:
            self.main = min(self.main, first)
        for filter, needed in self.of_topic.items():
            if first < needed and _reads(filter, position):
                self.of_topic[filter] = first


def _reads(filter: str, position: DurablePosition) -> bool:
    """Tells whether the position's owner may read topics that this filter matches."""
    return any(overlaps(filter, own) for own in position.filters() if own[0] != "$")


# -- snapshot ----------------------------------------------------------------------------------------------------------
#
# A snapshot is all metadata and positions as of one commit. It is collected while the broker works.
#
# Theory of operation. The snapshot visits all objects in slices, at the ends of turns, so that a turn takes no longer
# with many clients. Meanwhile it gets every commit. A commit updates the objects that the snapshot has visited. It
# visits the other objects later, in their later state. So after the last visit the snapshot is as of the last commit.
# Further commits update it until it is written. The writer's thread encodes the entries (``entries``).
#
# Rules:
# - Metadata and positions are folded as at a start (core/clients/durability.py). An object that ends takes
# along
#   all that belongs to it, even without an entry for it. Entries of an unknown client are ignored.
# - Metadata is held as encoded bytes, in an order in which it can be restored.
# - A slice comes right after a commit, because then all settled records are in committed positions.


SLICE_ITEMS = 256


class _ClientEntries:
    __slots__ = ("ids", "session", "subscriptions")

    def __init__(self) -> None:
        self.session: Buffer = b""
        self.ids: dict[tuple[str, object], Buffer] = {}
        self.subscriptions: dict[object, Buffer] = {}


class Snapshot(SlicedPass):
    def __init__(self, broker: Broker, ledger: Ledger, clock: Clock) -> None:
        super().__init__()
        self._broker = broker
        self._ledger = ledger
        self._clock = clock
        self._exchanges: dict[str, Buffer] = {}
        self._queues: dict[str, Buffer] = {}
        self._bindings: dict[Binding, Buffer] = {}
        self._at: dict[Destination, dict[Binding, None]] = {}
        """The bindings of each source and destination."""
        self._clients: dict[str, _ClientEntries] = {}
        self._client_of: dict[object, _ClientEntries] = {}
        """The client of each subscription, by the subscription's number."""
        self._others: dict[tuple[str, object], Buffer] = {}
        self._positions: dict[int, RecoveredPosition] = {}

    # -- collecting -------------------------------------------------------------------------------------------------

    def _steps(self) -> Iterator[int]:
        for change in self._ledger.all_metadata():
            if change is not None:
                self._change(change, encode_metadata(change, self._clock.wall_offset_s).data[0])
            yield 1
        for position in list(self._ledger.positions.values()):
            if position.number in self._ledger.positions:
                committed = position.complete_position(self._broker.registry.sequence)
                self._positions[position.number] = RecoveredPosition(committed)
                yield 1 + len(committed.settled)
            else:
                yield 1
        for name in list(self._exchanges):  # an exchange may have ended with bindings that were not visited yet
            self._end_unused(name)
            yield 1

    def on_commit(
        self, changes: Iterable[tuple[MetadataChange, Entry]], positions: Iterable[CommittedPosition]
    ) -> None:
        """Adds the changes and positions of a commit."""
        for change, entry in changes:
            self._change(change, entry.data[0])
        for committed in positions:
            known = self._positions.get(committed.number)
            if known is None:
                self._positions[committed.number] = RecoveredPosition(committed)  # new, or not visited yet
            else:
                known.add(committed)

    def _change(self, change: MetadataChange, data: Buffer) -> None:
        _, what, name, terms = change
        match what, name:
            case "session", str():
                self._session(name, data, there=terms is not None)
            case (("arrived" | "flight"), (str(client), _)):
                self._unfinished(self._clients.get(client), (what, name), data, there=terms is not None)
            case "subscription", _:
                self._subscription(name, terms, data)
            case "exchange", str():  # in any case the old exchange of this name has ended
                self._exchanges.pop(name, None)
                self._unbind(Destination("exchange", name))
                if terms is not None:
                    self._exchanges[name] = data
            case "queue", str():
                if terms is not None:
                    self._queues[name] = data
                else:
                    self._queues.pop(name, None)
                    self._unbind(Destination("queue", name))
            case "binding", Binding():
                if terms is None:
                    self._binding_ended(name)
                else:
                    self._bindings[name] = data
                    for end in _ends(name):
                        self._at.setdefault(end, {})[name] = None
            case "reserved", _:
                pass
            case _ if terms is None:
                self._others.pop((what, name), None)
            case _:
                self._others[what, name] = data

    def _session(self, name: str, data: Buffer, *, there: bool) -> None:
        if there:
            self._clients.setdefault(name, _ClientEntries()).session = data
            return
        client = self._clients.pop(name, None)
        for number in client.subscriptions if client is not None else ():
            del self._client_of[number]

    def _unfinished(self, client: _ClientEntries | None, key: tuple[str, object], data: Buffer, *, there: bool) -> None:
        """Adds or removes an unfinished exactly-once publish or delivery."""
        if client is None:
            return
        if there:
            client.ids[key] = data
        else:
            client.ids.pop(key, None)

    def _subscription(self, number: object, terms: object, data: Buffer) -> None:
        client = self._client_of.pop(number, None)
        if client is not None:
            del client.subscriptions[number]
        client = self._clients.get(terms.client) if isinstance(terms, SubscriptionTerms) else None
        if client is not None:
            client.subscriptions[number] = data
            self._client_of[number] = client

    def _unbind(self, end: Destination) -> None:
        """Drops the bindings of an exchange or queue that has ended."""
        for binding in list(self._at.get(end, ())):
            self._binding_ended(binding)

    def _binding_ended(self, binding: Binding) -> None:
        if self._bindings.pop(binding, None) is None:
            return
        for end in _ends(binding):
            self._at[end].pop(binding)
            if not self._at[end]:
                del self._at[end]
        self._end_unused(binding.source)

    def _end_unused(self, name: str) -> None:
        """Drops an auto-delete exchange that ended with its last binding. There is no entry for that."""
        exchange = self._broker.registry.router.exchanges.by_name.get(name)
        if (exchange is None or not exchange.durable) and self._exchanges.pop(name, None) is not None:
            self._unbind(Destination("exchange", name))

    # -- writing ----------------------------------------------------------------------------------------------------

    def entries(self, sequence: int, reserved: int) -> list[Entry]:
        """Returns the snapshot's entries, as of this sequence. Another thread may call this after the last
        ``on_commit``."""
        first = encode_metadata(MetadataChange(sequence, "reserved", None, reserved), 0.0).data[0]
        entries = [Entry(SNAPSHOT_MARK, sequence, 1, (b"",))]
        entries += (Entry(SNAPSHOT_METADATA, sequence, 0, (data,)) for data in (first, *self._metadata()))
        positions = [recovered.position(number) for number, recovered in self._positions.items()]
        entries.append(encode_positions(positions, sequence, SNAPSHOT_POSITIONS))
        return entries

    def _metadata(self) -> Iterator[Buffer]:
        yield from self._exchanges.values()
        yield from self._queues.values()
        yield from self._bindings.values()
        for client in self._clients.values():
            yield client.session
            yield from client.ids.values()
        for client in self._clients.values():
            yield from client.subscriptions.values()
        yield from self._others.values()


def _ends(binding: Binding) -> set[Destination]:
    """Returns the source and the destination, which are one if an exchange is bound to itself."""
    return {Destination("exchange", binding.source), binding.destination}


# -- unneeded ----------------------------------------------------------------------------------------------------------
#
# Unneeded ranges: sequences between two snapshots of the main stream of which no record is needed any more.
#
# Theory of operation. An old record that is still needed keeps its segment. The segments behind it may have no needed
# records. The later of two snapshots repeats all metadata and positions between them, but not the records. So the range
# between two snapshots can be removed when none of its records is needed.
#
# The search begins with all ranges and strikes out each range with a needed record. It looks at lanes, then at unloaded
# chunks, then at the out-of-order progress of durable positions, in slices. This order is safe while the broker works:
# new records have later sequences than all ranges, and a record moves from a lane to one of the other two, but never
# back. A position that moves meanwhile is looked at again.


SLICE_CHUNKS = 256


class SequenceRange(NamedTuple):
    """Sequences, both inclusive."""

    first: int
    last: int


def snapshot_ranges(snapshots: Sequence[int], before: float) -> list[SequenceRange]:
    """Returns the ranges between neighbouring snapshots that end before this sequence."""
    return [SequenceRange(first, after - 1) for first, after in pairwise(snapshots) if after <= before]


class UnneededRanges(SlicedPass):
    def __init__(
        self, broker: Broker, ledger: Ledger, unloaded: Iterable[Chunk], ranges: Sequence[SequenceRange]
    ) -> None:
        """``ranges`` are in order and all in the past. ``unloaded`` are the unloaded chunks."""
        super().__init__()
        self.found = dict.fromkeys(ranges)
        """The ranges in which no needed record was found yet."""
        self._broker = broker
        self._ledger = ledger
        self._unloaded = unloaded
        self._ranges = ranges

    def on_commit(self, positions: Iterable[CommittedPosition]) -> None:
        """Looks again at the positions that moved."""
        for committed in positions:
            if committed.number in self._ledger.positions:
                self._look_at_position(self._ledger.positions[committed.number])

    def _steps(self) -> Iterator[int]:
        if not self.found:
            return
        for feed in list(self._broker.registry.router.feeds.values()):
            lane = feed.lane
            chunk: Chunk | None = lane.first
            while chunk is not None and not self._is_behind(chunk):
                yield self._look_at_chunk(chunk)
                chunk = chunk.next if chunk.start >= lane.first.start else lane.first
            for apart in list(lane.apart):  # last, because a chunk of the list may have become one of these
                yield self._look_at_chunk(apart)
            yield 1
        for chunk in list(self._unloaded):
            yield self._look_at_chunk(chunk)
        for position in list(self._ledger.positions.values()):
            yield self._look_at_position(position)

    def _is_behind(self, chunk: Chunk) -> bool:
        """Tells whether the chunk, and so the rest of its lane, comes after all ranges."""
        return len(chunk) > 0 and chunk.run_sequence[0] > self._ranges[-1].last

    def _look_at_chunk(self, chunk: Chunk) -> int:
        if not len(chunk):
            return 1
        found = self._among(chunk.run_sequence[0], chunk.sequence_of(len(chunk) - 1))
        for range_ in found:
            if range_ in self.found and _has_some(chunk, range_):
                del self.found[range_]
        return 1 + len(found)

    def _look_at_position(self, position: DurablePosition) -> int:
        looked_at = 1
        for cursor in position.cursors:
            if isinstance(cursor, OutOfOrderProgress):
                for first, last in cursor.unsettled_ranges(0):
                    found = self._among(first, last)
                    looked_at += 1 + len(found)
                    for range_ in found:
                        self.found.pop(range_, None)
        return looked_at

    def _among(self, first: int, last: int) -> Sequence[SequenceRange]:
        """Returns the ranges that have some of these sequences."""
        start = bisect_left(self._ranges, first, key=lambda range_: range_.last)
        return self._ranges[start : bisect_right(self._ranges, last, key=lambda range_: range_.first)]


def _has_some(chunk: Chunk, range_: SequenceRange) -> bool:
    at = bisect_right(chunk.run_sequence, range_.last) - 1
    if at < 0:
        return False
    stop = chunk.run_first[at + 1] if at + 1 < len(chunk.run_first) else len(chunk)
    return chunk.run_sequence[at] + stop - chunk.run_first[at] > range_.first


# -- snapshot schedule -------------------------------------------------------------------------------------------------
#
# The schedule of snapshots: when the next one is due, and the one that is being collected.


METADATA_BYTES = 2 * 1024 * 1024
METADATA_FACTOR = 4
"""A snapshot is due when more metadata was written since the last one than ``METADATA_BYTES``, and than so many times
the last one's size. So what a start reads is proportional to what is alive, and snapshots add a constant share to what
is written anyway."""
POSITIONS_WEIGHT = 4
"""Positions count for a quarter of their bytes: they are read faster, and written with every acknowledgement."""


class SnapshotSchedule:
    def __init__(self, make: Callable[[], Snapshot]) -> None:
        self.requested = True
        """The next write begins a snapshot, however little was written."""
        self.current: Snapshot | None = None
        """The snapshot that is being collected, or that is to be written next."""
        self._make = make
        self._bytes = 0
        """Metadata since the last snapshot, weighed."""
        self._bytes_max = 0

    @property
    def ready(self) -> bool:
        """A snapshot can be written."""
        return self.current is not None and self.current.done

    @property
    def collecting(self) -> bool:
        return self.current is not None and not self.current.done

    def on_metadata(self, size: int) -> None:
        self._bytes += size

    def on_positions(self, size: int) -> None:
        self._bytes += size // POSITIONS_WEIGHT

    def begin_if_due(self, *, segment_full: bool) -> bool:
        """Returns whether a snapshot was begun."""
        due = self.requested or segment_full or self._bytes > self._bytes_max
        if self.current is not None or not due:
            return False
        self.current = self._make()
        self.current.advance(SLICE_ITEMS)
        return True

    def advance(self) -> None:
        """Looks at another slice."""
        if self.current is not None:
            self.current.advance(SLICE_ITEMS)

    def take(self) -> Snapshot | None:
        """Takes the snapshot that is ready, to be written now."""
        if not self.ready:
            return None
        snapshot, self.current = self.current, None
        self.requested, self._bytes = False, 0
        return snapshot

    def written(self, size: int) -> None:
        """Notes how many bytes the last snapshot has."""
        self._bytes_max = max(METADATA_BYTES, METADATA_FACTOR * size)


# -- tidying -----------------------------------------------------------------------------------------------------------
#
# Tidying: removes segments of the journal that are no longer needed.
#
# Rules:
# - The main stream loses all segments before the last snapshot that is older than all needed records.
# - Behind an old record that is still needed, it loses the ranges between two snapshots that have no needed record
#   (offline.py). They are searched for once per snapshot.
# - A recorded topic loses the segments that are older than its ``keep`` and that no durable position needs.
# - Before a segment is removed, the snapshot that repeats its metadata is on disk.
# - The writer's thread removes the files. The loop only searches for needed records, in slices.


log = logging.getLogger("headway")


class Tidying:
    def __init__(
        self, broker: Broker, ledger: Ledger, streams: Mapping[str, Stream], archive: Archive, chunk_cache: ChunkCache,
        retained: RetainedLog, topics: Sequence[TopicTable], submit: Callable[[Callable[[], None]], None],
    ) -> None:  # fmt: skip
        """``submit`` hands work to the writer's thread, behind everything that was handed over before."""
        self.snapshots: list[int] = []
        """The sequences of the snapshots in the main stream."""
        self._freed_before = 0
        """The journal may have removed records before this sequence."""
        self._freed_ranges: list[SequenceRange] = []
        """The journal may also have removed records of these sequences."""
        self._first_snapshot = self._searched_snapshot = 0
        """The snapshot that the main stream begins with, and the last one for which ranges were searched."""
        self._search: Needs | UnneededRanges | None = None
        """A search for ranges follows a finished ``Needs`` if an old record keeps its segment."""
        self._broker = broker
        self._ledger = ledger
        self._streams = streams
        self._archive = archive
        self._chunk_cache = chunk_cache
        self._retained = retained
        self._topics = topics
        self._submit = submit

    # -- searching --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Starts a search for needed records, unless one is running."""
        if self._search is None:
            recorded = [topic.filter for topic in self._topics if topic.keep is not None]
            unloaded = self._chunk_cache.unloaded.values()
            self._search = Needs(self._ledger, self._broker.registry.sequence, recorded, unloaded)

    def on_commit(self, positions: Iterable[CommittedPosition]) -> None:
        if self._search is not None:
            self._search.on_commit(positions)

    def on_unload(self, sequence: int) -> None:
        """Notes a newly unloaded chunk, which begins with this sequence."""
        if isinstance(self._search, Needs):
            self._search.on_unload(sequence)

    @property
    def under_way(self) -> bool:
        """Tells whether a search is running."""
        return self._search is not None and not self._search.done

    @property
    def due(self) -> bool:
        """Tells whether a search is done, so that ``tidy`` can use its result."""
        return self._search is not None and self._search.done

    def advance(self) -> None:
        """Does another slice."""
        if self._search is not None:
            self._search.advance(SLICE_ITEMS if isinstance(self._search, Needs) else SLICE_CHUNKS)

    # -- removing ---------------------------------------------------------------------------------------------------

    def tidy(self, now: float, committed_sequence: int) -> None:
        """Removes unneeded segments and ranges. Called right after a commit, when it is ``due``."""
        search, self._search = self._search, None
        if isinstance(search, UnneededRanges):
            self._free_ranges(list(search.found))
        elif search is not None:
            self._free_before_needed(search, now, committed_sequence)

    def _free_before_needed(self, needs: Needs, now: float, committed_sequence: int) -> None:
        by_writers = self._broker.writers.needed_sequence()
        held = int(min(committed_sequence + 1, needs.unloaded, by_writers))
        for topic in self._topics:
            if topic.keep is not None:
                stream = self._archive.recorded[stream_name(topic.filter)].stream
                needed = min(needs.of_topic[topic.filter], held)
                self._freed_before = max(self._freed_before, needed)
                wall_us = int((now + self._archive.wall_offset_s) * 1e6)
                self._free(stream, partial(free_expired, stream, topic.keep, wall_us, needed))
        retained_upto = self._retained.done_upto()
        if retained_upto:
            self._free(self._streams[RETAINED], partial(self._streams[RETAINED].free_before, retained_upto))
        self._tidy_main(min(needs.main, held), by_writers)

    def _tidy_main(self, needed: int, all_needed_from: float) -> None:
        main = self._streams[MAIN]
        passed = bisect_left(self.snapshots, needed)
        if passed and (last := self.snapshots[passed - 1]) > self._first_snapshot:
            del self.snapshots[: passed - 1]
            self._first_snapshot = last
            self._freed_before = max(self._freed_before, last)
            self._free(main, main.sync, partial(main.free_before, last))
        elif self.snapshots and self.snapshots[-1] > self._searched_snapshot:
            self._searched_snapshot = self.snapshots[-1]
            begin = {segment.first_sequence for segment in main.segments}
            self.snapshots = [one for one in self.snapshots if one in begin or one > main.last_sequence]
            ranges = snapshot_ranges(self.snapshots, all_needed_from)
            self._search = UnneededRanges(self._broker, self._ledger, self._chunk_cache.unloaded, ranges)

    def _free_ranges(self, unneeded: list[SequenceRange]) -> None:
        main = self._streams[MAIN]
        freed = joined([*self._freed_ranges, *unneeded])
        self._freed_ranges = [SequenceRange(*pair) for pair in freed if pair[1] >= self._freed_before]
        self._free(main, partial(main.free_between, {one.first for one in unneeded}, frozenset(self.snapshots)))

    def may_be_gone(self, chunk: Chunk) -> bool:
        """Tells whether the journal may have removed some of the chunk's records."""
        first, last = chunk.sequence_of(0), chunk.sequence_of(len(chunk) - 1)
        at = bisect_right(self._freed_ranges, (last, inf)) - 1
        return first < self._freed_before or (at >= 0 and self._freed_ranges[at].last >= first)

    def _free(self, stream: Stream, *steps: Callable[[], object]) -> None:
        def work() -> None:
            try:
                for step in steps:
                    step()
            except OSError as error:
                log.error("cannot remove old segments from %s: %s", stream.folder, error.strerror or error)

        self._submit(work)


def free_expired(stream: Stream, keep: Keep, now_us: int, needed: int) -> None:
    """Removes a recorded topic's segments that are past its ``keep`` and end before the sequence ``needed``."""
    if keep.seconds is not None:
        stream.free_for_age(now_us - int(keep.seconds * 1e6), needed)
    if keep.bytes is not None:
        stream.free_for_size(keep.bytes, needed)
