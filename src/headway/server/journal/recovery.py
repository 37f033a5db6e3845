"""Recovery: opens the journal at a start, and restores the broker from it."""

from __future__ import annotations

import asyncio
import base64
import heapq
import json
import logging
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import NamedTuple

from headway.core.base import ConfigError, Refused, format_size
from headway.core.broker import Broker
from headway.core.clients import Folding, RecoveredChange
from headway.core.log import MAIN, CommittedPosition, JournaledRun, MetadataChange
from headway.core.message import Dialect
from headway.server.config import JournalTable, TopicTable
from headway.server.journal.compaction import RETAINED
from headway.server.journal.entries import (
    KINDS,
    METADATA,
    POSITIONS,
    RUN,
    SNAPSHOT_MARK,
    SNAPSHOT_METADATA,
    SNAPSHOT_POSITIONS,
    Archive,
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
    stream_name,
)
from headway.server.journal.writing import BACKLOG_BYTES_MAX, JournalWriter
from headway.server.protocols import QUEUES
from headway.store.journal import (
    LOCK_NAME,
    REAL,
    Corrupt,
    Files,
    Journal,
    Locked,
    ReadableStream,
    StoredEntry,
    is_stream_name,
    opened,
    read_all,
    write_all,
)

# -- progress ----------------------------------------------------------------------------------------------------------
#
# Progress: logs every two seconds how far a long start has come.


log = logging.getLogger("headway")

LOG_EVERY_S = 2.0


class RecoveryProgress:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._logged_s = now()
        self._checked_bytes = 0

    def checked(self, size: int) -> None:
        """Counts bytes whose checksums are right."""
        self._checked_bytes += size
        self._log(f"{format_size(self._checked_bytes)} are checked")

    def read(self, changes: int) -> None:
        """Reports the number of changes that were read so far."""
        self._log(f"{changes:,} changes of clients, queues and bindings are read")

    def made(self, records: int) -> None:
        """Reports the number of records that were restored so far."""
        self._log(f"{records:,} records are back")

    def _log(self, text: str) -> None:
        if self._now() - self._logged_s > LOG_EVERY_S:
            self._logged_s = self._now()
            log.info("reading the journal: %s", text)


# -- set aside ---------------------------------------------------------------------------------------------------------
#
# Odd entries of a journal, which a start sets aside: they cannot be decoded, or not be replayed.
#
# Whatever is in the journal, the broker starts. A checksum only says that an entry is as it was written, perhaps by
# another release, or by one with a bug. To refuse the start for one record would keep all others from their consumers,
# and its operator could do nothing about it: no tool changes a journal. So the start goes on without the entry.
#
# Nothing is lost silently: the entry is kept in a file in the journal's folder, counted, and told in the log. An entry
# that is still in the journal at the next start is set aside again, and is in the file once.


FILE_NAME = "set-aside.jsonl"
"""JSON lines, one for each entry, with its bytes."""
TOLD_MAX = 20
"""The log tells so many, and the number of all."""
HELD_BYTES_MAX = 8 * 1024 * 1024

_Key = tuple[str, int, int, int]
"""Stream, kind, sequence and checksum of an entry."""


class SetAside:
    def __init__(self, folder: Path | None = None, files: Files = REAL) -> None:
        """``folder``: the journal's, to keep the entries there; None: they are only counted and told."""
        self.told: list[str] = []
        """A line for each entry."""
        self._path = None if folder is None else folder / FILE_NAME
        self._files = files
        self._seen: set[_Key] = set()
        self._kept: set[_Key] | None = None
        """Those that are in the file already; None: it was not read yet."""
        self._lines: list[bytes] = []
        self._held_bytes = 0

    def __len__(self) -> int:
        return len(self._seen)

    def of(self, stream: str) -> Callable[[StoredEntry, Exception], None]:
        """Returns what takes the odd entries of a stream: ``put``."""
        return lambda stored, error: self.put(stream, stored, error)

    def put(self, stream: str, stored: StoredEntry, error: Exception) -> None:
        """Raises OSError; Corrupt and MemoryError, if the error is one and so not the entry's fault."""
        if isinstance(error, OSError | Corrupt | MemoryError):
            raise error
        data = bytes(stored.data)
        key = (stream, stored.kind, stored.sequence, zlib.crc32(data))
        if key in self._seen:
            return
        self._seen.add(key)
        kind, why = KINDS.get(stored.kind, f"kind {stored.kind}"), f"{type(error).__name__}: {error}"[:300]
        self.told.append(f"{stream}: {kind} at sequence {stored.sequence}, {len(data)} bytes: {why}")
        if self._path is None:
            return
        if self._kept is None:
            self._kept = self._read()
        if key not in self._kept:
            self._kept.add(key)
            line = {
                "stream": stream, "kind": stored.kind, "sequence": stored.sequence, "records": stored.count,
                "crc": key[3], "what": kind, "why": why, "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "data": base64.b64encode(data).decode(),
            }  # fmt: skip
            self._lines.append(json.dumps(line).encode() + b"\n")
            self._held_bytes += len(self._lines[-1])
            if self._held_bytes > HELD_BYTES_MAX:
                self._write()

    def finish(self) -> None:
        """Keeps what is not in the file yet, and logs what was set aside. Raises OSError."""
        self._write()
        for line in self.told[:TOLD_MAX]:
            log.error("journal: set aside: %s", line)
        if self._seen:
            log.error("journal: %d entries mean nothing to this release and are set aside in %s; all others are back",
                      len(self._seen), self._path)  # fmt: skip

    # -- the file ---------------------------------------------------------------------------------------------------

    def _read(self) -> set[_Key]:
        """Returns the keys of the entries in the file. A line that was being written when the power failed is none."""
        assert self._path is not None
        if self._path.name not in self._files.names(self._path.parent):
            return set()
        with opened(self._files, self._path, read_only=True) as fd:
            text = read_all(self._files, fd, self._files.size(self._path), 0)
        found: set[_Key] = set()
        for line in text.splitlines():
            try:
                one = json.loads(line)
                found.add((one["stream"], one["kind"], one["sequence"], one["crc"]))
            except (ValueError, KeyError, TypeError):
                continue
        return found

    def _write(self) -> None:
        lines, self._lines, self._held_bytes = self._lines, [], 0
        if not lines or self._path is None:
            return
        fresh = self._path.name not in self._files.names(self._path.parent)
        fd = self._files.create(self._path) if fresh else self._files.open(self._path)
        try:
            size = 0 if fresh else self._files.size(self._path)
            write_all(self._files, fd, [b"\n", *lines] if size else lines, size)
            self._files.sync(fd)
        finally:
            self._files.close(fd)
        self._files.sync_folder(self._path.parent)


# -- replay ------------------------------------------------------------------------------------------------------------
#
# Recovery restores the broker from the journal at a start.
#
# It reads the metadata first. Then it replays runs into lanes, in the order of their sequences
# (core/clients/restoring.py).


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


# -- opening -----------------------------------------------------------------------------------------------------------
#
# The start of a server's journal: opens it, restores the broker from it, and returns its writer.


def start(
    table: JournalTable, topics: Sequence[TopicTable], broker: Broker, loop: asyncio.AbstractEventLoop,
    now: Callable[[], float], turn_soon: Callable[[], None], wall_offset: Callable[[], float], *, repair: bool = False,
    files: Files = REAL,
) -> JournalWriter:  # fmt: skip
    """Raises ConfigError, which says what to do."""
    folder, began, progress = table.folder, time.monotonic(), RecoveryProgress()
    store = Journal(files, folder, table.segment_bytes + 2 * BACKLOG_BYTES_MAX)
    recorded = [topic.filter for topic in topics if topic.keep is not None]
    archive = Archive(wall_offset)
    wall_offset_s = wall_offset()
    try:
        names = list(dict.fromkeys([MAIN, RETAINED, *map(stream_name, recorded), *streams_in(folder)]))
        for line in store.open(names, repair=repair, checked=progress.checked):
            log.warning("journal: %s", line)
        streams = {name: store.stream(name) for name in names}
        for filter in recorded:
            archive.add(filter, streams[stream_name(filter)])
        journal = JournalWriter(table, topics, broker, store, streams, archive, loop, now, turn_soon)
        broker.keep(journal.ledger, archive)
        set_aside = SetAside(folder, files)
        retained = restore_retained(broker, streams[RETAINED], now(), wall_offset_s, set_aside)
        found = restore(broker, streams, journal.chunk_cache, now, wall_offset_s, QUEUES.dialect, set_aside, progress)
        set_aside.finish()
    except (Corrupt, Locked) as error:
        store.finish()  # what was not written to keeps its mark of a clean stop
        raise ConfigError(f"journal: {error}") from error
    except OSError as error:
        store.finish()
        raise ConfigError(_told(folder, error)) from error
    journal.restored(found.reserved, found.snapshots, len(set_aside))
    journal.begin()
    if found.sessions or found.queues or retained:
        log.info("journal: %d sessions, %d subscriptions, %d queues, %d records for them and %d retained ones "
                 "are back, after %.1f s", found.sessions, found.subscriptions, found.queues, found.records, retained,
                 time.monotonic() - began)
    return journal


def streams_in(folder: Path) -> list[str]:
    """Returns the names of the streams in a journal's folder. Raises OSError."""
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if is_stream_name(path.name) and path.is_dir())


def _told(folder: Path, error: OSError) -> str:
    """Returns an error in words. Another folder helps only if this one cannot be used at all."""
    why, path = error.strerror or str(error), Path(error.filename or folder)
    if folder in path.parents and path.name != LOCK_NAME:
        return f"journal: {path}: {why.lower()}"
    return f"journal.path {folder}: {why}; choose another folder"
