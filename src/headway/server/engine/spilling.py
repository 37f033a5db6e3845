"""Spilling: chunks that the core sends to disk are written in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headway.core.broker import Broker
from headway.core.log import Chunk, Lane
from headway.server.config import Settings
from headway.server.journal import JournalWriter
from headway.server.loop import Pulse
from headway.store.slots import Slot
from headway.store.spill import SpilledChunk, SpillStore

log = logging.getLogger("headway")


class Spilling:
    def __init__(self, settings: Settings, broker: Broker, journal: JournalWriter | None,
                 loop: asyncio.AbstractEventLoop, now: Callable[[], float], pulse: Pulse,
                 turn_soon: Callable[[], None]) -> None:
        self._broker = broker
        self._journal = journal
        self._loop = loop
        self._now = now
        self._pulse = pulse
        self._turn_soon = turn_soon
        self._disk_path = settings.pools[""].disk_path
        self._stores = {
            pool.name: SpillStore(settings.pools[name].disk_path)
            for name, pool in broker.registry.pools.items() if pool.disk_limit
        }  # fmt: skip
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headway-spill")

    def send_to_disk(self, lane: Lane, chunks: list[Chunk], now: float) -> None:
        """Writes chunks to disk, except those that the journal has, and those that every consumer has passed."""
        left = []
        for chunk in [chunk for chunk in chunks if chunk.spilling]:
            handle = self._journal.chunk(lane, chunk) if self._journal is not None else None
            if handle is None:
                if chunk.journaled and chunk.last_sequence <= self._broker.registry.journaled:
                    chunk.journaled = False  # the journal has dropped it: no durable consumer needs it
                left.append(chunk)
            else:
                self._broker.spilled(lane, chunk, chunk.size, handle, "", now)
        # Sizes are taken now, because every consumer may have passed a chunk by the time it is written.
        sized = [(chunk, chunk.size, chunk.data) for chunk in left]
        if sized:
            self._thread.submit(self._write, self._stores[lane.pool.name], lane, sized)

    def _write(self, store: SpillStore, lane: Lane, chunks: list[tuple[Chunk, int, Any]]) -> None:
        """Writes chunks. Runs in the writer's thread."""
        answers = store.write(lane, [data for _, _, data in chunks])
        self._loop.call_soon_threadsafe(self._written, lane, chunks, answers)

    def _written(
        self, lane: Lane, chunks: list[tuple[Chunk, int, Any]], answers: list[SpilledChunk | Slot | OSError]
    ) -> None:
        now = self._now()
        began = self._pulse.begin()
        for (chunk, size, _), answer in zip(chunks, answers, strict=True):
            if isinstance(answer, OSError):
                self._broker.spilled(lane, chunk, size, None, answer.strerror or str(answer), now)
                fields = {"path": str(self._disk_path), "cause": answer.strerror}
                log.error("cannot write to %s: %s", self._disk_path, answer, extra={"fields": fields})
            else:
                self._broker.spilled(lane, chunk, size, answer, "", now)
        self._broker.went_to_disk(now)
        self._turn_soon()
        self._pulse.end("spill", began)

    def tidy(self) -> None:
        """Removes files, or parts of files, that nobody reads any more."""
        for store in self._stores.values():
            self._thread.submit(store.tidy)

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        for store in self._stores.values():
            store.close()
