"""Work on a journal's folder by programs other than its broker: inventory, compaction, reading."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from headway.core.base import ConfigError, Reason
from headway.core.broker import Broker
from headway.core.log import MAIN, Ledger
from headway.core.message import BadTopic, KeyExtractor, validate_filter
from headway.core.telemetry import stats
from headway.server.config import (
    JournalTable,
    RetainedTable,
    Settings,
    host_limits,
    load_settings,
    make_broker,
    parse_settings,
)
from headway.server.journal import (
    BACKLOG_BYTES_MAX,
    PREFIX,
    RETAINED,
    RUN,
    Archive,
    ChunkCache,
    RetainedLog,
    SetAside,
    Snapshot,
    UnneededRanges,
    free_expired,
    restore,
    restore_retained,
    snapshot_ranges,
    stream_name,
    streams_in,
)
from headway.server.protocols import QUEUES
from headway.server.recorded import NotRecorded, RecordedStream, filters_of
from headway.store.journal import (
    LOCK_NAME,
    REAL,
    Corrupt,
    Journal,
    Locked,
    ReadableStream,
    SegmentStats,
    Stream,
    StreamReader,
    missing_segments,
    read_losses,
    streams_of,
)

# -- reader ------------------------------------------------------------------------------------------------------------
#
# Reads a journal's folder from programs other than its broker: its streams, and the records in them.


T = TypeVar("T")

NO_LIMIT = 1 << 60
TRIES_MAX = 5


class StreamSummary(NamedTuple):
    """One stream, for display."""

    name: str
    filter: str | None
    """The recorded topics in it; None: none, or unknown."""
    segments: list[SegmentStats]
    records: int


def settings_for(folder: Path | None, config: Path | None) -> Settings:
    """Returns the settings to read a journal with, from its folder or its broker's config. The broker's limits are
    lifted, so that nothing is left out. Raises ConfigError."""
    if (folder is None) == (config is None):
        raise ConfigError("name the journal's folder, or the config of its broker: --config FILE")
    settings = parse_settings("") if config is None else load_settings(config)
    if folder is not None:
        settings = replace(settings, journal=JournalTable().model_copy(update={"folder": folder.expanduser()}))
    elif not settings.journal.enabled:
        raise ConfigError(f"{config} has no [journal]")
    _check(settings.journal.folder)
    retained = RetainedTable.model_construct(topics_max=NO_LIMIT, bytes_max=NO_LIMIT)
    room = host_limits.memory_bytes() // 2
    pools = {  # what does not fit into memory stays in the journal
        name: replace(pool, memory_bytes=max(room, pool.memory_bytes), disk_bytes=NO_LIMIT)
        for name, pool in settings.pools.items()
    }
    return replace(settings, retained=retained, pools=pools)


def _check(folder: Path) -> None:
    try:
        found = (folder / LOCK_NAME).exists() or bool(streams_of(folder))
    except OSError as error:
        why = "not a directory" if folder.is_file() else (error.strerror or str(error)).lower()
        raise ConfigError(f"{folder}: cannot be read: {why}") from None
    if not found:
        raise ConfigError(f"{folder}: there is no journal in this folder")


def while_it_lasts(read: Callable[[], T]) -> T:
    """Reads a journal on which a broker may be at work. A file that the broker has removed since it was listed makes it
    begin anew. Raises what ``read`` raises, when it does so again and again."""
    for _ in range(TRIES_MAX - 1):
        with suppress(Corrupt, FileNotFoundError):
            return read()
    return read()


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Locks the journal, so that no broker can use it meanwhile. Raises ConfigError where one does already."""
    journal = Journal(REAL, folder)
    try:
        journal.open(())
    except Corrupt as error:
        raise ConfigError(str(error)) from None
    except Locked as error:
        raise ConfigError(f"{error}; name its admin API instead of the folder: --admin URL") from None
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be locked: {(error.strerror or str(error)).lower()}") from None
    try:
        yield
    finally:
        journal.close()


def expected_streams(settings: Settings) -> list[str]:
    """Returns the names of the streams that a broker opens, whether or not they are there."""
    return [MAIN, RETAINED, *(stream_name(topic.filter) for topic in settings.topics if topic.keep is not None)]


def open_streams(folder: Path, names: list[str] | None = None) -> tuple[dict[str, StreamReader], list[str]]:
    """Opens the journal's streams for reading, and names unreadable parts. Raises OSError."""
    streams: dict[str, StreamReader] = {}
    missing = missing_segments(REAL, folder)
    said = [f"{path}: is missing" for name, paths in sorted(missing.items()) if names is None or name in names
            for path in paths]  # fmt: skip
    for path in streams_of(folder):
        if names is None or path.name in names:
            stream = streams[path.name] = StreamReader(path)
            said += stream.open()
    return streams, said


def describe_streams(settings: Settings) -> list[StreamSummary]:
    """Describes every stream. Reads the whole journal. Raises Corrupt, OSError."""
    filters = {stream_name(topic.filter): topic.filter for topic in settings.topics if topic.keep is not None}
    streams, _ = open_streams(settings.journal.folder)
    found = []
    for name, stream in streams.items():
        records = sum(entry.count for _, batch in stream.scan({RUN}) for entry in batch)
        found.append(StreamSummary(name, filters.get(name), stream.segments, records))
        stream.close()
    return found


def open_recorded(settings: Settings, topic: str, key: KeyExtractor | None) -> tuple[list[RecordedStream], list[str]]:
    """Returns the streams with the records of a topic or filter, and a sentence for each unreadable part. ``key``
    overrides the config. Without a config all recorded streams are read. Raises ConfigError, OSError."""
    try:
        validate_filter(topic)
    except BadTopic as error:
        raise ConfigError(str(error)) from None
    recorded = {one.filter: one.key for one in settings.topics if one.keep is not None}
    if settings.source is None:
        streams, said = open_streams(settings.journal.folder)
        sources = [RecordedStream(stream, key) for name, stream in streams.items() if name.startswith(PREFIX)]
        if not sources:
            raise ConfigError(f"nothing is recorded in {settings.journal.folder}")
        return sources, said
    try:
        by_name = {stream_name(filter): filter for filter in filters_of(topic, recorded)}
    except NotRecorded as error:
        raise ConfigError(str(error)) from None
    streams, said = open_streams(settings.journal.folder, list(by_name))
    return [RecordedStream(stream, key or recorded[by_name[name]]) for name, stream in streams.items()], said


# -- restored broker ---------------------------------------------------------------------------------------------------
#
# A broker restored from a journal as at its start, while no broker runs.


class RestoredBroker:
    """A broker as it would be after a start, its ledger, and the number of retained records."""

    def __init__(
        self, settings: Settings, streams: Mapping[str, ReadableStream], set_aside: SetAside | None = None
    ) -> None:
        """Raises Corrupt, OSError."""
        self.set_aside = set_aside or SetAside()
        now, self.wall_offset_s = time.monotonic, time.time() - time.monotonic()
        self.ledger = Ledger()
        self.broker = make_broker(settings)
        archive = Archive(lambda: self.wall_offset_s)
        self.broker.keep(self.ledger, archive)
        chunk_cache = ChunkCache([stream for name, stream in streams.items() if name != RETAINED], archive)
        self.retained = restore_retained(self.broker, streams[RETAINED], now(), self.wall_offset_s, self.set_aside)
        found = restore(self.broker, dict(streams), chunk_cache, now, self.wall_offset_s, QUEUES.dialect,
                        self.set_aside)  # fmt: skip
        self.ledger.start_from(found.reserved)
        self.snapshots = found.snapshots


# -- compaction --------------------------------------------------------------------------------------------------------
#
# Compaction of a journal whose broker is not running.


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
        journal.finish()
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
        name: sum(file.stat().st_size for file in (folder / name).iterdir() if file.is_file())
        for name in streams_in(folder)
    }  # fmt: skip


# -- inventory ---------------------------------------------------------------------------------------------------------
#
# The inventory of a journal whose broker is not running: what it keeps, and for whom.


class DurableConsumer(NamedTuple):
    """A durable subscription or queue, with its unsettled records."""

    name: str
    filter: str
    """Empty for a queue."""
    records: int
    bytes: int


class Inventory(NamedTuple):
    sessions: int
    retained: int
    exchanges: int
    holders: list[DurableConsumer]
    """The durable subscriptions and queues, those with the most unsettled bytes first."""


def take_inventory(settings: Settings) -> Inventory:
    """Counts what the journal keeps, and for whom. Changes nothing. Raises ConfigError, Corrupt, OSError."""
    with _restored(settings) as restored:
        return _counted(restored.broker, restored.retained)


def find_odd_entries(settings: Settings) -> list[str]:
    """Returns a line for each entry that a broker would set aside when it starts: it is restored as at a start. Changes
    nothing. Raises ConfigError, Corrupt, OSError."""
    with _restored(settings) as restored:
        return restored.set_aside.told


@contextmanager
def _restored(settings: Settings) -> Iterator[RestoredBroker]:
    streams, _ = open_streams(settings.journal.folder)
    for name in (MAIN, RETAINED):
        streams.setdefault(name, StreamReader(settings.journal.folder / name))
    try:
        yield RestoredBroker(settings, streams)
    finally:
        for stream in streams.values():
            stream.close()


def _counted(broker: Broker, retained: int) -> Inventory:
    now = time.monotonic()
    consumers, queues = stats.consumers(broker, now), stats.queues(broker, now)
    holders = [DurableConsumer(one.client, one.filter, one.lag_records, one.lag_bytes) for one in consumers]
    holders += [DurableConsumer(one.name, "", one.records + one.unacknowledged, one.bytes) for one in queues]
    holders.sort(key=lambda one: (-one.bytes, one.name, one.filter))
    exchanges = broker.registry.router.exchanges.by_name.values()
    durable = sum(one.durable and bool(one.name) and not one.name.startswith("amq.") for one in exchanges)
    return Inventory(len(broker.registry.sessions), retained, durable, holders)
