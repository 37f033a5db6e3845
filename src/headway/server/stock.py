"""What a journal keeps while no broker is at work on it: made again as at a broker's start, and then counted or
written anew."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from headway.core import stats
from headway.core.broker import Broker
from headway.core.ledger import MAIN, Ledger
from headway.server.engine import make_broker
from headway.server.folder import opened
from headway.server.journal.archive import Archive, stream_name
from headway.server.journal.handle import Shelf
from headway.server.journal.keeper import Keeper
from headway.server.journal.restore import RETAINED, restore, restore_retained
from headway.server.journal.retained import RetainedLog
from headway.server.journal.start import start
from headway.server.journal.words import SNAPSHOT_FACT, SNAPSHOT_MARK, SNAPSHOT_PLACES, fact_entry, places_entry
from headway.server.settings import Settings
from headway.store.journal.batch import Entry
from headway.store.journal.beside import StreamBeside
from headway.store.journal.files import REAL
from headway.store.journal.losses import read_losses
from headway.store.journal.stream import Stream
from headway.wire.amqp.dialect import AmqpDialect


class Holder(NamedTuple):
    """A durable subscription or queue, and what is unsettled of it."""

    name: str
    filter: str
    """Empty: a queue."""
    records: int
    bytes: int


class Stock(NamedTuple):
    sessions: int
    retained: int
    exchanges: int
    holders: list[Holder]
    """Those with the most unsettled first."""


def stock(settings: Settings) -> Stock:
    """Reads, and changes nothing. Raises Corrupt, OSError."""
    wall_offset_s = time.time() - time.monotonic()
    now = time.monotonic
    found, _ = opened(settings.journal.folder)
    streams: dict[str, Stream] = {**found}
    for name in (MAIN, RETAINED):
        streams.setdefault(name, StreamBeside(settings.journal.folder / name))
    broker = make_broker(settings)
    broker.keep(Ledger(), Archive(wall_offset_s))
    shelf = Shelf([stream for name, stream in streams.items() if name != RETAINED], wall_offset_s)
    retained = restore_retained(broker, streams[RETAINED], now(), wall_offset_s)
    restore(broker, streams, shelf, now, wall_offset_s, AmqpDialect())
    counted = _counted(broker, retained, now)
    for stream in streams.values():
        stream.close()
    return counted


def _counted(broker: Broker, retained: int, now: Callable[[], float]) -> Stock:
    consumers, queues = stats.consumers(broker, now()), stats.queues(broker, now())
    holders = [Holder(one.client, one.filter, one.lag_records, one.lag_bytes) for one in consumers]
    holders += [Holder(one.name, "", one.records + one.unacknowledged, one.bytes) for one in queues]
    holders.sort(key=lambda one: (-one.bytes, one.name, one.filter))
    exchanges = broker.registry.router.exchanges.by_name.values()
    durable = sum(one.durable and bool(one.name) and not one.name.startswith("amq.") for one in exchanges)
    return Stock(len(broker.registry.sessions), retained, durable, holders)


# -- writing it anew --------------------------------------------------------------------------------------------------


def compact(settings: Settings) -> dict[str, tuple[int, int]]:
    """Write down what there is at the beginning of fresh segments, and free what nobody needs. Returns for each stream
    how many bytes it had, and has. Raises ConfigError where a broker is at work on it, or it is damaged; OSError."""

    async def work() -> dict[str, tuple[int, int]]:
        offset_s = time.time() - time.monotonic()
        broker = make_broker(settings)
        loop = asyncio.get_running_loop()
        sizes = _sizes(settings.journal.folder)
        keeper = start(settings.journal, settings.topics, broker, loop, time.monotonic, offset_s)
        try:
            _write_anew(keeper, broker, offset_s)
            _trim(keeper, settings, broker)
        finally:
            keeper.journal.close()
        after = _sizes(settings.journal.folder)
        return {name: (sizes.get(name, 0), after[name]) for name in after}

    return asyncio.run(work())


def _write_anew(keeper: Keeper, broker: Broker, wall_offset_s: float) -> None:
    """A snapshot in place of all facts and places before it, and each retained record once more."""
    registry, ledger, main = broker.registry, keeper.ledger, keeper.streams[MAIN]
    marks = [] if read_losses(REAL, main.folder) else [
        entry.sequence for _, batch in main.scan({SNAPSHOT_MARK}) for entry in batch
    ]  # fmt: skip
    registry.sequence += 1
    sequence = registry.sequence
    facts, places = ledger.snapshot(sequence)
    snapshot = [
        Entry(SNAPSHOT_MARK, sequence, 1, (b"",)),
        *(fact_entry(fact, wall_offset_s, SNAPSHOT_FACT) for fact in facts),
        places_entry(places, sequence, SNAPSHOT_PLACES),
    ]
    retained = RetainedLog(broker.retained, keeper.streams[RETAINED], wall_offset_s)
    again = [retained.entry(topic) for topic in broker.retained.topics()]
    roll = [MAIN, RETAINED] if again else [MAIN]
    keeper.journal.commit({MAIN: snapshot, RETAINED: again}, int(time.time() * 1e6), roll=roll)
    if again:
        keeper.streams[RETAINED].free_before(again[0].sequence)
    needed = ledger.needed_sequence(sequence)
    passed = [mark for mark in (*marks, sequence) if mark < needed]
    if passed:
        main.free_before(max(passed))


def _trim(keeper: Keeper, settings: Settings, broker: Broker) -> None:
    """What is recorded for no longer, and nobody durable needs."""
    needed = keeper.ledger.needed_sequence(broker.registry.sequence)
    for topic in settings.topics:
        if topic.keep is not None:
            stream = keeper.streams[stream_name(topic.filter)]
            if topic.keep.seconds is not None:
                stream.free_for_age(int((time.time() - topic.keep.seconds) * 1e6), needed)
            if topic.keep.bytes is not None:
                stream.free_for_size(topic.keep.bytes, needed)


def _sizes(folder: Path) -> dict[str, int]:
    """Bytes on disk, by stream."""
    return {
        path.name: sum(file.stat().st_size for file in path.iterdir() if file.is_file())
        for path in sorted(folder.iterdir()) if path.is_dir()
    }  # fmt: skip
