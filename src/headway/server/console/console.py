"""The console: the broker looked at by people, live, in a browser, at the admin address.

Its parts: a walk looks at consumers, of which a frame is made for all consoles (frame.py, feed.py), and of
which the last hour is kept (hour.py). The page and its modules are files (pages.py). What operators do to consumers is
in consumers.py. All of it is for who may read at the admin API; moves are for who may change.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec
from aiohttp import web

from headway.server.console import pages
from headway.server.console.consumers import Consumers, Moves
from headway.server.console.feed import Feed
from headway.server.console.frame import LOOKS_A_TURN, FrameMaker, RecentLateness, Walk
from headway.server.console.hour import CONSUMERS_MAX, EVERY_S, Hour, Terms
from headway.server.console.replay import replay
from headway.server.console.reports import Reports
from headway.server.console.rows import Known, cut, name_of, now_of
from headway.server.engine import Engine
from headway.server.http import USER, AskedConfigs, json_answer
from headway.server.loop import memory_rss_bytes
from headway.store.toml import policy_text

log = logging.getLogger("headway")

STATES_MAX = 200


class Console:
    def __init__(self, engine: Engine, may_change: Callable[[web.Request], bool], asked: AskedConfigs) -> None:
        self._engine = engine
        self._may_change = may_change
        self._asked = asked
        self._known = Known()
        self._walk = Walk(engine)
        self._maker = FrameMaker(engine, self._walk, self._known)
        self.feed = Feed(engine, self._maker.make)
        self.hour = Hour(engine.broker.registry.pools[""])
        self._consumers = Consumers(engine, self._known, self.hour)
        self._moves = Moves(engine, self._consumers)
        self._reports = Reports(engine)
        self._lateness = RecentLateness(engine.pulse)
        self._hour_s = -EVERY_S
        self._totals_s, self._totals = 0.0, (0, 0, 0, 0)
        self._task: asyncio.Task[None] | None = None

    def routes(self) -> list[web.RouteDef]:
        return [
            *pages.routes(), web.get("/v1/console/events", self.feed.answer), web.get("/v1/console/hour", self._whole),
            web.get("/v1/console/me", self._me), *self._consumers.routes(), *self._moves.routes(),
            web.get("/v1/console/states", self._states), web.get("/v1/console/policies", self._policies),
            web.post("/v1/console/replay", self._replay), *self._reports.routes(),
        ]  # fmt: skip

    def start(self) -> None:
        self._task = self._engine.loop.create_task(self._look_on())

    async def stop(self) -> None:
        self.feed.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.hour.close()

    def stats(self) -> dict[str, Any]:
        """Returns figures of the consoles, which are consumers, too."""
        walk = self._walk
        return {
            "consoles": self.feed.stats(), "frames": self.feed.made, "looks": walk.looks,
            "looks_a_turn_most": walk.looks_a_turn_most, "looks_a_turn_limit": LOOKS_A_TURN,
            "hour_bytes": self.hour.bytes,
        }  # fmt: skip

    # -- looking ----------------------------------------------------------------------------------------------------

    async def _look_on(self) -> None:
        while True:
            try:
                await self._engine.pulse.steps("admin", self._round(), "the console")
            except Exception:  # a consumer that cannot be looked at must not take the console away for good
                log.exception("console: a look at the broker failed; the next one follows in %g s", EVERY_S)
                await asyncio.sleep(EVERY_S)
            await (asyncio.sleep(self.feed.period_s) if self.feed.wanted else self.feed.rest(EVERY_S))

    async def _round(self) -> None:
        await self._walk.round()
        now = self._engine.now()
        if now - self._hour_s >= EVERY_S - self.feed.period_s / 2:
            self._hour_s = now
            await self._sample(now)
        if self.feed.wanted:
            await self.feed.tell()

    async def _sample(self, now: float) -> None:
        """Adds a sample to the last hour."""
        engine, wall_s = self._engine, time.time()
        registry = engine.broker.registry
        totals, pools = registry.totals, registry.distinct_pools()
        seen = (totals.published_records, totals.published_bytes, totals.delivered_records, totals.delivered_bytes)
        span_s = max(1e-9, now - self._totals_s) if self._totals_s else float("inf")
        self._lateness.look()
        self.hour.broker.add(wall_s, (
            *((new - old) / span_s for new, old in zip(seen, self._totals, strict=True)),
            totals.subscriptions, totals.slow, registry.backpressure.publishers,
            sum(pool.memory_bytes for pool in pools), sum(pool.disk_bytes for pool in pools), memory_rss_bytes(),
            self._lateness.p99_s, self._lateness.most_s,
        ))  # fmt: skip
        self._totals_s, self._totals = now, seen
        for number, one in enumerate(self._walk.worst[:CONSUMERS_MAX], 1):
            if not one.ended and not one.gone and one.session.connected:
                self.hour.add(name_of(one), wall_s, now_of(engine, one, {}), Terms.of(one))
            if number % LOOKS_A_TURN == 0:
                await self._walk.pause()
        self.hour.tidy(wall_s)

    # -- requests ---------------------------------------------------------------------------------------------------

    async def _me(self, request: web.Request) -> web.Response:
        """Tells a console who it is, and whether it may change anything."""
        return json_answer({"user": request[USER], "may_change": self._may_change(request)})

    async def _states(self, _: web.Request) -> web.Response:
        """Lists the states of the configuration: the latest record per key of some topics."""
        declared = (state for state in self._engine.broker.registry.router.states if state.declared)
        return json_answer([
            {"filter": cut(state.filter), "key": state.key.text, "records": len(state), "bytes": state.bytes,
             "readers": state.readers} for state in islice(declared, STATES_MAX)
        ])  # fmt: skip

    async def _policies(self, _: web.Request) -> web.Response:
        """Returns the policies as the config has them, as TOML, without the rest of the config."""
        settings = self._engine.settings
        written = msgspec.json.decode(settings.policies_text)["policy"]
        return json_answer({"text": policy_text(written), "source": str(settings.source or "")})

    async def _replay(self, request: web.Request) -> web.Response:
        """Says whom other policies would have hit in the last hour."""
        async with self._asked.policies(request) as policies:
            return json_answer(await replay(self.hour, self._known, policies))

    async def _whole(self, _: web.Request) -> web.Response:
        return json_answer(self.hour.broker.as_columns())
