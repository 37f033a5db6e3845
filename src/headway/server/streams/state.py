"""The state over HTTP: ``GET /v1/state/FILTER``, the latest record per key as of one offset, a page of it in an order.

Theory of operation. A query goes on in steps of bounded work (core/query/state_query.py), and the loop goes on between
two of them, so a query of a million keys holds up nobody. All queries take turns, so many hold up others no more than
one does. Orders that somebody asked for a moment ago are kept up to date, likewise. What is found is sent as soon as
there is a chunk of it, and the next is looked for when the client has taken that. An answer that cannot be finished is
broken off, so it never looks like a whole one.

While its client takes it, an answer is nothing that the core knows of. If the client stands still, it becomes a session
with one subscription, for which the rest of the answer waits: so policies, verdicts and ``headway top`` know of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import NamedTuple

import msgspec
from aiohttp import web

from headway.core.base import ConfigError, Reason, Refused
from headway.core.consumer import Session, SubscribeRequest, Subscription, Use, read_options
from headway.core.delivery import evicted_text
from headway.core.log import Tab
from headway.core.message import BadTopic, Record, validate_filter
from headway.core.query import (
    PAGE_MAX,
    NoState,
    Past,
    Present,
    Row,
    RowsQuery,
    StateQuery,
    StateRequest,
    begin_query,
    state_of,
)
from headway.core.selector import compile_work
from headway.server.engine import Engine
from headway.server.http import IDENTITY, USER, Refusal, Seats, abort, address_of, asker_of, is_gone, refusal_for
from headway.server.journal import first_offset_at
from headway.server.recorded import (
    NotRecorded,
    RecordedStream,
    RunPart,
    Timestamp,
    Trimmed,
    deleted_ends,
    filters_of,
    parse_position,
    read_parts,
    records_of,
    whole_from,
)
from headway.server.streams.events import AnswerOutlet, EventStreams, connect_request, wants_events
from headway.server.streams.read_right import ReadRight
from headway.server.streams.records import (
    ARROW,
    JSON_LINES,
    NO_ARROW,
    UNREAD_S,
    has_arrow,
    not_recorded,
    recorded_streams,
)
from headway.store.journal import Corrupt, ReadableStream
from headway.wire.event_stream import EventStreamDialect

# -- state answer ------------------------------------------------------------------------------------------------------
#
# The bytes of an answer with the state: JSON, JSON lines or Arrow; whole records, or rows of what was selected.


_encode = msgspec.json.Encoder().encode


class StateAnswer:
    def __init__(self, query: StateQuery, filter: str, format: str, wall_offset_s: float, *, sees: bool) -> None:
        """``sees``: whether the client may know figures about the whole state, of which its filter may be a part."""
        self.filter = filter
        self._sees = sees
        self._query = query
        self._columns = query.columns
        self._format = format
        self._wall_offset_s = wall_offset_s
        self._is_first = True
        self._rows: list[bytes] = []
        """The rows of an answer in Arrow, as JSON: all of them tell the types."""

    @property
    def given_up(self) -> str:
        return self._query.given_up

    @property
    def ends_long(self) -> bool:
        """Tells whether ``end`` takes so long that it is for a worker thread."""
        return bool(self._rows)

    def headers(self) -> dict[str, str]:
        query = self._query
        since = {"Headway-Earliest-Offset": str(query.moment.since)} if query.moment.since else {}
        keys = {"Headway-Keys": str(len(query.state))} if self._sees else {}
        evicted = evicted_text(query.evicted_records, self._sees)
        return {"Headway-Offset": str(query.as_of), **keys, "Headway-Evicted-Keys": evicted} | since

    @property
    def _metadata(self) -> dict[str, str]:
        return {"headway.offset": str(self._query.as_of)}

    def start(self) -> bytes:
        query = self._query
        if self._format == "json":
            head: dict[str, object] = {"filter": self.filter, "offset": query.as_of}
            if self._sees:
                head["keys"] = len(query.state)
            evicted = query.evicted_records
            head["evicted_keys"] = evicted if self._sees else evicted and evicted_text(evicted, is_told=False)
            if query.moment.since:
                head["earliest"] = query.moment.since
            if self._columns:
                head["columns"] = self._columns
            return _encode(head)[:-1] + b',"records":['
        if self._format == "arrow" and not self._columns:
            from headway.store.records import stream_start

            return stream_start(self._metadata)
        return b""

    def parts(self) -> Iterator[bytes]:
        """Yields the next bytes after each step of the query, maybe none."""
        if isinstance(self._query, RowsQuery):
            for rows in self._query.rows():
                yield self._of_rows(rows) if rows else b""
        else:
            for found in self._query.steps():
                yield self._of_records(found) if found else b""

    def _of_records(self, found: list[Record]) -> bytes:
        if self._format == "arrow":
            return self._batch(found)
        return self._lines([_encode(one) for part in self._parts(found) for one in records_of(part)])

    def _of_rows(self, rows: list[Row]) -> bytes:
        lines = [_encode(row) for row in rows]
        if self._format != "arrow":
            return self._lines(lines)
        self._rows += lines
        self._query.hold(sum(map(len, lines)))
        return b""

    def _lines(self, lines: list[bytes]) -> bytes:
        if self._format == "jsonl":
            return b"\n".join(lines) + b"\n"
        first, self._is_first = self._is_first, False
        return (b"" if first else b",") + b",".join(lines)

    def end(self) -> bytes:
        """Returns the last bytes."""
        if self._format == "json":
            return _encode({"looked_at": self._query.looked_at}).replace(b"{", b"],", 1) if self._sees else b"]}"
        if self._format == "jsonl":
            return b""
        if not self._columns:
            from headway.store.records import STREAM_END

            return STREAM_END
        from headway.store.rows import rows_stream

        return rows_stream(self._columns, self._rows, self._metadata)

    def _parts(self, found: Iterable[Record]) -> Iterator[RunPart]:
        for record in found:
            sequence, time_us = record.sequence, int((record.time_s + self._wall_offset_s) * 1e6)
            yield RunPart(sequence, sequence, record.run(), time_us, self._query.key_of, 0)

    def _batch(self, found: Iterable[Record]) -> bytes:
        from headway.store.records import Columns, stream_part

        columns = Columns()
        for part in self._parts(found):
            columns.add(part.run, part.first, part.time_us, part.keys)
        return bytes(stream_part(columns.batch()))


# -- past states -------------------------------------------------------------------------------------------------------
#
# The state of a recorded topic as it was: ``GET /v1/state/FILTER?at=…``.
#
# Theory of operation. A worker thread reads the recorded records from the earliest on, a portion at a time, into a
# state of the query's own (core/query/state_query.py). Between two portions the loop counts its memory, and looks
# whether the client is still there and may still read it. Then the query goes on as any other.


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
        begin, is_whole = whole_from(streams), not deleted_ends(streams, 0)
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


# -- state -------------------------------------------------------------------------------------------------------------


log = logging.getLogger("headway")

JSON = "application/json"
FORMATS = {"json": JSON, "jsonl": JSON_LINES, "arrow": ARROW}
QUERIES_MAX = 16
QUERIES_PER_CLIENT = 4
"""Limit of one user, or of one address where nobody is logged in: a slow reader leaves room for others."""
ANSWER_S = 300.0
"""An answer that its client has not read to the end by then is broken off: it may keep replaced records."""
CHUNK_BYTES = 64 * 1024
STANDS_S = 0.5
"""A client that has not taken a chunk by then stands still, and is a consumer from then on."""
KEEP_UP_S = 0.05
"""Kept orders that have caught up look for changes this often."""


class StateHandlers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seats = Seats(QUERIES_MAX, "queries are being answered")
        self._numbers = count(1)
        self._askers: dict[str, _Asker] = {}
        """Those whose queries are being answered, by name."""
        self._past_states = PastStates(engine)
        self._streams = EventStreams(engine)
        self._orders = engine.broker.orders
        self._stepping = asyncio.Lock()
        self._keeping: set[asyncio.Task[None]] = set()
        """The task that keeps orders up to date, while there are any."""

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/state/{filter:.+}", self._state)]

    def end_streams(self) -> None:
        self._streams.end()

    def close(self) -> None:
        for task in self._keeping:
            task.cancel()
        self._past_states.close()

    async def _keep_up(self) -> None:
        while len(self._orders):
            more = self._orders.keep_up(self._engine.now())
            await (self._its_turn() if more else asyncio.sleep(KEEP_UP_S))

    async def _its_turn(self) -> None:
        """Waits until it is time for one more step, of all queries and of the orders that are kept up: one step of all
        together in an iteration of the loop, each in turn."""
        async with self._stepping:
            await asyncio.sleep(0)

    async def _state(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET" and wants_events(request):
            return await self._streams.answer(request)
        with self._seats.seat(request):
            client = asker_of(request)
            asker = self._askers.get(client) or _Asker(client, Tab(self._engine.broker.registry.pools[""]))
            if asker.queries >= QUERIES_PER_CLIENT:
                text = f"{QUERIES_PER_CLIENT} queries of {client} are being answered already; read these answers first"
                raise Refusal(429, text)
            self._askers[client] = asker
            asker.queries += 1
            try:
                return await self._answer(request, asker)
            finally:
                asker.queries -= 1
                if not asker.queries:
                    del self._askers[client]

    async def _answer(self, request: web.Request, asker: _Asker) -> web.StreamResponse:
        (asked, right), format = self._asked(request), _format(request)
        await self._engine.take_work(compile_work(asked.selector))
        if format == "arrow" and not await self._engine.loop.run_in_executor(None, has_arrow):
            raise Refusal(501, NO_ARROW)
        moment = await self._moment(request, asked, asker, right)
        try:
            query = begin_query(asked, moment, asker.tab)
        except Refused as refused:
            self._past_states.free(moment)
            raise refusal_for(refused) from None
        try:
            if format == "arrow" and query.columns and query.rows_max > PAGE_MAX:
                text = f"rows of a selection in Arrow are {PAGE_MAX:,} at most, whose values tell the columns' types"
                raise Refusal(400, f"{text}: say top, or format=jsonl")
            if len(self._orders) and not self._keeping:
                self._keeping.add(task := self._engine.loop.create_task(self._keep_up()))
                task.add_done_callback(self._keeping.discard)
            await self._prepare(request, query, right)
            sees = right.sees(query.state.filter) or self._engine.settings.auth.names(request[USER], change=False)
            answer = StateAnswer(query, asked.filter, format, self._engine.broker.registry.wall_offset_s, sees=sees)
            reader = _Reader(self._engine, request, query, asked.filter, self._numbers)
            response = web.StreamResponse(headers=answer.headers() | {"Content-Type": FORMATS[format]})
            response.enable_chunked_encoding()
            try:
                await self._send(request, response, answer, right, reader)
            finally:
                reader.leave()
        finally:
            query.close()
            self._past_states.free(moment)
        return response

    async def _prepare(self, request: web.Request, query: StateQuery, right: ReadRight) -> None:
        """Raises Refusal, ConnectionError."""
        try:
            await self._its_turn()
            for _ in query.prepare():
                await self._its_turn()
                _check(request, right)
        except Refused as refused:
            raise refusal_for(refused) from None
        if query.given_up:
            raise Refusal(503, f"{query.given_up}; ask again")

    async def _send(
        self, request: web.Request, response: web.StreamResponse, answer: StateAnswer, right: ReadRight,
        reader: _Reader,
    ) -> None:  # fmt: skip
        """Sends an answer, or breaks it off."""
        filter, over_s = answer.filter, self._engine.loop.time() + ANSWER_S
        try:
            await response.prepare(request)
            chunk = bytearray(answer.start())
            await self._its_turn()
            for some in answer.parts() if request.method != "HEAD" else ():
                chunk += some
                if len(chunk) >= CHUNK_BYTES:
                    await reader.write(response, chunk)
                    chunk = bytearray()
                await self._its_turn()
                if is_gone(request):
                    return
                if self._engine.loop.time() >= over_s:
                    raise TimeoutError
                right.check()
            if answer.given_up:
                log.warning("the state of %s: the answer ends too early: %s", filter, answer.given_up)
                abort(request)
                return
            if request.method != "HEAD":
                end = await self._engine.loop.run_in_executor(None, answer.end) if answer.ends_long else answer.end()
                await reader.write(response, chunk + end)
            await response.write_eof()
        except ConnectionError:
            pass  # the client is gone
        except TimeoutError:
            log.info("the state of %s: broken off, for its client read nothing for %g s, or not all in %g s",
                     filter, UNREAD_S, ANSWER_S)  # fmt: skip
            abort(request)
        except Refused as refused:
            log.info("the state of %s: the answer ends here: %s", filter, refused)
            abort(request)

    def _asked(self, request: web.Request) -> tuple[StateRequest, ReadRight]:
        """Raises Refusal."""
        filter = request.match_info["filter"]
        try:
            validate_filter(filter)
            right = ReadRight(self._engine, request[IDENTITY], filter)
            pairs = [(name, value) for name, value in request.query.items() if name != "format"]
            names = [name for name, _ in pairs]
            if len(set(names)) < len(names) or {"where", "selector"} <= set(names):
                raise Refusal(400, "each option once; where and selector are the same")
            read = read_options(pairs, Use.QUERY, strict=True)
            return msgspec.convert({"filter": filter} | read, StateRequest), right
        except Refused as refused:
            raise refusal_for(refused) from None
        except BadTopic as error:
            raise Refusal(400, str(error)) from None

    async def _moment(
        self, request: web.Request, asked: StateRequest, asker: _Asker, right: ReadRight
    ) -> Present | Past:
        """Returns the state that is asked for, to be freed. Raises Refusal, ConnectionError."""
        registry = self._engine.broker.registry
        try:
            if asked.at is not None:
                return await self._past_states.build(asked, asker.tab, lambda: _check(request, right))
            return Present(registry, asked.filter, self._orders, self._engine.now(), asker.name)
        except Refused as refused:
            raise refusal_for(refused) from None
        except NotRecorded:
            recorded = recorded_streams(self._engine)
            raise not_recorded(self._engine, request, asked.filter, recorded, "at: ") from None
        except NoState as error:
            states = [state.filter for state in registry.router.states if state.declared]
            readable = self._engine.permissions.readable(request[IDENTITY], states)
            raise Refusal(404, str(error), keyed=readable) from None


class _Asker:
    """One user who has queries answered, or one address where nobody is logged in."""

    def __init__(self, name: str, tab: Tab) -> None:
        self.name = name
        self.tab = tab
        """The tab of all of its queries."""
        self.queries = 0


class _Reader:
    """The client of an answer. If it stands still, what is left of the answer is a backfill for it."""

    def __init__(
        self, engine: Engine, request: web.Request, query: StateQuery, filter: str, numbers: Iterator[int]
    ) -> None:
        self._engine = engine
        self._request = request
        self._query = query
        self._filter = filter
        self._numbers = numbers
        self._asked_s = engine.now()
        self._unsent_bytes = self._given = 0
        """The bytes that are being written, and how many records or rows were given when the last were taken."""
        self._outlet = AnswerOutlet(self._asked_s, partial(abort, request))
        self._session: Session | None = None
        """Set when it has stood still."""
        self._consumer: Subscription | None = None

    async def write(self, response: web.StreamResponse, chunk: bytes | bytearray) -> None:
        """Raises ConnectionError, TimeoutError."""
        if not chunk:
            return
        self._unsent_bytes = len(chunk)
        stands_still = self._engine.loop.call_later(STANDS_S, self._stands_still)
        try:
            async with asyncio.timeout(UNREAD_S):
                await response.write(bytes(chunk))
        finally:
            stands_still.cancel()
        self._unsent_bytes = 0
        if self._consumer is not None:
            self._consumer.counters.write(self._query.given - self._given, len(chunk))
            self._outlet.moved(len(chunk), self._engine.now())
        self._given = self._query.given

    def _stands_still(self) -> None:
        engine, now = self._engine, self._engine.now()
        if self._session is not None:
            return
        name = f"query/{address_of(self._request)}/{next(self._numbers)}"
        wanted = SubscribeRequest(self._filter, EventStreamDialect(self._query.key_of.text), send_retained="never")
        self._outlet.progress_s = now
        try:
            self._session = engine.broker.connect(connect_request(engine, self._request, name), self._outlet, now)
            self._consumer = engine.broker.answer(self._session, wanted, self, self._asked_s, now)
        except Refused as refused:  # there is no room for one more client: the time alone limits the answer
            log.info("the state of %s: its client stands still, and is not shown: %s", self._filter, refused)
        engine.turn_soon()

    def leave(self) -> None:
        """The answer is over."""
        session, engine = self._session, self._engine
        if session is not None and session.outlet is self._outlet:
            engine.broker.disconnect(session, self._outlet, Reason.CLIENT_GONE, engine.now(), will=False)
            engine.turn_soon()

    # -- as a source of a backfill ----------------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        return self._query.held_bytes + self._unsent_bytes

    def waiting(self) -> tuple[int, int]:
        records, size = self._query.waiting()
        return records + self._query.given - self._given, size + self._unsent_bytes

    def __next__(self) -> None:
        """Yields no record: the outlet takes nothing, for the answer is written here. It is never called."""

    def close(self) -> None:
        """The broker has ended its client, and ends the answer by its outlet."""


def _check(request: web.Request, right: ReadRight) -> None:
    """Raises Refused if the right to read has ended, and ConnectionError if the client is gone."""
    right.check()
    if is_gone(request):
        raise ConnectionResetError


def _format(request: web.Request) -> str:
    """Returns the format that the client asks for, by name or by ``Accept``. Raises Refusal."""
    said = request.query.get("format")
    if said is not None:
        if said not in FORMATS:
            raise Refusal(400, f"format={said[:40]!a}: there are {', '.join(FORMATS)}")
        return said
    accepted = [part.partition(";")[0].strip().lower() for part in request.headers.get("Accept", "").split(",")]
    found = [format for one in accepted for format, kind in FORMATS.items() if kind == one]
    return found[0] if found else "json"
