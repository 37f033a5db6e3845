"""Listings: tables of consumers, queues and publishers. They are gathered a slice at a time, and the loop goes on
between two slices, so a hundred thousand consumers cause no stall. Requests at the same time share one answer.

A table shows its first ``EACH_MAX`` rows, and the number of all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from heapq import nsmallest
from typing import Any, TypeVar, cast

from headway.core.consumer import Session, Shares, Subscription
from headway.core.queue import Queue, queue_of
from headway.core.telemetry import stats
from headway.server.engine import Engine

EACH_MAX = 1000
"""Rows of one table."""

T = TypeVar("T")
R = TypeVar("R")


class Listings:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._taking: dict[int, asyncio.Task[stats.Census]] = {}

    async def census(self, most: int = 0) -> stats.Census:
        task = self._taking.get(most)
        if task is None:
            task = self._taking[most] = self._engine.loop.create_task(self._take(most))
            task.add_done_callback(lambda _: self._taking.pop(most))
        return await asyncio.shield(task)

    async def _take(self, most: int) -> stats.Census:
        census = stats.Census(self._engine.broker, self._engine.now(), most)
        for _ in census.slices():
            await asyncio.sleep(0)
        return census

    async def whole(self) -> stats.BrokerStats:
        return stats.whole(self._engine.broker, await self.census())

    async def consumers(self, client: str | None = None) -> dict[str, Any]:
        """Returns the consumers with the most lag, or all consumers of one client."""
        broker, now = self._engine.broker, self._engine.now()
        if client is None:
            census = await self.census(EACH_MAX)
            return {"consumers": census.consumers, "total": census.subscriptions}
        theirs = list(broker.registry.subscriptions_of(client).values())
        shares: Shares = {}

        async def row(one: Subscription) -> stats.ConsumerStats | None:
            return None if one.ended else stats.consumer(broker, one, now, shares)

        # The consumers of one slice share what is held; lanes move on meanwhile.
        found = await _first(theirs, row, stats.most_lag_first, between=shares.clear)
        return {"consumers": found, "total": len(theirs)}

    async def publishers(self) -> dict[str, Any]:
        registry, now = self._engine.broker.registry, self._engine.now()

        async def row(one: Session) -> stats.PublisherStats | None:
            return stats.publisher(one, now) if stats.has_published(one) else None

        sessions = [*registry.sessions.values(), *registry.ended_publishers.values()]
        return {"publishers": await _first(sessions, row, lambda one: -one.published_records)}

    async def queues(self) -> dict[str, Any]:
        queues, now = self._engine.broker.registry.router.queues, self._engine.now()

        async def row(one: Queue) -> stats.QueueStats | None:
            return None if one.ended else await _in_turn(stats.queue_in_steps(one, now))

        found = await _first([queue_of(one) for one in queues.values()], row, stats.longest_first)
        return {"queues": found, "total": len(queues)}


async def _in_turn(steps: Generator[None, None, R]) -> R:
    """Returns what the steps return. The loop goes on between two of them."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return cast("R", done.value)
        await asyncio.sleep(0)


async def _first(
    those: Iterable[T], row: Callable[[T], Awaitable[R | None]], order: Callable[[R], Any],
    between: Callable[[], None] = lambda: None,
) -> list[R]:
    """Returns the first rows in an order, without ever holding many more of them. Calls ``between`` where the loop goes
    on between two slices."""
    kept: list[R] = []
    some: list[R] = []
    for number, one in enumerate(those):
        found = await row(one)
        if found is not None:
            some.append(found)
        if number % stats.CLOSE_SLICE == stats.CLOSE_SLICE - 1:
            await asyncio.sleep(0)
            between()
        if len(some) >= EACH_MAX:
            kept, some = nsmallest(EACH_MAX, [*kept, *some], key=order), []
    return nsmallest(EACH_MAX, [*kept, *some], key=order)
