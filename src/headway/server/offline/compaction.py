"""Compaction of a journal whose broker is not running."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from headway.core.base import ConfigError, Reason
from headway.core.broker import Broker
from headway.core.log import MAIN
from headway.core.telemetry import stats
from headway.server.config import Settings
from headway.server.journal import (
    BACKLOG_BYTES_MAX,
    RETAINED,
    Archive,
    RetainedLog,
    SetAside,
    Snapshot,
    UnneededRanges,
    free_expired,
    snapshot_ranges,
    stream_name,
    streams_in,
)
from headway.server.offline.restored_broker import RestoredBroker
from headway.store.journal import REAL, Corrupt, Journal, Locked, Stream, read_losses


def compact(settings: Settings) -> dict[str, tuple[int, int]]:
    """Compacts the journal: writes a snapshot and the retained records into fresh segments, and frees what is no longer
    needed. Returns the bytes of each stream before and after. Raises ConfigError where a broker uses the journal or the
    journal is damaged; OSError."""
    folder = settings.journal.folder
    names = list(dict.fromkeys([MAIN, RETAINED, *streams_in(folder)]))
    journal = Journal(REAL, folder, settings.journal.segment_bytes + 2 * BACKLOG_BYTES_MAX)
    before = _sizes(folder)
    try:
        journal.open(names)
        streams = {name: journal.stream(name) for name in names}
        restored = RestoredBroker(settings, streams, SetAside(folder))
        restored.set_aside.finish()
        _check_nothing_was_dropped(restored.broker)
        _write_snapshot(journal, restored)
        _trim(streams, settings, restored)
    except (Corrupt, Locked) as error:
        raise ConfigError(str(error)) from None
    finally:
        journal.close()
    after = _sizes(folder)
    return {name: (before.get(name, 0), after[name]) for name in after}


def _check_nothing_was_dropped(broker: Broker) -> None:
    """Raises ConfigError if the restored broker dropped records: a snapshot would not repeat these."""
    dropped = {reason for queue in stats.queues(broker, time.monotonic()) for reason in queue.dropped_records}
    if broker.verdicts.made or dropped & {Reason.MEMORY_LIMIT, Reason.DISK_LIMIT, Reason.SPILL_FAILED}:
        raise ConfigError("the unsettled records do not fit into memory; nothing was changed")


def _write_snapshot(journal: Journal, restored: RestoredBroker) -> None:
    """Writes a snapshot that replaces all earlier metadata, and each retained record once more."""
    registry, main, retained = restored.broker.registry, journal.stream(MAIN), journal.stream(RETAINED)
    marks = [] if read_losses(REAL, main.folder) else restored.snapshots
    registry.sequence += 1
    sequence = registry.sequence
    archive = Archive(lambda: restored.wall_offset_s)
    snapshot = Snapshot(restored.broker, restored.ledger, archive)
    snapshot.advance()
    log = RetainedLog(restored.broker.retained, retained, archive)
    kept = [log.entry(topic) for topic in restored.broker.retained.topics()]
    roll = [MAIN, RETAINED] if kept else [MAIN]
    work = {MAIN: snapshot.entries(sequence, restored.ledger.reserved), RETAINED: kept}
    journal.commit(work, int(time.time() * 1e6), roll=roll)
    if kept:
        retained.free_before(kept[0].sequence)
    passed = [mark for mark in (*marks, sequence) if mark < restored.ledger.needed_sequence(sequence)]
    if passed:
        main.free_before(max(passed))
    snapshots = [*marks, sequence]
    between = snapshot_ranges(snapshots, restored.broker.writers.needed_sequence())
    search = UnneededRanges(restored.broker, restored.ledger, (), between)
    search.advance()
    main.free_between({one.first for one in search.found}, snapshots)


def _trim(streams: Mapping[str, Stream], settings: Settings, restored: RestoredBroker) -> None:
    """Frees what is past its ``keep`` and not needed by a durable consumer."""
    needed = restored.ledger.needed_sequence(restored.broker.registry.sequence)
    for topic in settings.topics:
        stream = streams.get(stream_name(topic.filter))
        if topic.keep is None or stream is None:
            continue
        free_expired(stream, topic.keep, int(time.time() * 1e6), needed)


def _sizes(folder: Path) -> dict[str, int]:
    """Returns the bytes on disk of each stream."""
    return {
        path.name: sum(file.stat().st_size for file in path.iterdir() if file.is_file())
        for path in sorted(folder.iterdir()) if path.is_dir()
    }  # fmt: skip
