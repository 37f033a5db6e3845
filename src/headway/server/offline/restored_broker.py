"""A broker restored from a journal as at its start, while no broker runs."""

from __future__ import annotations

import time
from collections.abc import Mapping

from headway.core.log import Ledger
from headway.server.config import Settings, make_broker
from headway.server.journal import (
    RETAINED,
    Archive,
    ChunkCache,
    SetAside,
    restore,
    restore_retained,
)
from headway.server.protocols import QUEUES
from headway.store.journal import ReadableStream


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
