"""Readers of the changes of a view: asynchronous iterators, each with a bounded queue of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from headway.client.change_queue import ChangeQueue
from headway.client.changes import Change
from headway.client.image import Changes


class ChangeReader:
    """``async for change in view.changes()``. It ends with the view."""

    def __init__(self, queue: ChangeQueue, on_room: Callable[[], None]) -> None:
        self._queue = queue
        self._on_room = on_room
        self._wake = asyncio.Event()
        self._closed = False

    @property
    def room(self) -> int | None:
        """Returns how many changes it takes; None: it is closed, and nobody waits for it."""
        return None if self._closed else self._queue.room

    def add(self, changes: Changes) -> None:
        self._queue.add(changes)
        self._wake.set()

    def close(self) -> None:
        """Ends the iteration, once it has read what is queued."""
        self._closed = True
        self._wake.set()

    async def some(self, count: int) -> list[Change]:
        """Returns the next changes, at most so many, and waits for the first; none if there are no more to come."""
        while not len(self._queue):
            if self._closed:
                return []
            self._wake.clear()
            await self._wake.wait()
        taken = [change for _ in range(min(count, len(self._queue))) if (change := self._queue.take()) is not None]
        if self._queue.roomy:
            self._on_room()
        return taken

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        for change in await self.some(1):
            return change
        raise StopAsyncIteration
