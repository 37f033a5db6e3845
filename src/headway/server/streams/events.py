"""The state and what changes it, over HTTP: ``GET /v1/state/FILTER`` with ``Accept: text/event-stream``.

Theory of operation. A client is a session with one subscription, as over any protocol: a snapshot with marks, then live
records, from a lane that all clients with the same filter and selector share (wire/event_stream.py). Its outlet has one
piece at a time, and the answer writes it and waits until the client takes it. So a client that does not read is a
lagging consumer of whom policies, limits of pools, verdicts and ``headway top`` know, and costs no more than any other.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count

import msgspec
from aiohttp import web

from headway.core.base import Reason, Refused
from headway.core.consumer import (
    ConnectionlessOutlet,
    ConnectRequest,
    Outlet,
    Pace,
    Session,
    SubscribeRequest,
    SubscriptionOptions,
    Use,
    read_options,
)
from headway.core.log import SpillHandle
from headway.core.message import TOLD_KEY, BadTopic, validate_filter
from headway.core.policy import HTTP_LISTENER
from headway.core.query import NoState, state_of
from headway.core.selector import compile_work
from headway.server.engine import Engine
from headway.server.http import IDENTITY, USER, Refusal, abort, address_of, is_gone, refusal_for
from headway.server.streams.read_right import ReadRight
from headway.wire.event_stream import END, EventStreamDialect, event

# -- event outlet ------------------------------------------------------------------------------------------------------
#
# The outlet of a consumer over server-sent events: one piece at a time, which its HTTP answer writes.
#
# There is no buffer of records for it: while a piece waits for its client, the outlet is blocked, and its records stay
# in the lane, where policies judge the consumer as any other.


PIECE_BYTES = 64 * 1024


class AnswerOutlet(ConnectionlessOutlet):
    """The outlet of a client that an answer is sent to, which writes by itself (state.py)."""

    __slots__ = ("_over",)
    is_one_stream = True

    def __init__(self, now: float, over: Callable[[], object]) -> None:
        """``over`` is called when the session is ended."""
        super().__init__(now)
        self._over = over

    def pace(self, now: float) -> Pace:
        return Outlet.pace(self, now)

    def ended(self, reason: Reason, text: str, rest: bytes | memoryview | None) -> None:
        super().ended(reason, text, rest)
        self._over()


class EventOutlet(AnswerOutlet):
    __slots__ = ("changed", "is_whole", "piece", "rest")

    def __init__(self, now: float, over: Callable[[], object]) -> None:
        super().__init__(now, over)
        self.blocked = False
        self.piece = b""
        """The piece that is to be written next, or that is being written."""
        self.is_whole = True
        """The last piece ended with the end of an event."""
        self.rest: bytes | None = b""
        """The rest of a half-sent event, when the broker has ended the session; None: it cannot be had."""
        self.changed = asyncio.Event()
        """Set when there is a piece, or the session is over."""

    def send(self, views: Sequence[bytes | bytearray | memoryview], total: int) -> int:
        if self.piece or self.last_word is not None:
            return 0
        self.piece = b"".join(views)[:PIECE_BYTES]
        self.is_whole = self.piece.endswith(END)
        self.changed.set()
        return len(self.piece)

    def send_file(self, handle: SpillHandle, start: int, count: int) -> int:
        if self.piece:
            return 0
        data = handle.read(start, start + min(count, PIECE_BYTES))
        return self.send([data], len(data))

    def ended(self, reason: Reason, text: str, rest: bytes | memoryview | None) -> None:
        self.rest = None if rest is None else bytes(rest) + self.out  # of what was written one by one, too
        super().ended(reason, text, rest)
        self.changed.set()


# -- events ------------------------------------------------------------------------------------------------------------


log = logging.getLogger("headway")

EVENT_STREAM = "text/event-stream"
PROTOCOL = "http"
STREAMS_MAX = 128
"""Half of the connections that there may be (http/access.py)."""
STREAMS_PER_CLIENT = 32
"""Limit of one user, or of one address where nobody is logged in."""
OPTIONS = (
    "where", "selector", "conflate", "policy", "from", "patience", "out_of_focus", "delta", "order_by", "top", "skip",
    "select", "group_by",
)  # fmt: skip
"""The options of a subscription that make sense here; it has a snapshot with marks."""
SILENCE_S = 15.0
"""A client, and what is between, hears at least so often that the stream is alive: after half of that without an event
comes a comment."""
ID_DIGITS = 20
"""Offsets have no more."""
LOOK_S = 1.0
"""So often it is looked whether a client without events is still there, and may still read."""
LAST_WORD_S = 5.0
"""The time that a client has to take why it was ended."""
COMMENT = b":\n\n"


def wants_events(request: web.Request) -> bool:
    accepted = request.headers.get("Accept", "").split(",")
    return any(part.partition(";")[0].strip().lower() == EVENT_STREAM for part in accepted)


class EventStreams:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._numbers = count(1)
        self._running: Counter[str] = Counter()
        """The streams of each user, or of each address where nobody is logged in."""

    def end(self) -> None:
        """Ends all streams, because the server stops, and tells their clients."""
        engine = self._engine
        for session in list(engine.broker.registry.sessions.values()):
            if isinstance(session.outlet, EventOutlet):
                engine.broker.expel(session, Reason.SHUTDOWN, "the server is shutting down", engine.now())
        engine.turn_soon()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Raises Refusal."""
        if self._running.total() >= STREAMS_MAX:
            raise Refusal(503, f"there are {STREAMS_MAX} event streams already; try again later")
        filter, client = request.match_info["filter"], request[USER] or f"address {address_of(request)}"
        if self._running[client] >= STREAMS_PER_CLIENT:
            raise Refusal(429, f"{client} has {STREAMS_PER_CLIENT} event streams already; close some of them")
        self._running[client] += 1
        try:
            validate_filter(filter)
            right = ReadRight(self._engine, request[IDENTITY], filter)
            wanted = self._wanted(request, filter)
            await self._engine.take_work(compile_work(wanted.options.selector))
            return await self._stream(request, wanted, right)
        except NoState as error:
            raise Refusal(404, str(error)) from None
        except BadTopic as error:
            raise Refusal(400, str(error)) from None
        except Refused as refused:
            raise refusal_for(refused) from None
        finally:
            self._running[client] -= 1
            self._running += Counter()  # forgets who has none

    def _wanted(self, request: web.Request, filter: str) -> SubscribeRequest:
        """Raises Refused, NoState."""
        pairs = [("selector" if name == "where" else name, value) for name, value in request.query.items()]
        for name in request.query:
            if name not in OPTIONS:
                text = f"an event stream has no {name[:40]!a}; it has {', '.join(OPTIONS)}"
                raise Refused(Reason.PROTOCOL_ERROR, text)
        if len({name for name, _ in pairs}) < len(pairs):
            raise Refused(Reason.PROTOCOL_ERROR, "each option once; where and selector are the same")
        key = state_of(self._engine.broker.registry, filter).key.text
        said = {"snapshot": True, "marks": True, "key": key} | read_options(pairs, Use.SUBSCRIPTION, strict=True)
        options, seen = msgspec.convert(said, SubscriptionOptions), request.headers.get("Last-Event-ID", "")
        is_offset = len(seen) <= ID_DIGITS and seen.isascii() and seen.isdecimal()
        if is_offset and not options.live:  # a page, or aggregates, come anew
            options = msgspec.structs.replace(options, start=seen)  # an EventSource repeats its first ``from``, too
        dialect = EventStreamDialect(key if options.select is None else f"property:{TOLD_KEY}")
        return SubscribeRequest(filter, dialect, send_retained="never", options=options)

    async def _stream(self, request: web.Request, wanted: SubscribeRequest, right: ReadRight) -> web.StreamResponse:
        engine = self._engine
        asked = connect_request(engine, request, f"events/{address_of(request)}/{next(self._numbers)}")
        outlet = EventOutlet(engine.now(), lambda: engine.loop.call_later(LAST_WORD_S, abort, request))
        session = engine.broker.connect(asked, outlet, engine.now())
        try:
            engine.broker.subscribe(session, wanted, engine.now())
            engine.turn_soon()
            response = web.StreamResponse(headers={
                "Content-Type": EVENT_STREAM, "Cache-Control": "no-store", "X-Accel-Buffering": "no",
            })  # fmt: skip
            response.enable_chunked_encoding()
            try:
                await response.prepare(request)
                await self._send(request, response, session, outlet, right)
            except ConnectionError:
                pass  # the client is gone
            return response
        finally:
            if session.connected and session.outlet is outlet:
                engine.broker.disconnect(session, outlet, Reason.CLIENT_GONE, engine.now(), will=False)
            engine.turn_soon()

    async def _send(
        self, request: web.Request, response: web.StreamResponse, session: Session, outlet: EventOutlet,
        right: ReadRight,
    ) -> None:  # fmt: skip
        """Sends what the outlet takes, until the client is gone or the session is ended. Raises ConnectionError."""
        said_s = self._engine.now()
        while not is_gone(request):
            outlet.changed.clear()
            if outlet.piece:
                said_s = self._engine.now()
                await response.write(outlet.piece)
                outlet.piece = b""
                if outlet.blocked:
                    self._engine.writable(session)
            elif outlet.last_word is not None:
                await self._end(request, response, outlet, *outlet.last_word)
                return
            elif not await _happens(outlet.changed, LOOK_S) and self._is_silent(outlet, said_s):
                said_s = self._engine.now()
                await response.write(COMMENT)
            try:
                right.check()
            except Refused as refused:
                outlet.ended(refused.reason, str(refused), b"" if outlet.is_whole else None)

    def _is_silent(self, outlet: EventOutlet, said_s: float) -> bool:
        return outlet.is_whole and not outlet.piece and self._engine.now() - said_s > SILENCE_S / 2

    async def _end(
        self, request: web.Request, response: web.StreamResponse, outlet: EventOutlet, reason: Reason, text: str
    ) -> None:
        """Tells the client why it is ended, behind the rest of a half-sent event."""
        log.info("the event stream of %s is over: %s", address_of(request), text)
        if outlet.rest is None:
            abort(request)
            return
        await response.write(outlet.rest + event("closed", {"reason": str(reason), "text": text}))
        await response.write_eof()


def connect_request(engine: Engine, request: web.Request, client: str) -> ConnectRequest:
    """Returns the request by which the client of an answer becomes a session, of this name or a longer one."""
    if client in engine.broker.registry.sessions:  # clients of other protocols choose their names
        client += f"/{secrets.token_hex(8)}"
    identity = request[IDENTITY]
    return ConnectRequest(
        client, HTTP_LISTENER, username=request[USER] or None, protocol=PROTOCOL,
        rights=engine.permissions.rights(identity, ""), allowance=engine.allowances.of(identity),
    )  # fmt: skip


async def _happens(event: asyncio.Event, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            return await event.wait()
    except TimeoutError:
        return False
