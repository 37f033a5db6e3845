"""The inventory of a journal whose broker is not running: what it keeps, and for whom."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from headway.core.broker import Broker
from headway.core.log import MAIN
from headway.core.telemetry import stats
from headway.server.config import Settings
from headway.server.journal import RETAINED
from headway.server.offline.reader import open_streams
from headway.server.offline.restored_broker import RestoredBroker
from headway.store.journal import StreamReader


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
