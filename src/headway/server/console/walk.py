"""The walk looks at consumers for the console: the troubled ones, and a part of the crowd.

Theory of operation. What is wrong is on the governor's watchlist, which it keeps in the order of its looks. A round
looks at the first ``LOOKS`` of them, beside the worst of the last round, and keeps the ``ROWS_MAX`` worst. So the worst
of any number are found within a few rounds, and a round costs the same for ten consumers in trouble as for ten
thousand. Then the round goes on through the crowd of all consumers where the last one stopped, ``LOOKS`` further, and
counts how old is what waits for them. That brings the totals of what was delivered up to date, too.

Rules:
- One turn of the loop looks at no more than ``LOOKS_A_TURN`` consumers, or takes ``ROWS_A_TURN`` full rows.
- The whole round is made once, for all consoles.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from heapq import nlargest
from itertools import islice

from headway.core.consumer import Feed, Subscription
from headway.core.governance import state_of
from headway.core.telemetry import stats
from headway.server.engine import Engine

LOOKS = 1024
"""Consumers of either kind that one round looks at."""
LOOKS_A_TURN = 128
ROWS_A_TURN = 8
ROWS_MAX = 200
TROUBLED_S = 1.0
"""A consumer for whom records have waited so long is in trouble, also while no rule has fired."""
AGES_S = (0.01, 0.1, 1.0, 10.0)
"""Bounds of the histogram of ages."""
FEEDS_MAX = 4096
"""Lanes of the crowd that are counted."""
LARGE_FEEDS = 12

Badness = tuple[bool, bool, float, int]


class Walk:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._registry = engine.broker.registry
        self.looks = 0
        self.looks_a_turn_most = 0
        """The most consumers that a turn has looked at so far."""
        self._this_turn = 0
        self.worst: list[Subscription] = []
        """The consumers in the most trouble, the worst first."""
        self.troubled = 0
        """The number of those found in trouble in the last round, beyond the worst, too."""
        self.away = 0
        """The number of those found whose clients are away while records wait for them. They are in no trouble."""
        self.complete = True
        """Whether the last round looked at all who are watched."""
        self.ages = [0] * (len(AGES_S) + 1)
        """The consumers of the last whole walk through the crowd, by the age of what waits for them."""
        self.large: list[Feed] = []
        """The lanes with the most readers."""
        self._walked = False
        """The crowd was walked through at least once."""
        self._crowd: Iterator[Subscription | None] | None = None
        self._ages = [0] * (len(AGES_S) + 1)
        self._feeds: Counter[Feed] = Counter()

    # -- budget -----------------------------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Lets the loop go on: a new turn."""
        self._this_turn = 0
        await asyncio.sleep(0)

    def _look(self) -> bool:
        """Counts a look. Returns whether the turn is over."""
        self.looks += 1
        self._this_turn += 1
        self.looks_a_turn_most = max(self.looks_a_turn_most, self._this_turn)
        return self._this_turn >= LOOKS_A_TURN

    # -- a round ----------------------------------------------------------------------------------------------------

    async def round(self) -> None:
        self._this_turn = 0
        await self._find_worst()
        await self._go_on()

    async def _find_worst(self) -> None:
        watched = self._registry.watched
        candidates = dict.fromkeys(self.worst) | dict.fromkeys(islice(watched, LOOKS))
        self.complete = len(watched) <= LOOKS
        found: list[tuple[Badness, Subscription]] = []
        for one in candidates:
            if one.ended or one.gone:
                continue
            bad = badness(one, self._engine.now())
            if bad is not None:
                found.append((bad, one))
            if self._look():
                await self.pause()
        self.away = sum(not bad[0] for bad, _ in found)
        self.troubled = (len(found) if self.complete else max(len(found), len(watched))) - self.away
        self.worst = [one for _, one in nlargest(ROWS_MAX, found, key=lambda pair: pair[0])]

    async def _go_on(self) -> None:
        """Looks at the next part of the crowd."""
        if self._crowd is None:
            self._crowd = stats.each_consumer(list(self._registry.sessions.values()))
        now, looked = self._engine.now(), 0
        for one in islice(self._crowd, LOOKS):
            looked += 1
            if one is not None and not one.ended:
                self._count(one, now)
            if self._look():
                await self.pause()
                now = self._engine.now()
        if looked < LOOKS:
            self._close()
        elif not self._walked:
            self._tell()  # better a part of them than nobody

    def _count(self, one: Subscription, now: float) -> None:
        self._registry.totals.count(one)
        self._ages[bisect_left(AGES_S, one.lag_age_s(now))] += 1
        if len(self._feeds) < FEEDS_MAX or one.feed in self._feeds:
            self._feeds[one.feed] += 1

    def _close(self) -> None:
        """Ends a walk through the crowd."""
        self._tell()
        self._walked = True
        self._crowd, self._ages, self._feeds = None, [0] * len(self._ages), Counter()

    def _tell(self) -> None:
        self.ages = list(self._ages)
        self.large = [feed for feed, _ in self._feeds.most_common(LARGE_FEEDS)]


def badness(one: Subscription, now: float) -> Badness | None:
    """Returns how bad it is, so that the worst is the greatest; None: the consumer is in no trouble. Whoever is away
    comes last, however much waits for it."""
    age_s = one.lag_age_s(now)
    moved = state_of(one) in ("conflating", "discarding", "offline") and one.conflation.every_s is None
    live = one.feed.live is not None
    if not (one.case.slow or age_s >= TROUBLED_S or (moved and not live)):
        return None
    return one.session.connected, one.case.slow, age_s, one.lag_bytes
