"""The state over HTTP: ``GET /v1/state/FILTER``, the latest record per key as of one offset, a page of it in an order.

Theory of operation. A query goes on in steps of bounded work (core/query/state_query.py), and the loop goes on between
two of them, so a query of a million keys holds up nobody. Orders that somebody asked for a moment ago are kept up to
date, likewise. What is found is sent as soon as there is a chunk of it (state_answer.py), and the next is looked for
when the client has taken that. An answer that cannot be finished is broken off, so it never looks like a whole one.

While its client takes it, an answer is nothing that the core knows of. If the client stands still, it becomes a session
with one subscription, for which the rest of the answer waits: so policies, verdicts and ``headway top`` know of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from itertools import count

import msgspec
from aiohttp import web

from headway.core.base import Reason, Refused
from headway.core.consumer import Session, SubscribeRequest, Subscription, Use, read_options
from headway.core.log import Tab
from headway.core.message import BadTopic, validate_filter
from headway.core.query import PAGE_MAX, NoState, Past, Present, StateQuery, StateRequest, begin_query
from headway.core.selector import compile_work
from headway.server.engine import Engine
from headway.server.http import IDENTITY, Refusal, Seats, abort, address_of, asker_of, is_gone, refusal_for
from headway.server.recorded import NotRecorded
from headway.server.streams.event_outlet import AnswerOutlet
from headway.server.streams.events import EventStreams, connect_request, wants_events
from headway.server.streams.past_states import PastStates
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
from headway.server.streams.state_answer import StateAnswer
from headway.wire.event_stream import EventStreamDialect

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
            await asyncio.sleep(0 if more else KEEP_UP_S)

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
            answer = StateAnswer(query, asked.filter, format, self._engine.broker.registry.wall_offset_s)
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
            for _ in query.prepare():
                await asyncio.sleep(0)
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
            for some in answer.parts() if request.method != "HEAD" else ():
                chunk += some
                if len(chunk) >= CHUNK_BYTES:
                    await reader.write(response, chunk)
                    chunk = bytearray()
                await asyncio.sleep(0)
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
