"""Writing: writes the ledger's commits in a thread of its own, and tells the clients that wait for them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from headway.core.broker import Broker
from headway.core.log import MAIN, Chunk, Lane, Ledger, MetadataChange
from headway.server.config import JournalTable, TopicTable
from headway.server.journal.compaction import RETAINED, RetainedLog, SlicePacer, Snapshot, SnapshotSchedule, Tidying
from headway.server.journal.entries import (
    Archive,
    ChunkCache,
    JournalChunk,
    encode_metadata,
    encode_positions,
    encode_run,
)
from headway.server.loop import Pulse
from headway.store.journal import Entry, Journal, Stream

# -- commit ------------------------------------------------------------------------------------------------------------
#
# Commits as the writer's thread does them: steps that are written to the journal one after the other.


UNSYNCED_BYTES_MAX = 16 * 1024 * 1024
"""With ``sync = false`` so much is confirmed before it is synced; it stays in memory until then."""

Work = dict[str, list[Entry]]
"""Entries by stream."""


class CommitStep(NamedTuple):
    """Entries that are written and synced together."""

    work: Work
    rolled: list[str]
    """Streams that begin a new segment with it."""
    snapshot: Callable[[], list[Entry]] | None = None
    """Makes the entries of a snapshot, for the main stream."""


class CommitResult(NamedTuple):
    error: Exception | None
    snapshot_bytes: int
    """0: there was no snapshot."""


def commit_steps(store: Journal, steps: Sequence[CommitStep], time_us: int, *, sync: bool) -> CommitResult:
    """Writes the steps in order; after an error the later ones are only remembered. Without steps it mends the journal.
    Never raises: the result is for the loop's thread."""
    error: Exception | None = None
    size = 0
    for work, rolled, snapshot in steps or [CommitStep({}, [])]:
        try:
            if snapshot is not None:
                work[MAIN] = snapshot()
                size = sum(len(data) for entry in work[MAIN] for data in entry.data)
            if work:
                store.commit(work, time_us, sync=sync, roll=rolled)
            elif not steps:
                store.mend()
        except Exception as failed:  # noqa: BLE001  the loop's thread tells a failing disk from a bug
            if error is None or not isinstance(failed, OSError):  # a bug is told: mending the disk does not mend it
                error = failed
    return CommitResult(error, size)


def sync_if_much(store: Journal, time_us: int) -> None:
    """Bounds what is in memory because it was confirmed without a sync."""
    if store.unsynced_bytes > UNSYNCED_BYTES_MAX:
        with suppress(OSError):  # the stream is broken then, and the next commit reports it
            store.commit({}, time_us)


# -- journal writer ----------------------------------------------------------------------------------------------------
#
# The journal writer writes the ledger's commits, and tells the waiting clients.
#
# Theory of operation. At the end of a turn the ledger's commit is encoded as entries. A thread of its own writes them.
# While it writes, the turns add to the next commit. When it is done, all of that is written and synced together. So a
# slower disk gets larger commits, and the loop never waits for the disk.
#
# Rules:
# - Confirms follow the commit, in order.
# - After a failed write nothing is confirmed until the same entries are written elsewhere, which is tried once a
# second.
#   Meanwhile they stay in memory. Above ``BACKLOG_BYTES_MAX``, or a quarter of the pool, publishers of durable records
#   wait.
# - Commits begin only at the end of a turn, because a snapshot must have all entries that were written before it.
# - Snapshots and the tidying visit all objects, in slices at the ends of turns.
# - The oldest segment of the main stream begins with a snapshot, which says how the runs behind it were routed. A
#   snapshot has a sequence of its own, so that its segment is not freed before it.


log = logging.getLogger("headway")

BACKLOG_BYTES_MAX, BACKLOG_BYTES_LEAST = 64 * 1024 * 1024, 4 * 1024 * 1024
LOADED = 0.6
"""The loop is loaded when its thread uses more than this part of a core."""
LOADED_GATHER_S = 0.012
"""While the loop is loaded a commit gathers for at least this long, because each commit takes the interpreter from the
loop. Turns take as long by then."""
MEND_EVERY_S = 1.0
TIDY_EVERY_S = 5.0


class JournalStats(msgspec.Struct, frozen=True):
    """The journal's figures, for the admin API and the metrics."""

    path: str
    bytes: int
    streams: dict[str, int]
    """Bytes by stream."""
    commits: int
    longest_commit_ms: float
    waiting_bytes: int
    """Bytes that are not known to be on disk yet."""
    places: int
    """Durable subscriptions and queues."""
    error: str
    """Why nothing is confirmed; empty while all is well."""
    failures: int
    set_aside: int
    """Entries that the last start could not read, and has set aside."""


class CommitWaiter(Protocol):
    """A client of the writer that is told when a commit is on disk."""

    def on_commit(self, number: int) -> None:
        """Notes that all commits up to this one are on disk."""


class JournalWriter:
    def __init__(
        self, table: JournalTable, topics: Sequence[TopicTable], broker: Broker, store: Journal,
        streams: dict[str, Stream], archive: Archive, loop: asyncio.AbstractEventLoop, now: Callable[[], float],
        turn_soon: Callable[[], None],
    ) -> None:  # fmt: skip
        self.store = store
        self.streams = streams
        self.ledger = Ledger()
        archive.untaken = self.ledger.untaken
        self.committed = 0
        """The last commit that is on disk."""
        self.committed_sequence = 0
        self.error = ""
        """Why nothing is confirmed at the moment; empty while all is well."""
        self.commits = 0
        self.failures = 0
        self.set_aside = 0
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
        """Bytes that the writer's thread has."""
        self._work_s = 0.0
        self._work_number = self._work_sequence = 0
        self._busy = False
        self._next: asyncio.Future[None] | None = None
        self._retained = RetainedLog(broker.retained, streams[RETAINED], archive)
        self._tidying = Tidying(broker, self.ledger, streams, archive, self.chunk_cache, self._retained, topics,
                                self._submit)  # fmt: skip
        self._timer: asyncio.TimerHandle | None = None
        self._snapshots = SnapshotSchedule(lambda: Snapshot(broker, self.ledger, archive))
        self._pacer = SlicePacer(loop, now, turn_soon)
        self._segments: Counter[str] = Counter()
        """Bytes in the current segment of each stream."""
        self.loaded = False
        """The loop's thread is at work nearly all the time."""
        self._load_at = now(), 0.0
        self._tidied_s = now()
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headway-journal")

    def load(self, now: float, cpu_s: float) -> None:
        """Measures how loaded the loop is. ``cpu_s``: the CPU time that its thread has used so far."""
        since_s, used_s = now - self._load_at[0], cpu_s - self._load_at[1]
        self.loaded = used_s > LOADED * since_s
        self._load_at = now, cpu_s

    def stats(self) -> JournalStats:
        streams = {name: stream.bytes for name, stream in self.streams.items()}
        return JournalStats(
            str(self.store.folder), sum(streams.values()), streams, self.commits, round(self._longest_s * 1000, 3),
            self._waiting_bytes, len(self.ledger.positions), self.error, self.failures,
            self.set_aside,
        )  # fmt: skip

    @property
    def _waiting_bytes(self) -> int:
        """Bytes that are not confirmed."""
        return self._work_bytes + self._handed_bytes

    @property
    def _backlog_bytes_max(self) -> int:
        """So many bytes may wait. They are in no pool, and are to be few beside it."""
        return min(BACKLOG_BYTES_MAX, max(BACKLOG_BYTES_LEAST, self._broker.registry.pools[""].memory_limit // 4))

    # -- collecting -------------------------------------------------------------------------------------------------

    def turn(self, now: float) -> None:
        """Ends a turn: encodes the turn's commit, which is written soon. After ``close`` it does nothing: the loop goes
        on while clients read their last words, and what comes then is not confirmed."""
        if self._closed:
            return
        ledger = self.ledger
        commit = ledger.take(self._broker.registry.sequence, now)
        if commit is not None:
            offset = self.archive.wall_offset_s
            if not self._work:
                self._work_s = now
            for run in commit.runs:
                try:
                    entry = encode_run(run, offset)
                except Exception as error:  # noqa: BLE001  a bug: it is told, and everything else is written
                    self._leave_out(f"{len(run.run)} records of {run.run.topic[:100]!r} by {run.publisher!r}", error)
                    continue
                self._add(run.stream, entry)
                if run.stream != MAIN:
                    self.archive.recorded[run.stream].published(run)
            for topic in commit.retained:
                self._add(RETAINED, self._retained.entry(topic))
            changes = list(self._encoded(commit.changes, offset))
            self._snapshots.on_metadata(sum([self._add(MAIN, entry) for _, entry in changes]))
            if self._snapshots.current is not None:
                self._snapshots.current.on_commit(changes, commit.positions)
            self._tidying.on_commit(commit.positions)
            if commit.positions:
                self._snapshots.on_positions(self._add(MAIN, encode_positions(commit.positions, commit.sequence)))
            self._work_number, self._work_sequence = commit.number, commit.sequence
            ledger.full = ledger.full or self._waiting_bytes > self._backlog_bytes_max
        self._go_through(now)
        self._write_soon(now)

    def _encoded(self, changes: Sequence[MetadataChange], offset: float) -> Iterator[tuple[MetadataChange, Entry]]:
        for change in changes:
            try:
                yield change, encode_metadata(change, offset)
            except Exception as error:  # noqa: BLE001  a bug: it is told, and everything else is written
                self._leave_out(f"the {change.what} {str(change.name)[:100]!r}", error)

    def _leave_out(self, what: str, error: Exception) -> None:
        self.failures += 1
        log.critical("journal: %s cannot be written, and will not be there after a restart", what, exc_info=error)

    def _go_through(self, now: float) -> None:
        """Advances the snapshot and the tidying by a slice."""
        idle = not (self._busy or self.error)
        if now - self._tidied_s > TIDY_EVERY_S and idle:
            self._tidied_s = now
            self._tidying.begin()
        if (self._snapshots.current is not None or self._tidying.under_way) and self._pacer.due(now):
            self._snapshots.advance()
            self._tidying.advance()
            self._pacer.slice_done(more=self._has_more_to_look_at)
        if idle and self._tidying.due:  # before the next commit: a writer that is always busy would never tidy
            self._tidying.tidy(now, self.committed_sequence)
            self._pacer.slice_done(more=self._has_more_to_look_at)

    @property
    def _has_more_to_look_at(self) -> bool:
        return self._tidying.under_way or self._snapshots.collecting

    def _add(self, stream: str, entry: Entry) -> int:
        """Adds an entry to the next commit. Returns its size in bytes."""
        self._work.setdefault(stream, []).append(entry)
        size = sum(map(len, entry.data))
        self._work_bytes += size
        return size

    def restored(self, reserved: int, snapshots: list[int], set_aside: int) -> None:
        """Ends recovery. ``reserved`` is the last sequence that may have been used. ``snapshots`` are the sequences of
        complete snapshots. ``set_aside`` is the number of entries that could not be read."""
        self.set_aside = set_aside
        self.ledger.start_from(reserved)
        self.committed_sequence = reserved
        self._tidying.snapshots = snapshots

    def begin(self) -> None:
        """Reserves sequences on disk, before anybody is told one."""
        reserved = encode_metadata(self.ledger.begin(self._now()), 0.0)
        with suppress(OSError):  # the stream is broken then, and the next commit reports it
            self.store.commit({MAIN: [reserved]}, int((self._now() + self.archive.wall_offset_s) * 1e6))

    def wait(self, waiter: CommitWaiter) -> int:
        """Tells the waiter when all entries so far are on disk. Returns the number of their commit; 0 if they already
        are."""
        number = self.ledger.number if self.ledger.has_work else self.ledger.number - 1
        if number <= self.committed:
            return 0
        self._waiting[waiter] = None
        return number

    def forget(self, waiter: CommitWaiter) -> None:
        """Tells the waiter of no commit any more: there is nobody whom it would answer."""
        self._waiting.pop(waiter, None)

    async def flush(self) -> None:
        """Returns when all entries so far are on disk."""
        self._turn_soon()
        number = self.ledger.number if self.ledger.has_work else self.ledger.number - 1
        while self.committed < number:
            await asyncio.wait([self.next_commit()])

    def next_commit(self) -> asyncio.Future[None]:
        """Returns a future that is done when the next commit is on disk."""
        if self._next is None:
            self._next = self._loop.create_future()
        return self._next

    # -- writing ----------------------------------------------------------------------------------------------------

    def _write_soon(self, now: float) -> None:
        if self._busy or self.error or not (self._work or self._snapshots.ready):
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
        steps = [CommitStep(work, rolled), *self._snapshot_to_write()]
        self._busy, self._began_s = True, now
        self._thread.submit(self._commit, steps, time_us, self._work_number, self._work_sequence)

    def _snapshot_to_write(self) -> list[CommitStep]:
        """Begins a snapshot that is due. Returns a step for one that is ready, to be written behind all that came."""
        if self._snapshots.begin_if_due(segment_full=self._segments[MAIN] > self._table.segment_bytes):
            self._pacer.slice_done(more=self._has_more_to_look_at)
        snapshot, registry = self._snapshots.take(), self._broker.registry
        if snapshot is None:
            return []
        self._segments[MAIN] = 0
        registry.sequence += 1
        self._tidying.snapshots.append(registry.sequence)
        return [CommitStep({}, [MAIN], partial(snapshot.entries, registry.sequence, self.ledger.reserved))]

    def _submit(self, work: Callable[[], None]) -> None:
        self._thread.submit(work)

    def _commit(self, steps: list[CommitStep], time_us: int, number: int, sequence: int) -> None:
        """Runs in the writer's thread. Without steps it mends the journal."""
        result = commit_steps(self.store, steps, time_us, sync=self._table.sync)
        self._loop.call_soon_threadsafe(self._done, number, sequence, result)
        if result.error is None:
            sync_if_much(self.store, time_us)

    def _done(self, number: int, sequence: int, result: CommitResult) -> None:
        began = self.pulse.begin()
        if result.snapshot_bytes:
            self._snapshots.written(result.snapshot_bytes)
        self._answered(number, sequence, result.error)
        self.pulse.end("journal", began)

    def _answered(self, number: int, sequence: int, error: Exception | None) -> None:
        now = self._now()
        if isinstance(error, OSError):
            self._failed(error, number, sequence)
            return
        if error is not None:  # a bug of ours: nothing more can be written, and the log says so
            self.error = f"internal error: {error}"
            log.critical("the journal has failed; nothing is confirmed until a new start", exc_info=error)
            return
        self._busy = False
        self._longest_s = max(self._longest_s, now - self._began_s)
        if self.error:
            log.info("the journal is written again; everything that waited is on disk")
            self.error = ""
            self._snapshots.requested = True
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
        if self.ledger.full and self._waiting_bytes <= self._backlog_bytes_max // 2:
            self.ledger.full = False
            self._broker.registry.backpressure.resume(self.ledger, now)
        self._turn_soon()

    def _failed(self, error: OSError, number: int, sequence: int) -> None:
        text = error.strerror or str(error)
        self.failures += 1
        if text != self.error:
            log.error("cannot write to %s: %s; nothing is confirmed until it can be written again",
                      self.store.folder, text, extra={"fields": {"path": str(self.store.folder), "cause": text}})
        self.error = text
        self._loop.call_later(MEND_EVERY_S, self._try_again, number, sequence)

    def _try_again(self, number: int, sequence: int) -> None:
        if not self._closed:
            self._thread.submit(self._commit, [], 0, number, sequence)

    # -- reading ----------------------------------------------------------------------------------------------------

    def chunk(self, lane: Lane, chunk: Chunk) -> JournalChunk | None:
        """Returns a handle to the chunk's bytes in the journal; None if the journal may not have all of them, or not
        yet."""
        if not chunk.journaled or not len(chunk) or chunk.sequence_of(len(chunk) - 1) > self.committed_sequence:
            return None
        if self._tidying.may_be_gone(chunk):
            return None  # a transient consumer still reads records that the journal no longer has
        self._tidying.on_unload(chunk.sequence_of(0))
        return JournalChunk(self.chunk_cache, chunk, lane.dialect)

    # -- holding ----------------------------------------------------------------------------------------------------

    def hold(self) -> Future[list[tuple[Path, int]]]:
        """Removes no file of the journal until ``release``. Returns its files, and how far each goes after the commits
        so far, with all of that on disk; or OSError."""
        return self._thread.submit(self.store.hold)

    def release(self) -> None:
        if not self._closed:
            self._thread.submit(self.store.release)

    # -- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Writes what is left, gives back the reserved sequences, and closes the files."""
        self.ledger.end(self._broker.registry.sequence, self._now())
        self.turn(self._now())
        if self._work:
            self._write(self._now())
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._pacer.close()
        self._thread.shutdown(wait=True)
        self.store.finish()
