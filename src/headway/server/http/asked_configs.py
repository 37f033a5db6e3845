"""Configs that are asked about: whom would their policies hit?

Theory of operation. Who may only look may ask, and with any text. So a config is read in a thread, as at a reload,
while the loop goes on; and one question is answered after the other, so that very many take no more than one of them.
The files that it names stay closed: their errors would tell what is in them.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from time import perf_counter, sleep

from aiohttp import web

from headway.core.base import ConfigError
from headway.core.policy import Policy
from headway.server.config import parse_settings
from headway.server.http.access import USER, address_of
from headway.server.http.bodies import Refusal, charset_of, read_body, text_of

# -- seats -------------------------------------------------------------------------------------------------------------
#
# Seats: so many requests of one kind are answered at once, half of them of one client, and others are refused.


def asker_of(request: web.Request) -> str:
    """Returns who shares limits with whom: a user, or an address where nobody is logged in."""
    return f"user {request[USER]}" if request.get(USER) else f"address {address_of(request)}"


class Seats:
    """Requests take a seat when their bodies are there: who sends one slowly keeps nobody out."""

    def __init__(self, most: int, taken: str) -> None:
        """``taken`` says what is done at all of them, as in ``16 searches are under way already``."""
        self._most = most
        self._each = (most + 1) // 2
        self._what = taken
        self._clients: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        return self._clients.total()

    @contextmanager
    def seat(self, request: web.Request) -> Iterator[None]:
        """Takes a seat until the block ends. Raises Refusal if there is none, or if its client has half of them."""
        client = asker_of(request)
        if self.taken >= self._most:
            raise Refusal(503, f"{self._most} {self._what} already; try again later")
        if self._clients[client] >= self._each:
            text = f"{self._each} {self._what} for {client} already, and the rest is for others; try again later"
            raise Refusal(503, text)
        self._clients[client] += 1
        try:
            yield
        finally:
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]


# -- asked configs -----------------------------------------------------------------------------------------------------


TEXT_BYTES_MAX = 256 * 1024
WAITING_MAX = 16
WORK_S, REST_S = 0.001, 0.005
"""A config is read for so long at a time; in between others have the interpreter's lock without asking for it."""
ERRORS_MAX = 100
"""Mistakes that are told: each key may be one."""


def work_of_choosing(policies: Sequence[Policy]) -> int:
    """Returns how many comparisons find a consumer's policy among these, at most."""
    return sum(1 + len(policy.topics) for policy in policies)


class AskedConfigs:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._turn = asyncio.Lock()
        self._seats = Seats(WAITING_MAX, "configs are being asked about")

    @asynccontextmanager
    async def policies(self, request: web.Request) -> AsyncIterator[tuple[Policy, ...]]:
        """Yields the policies of the config in a request, when it is its turn, which ends with the block. Raises
        Refusal."""
        charset = charset_of(request)
        raw = await read_body(request, TEXT_BYTES_MAX)
        with self._seats.seat(request):
            async with self._turn:
                yield await self._loop.run_in_executor(None, _policies, raw, charset)


def _policies(raw: bytearray, charset: str) -> tuple[Policy, ...]:
    """Runs in a worker thread. Raises Refusal."""
    try:
        with _giving_way():
            return parse_settings(text_of(raw, charset), reads_files=False).policies
    except ConfigError as error:
        lines = str(error).split("\n")
        more = [f"and {len(lines) - ERRORS_MAX:,} more"] if len(lines) > ERRORS_MAX else []
        raise Refusal(400, "\n".join(lines[:ERRORS_MAX] + more)) from None


@contextmanager
def _giving_way() -> Iterator[None]:
    """Has this thread rest most of the time. The interpreter gives its lock to a busy thread at each call of the system
    that the loop makes, and on a machine whose processors are busy the loop has it back some milliseconds later."""
    until_s = perf_counter() + WORK_S

    def look(*_: object) -> None:
        nonlocal until_s
        if perf_counter() > until_s:
            sleep(REST_S)
            until_s = perf_counter() + WORK_S

    sys.setprofile(look)  # called at each call of a function, in this thread only
    try:
        yield
    finally:
        sys.setprofile(None)
