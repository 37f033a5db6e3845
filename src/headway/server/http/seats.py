"""Seats: so many requests of one kind are answered at once, and others are refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headway.server.http.bodies import Refusal


class Seats:
    def __init__(self, most: int, taken: str) -> None:
        """``taken`` says what is done at all of them, as in ``16 others are searching already``."""
        self._most = most
        self._refusal = f"{most} {taken} already; try again later"
        self.taken = 0

    @contextmanager
    def seat(self) -> Iterator[None]:
        """Takes a seat until the block ends. Raises Refusal if there is none."""
        if self.taken >= self._most:
            raise Refusal(503, self._refusal)
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1
