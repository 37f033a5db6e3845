"""Recovery restores the broker from the journal at a start.

It reads the metadata first. Then it replays runs into lanes, in the order of their sequences
(core/clients/restoring.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from math import inf
from typing import NamedTuple

from headway.core.base import Refused
from headway.core.broker import Broker
from headway.core.clients import Folding, RecoveredChange
from headway.core.log import MAIN, CommittedPosition, JournaledRun, MetadataChange
from headway.core.message import Dialect
from headway.server.journal.compaction import RETAINED
from headway.server.journal.entries import (
    METADATA,
    POSITIONS,
    RUN,
    SNAPSHOT_MARK,
    SNAPSHOT_METADATA,
    SNAPSHOT_POSITIONS,
    ChunkCache,
    DecodedRun,
    JournalChunk,
    decode_metadata,
    decode_positions,
    decode_run,
    decode_runs,
    encode_metadata,
    encode_positions,
    encode_run,
)
from headway.server.journal.recovery.progress import RecoveryProgress
from headway.server.journal.recovery.set_aside import SetAside
from headway.store.journal import ReadableStream, StoredEntry

_NOT_RUNS = frozenset(range(256)) - {RUN}
ONLY_RECORDS = "only records are in this stream"
RUNS_A_STEP = 500
"""Pools are relieved of memory each time after so many runs."""


class Restored(NamedTuple):
    sessions: int
    subscriptions: int
    queues: int
    records: int
    reserved: int
    """The last sequence that may have been used."""
    snapshots: list[int]
    """The sequences of complete snapshots."""


class _ReplayItem(NamedTuple):
    """A run, or a change of metadata. ``at`` is its sequence; metadata comes after the run that ends there."""

    at: float
    run: DecodedRun | None
    change: RecoveredChange | None
    time_s: float = 0.0
    stream: str = MAIN


class _MetadataReplay(Folding):
    """The metadata of the main stream, folded."""

    def __init__(self) -> None:
        super().__init__()
        self._mark: int | None = None
        """The sequence of the last mark of a snapshot."""
        self.snapshots: list[int] = []
        """The sequences of complete snapshots."""

    def read(
        self, stream: ReadableStream, wall_offset_s: float, progress: RecoveryProgress,
        odd: Callable[[StoredEntry, Exception], None],
    ) -> None:  # fmt: skip
        """Reads all entries but the runs. ``odd`` gets those that cannot be read."""
        changes = 0
        for _, batch in stream.scan(_NOT_RUNS):
            changes += len(batch)
            progress.read(changes)
            for stored in batch:
                try:
                    self._read(stored, wall_offset_s)
                except Exception as error:  # noqa: BLE001  whatever it is, the other entries are read
                    odd(stored, error)

    def _read(self, stored: StoredEntry, wall_offset_s: float) -> None:
        kind = stored.kind
        if kind == SNAPSHOT_MARK:
            self._mark = stored.sequence
        elif kind in (METADATA, SNAPSHOT_METADATA):
            self.change(decode_metadata(stored, wall_offset_s), again=kind == SNAPSHOT_METADATA)
        elif kind in (POSITIONS, SNAPSHOT_POSITIONS):
            positions = decode_positions(stored)
            if kind == SNAPSHOT_POSITIONS:  # its last entry
                self.snapshot_ended()
                self.snapshots += [self._mark] if self._mark is not None else []
            for position in positions:
                self.position(position, again=kind == SNAPSHOT_POSITIONS)
        else:
            raise ValueError("an entry of a kind that this release does not know")


def restore(
    broker: Broker, streams: Mapping[str, ReadableStream], chunk_cache: ChunkCache, now: Callable[[], float],
    wall_offset_s: float, dialect: Dialect, set_aside: SetAside, progress: RecoveryProgress | None = None,
) -> Restored:  # fmt: skip
    """Restores the broker. ``dialect`` is the dialect of queues. Entries that cannot be read or replayed are set aside.
    Raises ConfigError, Corrupt, OSError."""
    metadata, progress = _MetadataReplay(), progress or RecoveryProgress()
    metadata.read(streams[MAIN], wall_offset_s, progress, set_aside.of(MAIN))
    odd = _Unplayable(set_aside, wall_offset_s)
    restoring, folded = broker.restoring(dialect, metadata.recovered_positions(), odd.put), metadata.changes()
    apart = {int(change.at) for change in folded if change.at < inf}
    changes = (_ReplayItem(change.at + 0.5, None, change) for change in folded)
    runs = [_runs(broker, MAIN, streams[MAIN], metadata.needed(), wall_offset_s, apart, set_aside)]
    runs += [
        _runs(broker, name, stream, stream.first_sequence, wall_offset_s, apart, set_aside)
        for name, stream in streams.items() if name not in (MAIN, RETAINED)
    ]  # fmt: skip
    for at, item in enumerate(heapq.merge(changes, *runs, key=lambda item: item.at)):
        if item.run is not None:
            run, sequence, publisher = item.run
            odd.stream = item.stream
            restoring.run(run, sequence, publisher, item.time_s, recorded=item.stream != MAIN)
        elif item.change is not None:
            restoring.make(item.change, now())
        if at % RUNS_A_STEP == 0:
            _spill(broker, chunk_cache, now())
            progress.made(restoring.records)
    restoring.finish(now())
    registry = broker.registry
    last = max(stream.last_sequence for name, stream in streams.items() if name != RETAINED)
    registry.sequence = max(registry.sequence, metadata.reserved, last)
    broker.restored(now())
    _spill(broker, chunk_cache, now())
    subscriptions = sum(len(session.subscriptions) for session in registry.sessions.values())
    return Restored(len(registry.sessions), subscriptions, len(registry.router.queues), restoring.records,
                    registry.sequence, metadata.snapshots)  # fmt: skip


class _Unplayable:
    """Sets aside what can be decoded, and not be replayed. ``stream``: the stream of the run that is replayed."""

    def __init__(self, set_aside: SetAside, wall_offset_s: float) -> None:
        self.stream = MAIN
        self._set_aside = set_aside
        self._wall_offset_s = wall_offset_s

    def put(self, what: MetadataChange | JournaledRun | CommittedPosition, error: Exception) -> None:
        """Raises OSError."""
        stream = MAIN
        match what:
            case JournaledRun():
                stream = self.stream
                entry = encode_run(what, self._wall_offset_s)
            case MetadataChange():
                entry = encode_metadata(what, self._wall_offset_s)
            case CommittedPosition():
                entry = encode_positions([what], 0)
        stored = StoredEntry(entry.kind, entry.sequence, entry.count, b"".join(map(bytes, entry.data)))
        self._set_aside.put(stream, stored, error)


def restore_retained(
    broker: Broker, stream: ReadableStream, now: float, wall_offset_s: float, set_aside: SetAside
) -> int:
    """Restores the retained records. Returns how many there are. Raises Corrupt, OSError."""
    odd = set_aside.of(RETAINED)
    for time_us, batch in stream.scan(None):
        for stored in batch:
            try:
                if stored.kind != RUN:
                    raise ValueError(ONLY_RECORDS)
                run, _, _ = decode_run(stored, wall_offset_s)
                if run.expires_s > now:
                    with suppress(Refused):  # the limits may be lower now
                        broker.retained.put(run.record(0, 1, time_us / 1e6 - wall_offset_s))
            except Exception as error:  # noqa: BLE001  whatever it is, the other records are restored
                odd(stored, error)
    return len(broker.retained)


def _runs(
    broker: Broker, name: str, stream: ReadableStream, first: int, wall_offset_s: float, apart: set[int],
    set_aside: SetAside,
) -> Iterator[_ReplayItem]:
    if not first:
        return
    odd = set_aside.of(name)
    for time_us, batch in stream.read(first, stream.last_sequence) if name == MAIN else stream.scan():
        time_s = time_us / 1e6 - wall_offset_s
        for stored in batch if name != MAIN else ():
            if stored.kind != RUN:
                odd(stored, ValueError(ONLY_RECORDS))
        for read in decode_runs(batch, wall_offset_s, apart, odd):
            broker.writers.found(name, read.publisher, len(read.run), read.sequence)
            yield _ReplayItem(read.sequence, read, None, time_s, name)


def _spill(broker: Broker, chunk_cache: ChunkCache, now: float) -> None:
    """Drops chunks that do not fit into the memory of pools. The journal has them."""
    for lane, chunks in broker.spill(now):
        for chunk in chunks:
            broker.spilled(lane, chunk, chunk.size, JournalChunk(chunk_cache, chunk, lane.dialect), "", now)
