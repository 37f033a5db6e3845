"""The journal: writes what the ledger collects, tells who waits for it, and frees what nobody needs.

Theory of operation. At the end of a turn everything that came for the journal is made into entries. While the writer (a
thread of its own) is at work, turns add to what waits; when it is done, all of that is written and synced together. So
the slower the disk the larger its bites, and the loop never waits for it.

Rules:
- Nobody is told that something is kept before the writer said so, in the order in which it was said.
- When the writer fails, nothing is kept until it has written all of it again elsewhere, which it tries once a second.
  Meanwhile all of it is in memory; who adds more than ``BACKLOG_BYTES_MAX`` to it waits.
- It is written at the end of a turn and at no other time: a snapshot has to know all that came before it.
- What goes through all there is (a snapshot, tidying) does so in slices, one at the end of a turn and not at each one.
- The oldest segment of the main stream begins with a snapshot, so it says by itself how the runs in it and behind it
  were routed. A snapshot has a sequence of its own, so its segment is not free before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from headway.core.broker import Broker
from headway.core.log import MAIN, Chunk, Lane, Ledger
from headway.server.config import JournalTable, TopicTable
from headway.server.journal.archive import Archive
from headway.server.journal.chunk_cache import ChunkCache, JournalChunk
from headway.server.journal.entry_codec import encode_metadata, encode_positions, encode_run
from headway.server.journal.recovery import RETAINED
from headway.server.journal.retained import RetainedLog
from headway.server.journal.slices import Slices
from headway.server.journal.snapshot import SLICE_ITEMS, Snapshot
from headway.server.journal.tidying import Tidying
from headway.server.loop import Pulse
from headway.store.journal.batch import Entry
from headway.store.journal.journal import Journal
from headway.store.journal.stream import Stream

log = logging.getLogger("headway")

BACKLOG_BYTES_MAX = 64 * 1024 * 1024
LOADED = 0.6
"""From this part of a core on the loop is at work all the time."""
LOADED_GATHER_S = 0.012
"""Then what is to be written waits for more, for each commit takes the interpreter from the loop; the turns that others
have to wait for are as long."""
UNSYNCED_BYTES_MAX = 16 * 1024 * 1024
"""Where nothing is synced before it is confirmed, so much is kept in memory until it is."""
MEND_EVERY_S = 1.0
TIDY_EVERY_S = 5.0
TOLD_BYTES = 2 * 1024 * 1024
TOLD_TIMES = 4
"""A snapshot is due when there are more bytes of facts and places since the last one than this, and than so many times
what that had: what is read at a start goes with what is alive, and snapshots cost a part of what is written anyway."""
PLACES_SHARE = 4
"""Places count for a quarter of their bytes: they are read faster, and written with every acknowledgement."""

Work = dict[str, list[Entry]]


class _CommitStep(NamedTuple):
    """What is written at once, and which streams begin a segment with it; ``snapshot``: makes what more there is."""

    work: Work
    rolled: list[str]
    snapshot: Callable[[], list[Entry]] | None = None


class JournalStats(msgspec.Struct, frozen=True):
    """What people are told of the journal."""

    path: str
    bytes: int
    streams: dict[str, int]
    """Bytes of each."""
    commits: int
    longest_commit_ms: float
    waiting_bytes: int
    """Not known to be on disk yet."""
    places: int
    """Durable subscriptions and queues that have one."""
    error: str
    """Why nothing is confirmed; empty: all is well."""
    failures: int


class CommitWaiter(Protocol):
    """Somebody who is to be told."""

    def on_commit(self, number: int) -> None:
        """Everything up to this commit is on disk."""


class JournalWriter:
    def __init__(
        self, table: JournalTable, topics: Sequence[TopicTable], broker: Broker, store: Journal,
        streams: dict[str, Stream], archive: Archive, loop: asyncio.AbstractEventLoop, now: Callable[[], float],
        turn_soon: Callable[[], None],
    ) -> None:  # fmt: skip
        self.store = store
        self.streams = streams
        self.ledger = Ledger()
        self.committed = 0
        """The last commit that is on disk."""
        self.committed_sequence = 0
        self.error = ""
        """Why nothing is kept at the moment; empty: all is well."""
        self.commits = 0
        self.failures = 0
        self.pulse = Pulse()
        self._longest_s = self._began_s = 0.0
        self.chunk_cache = ChunkCache([stream for name, stream in streams.items() if name != RETAINED], archive)
        self.archive = archive
        self._table = table
        self._broker = broker
        self._loop = loop
        self._now = now
        self._turn_soon = turn_soon
        self._waiting: dict[CommitWaiter, None] = {}
        self._work: Work = {}
        self._work_bytes = 0
        self._handed_bytes = 0
        """With the writer."""
        self._work_s = 0.0
        self._work_number = self._work_sequence = 0
        self._busy = False
        self._next: asyncio.Future[None] | None = None
        self._retained = RetainedLog(broker.retained, streams[RETAINED], archive)
        self._tidying = Tidying(broker, self.ledger, streams, archive, self.chunk_cache, self._retained, topics,
                                self._submit)  # fmt: skip
        self._timer: asyncio.TimerHandle | None = None
        self._snapshot_due = True
        self._snapshot: Snapshot | None = None
        """That is being collected, or is to be written next."""
        self._slices = Slices(loop, now, turn_soon)
        self._segments: Counter[str] = Counter()
        """Bytes written to each stream since its last segment was begun."""
        self._told_bytes = self._told_bytes_max = 0
        """Of facts and places since the last snapshot, weighed; and with how many the next one is due."""
        self.loaded = False
        """The loop has no time to spare."""
        self._load_at = now(), 0.0
        self._tidied_s = now()
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headway-journal")

    def load(self, now: float, cpu_s: float) -> None:
        """Now and then: how much of a core the loop's thread has used so far."""
        since_s, used_s = now - self._load_at[0], cpu_s - self._load_at[1]
        self.loaded = used_s > LOADED * since_s
        self._load_at = now, cpu_s

    def stats(self) -> JournalStats:
        streams = {name: stream.bytes for name, stream in self.streams.items()}
        return JournalStats(
            str(self.store.folder), sum(streams.values()), streams, self.commits, round(self._longest_s * 1000, 3),
            self._waiting_bytes, len(self.ledger.kept), self.error, self.failures,
        )  # fmt: skip

    @property
    def _waiting_bytes(self) -> int:
        """What is not confirmed."""
        return self._work_bytes + self._handed_bytes

    # -- what is to be kept -----------------------------------------------------------------------------------------

    def turn(self, now: float) -> None:
        """The end of a turn: what it brought is to be written."""
        ledger = self.ledger
        commit = ledger.take(self._broker.registry.sequence)
        if commit is not None:
            offset = self.archive.wall_offset_s
            if not self._work:
                self._work_s = now
            for kept in commit.runs:
                self._add(kept.stream, encode_run(kept, offset))
                if kept.stream != MAIN:
                    self.archive.recorded[kept.stream].pending.append(kept)
            for topic in commit.retained:
                self._add(RETAINED, self._retained.entry(topic))
            told = [(fact, encode_metadata(fact, offset)) for fact in commit.facts]
            self._told_bytes += sum([self._add(MAIN, entry) for _, entry in told])
            if self._snapshot is not None:
                self._snapshot.told(told, commit.places)
            self._tidying.told(commit.places)
            if commit.places:
                self._told_bytes += self._add(MAIN, encode_positions(commit.places, commit.sequence)) // PLACES_SHARE
            self._work_number, self._work_sequence = commit.number, commit.sequence
            ledger.full = ledger.full or self._waiting_bytes > BACKLOG_BYTES_MAX
        self._go_through(now)
        self._write_soon(now)

    def _go_through(self, now: float) -> None:
        """Another slice of what looks at all there is."""
        idle = not (self._busy or self.error)
        if now - self._tidied_s > TIDY_EVERY_S and idle:
            self._tidied_s = now
            self._tidying.begin()
        if (self._snapshot is not None or self._tidying.under_way) and self._slices.due(now):
            if self._snapshot is not None:
                self._snapshot.go_on(SLICE_ITEMS)
            self._tidying.go_on()
            more = self._snapshot is not None and not self._snapshot.whole
            self._slices.over(more=more or self._tidying.under_way)
        if idle and self._tidying.due:  # before the next work: a writer that always has some would never come to it
            self._tidying.tidy(now, self.committed_sequence)

    def _add(self, stream: str, entry: Entry) -> int:
        """Returns how many bytes it has."""
        self._work.setdefault(stream, []).append(entry)
        size = sum(map(len, entry.data))
        self._work_bytes += size
        return size

    def restored(self, reserved: int, snapshots: list[int]) -> None:
        """What there is has been read: sequences up to ``reserved`` may have been used, and where snapshots are."""
        self.ledger.drop(reserved)
        self.committed_sequence = reserved
        self._tidying.snapshots = snapshots

    def wait(self, waiter: CommitWaiter) -> int:
        """Have somebody told when all that came so far is kept. Returns the commit with which it is; 0: it is."""
        number = self.ledger.number if self.ledger.has_work else self.ledger.number - 1
        if number <= self.committed:
            return 0
        self._waiting[waiter] = None
        return number

    async def flush(self) -> None:
        """Returns when all that came so far is on disk."""
        self._turn_soon()
        number = self.ledger.number if self.ledger.has_work else self.ledger.number - 1
        while self.committed < number:
            await asyncio.wait([self.next_commit()])

    def next_commit(self) -> asyncio.Future[None]:
        """Is done when more is on disk."""
        if self._next is None:
            self._next = self._loop.create_future()
        return self._next

    # -- writing ----------------------------------------------------------------------------------------------------

    def _write_soon(self, now: float) -> None:
        whole = self._snapshot is not None and self._snapshot.whole
        if self._busy or self.error or not (self._work or whole):
            return
        gather_s = max(self._table.gather_s, LOADED_GATHER_S if self.loaded else 0.0)
        left_s = self._work_s + gather_s - now
        if left_s > 0:
            if self._timer is None:
                self._timer = self._loop.call_later(left_s, self._ring)
            return
        self._write(now)

    def _ring(self) -> None:
        self._timer = None
        self._turn_soon()

    def _write(self, now: float) -> None:
        work, self._work, self._handed_bytes, self._work_bytes = self._work, {}, self._work_bytes, 0
        time_us = int(((self._work_s if work else now) + self.archive.wall_offset_s) * 1e6)
        for name, entries in work.items():
            self._segments[name] += sum(sum(map(len, entry.data)) for entry in entries)
        rolled = [name for name, size in self._segments.items() if name != MAIN and size > self._table.segment_bytes]
        again = self._retained.some_again()
        if again:
            work.setdefault(RETAINED, []).extend(again)
        for name in rolled:
            self._segments[name] = 0
        told = {MAIN: work.pop(MAIN)} if MAIN in work else {}
        # That a record is settled is on disk no sooner than a dead letter of it, which may be in another stream.
        steps = [_CommitStep(work, rolled), _CommitStep(told, []), *self._snapshot_to_write()]
        self._busy, self._began_s = True, now
        self._thread.submit(self._commit, steps, time_us, self._work_number, self._work_sequence)

    def _snapshot_to_write(self) -> list[_CommitStep]:
        """One that is due is begun; one that is whole is to be written behind all that came so far."""
        told_much = self._told_bytes > self._told_bytes_max
        due = self._snapshot_due or told_much or self._segments[MAIN] > self._table.segment_bytes
        if self._snapshot is None and due:
            self._snapshot = Snapshot(self._broker, self.ledger, self.archive)
            self._snapshot.go_on(SLICE_ITEMS)
            self._slices.over(more=not self._snapshot.whole)
        snapshot, registry = self._snapshot, self._broker.registry
        if snapshot is None or not snapshot.whole:
            return []
        self._snapshot = None
        self._snapshot_due, self._told_bytes, self._segments[MAIN] = False, 0, 0
        registry.sequence += 1
        self._tidying.snapshots.append(registry.sequence)
        return [_CommitStep({}, [MAIN], partial(snapshot.entries, registry.sequence, self.ledger.reserved))]

    def _submit(self, work: Callable[[], None]) -> None:
        self._thread.submit(work)

    def _commit(self, steps: list[_CommitStep], time_us: int, number: int, sequence: int) -> None:
        """In the writer's thread. Without steps: mend."""
        error: Exception | None = None
        size = 0
        for work, roll, snapshot in steps or [_CommitStep({}, [])]:
            try:
                if snapshot is not None:
                    work[MAIN] = snapshot()
                    size = sum(len(data) for entry in work[MAIN] for data in entry.data)
                if work:
                    self.store.commit(work, time_us, sync=self._table.sync, roll=roll)
                elif not steps:
                    self.store.mend()
            except Exception as failed:  # noqa: BLE001  the loop's thread says what it is
                error = failed
        self._loop.call_soon_threadsafe(self._done, number, sequence, error, size)
        if error is None and self.store.unsynced_bytes > UNSYNCED_BYTES_MAX:
            with suppress(OSError):  # it is broken then, and the next commit says so
                self.store.commit({}, time_us)

    def _done(self, number: int, sequence: int, error: Exception | None, snapshot_bytes: int) -> None:
        began = self.pulse.begin()
        if snapshot_bytes:
            self._told_bytes_max = max(TOLD_BYTES, TOLD_TIMES * snapshot_bytes)
        self._answered(number, sequence, error)
        self.pulse.end("journal", began)

    def _answered(self, number: int, sequence: int, error: Exception | None) -> None:
        now = self._now()
        if isinstance(error, OSError):
            self._failed(error, number, sequence)
            return
        if error is not None:  # a bug of ours: nothing can be kept any more, and that is said
            self.error = f"internal error: {error}"
            log.critical("the journal has failed; nothing is confirmed until a new start", exc_info=error)
            return
        self._busy = False
        self._longest_s = max(self._longest_s, now - self._began_s)
        if self.error:
            log.info("the journal is written again; everything that waited is on disk")
            self.error = ""
            self._snapshot_due = True
        self.commits += 1
        for recorded in self.archive.recorded.values():
            while recorded.pending and recorded.pending[0].sequence <= recorded.stream.last_sequence:
                recorded.pending.popleft()
        self.committed, self.committed_sequence = number, sequence
        self._broker.written(number)
        if self._next is not None:
            self._next.set_result(None)
            self._next = None
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            waiter.on_commit(number)
        self._handed_bytes = 0
        if self.ledger.full and self._waiting_bytes <= BACKLOG_BYTES_MAX // 2:
            self.ledger.full = False
            self._broker.registry.resume(self.ledger, now)
        self._turn_soon()

    def _failed(self, error: OSError, number: int, sequence: int) -> None:
        text = error.strerror or str(error)
        self.failures += 1
        if text != self.error:
            log.error("cannot write to %s: %s; nothing is confirmed until it can be written again",
                      self.store.folder, text)
        self.error = text
        self._loop.call_later(MEND_EVERY_S, self._try_again, number, sequence)

    def _try_again(self, number: int, sequence: int) -> None:
        if not self._closed:
            self._thread.submit(self._commit, [], 0, number, sequence)

    # -- reading ----------------------------------------------------------------------------------------------------

    def chunk(self, lane: Lane, chunk: Chunk) -> JournalChunk | None:
        """The chunk as the journal has it; None: it has not, or not yet."""
        if not chunk.kept or not len(chunk) or chunk.sequence_of(len(chunk) - 1) > self.committed_sequence:
            return None
        if self._tidying.may_be_gone(chunk):
            return None  # somebody who is not durable still wants what the journal may have let go of
        return JournalChunk(self.chunk_cache, chunk, lane.dialect)

    # -- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write what there is, and let go of the files."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.turn(self._now())
        if self._work:
            self._write(self._now())
        self._slices.close()
        self._thread.shutdown(wait=True)
        self.store.close()
