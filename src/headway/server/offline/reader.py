"""Reads a journal's folder from programs other than its broker: its streams, and the records in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from headway.core.base import ConfigError
from headway.core.message import BadTopic, KeyExtractor, validate_filter
from headway.server.config import JournalTable, RetainedTable, Settings, host_limits, load_settings, parse_settings
from headway.server.journal import PREFIX, RUN, stream_name
from headway.server.recorded import NotRecorded, RecordedStream, filters_of
from headway.store.journal import LOCK_NAME, REAL, Corrupt, Journal, Locked, SegmentStats, StreamReader, streams_of

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
        raise ConfigError(f"{folder}: cannot be read: {(error.strerror or str(error)).lower()}") from None
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
    except Locked as error:
        raise ConfigError(f"{error}; name its admin API instead of the folder: --admin URL") from None
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be locked: {(error.strerror or str(error)).lower()}") from None
    try:
        yield
    finally:
        journal.close()


def open_streams(folder: Path, names: list[str] | None = None) -> tuple[dict[str, StreamReader], list[str]]:
    """Opens the journal's streams for reading, and names unreadable parts. Raises OSError."""
    streams, said = {}, []
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
