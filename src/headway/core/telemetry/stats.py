"""Statistics: immutable figures of consumers, queues, publishers, pools and the broker, for the console and metrics."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Iterator
from heapq import heappush, heapreplace
from typing import Protocol, cast

import msgspec

from headway.core.consumer import Session, Shares, Subscription
from headway.core.governance import Governor, conflated_by, peek, stall_s, state_of
from headway.core.log import Pool, Retained
from headway.core.policy import Verdict
from headway.core.queue import Queue, queue_of
from headway.core.routing import Registry, pause_reason

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
        in_flight=sample.in_flight, waits_for=session.channel.in_flight_bytes.wait_reason, held_bytes=sample.held_bytes,
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
