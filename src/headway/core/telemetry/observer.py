"""The observer writes rows about the broker to the recorder; stats.py has their columns.

Rules:
- *A lagging consumer* gets a row when the governor samples it, if its last row is ``sample_s`` old; so does its lane.
  One more row says that it has caught up.
- *Any other consumer* gets a row every ``idle_s``. A tick writes at most ``ROWS_PER_TICK`` rows, of the consumers whose
  last rows are the oldest, so ten thousand idle consumers do not stall the loop. A new consumer gets its first row at
  the next tick.
- *A consumer that ends* gets a last row with the records that it did not get and the reason for its end.
- The cost of a tick does not grow with the number of consumers. Rows are read from counters that exist anyway
  (stats.py, core/governance/watching.py).

Counters are as of the row's time. The broker's totals are exact while there are at most ``ROWS_PER_TICK`` consumers;
beyond that, each consumer counts as of its last row.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from itertools import islice
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import msgspec

from headway.core.base import Reason
from headway.core.consumer import Feed, Session, Shares, Subscription
from headway.core.governance import SWEEP_S, peek, stall_s, state_of
from headway.core.log import Retained
from headway.core.message import NO_PROPERTIES, Run, sampled_context
from headway.core.policy import Policy, Sample, Verdict, leading
from headway.core.receipts import Trace, TraceSampling
from headway.core.routing import Publishing, Registry, Route
from headway.core.telemetry.stats import TABLES, Histogram, Kind, LakeTable, account

# -- recorder ----------------------------------------------------------------------------------------------------------
#
# The recorder collects rows of the telemetry lake as columns, until a writer takes them.
#
# Rules:
# - Adding a row is cheap and never waits. Numbers go into plain arrays; texts become indexes into the list of distinct
#   texts. So a writer in another thread can use the arrays as they are, without work per row.
# - ``take`` hands over all rows and starts anew; rows handed over are not touched again.
# - The number of rows is bounded. If they are not taken, further rows are dropped and counted.


ROWS_MAX = 100_000
"""About 30 MB. At most a few thousand rows come in a second, however many consumers there are."""
TRANSPOSED_ROWS = 256

_CODES: dict[Kind, str] = {"time": "q", "int": "q", "float": "d", "flag": "b", "text": "i"}


class TextColumn(NamedTuple):
    """A text column: for each row the 32-bit index of its text in ``texts``, the distinct texts."""

    indexes: array[int]
    texts: list[str]


ColumnData: TypeAlias = "array[int] | array[float] | TextColumn"


class RowBatch(NamedTuple):
    """Rows of one table, as columns in the table's order: 64-bit integers and floats, one-byte flags, text columns."""

    table: str
    rows: int
    columns: tuple[ColumnData, ...]


class Recorder:
    def __init__(self, rows_max: int = ROWS_MAX) -> None:
        self._rows_max = rows_max
        self._pages = {name: _TableRows(table) for name, table in TABLES.items()}
        self.rows = 0
        """Rows added since the last ``take``."""
        self.dropped_rows = 0
        """The number of rows dropped since the start, because there was no room."""

    def add(self, table: str, row: tuple[Any, ...]) -> None:
        """Adds a row, its values in the order of the table's columns."""
        if self.rows >= self._rows_max:
            self.dropped_rows += 1
            return
        self.rows += 1
        self._pages[table].add(row)

    def take(self) -> list[RowBatch]:
        """Returns all rows since the last call, one batch for each table that has any."""
        self.rows = 0
        batches = []
        for name, page in self._pages.items():
            if page.rows:
                batches.append(page.batch())
                self._pages[name] = _TableRows(page.table)
        return batches


class _TableRows:
    """The rows of one table so far."""

    def __init__(self, table: LakeTable) -> None:
        self.table = table
        self.rows = 0
        self._fresh: list[tuple[Any, ...]] = []
        """The latest rows. They become columns together, which costs a quarter as much per row."""
        self._columns: list[tuple[array[Any], _TextIndex | None]] = [
            (array(_CODES[column.kind]), _TextIndex() if column.kind == "text" else None) for column in table.columns
        ]

    def add(self, row: tuple[Any, ...]) -> None:
        self.rows += 1
        self._fresh.append(row)
        if len(self._fresh) == TRANSPOSED_ROWS:
            self._transpose()

    def _transpose(self) -> None:
        for (values, index), fresh in zip(self._columns, zip(*self._fresh, strict=True), strict=True):
            values.extend(fresh if index is None else map(index.__getitem__, fresh))
        self._fresh.clear()

    def batch(self) -> RowBatch:
        if self._fresh:
            self._transpose()
        columns = [
            values if index is None else TextColumn(values, [str(text) for text in index])
            for values, index in self._columns
        ]
        return RowBatch(self.table.name, self.rows, tuple(columns))


class _TextIndex(dict[str, int]):
    """Maps each text to its index; new texts get the next index."""

    def __missing__(self, text: str) -> int:
        index = self[text] = len(self)
        return index


# -- traced publishing -------------------------------------------------------------------------------------------------
#
# Publishing where the broker makes traces: a record of a sampled trace is followed by a receipt of the broker's own.
#
# A broker without traces has plain ``Publishing`` instead, so that nothing at all is asked there. Here a run without
# properties costs one comparison. Neighbouring records with one trace context are one batch: its last record is
# followed.


class TracedPublishing(Publishing):
    def __init__(self, registry: Registry, retained: Retained, sampling: TraceSampling) -> None:
        super().__init__(registry, retained)
        self._sampling = sampling

    def _take_part(self, session: Session | None, run: Run, first: int, route: Route, now: float) -> tuple[int, int]:
        done = super()._take_part(session, run, first, route, now)
        if session is not None and (run.properties is not NO_PROPERTIES or run.headers):
            self._follow(session, run, first, route, now)
        return done

    def _follow(self, session: Session, run: Run, first: int, route: Route, now: float) -> None:
        context = sampled_context(run)
        if context is None or not self._sampling.wants(context, now):
            return
        trace = Trace(context, run, session.client, first + len(run) - 1, now)
        registry = self._registry
        if route.wide:
            route.receive()
        registry.router.searched += registry.receipts.follow(
            session, run, route.feeds, route.states, now, trace, self._sampling.wait_s
        )


# -- observer ----------------------------------------------------------------------------------------------------------


ROWS_PER_TICK = 256
TOPICS_MAX = 100
"""The most filters of a queue in a row."""


class _Trail:
    """The last row of one consumer."""

    __slots__ = ("at_s", "drained_bytes", "drained_records", "gap_records", "lagged", "least", "most", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self.begin()
        self.at_s = -inf
        self.lagged = False
        self.drained_records = 0
        self.drained_bytes = 0
        self.gap_records = 0

    def begin(self) -> None:
        """Begins a row."""
        self.most, self.least = (-inf, 0.0), (inf, 0.0)
        """(bytes that waited, when) at the looks since the last row."""

    def look(self, lag_bytes: int, now: float) -> None:
        self.most = max(self.most, (lag_bytes, now), key=itemgetter(0))
        self.least = min(self.least, (lag_bytes, now), key=itemgetter(0))


class _LaneTrail:
    __slots__ = ("at_s", "consumers", "name", "rows")

    def __init__(self, name: str) -> None:
        self.name = name
        self.consumers = 0
        self.rows = 0
        self.at_s = -inf


class LakeObserver:
    """``run`` and ``broker`` are columns of every row. ``wall_offset_s`` is the time since the epoch minus the broker's
    clock, in seconds."""

    def __init__(
        self, registry: Registry, recorder: Recorder, *, run: str, broker: str, wall_offset_s: float = 0.0,
        sample_s: float = 1.0, idle_s: float = 10.0, tick_s: float = SWEEP_S,
    ) -> None:  # fmt: skip
        self._registry = registry
        self._recorder = recorder
        self._run = run
        self._broker = broker
        self._wall_offset_s = wall_offset_s
        self._sample_s = sample_s - tick_s / 2  # looks are never exactly so far apart
        self._idle_s = idle_s
        self._trails: OrderedDict[Subscription, _Trail] = OrderedDict()
        """All consumers, those with the oldest last rows first."""
        self._lanes: dict[Feed, _LaneTrail] = {}
        self._subscriptions = 0
        self._feeds = 0
        self._broker_rows = 0
        self._config_rows = 0
        self._delivered_records = 0
        self._delivered_bytes = 0
        self._gap_records = 0
        self._turns = Histogram()

    # -- consumers --------------------------------------------------------------------------------------------------

    def began(self, subscription: Subscription) -> None:
        self._subscriptions += 1
        subscription.number = self._subscriptions
        self._trails[subscription] = _Trail()
        self._trails.move_to_end(subscription, last=False)
        self._read(subscription.feed, 1)

    def moved(self, old: Feed, new: Feed, consumers: int) -> None:
        """Called when members of a queue read another feed than before, because its bindings have changed."""
        self._read(new, consumers)
        self._leave(old, consumers)

    def _read(self, feed: Feed, consumers: int) -> None:
        """Notes that so many more consumers read the feed."""
        if feed not in self._lanes:
            self._feeds += 1
            group = f"$share/{feed.key.group}/" if feed.key.group is not None else ""
            self._lanes[feed] = _LaneTrail(f"{group}{feed.key.filter}|{self._feeds}")
        self._lanes[feed].consumers += consumers

    def _leave(self, feed: Feed, consumers: int) -> _LaneTrail | None:
        """Notes that so many consumers have left the feed. Returns its trail if they were the last."""
        lane = self._lanes[feed]
        lane.consumers -= consumers
        return None if lane.consumers else self._lanes.pop(feed)

    def looked(self, subscription: Subscription, sample: Sample, now: float) -> None:
        """Called when the governor has sampled a consumer that lags or lagged."""
        trail = self._trails.get(subscription)
        if trail is None:
            return  # replaced: its successor has taken over the records left
        trail.look(sample.lag_bytes, now)
        if now - trail.at_s >= self._sample_s or (trail.lagged and not sample.lag_records):
            self._consumer(subscription, trail, sample, now, "")
        lane = self._lanes[subscription.feed]
        if now - lane.at_s >= self._sample_s:
            self._lane(subscription.feed, lane, now)

    def tick(self, now: float, shares: Shares) -> None:
        """Writes rows for the consumers that have gone longest without one, if that is ``idle_s``."""
        for _ in range(ROWS_PER_TICK):
            subscription = next(iter(self._trails), None)
            if subscription is None or now - self._trails[subscription].at_s < self._idle_s:
                return
            sample = peek(self._registry, subscription, now, shares)
            self._consumer(subscription, self._trails[subscription], sample, now, "")
            lane = self._lanes[subscription.feed]
            if now - lane.at_s >= self._idle_s:
                self._lane(subscription.feed, lane, now)

    def ended(self, subscription: Subscription, reason: Reason, now: float) -> None:
        """Writes the last row of a consumer that ends or is replaced. Called before its counters are closed."""
        trail = self._trails.get(subscription)
        if trail is None:
            return
        session, feed = subscription.session, subscription.feed
        if session.ended and reason is Reason.SUBSCRIPTION_ENDED:
            reason = session.last_reason  # why the connection ended says more
        sample = subscription.case.last_sample if subscription in self._registry.watched else Sample()
        sample = msgspec.structs.replace(
            sample, lag_age=subscription.lag_age_s(now), in_flight=subscription.window.used,
            slow_count=subscription.case.slow_count,
        )  # fmt: skip
        self._consumer(subscription, trail, sample, now, reason)
        del self._trails[subscription]
        lane = self._leave(feed, 1)
        if lane is not None:
            self._lane(feed, lane, now)

    def _consumer(self, subscription: Subscription, trail: _Trail, sample: Sample, now: float, ended: str) -> None:
        session, feed, books = subscription.session, subscription.feed, account(subscription)
        options = subscription.request.options
        self._count(subscription, trail, books.drained_records, books.drained_bytes)
        here = books.lag_bytes, now
        most, most_at_s = max(here, trail.most, key=itemgetter(0))
        least, least_at_s = min(here, trail.least, key=itemgetter(0))
        self._recorder.add("consumer_samples", (
            self._run, self._broker, self._time(now), subscription.number, trail.rows, session.client,
            subscription.filter, self._lanes[feed].name, session.listener, session.protocol, subscription.durable,
            subscription.case.policy.name, options.policy or "", session.connected,
            state_of(subscription), ended,
            subscription.case.slow, books.offered_records, books.offered_bytes, books.drained_records,
            books.drained_bytes, books.skipped_records, books.skipped_bytes, books.lag_records, books.lag_bytes,
            _ms(sample.lag_age), sample.drain_rate, sample.offered_rate, sample.offered_burst, _ms(sample.blocked_time),
            _ms(sample.credit_exhausted_time), _ms(sample.ack_age), sample.in_flight,
            subscription.prefetch, sample.slow_count, sample.pool_share,
            self._registry.totals.slow_fraction(feed.key.filter), sample.held_bytes, _ms(stall_s(subscription, now)),
            _ms(sample.usual_pause), sample.drain_share, most, _ms(now - most_at_s), least, _ms(now - least_at_s),
            _ms(sample.patience_left) if sample.excused else 0.0,
            "\n".join(subscription.reader.names(subscription)[:TOPICS_MAX]) if subscription.reader.queue else "",
            subscription.conflation.every_s is not None, sample.unacknowledged_bytes, sample.lump_bytes,
            _ms(options.patience_s or 0.0), _ago(subscription.oldest_unacknowledged_s(), now),
            _ago(subscription.credit_exhausted_since_s, now), subscription.keyed,
            _ms(sample.unread_time), _ms(sample.unread_pause), _ms(sample.unacknowledged_time), _ms(sample.ack_pause),
        ))  # fmt: skip
        trail.rows += 1
        trail.begin()
        trail.at_s = now
        trail.lagged = books.lag_records > 0
        self._trails.move_to_end(subscription)

    def _count(self, subscription: Subscription, trail: _Trail, drained_records: int, drained_bytes: int) -> None:
        """Adds a consumer's changes to the broker's totals."""
        gaps = subscription.counters.gap_records.total()
        self._delivered_records += drained_records - trail.drained_records
        self._delivered_bytes += drained_bytes - trail.drained_bytes
        self._gap_records += gaps - trail.gap_records
        trail.drained_records, trail.drained_bytes, trail.gap_records = drained_records, drained_bytes, gaps

    def _lane(self, feed: Feed, trail: _LaneTrail, now: float) -> None:
        lane, consumers = feed.lane, len(feed.subscriptions)
        if feed.queues:
            consumers = sum(len(queue.members) for queue in feed.queues if queue.feed is feed)
            lagging = sum(len(queue.members) for queue in feed.queues if queue.backlog.has_more)
        else:
            lagging = consumers - len(feed.waiting) - len(feed.resting)
        gated_s = feed.gated_s + (now - feed.gated_since_s if feed.was_gated else 0.0)
        self._recorder.add("topic_samples", (
            self._run, self._broker, self._time(now), trail.name, trail.rows, feed.key.filter, feed.key.pool.name,
            lane.count, lane.end, consumers, max(0, lagging), feed.slow, len(feed.gates), lane.resident_bytes,
            lane.spilled_bytes, _ms(gated_s),
        ))  # fmt: skip
        trail.rows += 1
        trail.at_s = now

    # -- verdicts ---------------------------------------------------------------------------------------------------

    def verdict(self, verdict: Verdict, subscription: Subscription) -> None:
        self._verdict("verdicts", verdict, subscription, subscription.case.policy)

    def trial_verdict(self, verdict: Verdict, subscription: Subscription, policy: Policy) -> None:
        self._verdict("trial_verdicts", verdict, subscription, policy)

    def _verdict(self, table: str, verdict: Verdict, subscription: Subscription, policy: Policy) -> None:
        sample, reading = verdict.sample, leading(verdict.readings)
        rule_name = policy.rules[verdict.rule - 1].name if verdict.rule else ""
        self._recorder.add(table, (
            self._run, self._broker, int(verdict.wall_s * 1_000_000), verdict.number, subscription.number,
            verdict.client, verdict.filter, verdict.listener, verdict.policy, verdict.rule, rule_name, verdict.kind,
            verdict.action.kind, verdict.reason, verdict.cause or "", verdict.enforced, _ms(verdict.window_s),
            _ms(verdict.held_s), reading.meter if reading else "", reading.value if reading else 0.0,
            reading.op if reading else "", reading.threshold if reading else 0.0, sample.lag_records, sample.lag_bytes,
            _ms(sample.lag_age), sample.drain_rate, sample.offered_rate, _ms(sample.blocked_time),
            _ms(sample.credit_exhausted_time), _ms(sample.ack_age), sample.in_flight, sample.held_bytes, verdict.text,
        ))  # fmt: skip

    # -- the broker -------------------------------------------------------------------------------------------------

    def turned(self, seconds: float) -> None:
        """Counts a turn's duration, from the first byte read to the last byte written."""
        self._turns.add(seconds)

    def whole(self, now: float, *, late_s: float, rss_bytes: int, dropped_rows: int) -> None:
        """Writes a row of the broker. Called once a second. ``dropped_rows`` are the rows lost after the recorder."""
        for subscription, trail in islice(self._trails.items(), ROWS_PER_TICK):
            books = account(subscription)
            self._count(subscription, trail, books.drained_records, books.drained_bytes)
        registry, totals, turns = self._registry, self._registry.totals, self._turns
        pools = registry.distinct_pools()
        self._recorder.add("broker_samples", (
            self._run, self._broker, self._time(now), self._broker_rows, len(registry.sessions), len(self._trails),
            len(registry.watched), totals.slow, totals.published_records, totals.published_bytes,
            self._delivered_records, self._delivered_bytes, self._gap_records, turns.count, _ms(turns.quantile(0.5)),
            _ms(turns.quantile(0.99)), _ms(turns.longest_s), _ms(late_s),
            sum(pool.memory_bytes for pool in pools), sum(pool.memory_limit for pool in pools),
            sum(pool.disk_bytes for pool in pools), sum(pool.disk_limit for pool in pools), rss_bytes,
            dropped_rows + self._recorder.dropped_rows,
        ))  # fmt: skip
        self._broker_rows += 1
        self._turns = Histogram()

    def configured(self, now: float, *, version: str, sweep_s: float, late_after_s: float, config: str) -> None:
        """Writes a row with the present configuration. ``config`` is its policies and topics as JSON."""
        pool = self._registry.pools[""]
        self._recorder.add("configs", (
            self._run, self._broker, self._time(now), self._config_rows, version, _ms(sweep_s), _ms(late_after_s),
            pool.memory_limit, pool.disk_limit, pool.client_share, config,
        ))  # fmt: skip
        self._config_rows += 1

    def _time(self, now: float) -> int:
        return int((now + self._wall_offset_s) * 1_000_000)


def _ago(since: float, now: float) -> float:
    """Returns how many milliseconds ago that was; 0: it is not so."""
    return _ms(max(0.0, now - since))


def _ms(seconds: float) -> float:
    return seconds * 1000.0
