"""Statistics: immutable figures of consumers, queues, publishers, pools and the broker, for the console and metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Generator, Iterator
from heapq import heappush, heapreplace
from typing import Literal, NamedTuple, Protocol, cast

import msgspec

from headway.core.consumer import Session, Shares, Subscription
from headway.core.governance import Governor, conflated_by, peek, stall_s, state_of
from headway.core.log import Pool, Retained
from headway.core.policy import Verdict
from headway.core.queue import Queue, queue_of
from headway.core.routing import Registry, pause_reason

# -- stats -------------------------------------------------------------------------------------------------------------


SLICE = 256
"""Consumers counted between two pauses."""
CLOSE_SLICE = 16
"""Consumers whose full figures are taken between two pauses."""


class ConsumerStats(msgspec.Struct, frozen=True):
    """One subscription. Rates in bytes per second."""

    client: str
    filter: str
    consumer: str
    """Channel and consumer tag, where one client has several consumers on a queue; else empty."""
    listener: str
    protocol: str
    connected: bool
    state: str
    """``ok``, ``behind``, ``slow``, ``offline`` (reads from disk), ``conflating``, ``discarding`` or ``away``."""
    conflated_by: str
    """In words, who has it conflated and how often: its topic, itself, or its policy; empty: it gets every record."""
    lag_records: int
    lag_bytes: int
    lag_age_ms: int
    view_age_ms: int
    """How old the records are that its client reads now, about: what the buffers of both sides hold counts, too."""
    drain_rate: float
    offered_rate: float
    blocked_ms: int
    credit_exhausted_ms: int
    ack_age_ms: int
    """How long ago its oldest unacknowledged delivery was sent, with the patience that it asked for."""
    patience_ms: int
    """For how long it may hold a delivery without being slow, as its policy grants it; 0: it asked for nothing."""
    patience_left_ms: int
    """For how much longer it may hold its oldest one."""
    in_flight: int
    waits_for: str
    """Why it is sent no more, in words, if its user's limit of bytes in flight is reached; else empty."""
    held_bytes: int
    delivered_records: int
    delivered_bytes: int
    gap_records: dict[str, int]
    slow: bool
    slow_count: int
    policy: str
    producer_stall_ms: int
    last_verdict: Verdict | None


class QueueStats(msgspec.Struct, frozen=True):
    """One AMQP queue. The group of a shared subscription is shown as its members instead."""

    name: str
    records: int
    """Records that wait for a consumer."""
    bytes: int
    age_ms: int
    unacknowledged: int
    consumers: int
    slow_consumers: int
    durable: bool
    handed_records: int
    dropped_records: dict[str, int]
    """Records dropped, by reason. ``queue_length``, ``expired`` and ``rejected`` may have become dead letters."""


class PublisherStats(msgspec.Struct, frozen=True):
    client: str
    connected: bool
    published_records: int
    published_bytes: int
    refused_records: int
    paused: bool
    waits_for: str
    """Why the publisher is paused, in words; empty: it is not paused."""
    pauses: int
    stalled_ms: int
    lost_records: dict[str, int]
    """Records of this publisher that consumers skipped, by reason."""


class PoolStats(msgspec.Struct, frozen=True):
    name: str
    memory_bytes: int
    memory_limit_bytes: int
    memory_peak_bytes: int
    disk_bytes: int
    disk_limit_bytes: int
    disk_peak_bytes: int
    clients_bytes: int
    """Memory that clients take up besides records."""
    clients_limit_bytes: int
    state_bytes: int


class BrokerStats(msgspec.Struct, frozen=True):
    sessions: int
    subscriptions: int
    lanes: int
    watched: int
    published_records: int
    published_bytes: int
    delivered_records: int
    delivered_bytes: int
    gap_records: dict[str, int]
    unpublished_records: dict[str, int]
    retained: int
    retained_bytes: int
    loop_late_s: float
    verdicts: int
    pools: list[PoolStats]


class StatsSource(Protocol):
    """The part of the broker that figures are taken from."""

    registry: Registry
    retained: Retained
    governor: Governor


class Census:
    """Counts all consumers by state, and finds the ``most`` consumers with the most lag.

    The count goes slice by slice, so that a loop can do other work between two slices. Sessions that come meanwhile are
    not counted."""

    def __init__(self, broker: StatsSource, now: float, most: int = 0) -> None:
        self.subscriptions = 0
        self.states: Counter[str] = Counter()
        self.lag_records = 0
        self.lag_bytes = 0
        self.lag_bytes_max = 0
        self.consumers: list[ConsumerStats] = []
        """Consumers with the most lag, the largest lag first."""
        self._broker = broker
        self._now = now
        self._most = most
        self._found: list[tuple[int, int, Subscription]] = []

    def slices(self) -> Iterator[None]:
        sessions = list(self._broker.registry.sessions.values())
        for number, subscription in enumerate(each_consumer(sessions)):
            if subscription is not None and not subscription.ended:
                self._count(subscription)
            if number % SLICE == SLICE - 1:
                yield
        shares: Shares = {}
        for _, _, subscription in self._found:
            if not subscription.ended:
                self.consumers.append(consumer(self._broker, subscription, self._now, shares))
            if len(self.consumers) % CLOSE_SLICE == 0:
                yield
                shares = {}  # lanes move on meanwhile
        self.consumers.sort(key=most_lag_first)

    def _count(self, subscription: Subscription) -> None:
        self._broker.registry.totals.count(subscription)
        self.subscriptions += 1
        self.states[state_of(subscription)] += 1
        lag_bytes = subscription.lag_bytes
        self.lag_records += subscription.lag_records
        self.lag_bytes += lag_bytes
        self.lag_bytes_max = max(self.lag_bytes_max, lag_bytes)
        if len(self._found) < self._most:
            heappush(self._found, (lag_bytes, self.subscriptions, subscription))
        elif self._most and lag_bytes > self._found[0][0]:
            heapreplace(self._found, (lag_bytes, self.subscriptions, subscription))


def each_consumer(sessions: list[Session]) -> Iterator[Subscription | None]:
    """Yields None for each session, because it costs a step, too, and then its consumers."""
    for session in sessions:
        yield None
        yield from list(session.subscriptions.values())


def most_lag_first(stats: ConsumerStats) -> tuple[int, int, str, str]:
    return -stats.lag_bytes, -stats.held_bytes, stats.client, stats.filter


def consumers(broker: StatsSource, now: float) -> list[ConsumerStats]:
    """Returns all subscriptions, the largest lag first. It counts in one go, so it is not for the broker's loop."""
    shares: Shares = {}
    found = [
        consumer(broker, subscription, now, shares)
        for session in broker.registry.sessions.values()
        for subscription in session.subscriptions.values()
    ]
    return sorted(found, key=most_lag_first)


def consumer(broker: StatsSource, subscription: Subscription, now: float, shares: Shares) -> ConsumerStats:
    session, case, delivered = subscription.session, subscription.case, subscription.delivered
    sample = peek(broker.registry, subscription, now, shares)
    return ConsumerStats(
        client=session.client, filter=subscription.filter, consumer=subscription.request.label,
        listener=session.listener, protocol=session.protocol, connected=session.connected,
        state=state_of(subscription), conflated_by=conflated_by(subscription),
        lag_records=sample.lag_records, lag_bytes=sample.lag_bytes, lag_age_ms=_ms(sample.lag_age),
        view_age_ms=_ms(subscription.view_age_s(now)),
        drain_rate=sample.drain_rate, offered_rate=sample.offered_rate, blocked_ms=_ms(sample.blocked_time),
        credit_exhausted_ms=_ms(sample.credit_exhausted_time),
        ack_age_ms=_ms(max(0.0, now - subscription.oldest_unacknowledged_s())),
        patience_ms=_ms(subscription.patience_s), patience_left_ms=_ms(sample.patience_left),
        in_flight=sample.in_flight, waits_for=session.channel.wait_reason, held_bytes=sample.held_bytes,
        delivered_records=delivered.records, delivered_bytes=delivered.bytes,
        gap_records={str(reason): count for reason, count in subscription.counters.gap_records.items()},
        slow=case.slow, slow_count=case.slow_count, policy=case.policy.name,
        producer_stall_ms=_ms(stall_s(subscription, now)), last_verdict=case.last_verdict,
    )  # fmt: skip


def queues(broker: StatsSource, now: float) -> list[QueueStats]:
    """Returns all queues, the longest first, in one go."""
    found = [queue(queue_of(one), now) for one in broker.registry.router.queues.values()]
    return sorted(found, key=longest_first)


def longest_first(stats: QueueStats) -> tuple[int, str]:
    return -stats.records, stats.name


def queue(queue: Queue, now: float) -> QueueStats:
    """Returns the figures of one queue, in one go."""
    steps = queue_in_steps(queue, now)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return cast("QueueStats", done.value)


def queue_in_steps(queue: Queue, now: float) -> Generator[None, None, QueueStats]:
    """Counts the members, some of them in each step. Returns the figures of the queue."""
    consumers = slow = 0
    for number, member in enumerate(list(queue.members), 1):
        if not member.request.polling and not member.gone:
            consumers += 1
            slow += member.case.slow
        if number % SLICE == 0:
            yield
    backlog = queue.backlog
    return QueueStats(
        queue.name, backlog.lag_records, backlog.lag_bytes, _ms(max(0.0, now - backlog.oldest_time())),
        backlog.unacknowledged, consumers, slow, queue.terms.durable,
        backlog.handed_records, {str(reason): count for reason, count in queue.drops.by_reason.items()},
    )  # fmt: skip


def publishers(broker: StatsSource, now: float) -> list[PublisherStats]:
    """Returns all sessions that have published, ended ones included, the busiest first, in one go."""
    sessions = [*broker.registry.sessions.values(), *broker.registry.ended_publishers.values()]
    found = [publisher(session, now) for session in sessions if has_published(session)]
    return sorted(found, key=lambda stats: -stats.published_records)


def has_published(session: Session) -> bool:
    return bool(session.published_records or session.refused_records)


def publisher(session: Session, now: float) -> PublisherStats:
    paused = bool(session.paused_by)
    stalled_s = session.stalled_s + (now - session.paused_since_s if paused else 0.0)
    return PublisherStats(
        session.client, session.connected, session.published_records, session.published_bytes,
        session.refused_records, paused, "; ".join(dict.fromkeys(map(pause_reason, session.paused_by))), session.pauses,
        _ms(stalled_s), {str(reason): count for reason, count in session.lost_records.items()},
    )  # fmt: skip


def pool(pool: Pool) -> PoolStats:
    return PoolStats(
        pool.name, pool.memory_bytes, pool.memory_limit, pool.memory_peak_bytes,
        pool.disk_bytes, pool.disk_limit, pool.disk_peak_bytes,
        pool.clients_bytes, 0 if pool.topic else pool.clients_limit, pool.state_bytes,
    )  # fmt: skip


def whole(broker: StatsSource, census: Census | None = None) -> BrokerStats:
    """Returns the broker's figures as of a census; without one, all consumers are counted now."""
    registry = broker.registry
    if census is None:
        census = Census(broker, 0.0)
        deque(census.slices(), maxlen=0)
    return BrokerStats(
        sessions=len(registry.sessions), subscriptions=census.subscriptions, lanes=len(registry.router.feeds),
        watched=len(registry.watched), published_records=registry.totals.published_records,
        published_bytes=registry.totals.published_bytes,
        delivered_records=registry.totals.delivered_records, delivered_bytes=registry.totals.delivered_bytes,
        gap_records={str(reason): count for reason, count in registry.totals.gap_records.items() if count},
        unpublished_records=dict(registry.totals.unpublished_records),
        retained=len(broker.retained), retained_bytes=broker.retained.bytes, loop_late_s=broker.governor.late_s,
        verdicts=broker.governor.book.made, pools=[pool(p) for p in registry.distinct_pools()],
    )  # fmt: skip


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


# -- tables ------------------------------------------------------------------------------------------------------------
#
# The tables of the telemetry lake: their columns, what each column holds, and the version of the schema.
#
# The broker's writer, the pipeline's reader and the tables in docs/LAKE.md are all made from these lists.
#
# Rules:
# - Counters are cumulative since the subscription, the lane or the broker began. So a lost file only makes an interval
#   longer, and a file that is read twice changes nothing.
# - The ``key`` of a table identifies its rows: two rows with the same key are the same row.
# - A column is never renamed and never changes its meaning. New columns are added at the end. A change that would break
#   readers raises ``VERSION``; readers refuse files that are newer than themselves.


VERSION = 1

Kind = Literal["time", "text", "int", "float", "flag"]
"""``time``: microseconds since 1970 (UTC). ``int``: 64 bits. ``text``: few distinct values, written as a dictionary."""


class Column(NamedTuple):
    name: str
    kind: Kind
    about: str


class LakeTable(NamedTuple):
    name: str
    about: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


_RUN = Column("run", "text", "one start of one broker, unique for ever")
_BROKER = Column("broker", "text", "the broker's name ([server] name)")
_TIME = Column("time", "time", "when it was observed, by the broker's clock")
_SEQ = Column("seq", "int", "number of the row among those of the same thing, ascending")

CONSUMER_SAMPLES = LakeTable(
    "consumer_samples",
    "one row per subscription and second while it lags, coarser otherwise; one more when it ends",
    ("run", "subscription", "seq"),
    (
        _RUN, _BROKER, _TIME,
        Column("subscription", "int", "the subscription's number, unique within the run"),
        _SEQ,
        Column("client", "text", "the client's name (MQTT client id)"),
        Column("filter", "text", "the topic filter"),
        Column("lane", "text", "the lane it reads: who shares it shares what is held"),
        Column("listener", "text", "where it came in"),
        Column("protocol", "text", "what it speaks"),
        Column("durable", "flag", "its session outlives its connection"),
        Column("policy", "text", "the policy that governs it; none where none does"),
        Column("policy_asked", "text", "the policy it asked for by name; empty if it did not"),
        Column("connected", "flag", "its client is there"),
        Column("state", "text", "ok, behind, slow, offline, conflating, discarding, away"),
        Column("ended", "text", "in its last row, the reason why it is over; else empty"),
        Column("slow", "flag", "marked slow now"),
        Column("offered_records", "int", "records meant for it since it began"),
        Column("offered_bytes", "int", "and their bytes"),
        Column("drained_records", "int", "records it has taken since it began"),
        Column("drained_bytes", "int", "and their bytes"),
        Column("skipped_records", "int", "records left out for it since it began (offered - drained - skipped = lag)"),
        Column("skipped_bytes", "int", "and their bytes"),
        Column("lag_records", "int", "records that wait for it now"),
        Column("lag_bytes", "int", "and their bytes: what a buffer of its own would hold"),
        Column("lag_age_ms", "float", "how long the oldest of them has waited"),
        Column("drain_rate", "float", "bytes a second it takes, over the meter's window"),
        Column("offered_rate", "float", "bytes a second offered to it, over the meter's window"),
        Column("offered_burst", "float", "that, as a multiple of the long run"),
        Column("blocked_ms", "float", "for how long its socket has taken no bytes while records wait; 0: it does"),
        Column("credit_exhausted_ms", "float", "for how long its window has been full while records wait"),
        Column("ack_age_ms", "float", "how long ago the oldest record in flight was sent, beyond its patience"),
        Column("in_flight", "int", "records sent and not acknowledged"),
        Column("prefetch", "int", "its window in records; 0: it has none"),
        Column("slow_count", "int", "how often it was marked slow since it began"),
        Column("pool_share", "float", "what it holds up, as a share of the pool's memory"),
        Column("slow_fraction", "float", "share of slow ones among the consumers of its filter"),
        Column("held_bytes", "int", "its share of what is really held; all consumers' add up"),
        Column("producer_stall_ms", "float", "for how long it has held publishers back since it began"),
        Column("usual_pause_ms", "float", "how long its client usually stands still between two steps; 0: not known"),
        Column("drain_share", "float", "what it took of what was offered over the last half minute of lag"),
        Column("most_lag_bytes", "int", "the most bytes that waited at a look since the row before"),
        Column("most_lag_ago_ms", "float", "how long ago that was"),
        Column("least_lag_bytes", "int", "the fewest bytes that waited at a look since the row before"),
        Column("least_lag_ago_ms", "float", "how long ago that was"),
        Column("excused_ms", "float", "for how much longer it may take nothing, at jobs that it has patience for"),
        Column("topics", "text", "of a queue: the filters by which its policy is chosen, one a line; the first 100"),
        Column("conflates", "flag", "it is given the latest record per key only, by its own wish or its topic's"),
        Column("unacknowledged_bytes", "int", "bytes of those drained that its host had not acknowledged yet"),
        Column("lump_bytes", "float", "so many of them it may have read all the same"),
        Column("patience_ms", "float", "for how long it asked to be waited for at a job; 0: it did not"),
        Column("unacked_ms", "float", "how long ago the oldest record in flight was sent"),
        Column("window_full_ms", "float", "for how long its window has been full; 0: it has room"),
        Column("keyed", "flag", "rules with `keyed` are for it: the latest record per key of its topics is kept"),
        Column("unread_ms", "float", "for how long its client has read nothing while records wait; 0: it reads"),
        Column("unread_pause_ms", "float", "how long its client usually reads nothing; 0: not known"),
        Column("unacknowledged_ms", "float", "how long it acknowledges nothing of all it may hold, or more than usual"),
        Column("ack_pause_ms", "float", "how long it usually acknowledges nothing of what it holds; 0: not known"),
    ),
)  # fmt: skip

VERDICTS = LakeTable(
    "verdicts",
    "one row per verdict",
    ("run", "number"),
    (
        _RUN, _BROKER, _TIME,
        Column("number", "int", "the verdict's number, ascending within the run"),
        Column("subscription", "int", "whom it is about (consumer_samples.subscription); 0: nobody who subscribed"),
        Column("client", "text", "the client's name"),
        Column("filter", "text", "the topic filter"),
        Column("listener", "text", "where it came in"),
        Column("policy", "text", "whose rule decided; empty for pressure on a pool and for flap control"),
        Column("rule", "int", "the rule's number, from 1; 0 without a policy"),
        Column("rule_name", "text", "the rule's name, if it has one"),
        Column("kind", "text", "fire, or clear when it is over"),
        Column("action", "text", "what was done"),
        Column("reason", "text", "the meter that led to it"),
        Column("cause", "text", "where the trouble lies; empty for a clear"),
        Column("enforced", "flag", "false: a dry run"),
        Column("window_ms", "float", "for how long the condition had to hold"),
        Column("held_ms", "float", "fire: how long it held; clear: how long the rule was active"),
        Column("meter", "text", "the leading reading: its meter"),
        Column("value", "float", "its value"),
        Column("op", "text", "how they compare"),
        Column("threshold", "float", "its threshold"),
        Column("lag_records", "int", "records that waited"),
        Column("lag_bytes", "int", "and their bytes"),
        Column("lag_age_ms", "float", "how long the oldest of them had waited"),
        Column("drain_rate", "float", "bytes a second it took"),
        Column("offered_rate", "float", "bytes a second offered to it"),
        Column("blocked_ms", "float", "for how long its socket had taken no bytes"),
        Column("credit_exhausted_ms", "float", "for how long its window had been full"),
        Column("ack_age_ms", "float", "how long ago the oldest record in flight was sent, beyond its patience"),
        Column("in_flight", "int", "records sent and not acknowledged"),
        Column("held_bytes", "int", "its share of what was held"),
        Column("text", "text", "the sentence for people"),
    ),
)  # fmt: skip

_OF_TRIALS = {"policy": "the trial's name", "number": "its number, counted over all trials"}
TRIAL_VERDICTS = LakeTable(
    "trial_verdicts",
    "one row per verdict of a trial, none of which is enforced",
    VERDICTS.key,
    tuple(
        column._replace(about=_OF_TRIALS.get(column.name, column.about)) for column in VERDICTS.columns
    ),
)  # fmt: skip

TOPIC_SAMPLES = LakeTable(
    "topic_samples",
    "one row per lane (a topic filter in one wire form) and second while somebody lags there, coarser otherwise",
    ("run", "lane", "seq"),
    (
        _RUN, _BROKER, _TIME,
        Column("lane", "text", "the lane's name, unique within the run"),
        _SEQ,
        Column("filter", "text", "the topic filter"),
        Column("pool", "text", "the pool it belongs to"),
        Column("offered_records", "int", "records appended since the lane began"),
        Column("offered_bytes", "int", "and their bytes"),
        Column("consumers", "int", "who read it"),
        Column("lagging", "int", "of them, those for whom records wait"),
        Column("slow", "int", "of them, those marked slow"),
        Column("gating", "int", "of them, those publishers wait for"),
        Column("resident_bytes", "int", "held in memory"),
        Column("spilled_bytes", "int", "held on disk"),
        Column("stalled_ms", "float", "for how long publishers were held back for it since the lane began"),
    ),
)  # fmt: skip

BROKER_SAMPLES = LakeTable(
    "broker_samples",
    "one row per second",
    ("run", "seq"),
    (
        _RUN, _BROKER, _TIME, _SEQ,
        Column("sessions", "int", "clients, also those that are away"),
        Column("subscriptions", "int", "consumers"),
        Column("watched", "int", "of them, those the governor looks at"),
        Column("slow", "int", "of them, those marked slow"),
        Column("published_records", "int", "taken from publishers since the start"),
        Column("published_bytes", "int", "and their bytes"),
        Column("delivered_records", "int", "given to consumers since the start"),
        Column("delivered_bytes", "int", "and their bytes"),
        Column("gap_records", "int", "left out for consumers since the start"),
        Column("turns", "int", "turns of the loop since the row before"),
        Column("delivery_p50_ms", "float", "from the first byte read in a turn to the last one written: the median"),
        Column("delivery_p99_ms", "float", "the same, 99 % of the turns"),
        Column("delivery_max_ms", "float", "the same, the longest"),
        Column("loop_late_ms", "float", "by how much sweeps came too late since the start"),
        Column("memory_bytes", "int", "held in memory, all pools"),
        Column("memory_limit_bytes", "int", "what they may hold in memory"),
        Column("disk_bytes", "int", "held on disk, all pools"),
        Column("disk_limit_bytes", "int", "what they may hold on disk"),
        Column("rss_bytes", "int", "the process's resident memory"),
        Column("dropped_rows", "int", "rows of this lake that could not be written since the start"),
    ),
)  # fmt: skip

CONFIGS = LakeTable(
    "configs",
    "one row at the start and after each reload: what was in force",
    ("run", "seq"),
    (
        _RUN, _BROKER, _TIME, _SEQ,
        Column("version", "text", "Headway's version"),
        Column("sweep_ms", "float", "time between two looks of the governor"),
        Column("late_after_ms", "float", "a sweep that comes this much too late is the broker's own fault"),
        Column("memory_limit_bytes", "int", "the global pool's memory"),
        Column("disk_limit_bytes", "int", "the global pool's disk"),
        Column("client_share", "float", "what one client may hold of either"),
        Column("config", "text", 'JSON: {"policy": [...], "topic": [...], "trial": [...]} as the config file has them'),
    ),
)  # fmt: skip

TABLES: dict[str, LakeTable] = {
    table.name: table for table in (CONSUMER_SAMPLES, VERDICTS, TRIAL_VERDICTS, TOPIC_SAMPLES, BROKER_SAMPLES, CONFIGS)
}


# -- histogram ---------------------------------------------------------------------------------------------------------
#
# A histogram of durations, in buckets that grow by a tenth. Its size is fixed.


RATIO = 1.1
LEAST_S, MOST_S = 10e-6, 100.0
"""Shorter and longer durations count as these; the longest duration is also stored exactly."""


def _bounds() -> list[float]:
    bounds = [LEAST_S]
    while bounds[-1] < MOST_S:
        bounds.append(bounds[-1] * RATIO)
    return bounds


_BOUNDS = _bounds()


class Histogram:
    """Durations in seconds. A quantile is the upper end of its bucket: at most a tenth too long."""

    __slots__ = ("_counts", "count", "longest_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS) + 1)
        self.count = 0
        self.longest_s = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self._counts[bisect_left(_BOUNDS, seconds)] += 1
        if seconds > self.longest_s:
            self.longest_s = seconds

    def quantile(self, share: float) -> float:
        """Returns the duration that ``share`` of all durations do not exceed; 0 if there are none."""
        wanted = share * self.count
        seen = 0
        for bound, count in zip(_BOUNDS, self._counts, strict=False):
            seen += count
            if count and seen >= wanted:
                return min(bound, self.longest_s)
        return self.longest_s


# -- accounts ----------------------------------------------------------------------------------------------------------
#
# An account counts all records that were ever meant for a consumer, by their fate.
#
# A record was *drained* (the consumer's outlet took it), was *skipped* (a policy, its age or its size left it out), or
# it still waits (*lag*):
#
#     offered = drained + skipped + lag
#
# Offered, drained and skipped never decrease, in records or in bytes. Special cases:
#
# - *Conflation*: records that passed in the lane count as lag until the state is read. The records then sent are
# drained,
#   and the others are skipped when the pass ends. Their bytes are settled with the bytes sent in their place. A
#   consumer
#   that is conflated at intervals is offered the changes at the end of each interval.
# - *Retained records, snapshots*, and records left over by a replaced subscription are offered when they are sent: how
#   many come is not known exactly, and offered never decreases. The lag that policies judge has them (``Reader``).
# - *A record that was half sent when the connection broke* is sent again as a whole, if the session lives on. The first
#   half is then offered and drained twice.
# - *A record that was sent and then given up* without an acknowledgement is drained and skipped: it is offered twice.
# - *Members of a shared subscription* all have the lag of their group. A record that went to another member is skipped.
# - *A record of a message group* in a queue counts for the group's owner alone while it waits, and as skipped for the
#   others when the owner has it. If they had found it before the group had an owner, their offered decreases by it
#   until
#   then.
# - *Consumers that poll* recorded topics: their bytes are known per batch of the journal, so the figures move late and
# in
#   steps.
# - *Discards*: a record that a look leaves out is skipped from then on, though the cursor passes it later. One that is
#   the latest of its key, and then sent to a consumer that is conflated, is skipped and drained: it is offered twice.


class Account(NamedTuple):
    drained_records: int
    drained_bytes: int
    skipped_records: int
    skipped_bytes: int
    lag_records: int
    lag_bytes: int

    @property
    def offered_records(self) -> int:
        return self.drained_records + self.skipped_records + self.lag_records

    @property
    def offered_bytes(self) -> int:
        return self.drained_bytes + self.skipped_bytes + self.lag_bytes


def account(subscription: Subscription) -> Account:
    """Returns the account of a subscription that has not ended."""
    reader = subscription.reader
    return Account(*reader.drained(subscription), *reader.skipped(subscription), *reader.owed(subscription))
