"""The frame: all that the board shows at one moment. It is made once a period, and encoded once, for all consoles."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator
from heapq import nlargest
from itertools import islice

import msgspec

from headway import __version__
from headway.core.consumer import Feed, Shares, Subscription
from headway.core.governance import state_of
from headway.core.policy import VerdictBook
from headway.core.telemetry import stats
from headway.server.console.rows import (
    ConsumerRow,
    DeedRow,
    Known,
    LaneRow,
    consumer_row,
    cut,
    deed_row,
    lane_row,
    name_in,
)
from headway.server.engine import Engine
from headway.server.loop import BOUNDS_S, Pulse, memory_rss_bytes

# -- walk --------------------------------------------------------------------------------------------------------------
#
# The walk looks at consumers for the console: the troubled ones, and a part of the crowd.
#
# Theory of operation. What is wrong is on the governor's watchlist, which it keeps in the order of its looks. A round
# looks at the first ``LOOKS`` of them, beside the worst of the last round, and keeps the ``ROWS_MAX`` worst. So the
# worst of any number are found within a few rounds, and a round costs the same for ten consumers in trouble as for ten
# thousand. Then the round goes on through the crowd of all consumers where the last one stopped, ``LOOKS`` further, and
# counts how old is what waits for them. That brings the totals of what was delivered up to date, too.
#
# Rules:
# - One turn of the loop looks at no more than ``LOOKS_A_TURN`` consumers, or takes ``ROWS_A_TURN`` full rows.
# - The whole round is made once, for all consoles.


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


# -- lateness ----------------------------------------------------------------------------------------------------------
#
# Recent lateness: how late the loop was, which everybody feels, in the probes between two looks at the pulse.


class RecentLateness:
    """Reads the pulse's histogram. It has bounds, so a share of it is known as the bound that it lies below."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self._before = list(pulse.counts)
        self.p99_s = self.most_s = 0.0
        """99 of 100 probes, and all of them, were late by less; above the last bound: the longest lateness ever."""

    def look(self) -> None:
        """Takes in the probes since the last look."""
        counts = self._pulse.counts
        fresh = [now - before for now, before in zip(counts, self._before, strict=True)]
        self._before = list(counts)
        total = sum(fresh)
        if not total:
            return
        seen, self.p99_s = 0, -1.0
        for count, bound_s in zip(fresh, (*BOUNDS_S, self._pulse.longest_s), strict=True):
            seen += count
            if count:
                self.most_s = bound_s
            if self.p99_s < 0 and seen * 100 >= total * 99:
                self.p99_s = bound_s


# -- frame -------------------------------------------------------------------------------------------------------------


LANES_MAX = 60
DEEDS_MAX = 20
RATES_OVER_S = 5.0
LATELY_S = 600.0
CUTS_MAX = 8
_TOTALS = ("published_records", "published_bytes", "delivered_records", "delivered_bytes")


class Rates(msgspec.Struct, frozen=True):
    """A second, over the last few seconds."""

    in_records: float = 0.0
    in_bytes: float = 0.0
    out_records: float = 0.0
    out_bytes: float = 0.0


class Band(msgspec.Struct, frozen=True):
    """The consumers that are in no trouble, as one."""

    consumers: int
    bounds_s: tuple[float, ...]
    ages: list[int]
    """How many consumers have waited for less than each bound, and how many for longer: all of them, as of the last
    walk through the crowd."""
    walk_s: float
    """The time that a walk through all consumers takes, about."""


class Frame(msgspec.Struct, frozen=True):
    number: int
    wall_s: float
    version: str
    name: str
    uptime_s: float
    rates: Rates
    sessions: int
    consumers: int
    slow: int
    troubled: int
    complete: bool
    """Whether all consumers in trouble were looked at; else ``troubled`` is the number of those who may be."""
    away: int
    """Consumers for whom records wait while their clients are away."""
    paused: int
    """Publishers that are held back."""
    band: Band
    lanes: list[LaneRow]
    rows: list[ConsumerRow]
    pools: list[stats.PoolStats]
    rss_bytes: int
    late_p99_s: float
    late_most_s: float
    verdicts: int
    deeds: list[DeedRow]
    """The latest verdicts, the newest first."""
    cuts: list[str]
    """Clients of whom a verdict has ended something in the last ``LATELY_S``, the latest first."""
    consoles: int
    period_s: float


class FrameMaker:
    def __init__(self, engine: Engine, walk: Walk, known: Known) -> None:
        self._engine = engine
        self._walk = walk
        self._known = known
        self._lateness = RecentLateness(engine.pulse)
        self._totals: deque[tuple[float, tuple[int, ...]]] = deque()
        self.made = 0

    async def make(self, consoles: int, period_s: float) -> bytes:
        """Returns the frame as of the walk's last round, encoded."""
        engine, walk = self._engine, self._walk
        lanes = self._lanes()
        index = {feed: number for number, feed in enumerate(lanes)}
        rows, shares = list[ConsumerRow](), Shares()
        for one in walk.worst:
            if not one.ended and not one.gone:
                rows.append(consumer_row(engine, one, index.get(one.feed, -1), self._known, shares))
            if len(rows) % ROWS_A_TURN == 0:
                await walk.pause()
                shares = {}  # lanes move on meanwhile
        registry, book = engine.broker.registry, engine.broker.verdicts
        shown = Counter(row.lane for row in rows)
        self._lateness.look()
        self.made += 1
        consumers, troubled = registry.totals.subscriptions, walk.troubled
        deeds = [deed_row(one, self._known.key(name_in(one))) for one in islice(reversed(book.latest), DEEDS_MAX)]
        return msgspec.json.encode(Frame(
            number=self.made, wall_s=round(time.time(), 2), version=__version__, name=cut(engine.settings.server.name),
            uptime_s=round(engine.now() - engine.started_s, 1), rates=self._rates(), sessions=len(registry.sessions),
            consumers=consumers, slow=registry.totals.slow, troubled=troubled, complete=walk.complete,
            away=walk.away, paused=engine.broker.registry.backpressure.publishers,
            band=Band(
                max(0, consumers - troubled - walk.away), AGES_S, walk.ages, max(1, consumers / LOOKS) * period_s
            ),
            lanes=[lane_row(feed, shown[number]) for feed, number in index.items()], rows=rows,
            pools=[stats.pool(one) for one in registry.distinct_pools()], rss_bytes=memory_rss_bytes(),
            late_p99_s=round(self._lateness.p99_s, 4), late_most_s=round(self._lateness.most_s, 4),
            verdicts=book.made, deeds=deeds, cuts=_cuts(book, engine.now()), consoles=consoles, period_s=period_s,
        ))  # fmt: skip

    def _lanes(self) -> list[Feed]:
        """Returns the lanes that the frame shows: those of the worst consumers, and those with the most readers."""
        those = dict.fromkeys(one.feed for one in self._walk.worst if not one.ended)
        those |= dict.fromkeys(feed for feed in self._walk.large if feed.subscriptions or feed.queues)
        return list(islice(those, LANES_MAX))

    def _rates(self) -> Rates:
        now, totals = self._engine.now(), self._engine.broker.registry.totals
        seen = tuple(getattr(totals, name) for name in _TOTALS)
        self._totals.append((now, seen))
        while len(self._totals) > 2 and now - self._totals[1][0] >= RATES_OVER_S:
            self._totals.popleft()
        then, before = self._totals[0]
        return Rates(*(round((new - old) / (now - then), 1) for new, old in zip(seen, before, strict=True))) \
            if now > then else Rates()


def _cuts(book: VerdictBook, now: float) -> list[str]:
    lately = (cut(one.client) for one in reversed(book.cuts) if now - one.time_s < LATELY_S)
    return list(islice(dict.fromkeys(lately), CUTS_MAX))
