"""The inventory of a journal whose broker is not running: restored as at a broker's start, and then counted or
written anew."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from headway.core.base import ConfigError, Reason
from headway.core.broker import Broker
from headway.core.log import MAIN, Ledger
from headway.core.telemetry import stats
from headway.server.config import Settings, make_broker
from headway.server.journal import (
    BACKLOG_BYTES_MAX,
    RETAINED,
    Archive,
    ChunkCache,
    RetainedLog,
    Snapshot,
    free_expired,
    UnneededRanges,
    restore,
    restore_retained,
    snapshot_ranges,
    stream_name,
    streams_in,
)
from headway.server.offline.reader import open_streams
from headway.server.protocols import QUEUES
from headway.store.journal.errors import Corrupt, Locked
from headway.store.journal.files import REAL
from headway.store.journal.journal import Journal
from headway.store.journal.losses import read_losses
from headway.store.journal.readable import ReadableStream
from headway.store.journal.reader import StreamReader
from headway.store.journal.stream import Stream


class DurableConsumer(NamedTuple):
    """A durable subscription or queue, and what is unsettled of it."""

    name: str
    filter: str
    """Empty: a queue."""
    records: int
    bytes: int


class Inventory(NamedTuple):
    sessions: int
    retained: int
    exchanges: int
    holders: list[DurableConsumer]
    """Those with the most unsettled first."""


class _RestoredBroker:
    """A broker as it would be after a start, and its ledger."""

    def __init__(self, settings: Settings, streams: Mapping[str, ReadableStream]) -> None:
        """Raises Corrupt, OSError."""
        now, self.wall_offset_s = time.monotonic, time.time() - time.monotonic()
        self.ledger = Ledger()
        self.broker = make_broker(settings)
        archive = Archive(lambda: self.wall_offset_s)
        self.broker.keep(self.ledger, archive)
        chunk_cache = ChunkCache([stream for name, stream in streams.items() if name != RETAINED], archive)
        self.retained = restore_retained(self.broker, streams[RETAINED], now(), self.wall_offset_s)
        found = restore(self.broker, dict(streams), chunk_cache, now, self.wall_offset_s, QUEUES.dialect)
        self.ledger.drop(found.reserved)
        self.snapshots = found.snapshots


def take_inventory(settings: Settings) -> Inventory:
    """Reads, and changes nothing. Raises Corrupt, OSError."""
    streams, _ = open_streams(settings.journal.folder)
    for name in (MAIN, RETAINED):
        streams.setdefault(name, StreamReader(settings.journal.folder / name))
    again = _RestoredBroker(settings, streams)
    counted = _counted(again.broker, again.retained)
    for stream in streams.values():
        stream.close()
    return counted


def _counted(broker: Broker, retained: int) -> Inventory:
    now = time.monotonic()
    consumers, queues = stats.consumers(broker, now), stats.queues(broker, now)
    holders = [DurableConsumer(one.client, one.filter, one.lag_records, one.lag_bytes) for one in consumers]
    holders += [DurableConsumer(one.name, "", one.records + one.unacknowledged, one.bytes) for one in queues]
    holders.sort(key=lambda one: (-one.bytes, one.name, one.filter))
    exchanges = broker.registry.router.exchanges.by_name.values()
    durable = sum(one.durable and bool(one.name) and not one.name.startswith("amq.") for one in exchanges)
    return Inventory(len(broker.registry.sessions), retained, durable, holders)


# -- writing it anew --------------------------------------------------------------------------------------------------


def compact(settings: Settings) -> dict[str, tuple[int, int]]:
    """Write down what there is at the beginning of fresh segments, and free what nobody needs. Returns for each stream
    how many bytes it had, and has. Raises ConfigError where a broker is at work on it, or it is damaged; OSError."""
    folder = settings.journal.folder
    names = list(dict.fromkeys([MAIN, RETAINED, *streams_in(folder)]))
    journal = Journal(REAL, folder, settings.journal.segment_bytes + 2 * BACKLOG_BYTES_MAX)
    before = _sizes(folder)
    try:
        journal.open(names)
        streams = {name: journal.stream(name) for name in names}
        again = _RestoredBroker(settings, streams)
        _see_that_nothing_was_given_up(again.broker)
        _write_anew(journal, again)
        _trim(streams, settings, again)
    except (Corrupt, Locked) as error:
        raise ConfigError(str(error)) from None
    finally:
        journal.close()
    after = _sizes(folder)
    return {name: (before.get(name, 0), after[name]) for name in after}


def _see_that_nothing_was_given_up(broker: Broker) -> None:
    """For what was would not be written down again. Raises ConfigError."""
    dropped = {reason for queue in stats.queues(broker, time.monotonic()) for reason in queue.dropped_records}
    if broker.verdicts.made or dropped & {Reason.MEMORY_LIMIT, Reason.DISK_LIMIT, Reason.SPILL_FAILED}:
        raise ConfigError("what is unsettled does not fit into the memory there is; nothing was changed")


def _write_anew(journal: Journal, again: _RestoredBroker) -> None:
    """A snapshot in place of all facts and places before it, and each retained record once more."""
    registry, main, retained = again.broker.registry, journal.stream(MAIN), journal.stream(RETAINED)
    marks = [] if read_losses(REAL, main.folder) else again.snapshots
    registry.sequence += 1
    sequence = registry.sequence
    archive = Archive(lambda: again.wall_offset_s)
    snapshot = Snapshot(again.broker, again.ledger, archive)
    snapshot.advance()
    log = RetainedLog(again.broker.retained, retained, archive)
    kept = [log.entry(topic) for topic in again.broker.retained.topics()]
    roll = [MAIN, RETAINED] if kept else [MAIN]
    work = {MAIN: snapshot.entries(sequence, again.ledger.reserved), RETAINED: kept}
    journal.commit(work, int(time.time() * 1e6), roll=roll)
    if kept:
        retained.free_before(kept[0].sequence)
    passed = [mark for mark in (*marks, sequence) if mark < again.ledger.needed_sequence(sequence)]
    if passed:
        main.free_before(max(passed))
    snapshots = [*marks, sequence]
    between = snapshot_ranges(snapshots, again.broker.writers.needed_sequence())
    search = UnneededRanges(again.broker, again.ledger, (), between)
    search.advance()
    main.free_between({one.first for one in search.found}, snapshots)


def _trim(streams: Mapping[str, Stream], settings: Settings, again: _RestoredBroker) -> None:
    """Finds batches past their keep time that no durable consumer needs."""
    needed = again.ledger.needed_sequence(again.broker.registry.sequence)
    for topic in settings.topics:
        stream = streams.get(stream_name(topic.filter))
        if topic.keep is None or stream is None:
            continue
        free_expired(stream, topic.keep, int(time.time() * 1e6), needed)


def _sizes(folder: Path) -> dict[str, int]:
    """Bytes on disk, by stream."""
    return {
        path.name: sum(file.stat().st_size for file in path.iterdir() if file.is_file())
        for path in sorted(folder.iterdir()) if path.is_dir()
    }  # fmt: skip
