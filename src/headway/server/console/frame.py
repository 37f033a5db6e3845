"""The frame: all that the board shows at one moment. It is made once a period, and encoded once, for all consoles."""

from __future__ import annotations

import time
from collections import Counter, deque
from itertools import islice

import msgspec

from headway import __version__
from headway.core.consumer import Feed, Shares
from headway.core.policy import VerdictBook
from headway.core.telemetry import stats
from headway.server.console.lateness import RecentLateness
from headway.server.console.names import Known, cut
from headway.server.console.rows import ConsumerRow, DeedRow, LaneRow, consumer_row, deed_row, lane_row, name_in
from headway.server.console.walk import AGES_S, LOOKS, ROWS_A_TURN, Walk
from headway.server.engine import Engine
from headway.server.loop import memory_rss_bytes

LANES_MAX = 60
DEEDS_MAX = 20
RATES_OVER_S = 5.0
LATELY_S = 600.0
CUTS_MAX = 8
HOLDUPS_LOOKED_AT = 256
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
            away=walk.states["away"], paused=paused(engine),
            band=Band(max(0, consumers - troubled), AGES_S, walk.ages, max(1, consumers / LOOKS) * period_s),
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


def paused(engine: Engine) -> int:
    """Returns how many publishers are held back, about: one may be held back for two reasons."""
    return sum(len(those) for those in islice(engine.broker.registry.paused.values(), HOLDUPS_LOOKED_AT))
