"""The queue between an image and a reader of its changes.

It holds ``max_queued`` changes. While it is full the view reads nothing from the broker, so what is not read waits
there, where policies judge it. With ``conflate`` a change takes the place of an earlier one of its key, so a slow
reader skips changes of keys that change often, and the view stops reading only if so many *keys* have changed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Self

import msgspec

from headway.client.changes import Change, Current, Delete, Gap, OutOfFocus, Put, Stale
from headway.client.image import Changes

# -- change queue ------------------------------------------------------------------------------------------------------


class ChangeQueue:
    def __init__(self, max_queued: int, *, conflate: bool) -> None:
        self.max_queued = max_queued
        self.conflate = conflate
        self._queued: dict[object, Change] = {}
        """The changes by what they are about, in order; by a number if none may take the place of another."""
        self._numbers = 0
        self._more: deque[Iterator[Change]] = deque()
        """Changes that have no room yet. Those of a new snapshot are made only when they are read."""

    def __len__(self) -> int:
        return len(self._queued)

    @property
    def full(self) -> bool:
        """Tells whether the view should read no more."""
        return bool(self._more) or len(self._queued) >= self.max_queued

    @property
    def room(self) -> int:
        """Returns how many changes it takes before it is full."""
        return 0 if self._more else max(0, self.max_queued - len(self._queued))

    @property
    def roomy(self) -> bool:
        """Tells whether the view should read again."""
        return not self._more and len(self._queued) <= self.max_queued // 2

    def add(self, changes: Changes) -> None:
        """Adds changes, as many as there is room for; the rest when there is."""
        self._more.append(iter(changes))
        self._fill()

    def take(self) -> Change | None:
        """Removes and returns the oldest change; None if there is none."""
        if not self._queued:
            return None
        change = self._queued.pop(next(iter(self._queued)))
        self._fill()
        return change

    def _fill(self) -> None:
        while self._more and len(self._queued) < self.max_queued:
            change = next(self._more[0], None)
            if change is None:
                self._more.popleft()
            else:
                self._put(change)

    def _put(self, change: Change) -> None:
        about = self._about(change)
        before = self._queued.get(about)
        if before is None or not isinstance(before, Put | Delete | OutOfFocus):
            self._queued.pop(about, None)
            self._queued[about] = change
            return
        merged = _merged(before, change)
        if merged is None:
            del self._queued[about]
        else:
            self._queued[about] = merged

    def _about(self, change: Change) -> object:
        if isinstance(change, Stale | Current):
            return Stale  # the later one says how it is now
        if self.conflate and not isinstance(change, Gap):
            return change.key
        self._numbers += 1
        return self._numbers


def _merged(first: Change, then: Change) -> Change | None:
    """Returns one change in the place of two of a key; None if they undo each other."""
    assert isinstance(first, Put | Delete | OutOfFocus)
    assert isinstance(then, Put | Delete | OutOfFocus)
    before = first.before
    if isinstance(then, Put):
        return Put(then.key, then.entry, before)
    return None if before is None else msgspec.structs.replace(then, before=before)


# -- change reader -----------------------------------------------------------------------------------------------------
#
# Readers of the changes of a view: asynchronous iterators, each with a bounded queue of its own.


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
