"""The feed: the board's frames, to all consoles, as server-sent events.

Theory of operation. A frame is made and encoded once a period, and all consoles are given the same bytes. A console is
a consumer, too, and a conflated one: as long as its transport has not taken all of its last frame it gets no other, and
then the newest. So a console that does not read costs the memory of one frame, which counts in the global pool, is
counted itself (``skipped``), and is cut when it has taken nothing for ``STUCK_S``, with a verdict as on any consumer.
Without consoles no frames are made, and the broker is looked at less often, for the last hour.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from headway.core.base import Reason, format_duration, format_size
from headway.core.log import Tab
from headway.core.policy import Action, ActionKind, DecisionKind, Sample, Verdict, explain_cause, find_cause
from headway.server.engine import Engine
from headway.server.http import USER, Refusal, abort, address_of, is_gone, unsent_bytes
from headway.server.progress import TcpInfo

# -- unread ------------------------------------------------------------------------------------------------------------
#
# A console that is cut because it does not read: a verdict as on any consumer, made from what its socket tells.


FILTER = "/v1/console/events"
LISTENER = "admin"


def record_cut(engine: Engine, request: web.Request, still_s: float) -> Verdict:
    """Makes the verdict on a console that has taken nothing for so long, and keeps it with all others."""
    sample = _sample(request, still_s)
    book, user = engine.broker.verdicts, request[USER]
    address = address_of(request)
    client = f"console of {user or address}"
    who = f"{user} at {address}" if user else address
    text = (
        f"the console of {who} was disconnected: it has read nothing for {format_duration(still_s)}, and "
        f"{format_size(sample.lag_bytes)} of its last frame are unsent ({explain_cause(sample)})"
    )
    verdict = Verdict(
        number=book.next_number(), time_s=engine.now(), wall_s=time.time(), client=client, filter=FILTER,
        listener=LISTENER, policy="", rule=0, kind=DecisionKind.FIRE, action=Action(ActionKind.DISCONNECT),
        reason=Reason.BLOCKED, cause=find_cause(sample), enforced=True, readings=(), window_s=still_s,
        held_s=still_s, sample=sample, text=text,
    )  # fmt: skip
    book.add(verdict, user)
    return verdict


def _sample(request: web.Request, still_s: float) -> Sample:
    unsent, info = unsent_bytes(request), _info(request.get_extra_info("socket"))
    closed = info is not None and info.window_closed
    return Sample(
        lag_bytes=unsent, lag_age=still_s, blocked_time=still_s, unread_time=still_s, held_bytes=unsent,
        drain_share=0.0, peer_window_closed=closed,
        retransmitting=info is not None and not closed and info.retransmits > 0,
    )  # fmt: skip


def _info(found: socket.socket | None) -> TcpInfo | None:
    """Returns what the kernel knows of a connection; None if it is over, or there is no socket."""
    if found is None:
        return None
    try:
        with socket.socket(fileno=os.dup(found.fileno())) as sock:  # the loop's own socket has no options
            return TcpInfo(sock)
    except OSError:
        return None


# -- feed --------------------------------------------------------------------------------------------------------------


log = logging.getLogger("headway")

PERIOD_S = 1.0
CONSOLES_MAX = 64
CONSOLES_PER_CLIENT = 32
"""Limit of one user, or of one address where nobody is logged in."""
STUCK_S = 60.0
HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Viewer(msgspec.Struct):
    """One console: the frames that it was given, and the number of the last one."""

    name: str
    address: str
    came_at: int
    """The number of the last frame that was made before it came."""
    last: int = 0
    frames: int = 0
    given_s: float = 0.0


class Feed:
    def __init__(self, engine: Engine, make: Callable[[int, float], Awaitable[bytes]]) -> None:
        """``make`` returns the next frame, given the number of consoles and the period."""
        self._engine = engine
        self._make = make
        self.period_s = PERIOD_S
        self.viewers: dict[int, Viewer] = {}
        self._numbers = 0
        self._clients: Counter[str] = Counter()
        self._frame = b""
        self._tab = Tab(engine.broker.registry.pools[""])
        self.made = 0
        self._fresh = asyncio.Event()
        """Set when the next frame is there; each has an event of its own."""
        self._wanted = asyncio.Event()
        self._closed = False

    @property
    def wanted(self) -> bool:
        return bool(self.viewers)

    async def rest(self, seconds: float) -> None:
        """Waits so long, or until the first console comes."""
        self._wanted.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wanted.wait()
        except TimeoutError:
            pass

    async def tell(self) -> None:
        """Makes a frame, and gives it to all consoles that have taken the last one."""
        body = await self._make(len(self.viewers), self.period_s)
        self._frame = b"event: frame\ndata: " + body + b"\n\n"
        self.made += 1
        self._tab.put("consoles", len(self._frame) * (1 + len(self.viewers)))
        self._fresh.set()
        self._fresh = asyncio.Event()

    def close(self) -> None:
        self._closed = True
        self._fresh.set()

    def stats(self) -> list[dict[str, object]]:
        """Returns how many frames each console was given, and how many it was not, because it was slow; and for how
        long it has been given none of the newer ones (``lag_s``)."""
        now = self._engine.now()
        return [
            {"name": one.name, "address": one.address, "frames": one.frames,
             "skipped": max(0, self.made - one.came_at - one.frames),
             "lag_s": round(now - one.given_s, 3) if one.last < self.made else 0.0}
            for one in self.viewers.values()
        ]  # fmt: skip

    # -- one console --------------------------------------------------------------------------------------------------

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Raises Refusal."""
        client = request[USER] or f"address {address_of(request)}"
        if len(self.viewers) >= CONSOLES_MAX:
            raise Refusal(503, f"there are {CONSOLES_MAX} consoles already; try again later")
        if self._clients[client] >= CONSOLES_PER_CLIENT:
            raise Refusal(429, f"{client} has {CONSOLES_PER_CLIENT} consoles already; close some of them")
        self._numbers += 1
        before = self.made - 1 if self._frame else self.made
        number, now = self._numbers, self._engine.now()
        viewer = Viewer(client, address_of(request), before, last=before, given_s=now)
        self.viewers[number] = viewer
        self._clients[client] += 1
        self._wanted.set()
        response = web.StreamResponse(headers=HEADERS)
        try:
            await response.prepare(request)
            await self._send(request, response, viewer)
        except ConnectionError:
            pass  # the console is gone
        finally:
            del self.viewers[number]
            self._clients[client] -= 1
            self._clients += Counter()  # forgets who has none
            if not self.viewers:
                self._frame = b""
                self._tab.put("consoles", 0)
        return response

    async def _send(self, request: web.Request, response: web.StreamResponse, viewer: Viewer) -> None:
        """Sends frames until the console is gone, or is cut. Raises ConnectionError."""
        while not self._closed and not is_gone(request):
            if viewer.last == self.made:
                await self._fresh.wait()
                continue
            if not unsent_bytes(request):
                if not await self._give(response, viewer):
                    break
            elif self._engine.now() - viewer.given_s < STUCK_S:
                await self._fresh.wait()
            else:
                break
        if not self._closed and not is_gone(request):
            verdict = record_cut(self._engine, request, self._engine.now() - viewer.given_s)
            log.info("%s", verdict.text)
            abort(request)

    async def _give(self, response: web.StreamResponse, viewer: Viewer) -> bool:
        """Gives the newest frame. Returns False if the console does not take it. Raises ConnectionError."""
        viewer.last, viewer.given_s = self.made, self._engine.now()
        viewer.frames += 1
        try:
            async with asyncio.timeout(STUCK_S):
                await response.write(self._frame)
        except TimeoutError:
            return False
        return True
