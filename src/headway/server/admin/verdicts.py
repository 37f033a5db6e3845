"""Verdicts over HTTP: ``GET /v1/verdicts`` searches the history, and ``GET /v1/why`` asks it about one client.

Theory of operation. A worker's thread reads the files backwards, a block at a time, and the loop hands over what it
found. The next block is read when the client has taken the last, so neither the loop nor the memory notices how long
the history is. What is not in a file yet comes first. Without a history the answer is what the broker has in memory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from math import inf
from typing import Any

from aiohttp import web

from headway.core.base import Cause, ConfigError, parse_count
from headway.core.policy import ACTIONS
from headway.server.engine import Engine
from headway.server.http import Refusal, Seats, abort, is_gone
from headway.store.history import (
    EntryKind,
    Found,
    HistoryEntry,
    Query,
    encode_entry,
    matcher,
    parse_moment,
    search,
    verdict_entry,
)

log = logging.getLogger("headway")

JSON_LINES = "application/x-ndjson"
HISTORY = "Headway-History"
"""The header that says where an answer is from: ``on``, ``failing`` (the files cannot be written), ``off`` (memory)."""
LIMIT, LIMIT_MAX = 1_000, 10_000
CHUNK_BYTES = 64 * 1024
PORTION = 64
"""Blocks without a match that are read before the loop is asked whether the client is still there."""
SEARCHES_MAX = 16
FLUSH_S = 1.0
UNREAD_S = 60.0
"""An answer of which the client takes nothing for this long is broken off."""
WHY_VERDICTS, WHY_ENDS = 100, 50
NAME_CHARS_MAX = 2_000
_KINDS = {"verdict": (EntryKind.VERDICT,), "end": (EntryKind.END,), "all": tuple(EntryKind)}
_WORDS = ("since", "until", "client", "cause", "action", "kind", "limit")


class Verdicts:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headway-verdicts")
        self._seats = Seats(SEARCHES_MAX, "searches are under way")

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    # -- GET /v1/verdicts -------------------------------------------------------------------------------------------

    async def answer(self, request: web.Request) -> web.StreamResponse:
        query, limit = _query(request), _limit(request)
        with self._seats.seat(request):
            return await self._send(request, query, limit)

    async def _send(self, request: web.Request, query: Query, limit: int) -> web.StreamResponse:
        chunks = _chunks(await self._found(query), limit)
        run = self._engine.loop.run_in_executor
        try:
            chunk = await run(self._thread, next, chunks, None)
        except OSError as error:
            raise Refusal(500, f"the history cannot be read: {error.strerror or error}") from None
        response = web.StreamResponse(headers={"Content-Type": JSON_LINES, HISTORY: self._state()})
        response.enable_chunked_encoding()
        await response.prepare(request)
        try:
            while chunk is not None and not is_gone(request):
                if chunk:
                    async with asyncio.timeout(UNREAD_S):
                        await response.write(chunk)
                chunk = await run(self._thread, next, chunks, None)
            await response.write_eof()
        except ConnectionError:
            pass  # the client is gone
        except OSError:  # the file fails, or the client reads nothing; a part is not to end like the whole
            abort(request)
        return response

    def _state(self) -> str:
        history = self._engine.history
        return "off" if history is None else "failing" if history.last_error else "on"

    async def _found(self, query: Query) -> Iterator[Found | None]:
        """Returns what matches, newest first."""
        history = self._engine.history
        if history is None:
            return _matching(self._remembered(query), query)
        await history.flush(FLUSH_S)
        return chain(_matching(history.unwritten(), query), search(history.folder, query))

    def _remembered(self, query: Query) -> Iterator[HistoryEntry]:
        """Returns the verdicts in memory, newest first; ends are only known by name there."""
        book, session_of = self._engine.broker.verdicts, self._engine.broker.registry.sessions.get
        verdicts = book.of(query.client) if query.named else tuple(book)

        def entries() -> Iterator[HistoryEntry]:
            for verdict in sorted(verdicts, key=lambda one: -one.number):
                session = session_of(verdict.client)
                yield verdict_entry(verdict, (session.username if session is not None else None) or "", "")

        return entries() if EntryKind.VERDICT in query.kinds else iter(())

    # -- GET /v1/why ------------------------------------------------------------------------------------------------

    async def _past(self, request: web.Request, client: str, kind: EntryKind) -> list[HistoryEntry]:
        """Returns the latest entries about a client in the history, newest first; none if it cannot be read. Raises
        Refusal."""
        entries: list[HistoryEntry] = []
        with self._seats.seat(request):
            found = await self._found(Query(client=client, exact=True, kinds=(kind,)))
            parts = _parts(found, WHY_VERDICTS if kind is EntryKind.VERDICT else WHY_ENDS)
            run = self._engine.loop.run_in_executor
            try:
                while not is_gone(request) and (part := await run(self._thread, next, parts, None)) is not None:
                    entries += part
            except OSError as error:
                log.error("history: it cannot be read: %s", error.strerror or error)
                return []
        return entries

    async def why(self, request: web.Request, client: str) -> tuple[list[Any], list[Any]]:
        """Returns the verdicts about a client and the ends of its connections, newest first: those in memory, and those
        that only the history still has. Raises Refusal."""
        verdicts: list[Any] = list(reversed(self._engine.broker.verdicts.of(client)))
        ends: list[Any] = list(self._engine.ends.of(client))
        history = self._engine.history
        if history is not None:
            numbers = {verdict.number for verdict in verdicts}
            known = {(end.wall_s, end.address, end.reason) for end in ends}
            for one in await self._past(request, client, EntryKind.VERDICT):
                if one.run != history.run or one.number not in numbers:
                    verdicts.append(one.verdict())
            for one in await self._past(request, client, EntryKind.END):
                if (one.wall_s, one.address, one.reason) not in known:
                    ends.append(one.end())
        return verdicts[:WHY_VERDICTS], ends[:WHY_ENDS]


def _matching(entries: Iterable[HistoryEntry], query: Query) -> Iterator[Found]:
    test = matcher(query)
    return (Found(entry, encode_entry(entry)) for entry in entries if test(entry))


# -- in the thread ----------------------------------------------------------------------------------------------------


def _chunks(found: Iterator[Found | None], limit: int) -> Iterator[bytes]:
    """Yields whole lines, about ``CHUNK_BYTES`` of them; nothing after each ``PORTION`` of blocks without a match."""
    chunk, blocks, left = bytearray(), 0, limit
    for one in found:
        if one is None:
            blocks += 1
        else:
            chunk += one.line
            chunk += b"\n"
            left -= 1
        if len(chunk) >= CHUNK_BYTES or blocks >= PORTION or not left:
            yield bytes(chunk)
            chunk.clear()
            blocks = 0
        if not left:
            return
    yield bytes(chunk)


def _parts(found: Iterator[Found | None], most: int) -> Iterator[list[HistoryEntry]]:
    """Yields the first entries in parts; a part ends after each ``PORTION`` of blocks without a match, so that other
    searches have their turn."""
    part: list[HistoryEntry] = []
    blocks = 0
    for one in found:
        if one is None:
            blocks += 1
        else:
            part.append(one.entry)
            most -= 1
        if not most:
            break
        if blocks >= PORTION:
            yield part
            part, blocks = [], 0
    yield part


# -- requests ---------------------------------------------------------------------------------------------------------


def _query(request: web.Request) -> Query:
    """Raises Refusal."""
    asked, now = request.query, time.time()
    for word in asked:
        if word not in _WORDS:
            raise Refusal(400, f"unknown parameter {word[:60]!r} (known: {', '.join(_WORDS)})")
    kind, cause, action, client = (asked.get(word, "") for word in ("kind", "cause", "action", "client"))
    if kind and kind not in _KINDS:
        raise Refusal(400, f"kind: one of {', '.join(_KINDS)}, not {kind[:60]!r}")
    if cause and cause not in list(Cause):
        raise Refusal(400, f"cause: one of {', '.join(Cause)}, not {cause[:60]!r}")
    if len(client) > NAME_CHARS_MAX:
        raise Refusal(400, f"client: more than {NAME_CHARS_MAX} characters")
    try:
        if action:
            ACTIONS.find(action)
        since, until = asked.get("since", ""), asked.get("until", "")
        since_s = parse_moment(since, now) if since else -inf
        until_s = parse_moment(until, now, since) if until else inf
    except ConfigError as error:
        raise Refusal(400, str(error)) from None
    return Query(since_s, until_s, client, cause=cause, action=action, kinds=_KINDS[kind or "verdict"])


def _limit(request: web.Request) -> int:
    """Raises Refusal."""
    text = request.query.get("limit", str(LIMIT))
    try:
        limit = parse_count(int(text))
    except (ConfigError, ValueError):
        limit = 0
    if not 1 <= limit <= LIMIT_MAX:
        raise Refusal(400, f"limit: from 1 to {LIMIT_MAX:,}, not {text[:60]!r}")
    return limit
