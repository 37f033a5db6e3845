"""The desk: a view of the delayed flights whose reader looks away until it was cut.

It has as a program what the board shows in a page (``headway.client.View``). After a while it reads no changes, so the
view reads nothing either, and a policy of the broker cuts it. When the demo says ``go``, as it does once the desk is
gone, it reads on, and the view becomes current again by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from demo.actors.actor import REPORT_EVERY_S, Orders, main, say
from demo.board import FILTER, KEY, LATE
from demo.cast import Role
from demo.reports import ActorReport
from headway.client import Change, Current, Delete, OutOfFocus, Put, Stale, View, ViewError

STALE_AFTER = "2s"
MAX_QUEUED = 100
AT_ONCE = 1000
TURN_S = 0.05
LAST_S = 5.0
"""For so long, at the end, it waits for what is still under way."""


class Desk:
    def __init__(self, part: Role, orders: Orders) -> None:
        self.part = part
        self.orders = orders
        self.report = ActorReport("live")
        self._since_s = 0.0
        """When it began to read."""
        self._on_s: float | None = None
        """When it read on."""
        self._told_s = 0.0

    async def run(self) -> None:
        place = f"mqtt://{self.part.host}:{self.part.port}"
        view = View(place, FILTER, key=KEY, selector=LATE, policy=self.part.policy, client_id=self.part.name,
                    max_queued=MAX_QUEUED, stale_after=STALE_AFTER)  # fmt: skip
        try:
            async with view:
                say(ActorReport("ready"))
                await self._follow(view)
        except ViewError as error:
            say(ActorReport("failed", f"{self.part.name}: {error}"))

    async def _follow(self, view: View) -> None:
        changes = view.changes()
        while not self.orders.stop.is_set():
            if self._looks_away():
                await asyncio.sleep(TURN_S)
            else:
                await self._read(changes.some(AT_ONCE))
            self._look(view)
        stopped_s = time.monotonic()
        while not (view.current and view.stale_s < time.monotonic() - stopped_s):  # all that was published is in it
            if time.monotonic() > stopped_s + LAST_S:
                break
            await self._read(changes.some(AT_ONCE))
        self.report.kind = "done"
        self.report.image = {f"{key.topic} {key.key}": entry.offset for key, entry in view.copy().items()}
        say(self.report)

    def _looks_away(self) -> bool:
        now = time.monotonic()
        if not self._since_s or now - self._since_s < self.part.seconds:
            return False
        if not self.orders.go.is_set():
            return True
        self._on_s = self._on_s or now
        return False

    async def _read(self, some: Coroutine[Any, Any, list[Change]]) -> None:
        """Reads what has changed. Then it rests for a turn, so that what comes meanwhile is read at once."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TURN_S):
                for change in await some:
                    self._note(change)
        await asyncio.sleep(TURN_S)

    def _note(self, change: Change) -> None:
        report = self.report
        if isinstance(change, Put | Delete | OutOfFocus):
            self._since_s = self._since_s or time.monotonic()
            report.records += 1
        elif isinstance(change, Stale):
            report.told.append(change.why)
        elif isinstance(change, Current) and self._on_s is not None and not report.back_s:
            report.back_s = time.monotonic() - self._on_s

    def _look(self, view: View) -> None:
        now = time.monotonic()
        report = self.report
        report.stale_s = view.stale_s
        report.oldest_s = max(report.oldest_s, view.stale_s)
        if now - self._told_s >= REPORT_EVERY_S:
            self._told_s = now
            report.total = len(view)
            report.text = view.why_stale
            say(report)


if __name__ == "__main__":
    main(lambda part, orders: asyncio.run(Desk(part, orders).run()))
