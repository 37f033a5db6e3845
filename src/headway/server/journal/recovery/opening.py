"""The start of a server's journal: opens it, restores the broker from it, and returns its writer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from headway.core.base import ConfigError
from headway.core.broker import Broker
from headway.core.log import MAIN
from headway.server.config import JournalTable, TopicTable
from headway.server.journal.compaction import RETAINED
from headway.server.journal.entries import Archive, stream_name
from headway.server.journal.recovery.progress import RecoveryProgress
from headway.server.journal.recovery.replay import restore, restore_retained
from headway.server.journal.recovery.set_aside import SetAside
from headway.server.journal.writing import BACKLOG_BYTES_MAX, JournalWriter
from headway.server.protocols import QUEUES
from headway.store.journal import REAL, Corrupt, Files, Journal, Locked
from headway.store.staged import STAGED

log = logging.getLogger("headway")


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
    names = list(dict.fromkeys([MAIN, RETAINED, *map(stream_name, recorded), *streams_in(folder)]))
    try:
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
        store.close()
        raise ConfigError(f"journal: {error}") from error
    except OSError as error:
        store.close()
        raise ConfigError(f"journal.path {folder}: {error.strerror or error}; choose another folder") from error
    journal.restored(found.reserved, found.snapshots, len(set_aside))
    journal.begin()
    if found.sessions or found.queues or retained:
        log.info("journal: %d sessions, %d subscriptions, %d queues, %d records for them and %d retained ones "
                 "are back, after %.1f s", found.sessions, found.subscriptions, found.queues, found.records, retained,
                 time.monotonic() - began)
    return journal


def streams_in(folder: Path) -> list[str]:
    """Returns the names of the streams in a journal's folder."""
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name != STAGED)
