"""The state of a recorded topic as it was: ``GET /v1/state/FILTER?at=…``.

Theory of operation. A worker thread reads the recorded records from the earliest on, a portion at a time, into a state
of the query's own (core/query/past.py). Between two portions the loop counts its memory, and looks whether the client
is still there and may still read it. Then the query goes on as any other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from headway.core.base import ConfigError
from headway.core.log import Tab
from headway.core.query import Past, Present, StateRequest, state_of
from headway.server.engine import Engine
from headway.server.http import Refusal
from headway.server.journal import first_offset_at
from headway.server.recorded import (
    RecordedStream,
    RunPart,
    Timestamp,
    Trimmed,
    earliest,
    filters_of,
    is_deleted,
    parse_position,
    read_parts,
)
from headway.server.streams.records import recorded_streams
from headway.store.journal import Corrupt, ReadableStream

PORTION_BYTES = 256 * 1024
BUILT_S = 120.0
"""A state that is not built by then is given up."""


class Found(NamedTuple):
    """The records that a state is built from: those with ``first`` <= offset <= ``as_of``."""

    sources: list[RecordedStream]
    first: int
    as_of: int
    is_whole: bool
    """No older records are deleted."""


class PastStates:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headway-past")

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def build(self, asked: StateRequest, tab: Tab, check: Callable[[], None]) -> Past:
        """Returns the state as it was, to be freed. ``check`` is called again and again. Raises Refusal, NoState,
        NotRecorded, Refused, and what ``check`` raises."""
        over_s = self._engine.loop.time() + BUILT_S
        while True:
            try:
                return await self._build(asked, tab, check, over_s)
            except Trimmed:
                continue  # the oldest records were deleted before they were read: the state begins later now
            except (Corrupt, OSError) as error:
                raise Refusal(500, f"at: the journal cannot be read: {error}") from None

    async def _build(self, asked: StateRequest, tab: Tab, check: Callable[[], None], over_s: float) -> Past:
        """Raises what ``build`` raises, and Trimmed, Corrupt, OSError."""
        engine = self._engine
        now = state_of(engine.broker.registry, asked.filter)
        found = await self._find(asked)
        past = Past(now, found.as_of, tab, 0 if found.is_whole else found.first)
        parts = read_parts(found.sources, asked.filter, found.first, found.as_of + 1)
        wall_s = engine.broker.registry.wall_offset_s
        reading: asyncio.Future[bool] | None = None
        try:
            while True:
                check()
                if engine.loop.time() > over_s:
                    raise Refusal(503, f"at: it takes more than {BUILT_S:g} s to read all records up to there")
                reading = engine.loop.run_in_executor(self._thread, _portion, parts, past, wall_s)
                if not await asyncio.shield(reading):
                    break
                past.count()
            past.count()
        except BaseException:
            if reading is None or reading.done():
                self.free(past)
            else:
                reading.add_done_callback(lambda _: self.free(past))
            raise
        return past

    def free(self, moment: Present | Past) -> None:
        """Frees its memory, in steps."""
        self._engine.broker.registry.deferred.begin(moment.close(), self._engine.now())

    async def _find(self, asked: StateRequest) -> Found:
        """Raises Refusal, NotRecorded."""
        engine, recorded = self._engine, recorded_streams(self._engine)
        try:
            position = parse_position(asked.at or "", "at", int(time.time() * 1e6))
            sources = [recorded[filter] for filter in filters_of(asked.filter, recorded)]
        except ConfigError as error:
            raise Refusal(400, str(error)) from None
        last = engine.broker.registry.sequence
        if isinstance(position, int) and position > last:
            raise Refusal(400, f"at={position}: there is no such offset yet; the last one is {last}")
        assert engine.journal is not None
        await engine.journal.flush()
        streams: list[ReadableStream] = [source.stream for source in sources]
        as_of = position if isinstance(position, int) else self._before(streams, position)
        begin, is_whole = earliest(streams), not is_deleted(streams, 0)
        if not is_whole and as_of < begin:
            raise Refusal(410, f"at: the state at offset {as_of} is not known any more; the earliest is {begin}")
        return Found(sources, begin, as_of, is_whole)

    def _before(self, streams: list[ReadableStream], position: Timestamp) -> int:
        """Returns the last offset up to a time."""
        return first_offset_at(streams, position.us + 1) - 1


def _portion(parts: Iterator[RunPart], past: Past, wall_offset_s: float) -> bool:
    """Adds some records. Returns whether there are more."""
    looked = 0
    for part in parts:
        if part.run:
            past.add(part.run, part.first, part.time_us / 1e6 - wall_offset_s)
        looked += part.scanned_bytes
        if looked > PORTION_BYTES:
            return True
    return False
