"""Seats: so many requests of one kind are answered at once, half of them of one client, and others are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from headway.server.http.access import USER, address_of
from headway.server.http.bodies import Refusal


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
