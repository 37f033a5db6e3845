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
from headway.core.log import MAIN
from headway.core.message import Dialect
from headway.server.journal.compaction import RETAINED
from headway.server.journal.entries import (
    METADATA,
    METADATA_KINDS,
    RUN,
    SNAPSHOT_MARK,
    SNAPSHOT_METADATA,
    SNAPSHOT_POSITIONS,
    ChunkCache,
    DecodedRun,
    JournalChunk,
    decode_metadata,
    decode_packet_id,
    decode_positions,
    decode_run,
    decode_runs,
)
from headway.server.journal.recovery.progress import RecoveryProgress
from headway.store.journal import ReadableStream, StoredEntry

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
    arrived: list[tuple[str, int]]
    """Client and packet id of exactly-once publishes that are in the journal, and whose notes were cut off."""


class _ReplayItem(NamedTuple):
    """A run, or a change of metadata. ``at`` is its sequence; metadata comes after the run that ends there."""

    at: float
    run: DecodedRun | None
    change: RecoveredChange | None
    time_s: float = 0.0
    recorded: bool = False


class _MetadataReplay(Folding):
    """The metadata of the main stream, folded."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshots: list[int] = []
        """The sequences of complete snapshots."""
        self.arrived_upto = 0
        """The stream has the notes on all exactly-once publishes up to this sequence."""

    def read(self, stream: ReadableStream, wall_offset_s: float, progress: RecoveryProgress) -> None:
        mark: int | None = None
        changes = 0
        for _, batch in stream.scan(METADATA_KINDS | {SNAPSHOT_MARK}):
            changes += len(batch)
            progress.read(changes)
            for stored in batch:
                match stored.kind:
                    case kind if kind == SNAPSHOT_MARK:
                        mark = stored.sequence
                        self.arrived_upto = max(self.arrived_upto, mark)
                    case kind if kind in (METADATA, SNAPSHOT_METADATA):
                        change = decode_metadata(stored, wall_offset_s)
                        if change.what == "arrived":
                            self.arrived_upto = max(self.arrived_upto, change.sequence)
                        self.change(change, again=kind == SNAPSHOT_METADATA)
                    case kind:
                        if kind == SNAPSHOT_POSITIONS:  # its last entry
                            self.snapshot_ended()
                            self.snapshots += [mark] if mark is not None else []
                        for position in decode_positions(stored):
                            self.position(position, again=kind == SNAPSHOT_POSITIONS)


class _Arrived:
    """Exactly-once publishes whose records a stream has, while the main stream lost the notes on them: the process
    ended between the two. Their clients send them again."""

    def __init__(self, noted_upto: int) -> None:
        self.found: list[tuple[str, int]] = []
        self._noted_upto = noted_upto

    def look(self, batch: list[StoredEntry]) -> None:
        for stored in batch:
            if stored.sequence > self._noted_upto and stored.kind == RUN:
                found = decode_packet_id(stored)
                if found is not None:
                    self.found.append(found)


def restore(
    broker: Broker, streams: Mapping[str, ReadableStream], chunk_cache: ChunkCache, now: Callable[[], float],
    wall_offset_s: float, dialect: Dialect, progress: RecoveryProgress | None = None,
) -> Restored:  # fmt: skip
    """Restores the broker. ``dialect`` is the dialect of queues. Raises ConfigError, Corrupt, OSError."""
    metadata, progress = _MetadataReplay(), progress or RecoveryProgress()
    metadata.read(streams[MAIN], wall_offset_s, progress)
    restoring, folded = broker.restoring(dialect, metadata.recovered_positions()), metadata.changes()
    apart = {int(change.at) for change in folded if change.at < inf}
    changes = (_ReplayItem(change.at + 0.5, None, change) for change in folded)
    arrived = _Arrived(metadata.arrived_upto)
    runs = [_runs(broker, MAIN, streams[MAIN], metadata.needed(), wall_offset_s, apart, arrived)]
    runs += [
        _runs(broker, name, stream, stream.first_sequence, wall_offset_s, apart, arrived)
        for name, stream in streams.items() if name not in (MAIN, RETAINED)
    ]  # fmt: skip
    for at, item in enumerate(heapq.merge(changes, *runs, key=lambda item: item.at)):
        if item.run is not None:
            run, sequence, publisher = item.run
            restoring.run(run, sequence, publisher, item.time_s, recorded=item.recorded)
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
                    registry.sequence, metadata.snapshots, arrived.found)  # fmt: skip


def note_arrived(broker: Broker, arrived: list[tuple[str, int]]) -> None:
    """Notes again what a kill cut off (``Restored.arrived``). Called once the ledger takes new entries."""
    for client, packet_id in arrived:
        if (session := broker.registry.sessions.get(client)) is not None:
            broker.keep_packet_id(session, packet_id)


def restore_retained(broker: Broker, stream: ReadableStream, now: float, wall_offset_s: float) -> int:
    """Restores the retained records. Returns how many there are. Raises Corrupt, OSError."""
    for time_us, batch in stream.scan(None):
        for stored in batch:
            run, _, _ = decode_run(stored, wall_offset_s)
            if run.expires_s > now:
                with suppress(Refused):  # the limits may be lower now
                    broker.retained.put(run.record(0, 1, time_us / 1e6 - wall_offset_s))
    return len(broker.retained)


def _runs(
    broker: Broker, name: str, stream: ReadableStream, first: int, wall_offset_s: float, apart: set[int],
    arrived: _Arrived,
) -> Iterator[_ReplayItem]:
    if not first:
        return
    for time_us, batch in stream.read(first, stream.last_sequence):
        time_s = time_us / 1e6 - wall_offset_s
        arrived.look(batch)
        for read in decode_runs(batch, wall_offset_s, apart):
            broker.writers.found(name, read.publisher, len(read.run))
            yield _ReplayItem(read.sequence, read, None, time_s, name != MAIN)


def _spill(broker: Broker, chunk_cache: ChunkCache, now: float) -> None:
    """Drops chunks that do not fit into the memory of pools. The journal has them."""
    for lane, chunks in broker.spill(now):
        for chunk in chunks:
            broker.spilled(lane, chunk, chunk.size, JournalChunk(chunk_cache, chunk, lane.dialect), "", now)
