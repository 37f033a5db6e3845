"""Prometheus metrics, read at each scrape from counters that the broker keeps anyway.

``/metrics`` has the figures of the whole broker; its length does not depend on the number of consumers and queues.
Series per consumer and per queue are on pages of their own, for those with the most lag (``listings.EACH_MAX``).

Names follow the conventions of Prometheus: base units (seconds, bytes), and ``_total`` on counters. A renamed metric
keeps its old name for one release, and the help text of the old name gives the new one.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import accumulate
from typing import Any, TypeVar, cast
from zlib import crc32

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headway import __version__
from headway.core.base import Cause
from headway.core.consumer import Session, Shares, Subscription
from headway.core.policy import ActionKind
from headway.core.queue import Queue, queue_of
from headway.core.telemetry import stats
from headway.server.engine import Engine, HistoryWriter, Telemetry
from headway.server.journal import JournalWriter
from headway.server.loop import BOUNDS_S, Pulse, memory_peak_bytes, memory_rss_bytes
from headway.server.traces import Traces

# -- metric help -------------------------------------------------------------------------------------------------------
#
# The help text of each metric, by its name without the prefix ``headway_``. Counters are shown as NAME_total.


HELP = {
    # The broker
    "build_info": "1; the labels tell the version of the broker, of Python, and the platform",
    "ready": "1 while GET /readyz says so",
    "connections": "Open connections",
    "sessions": "Sessions, connected or kept while their client is away",
    "subscriptions": "Subscriptions of all sessions",
    "lanes": "Encoded streams of records; subscriptions of one filter, selector and protocol share a stream",
    "lagging_consumers": "Consumers that are behind, or that a policy rule is active on",
    "retained_records": "Retained records",
    "publishers_waiting": "Publishers that are not read, by what holds them back; one of two causes counts for both",
    "memory_rss_bytes": "Resident memory of the broker process",
    "memory_peak_bytes": "Highest resident memory of the broker process since its start",
    "longest_turn_seconds": "Longest time that one flush to consumers took, since the start",
    "published_records": "Records accepted from publishers",
    "published_bytes": "Bytes of the records accepted from publishers",
    "delivered_records": "Records sent to consumers",
    "delivered_bytes": "Bytes of the records sent to consumers",
    "verdicts": "Decisions about slow consumers, enforced or not",
    "trial_verdicts": "Decisions of trials, which are never enforced",
    "verdicts_by_cause": "Decisions that a consumer is slow, by cause, action, and whether it was enforced",
    "connections_refused": "Connections refused: a limit was reached, or the login was wrong",
    "tls_handshakes": "TLS handshakes that are over, by how they ended",
    "tls_handshakes_waiting": "TLS handshakes under way",
    "protocol_errors": "Connections closed because the client broke its protocol",
    "connections_ended": "Connections that ended, by reason",
    "logins_failed": "Logins that failed: wrong; away: the service was; fault: the check; too_many: of that address",
    "hook_answers": "Answers of the service that checks logins: allow, deny, ignore; away: none that can be read",
    "user_limits_reached": "Times that a user reached a limit: connections, subscriptions, publish_rate, pool_share",
    "denied": "Requests that no permission allowed, by operation; of publishes, the records",
    "plugin_failures": "Exceptions raised by a plugged-in meter or action",
    "receipts_asked": "Records whose publishers asked for a receipt",
    "receipts_closed": "Receipts given, by state: complete, timed_out, displaced, publisher_ended, refused",
    "receipts_open": "Receipts that are not given yet, because consumers have not settled their records",
    # The event loop
    "loop_late_seconds": "Time by which the governor's sweeps came late; consumers are not judged for it",
    "loop_late_longest_seconds": "Longest time by which the event loop was late, since the start",
    "loop_late_lately_seconds": "Longest time by which the event loop was late, in the last minute or two",
    "loop_late_by_cause_seconds": "Time by which the event loop was late, by what it was busy with",
    "loop_lateness_seconds": "Lateness of the event loop, measured fifty times a second",
    # All consumers, all queues
    "consumers": "Consumers by state: ok, behind, slow, conflating, discarding, offline, away",
    "lag_records": "Records that wait for consumers, summed over all consumers",
    "lag_bytes": "Bytes that wait for consumers, summed over all consumers",
    "lag_bytes_max": "Bytes that wait for the consumer with the most lag",
    "gap_records": "Records that consumers skipped, by reason",
    "unpublished_records": (
        "Wills, advisories and receipts that were dropped because there was no room for them; as no_topic, records "
        "that only queues have, because their routing keys are no topics"
    ),
    "queues": "Queues",
    # Memory and disk
    "pool_bytes": "Bytes in use in a pool, by medium: memory, disk, clients (all they need besides records), states",
    "pool_limit_bytes": "Limit of a pool, by medium",
    # The journal
    "journal_commits": "Commits of the journal: groups of records written and synced together",
    "journal_failures": "Commits of the journal that failed",
    "journal_set_aside": "Entries of the journal that the last start could not read and has set aside",
    "journal_failing": "1 while the journal cannot be written, so that nothing durable is confirmed",
    "journal_waiting_bytes": "Bytes given to the journal and not yet known to be on disk",
    "journal_places": "Durable subscriptions and queues, whose positions the journal keeps",
    "journal_bytes": "Size on disk of a stream of the journal",
    # The telemetry lake
    "telemetry_written_rows": "Rows written to the telemetry lake",
    "telemetry_dropped_rows": "Rows of telemetry that could not be written",
    "telemetry_errors": "Failed writes to the telemetry lake",
    "telemetry_lake_bytes": "Size on disk of the telemetry lake",
    # Traces
    "traces_followed": "Records of sampled traces that were followed",
    "traces_skipped": "Records of sampled traces that were not followed, because there were too many in their second",
    "traces_exported_spans": "Spans that the collector took",
    "traces_dropped": "Traces that did not reach the collector: queue_full, not_taken, stopped",
    "traces_waiting": "Traces that wait for the collector",
    "traces_failing": "1 while the collector does not take what it is sent",
    # The history of verdicts and ends of connections
    "history_written_entries": "Verdicts and ends of connections written to the history",
    "history_dropped_entries": "Verdicts and ends of connections that could not be written to the history",
    "history_errors": "Failed writes to the history",
    "history_failing": "1 while the history cannot be written",
    "history_bytes": "Size on disk of the history",
    # Each of the consumers with the most lag
    "consumer_lag_records": "Records that wait for the consumer",
    "consumer_lag_bytes": "Bytes that wait for the consumer",
    "consumer_held_bytes": "Consumer's share of the bytes held for all consumers; the shares add up",
    "consumer_blocked_seconds": "Time for which the consumer's socket has taken nothing while records wait for it",
    "consumer_blocked_ms": "Deprecated: use headway_consumer_blocked_seconds",
    "consumer_view_age_seconds": "Age of the records that the consumer's client reads now, as estimated",
    "consumer_slow": "1 while a policy rule holds the consumer to be slow",
    # Each of the longest queues
    "queue_records": "Records that wait in the queue",
    "queue_bytes": "Bytes that wait in the queue",
    "queue_unacknowledged": "Records delivered from the queue and not yet acknowledged",
    "queue_consumers": "Consumers of the queue",
    "queue_dropped_records": "Records that the queue dropped or dead-lettered, by reason",
}


# -- listings ----------------------------------------------------------------------------------------------------------
#
# Listings: tables of consumers, queues and publishers. They are gathered a slice at a time, and the loop goes on
# between two slices, so a hundred thousand consumers cause no stall. Requests at the same time share one answer.
#
# A table shows its first ``EACH_MAX`` rows, and the number of all.


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


# -- metrics -----------------------------------------------------------------------------------------------------------


LABEL_CHARS_MAX = 120
"""A name or filter may have 65,535 letters, and the page repeats it for each series."""


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def label(text: str) -> str:
    """Returns the text as a label: a long one is cut, and a checksum tells it from others with the same beginning."""
    if len(text) <= LABEL_CHARS_MAX:
        return text
    return f"{text[: LABEL_CHARS_MAX - 10]}…{crc32(text.encode()):08x}"


def _gauge(name: str, value: float | None = None, labels: Sequence[str] | None = None) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"headway_{name}", HELP[name], value, labels)


def _counter(name: str, value: float | None = None, labels: Sequence[str] | None = None) -> CounterMetricFamily:
    return CounterMetricFamily(f"headway_{name}", HELP[name], value, labels)


def _by(family: CounterMetricFamily | GaugeMetricFamily, figures: Mapping[Any, float]) -> Metric:
    """Fills a family of one label with a figure for each of its values."""
    for value, figure in figures.items():
        family.add_metric([str(value)], figure)
    return family


def _text(families: list[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return generate_latest(registry)


class Metrics:
    """Each page is in Prometheus' text format."""

    def __init__(self, engine: Engine, listings: Listings) -> None:
        self._engine = engine
        self._listings = listings

    async def page(self) -> bytes:
        census = await self._listings.census()
        # In a thread, because the open files are counted by listing them.
        process = await self._engine.loop.run_in_executor(None, _process)
        return _text([*self._whole(census), *process])

    async def consumers(self) -> bytes:
        """Returns the series of the consumers with the most lag."""
        told = await self._listings.consumers()
        return await self._written(list(consumer_families(told["consumers"])))

    async def queues(self) -> bytes:
        """Returns the series of the longest queues."""
        told = await self._listings.queues()
        return await self._written(list(queue_families(told["queues"])))

    async def _written(self, families: list[Metric]) -> bytes:
        """Formats the page in a thread: thousands of lines take longer than a turn of the loop may."""
        return await self._engine.loop.run_in_executor(None, _text, families)

    def _whole(self, census: stats.Census) -> Iterator[Metric]:
        engine = self._engine
        whole = stats.whole(engine.broker, census)
        yield _build()
        yield _gauge("ready", float(not engine.readiness.reasons()))
        yield _gauge("connections", len(engine.connections))
        yield _gauge("sessions", whole.sessions)
        yield _gauge("subscriptions", whole.subscriptions)
        yield _gauge("lanes", whole.lanes)
        yield _gauge("lagging_consumers", whole.watched)
        yield _gauge("retained_records", whole.retained)
        yield _by(_gauge("publishers_waiting", labels=["cause"]), engine.broker.registry.backpressure.by_cause)
        yield _gauge("memory_rss_bytes", memory_rss_bytes())
        yield _gauge("memory_peak_bytes", memory_peak_bytes())
        yield _gauge("longest_turn_seconds", engine.longest_turn_s)
        yield _gauge("loop_late_longest_seconds", engine.pulse.longest_s)
        yield _gauge("loop_late_lately_seconds", engine.pulse.lately_s)
        yield _counter("published_records", whole.published_records)
        yield _counter("published_bytes", whole.published_bytes)
        yield _counter("delivered_records", whole.delivered_records)
        yield _counter("delivered_bytes", whole.delivered_bytes)
        yield _counter("loop_late_seconds", whole.loop_late_s)
        yield _counter("verdicts", whole.verdicts)
        yield verdict_family(engine.broker.verdicts.counts)
        yield _counter("connections_refused", engine.connections_refused)
        yield _counter("protocol_errors", engine.protocol_errors)
        handshakes = engine.handshakes
        yield _gauge("tls_handshakes_waiting", len(handshakes))
        ended = {"done": handshakes.done, "failed": handshakes.failed}
        yield _by(_counter("tls_handshakes", labels=["result"]), ended)
        yield _by(_counter("connections_ended", labels=["reason"]), engine.ends.counts)
        yield _by(_counter("logins_failed", labels=["why"]), engine.logins.failed)
        if engine.logins.hook is not None:
            yield _by(_counter("hook_answers", labels=["answer"]), engine.logins.hook.answers)
        yield _by(_counter("user_limits_reached", labels=["limit"]), engine.allowances.counts)
        yield _by(_counter("denied", labels=["operation"]), engine.permissions.counts)
        yield _by(_counter("plugin_failures", labels=["plugin"]), engine.broker.governor.plugged.failures)
        receipts = engine.broker.registry.receipts
        yield _counter("receipts_asked", receipts.asked)
        yield _by(_counter("receipts_closed", labels=["state"]), receipts.closed)
        yield _gauge("receipts_open", receipts.asked_open)
        governor = engine.broker.governor
        made = {label(trial.name): governor.trials.made_by(trial.name) for trial in engine.broker.registry.trials}
        yield _by(_counter("trial_verdicts", labels=["trial"]), made)
        yield from _late(engine.pulse)
        if engine.telemetry is not None:
            yield from _telemetry(engine.telemetry)
        if engine.traces is not None:
            yield from _traces(engine.traces)
        if engine.history is not None:
            yield from _history(engine.history)
        if engine.journal is not None:
            yield from _journal(engine.journal)
        yield from _pools(whole)
        yield from _all_consumers(whole, census)
        yield _gauge("queues", len(engine.broker.registry.router.queues))


def _build() -> Metric:
    family = _gauge("build_info", labels=["version", "python", "platform"])
    family.add_metric([__version__, platform.python_version(), f"{platform.system()} {platform.machine()}"], 1)
    return family


def _process() -> list[Metric]:
    """Returns the figures of the process, by the names that Prometheus gives them in every program."""
    return list(ProcessCollector(registry=None).collect())


def _late(pulse: Pulse) -> Iterator[Metric]:
    """How late the loop was, and which work made it late, also where consumers were judged all the same."""
    yield _by(_counter("loop_late_by_cause_seconds", labels=["cause"]), pulse.late_s)
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    buckets = list(zip(bounds, accumulate(pulse.counts), strict=True))
    name = "loop_lateness_seconds"
    yield HistogramMetricFamily(f"headway_{name}", HELP[name], buckets, sum(pulse.late_s.values()))


def _telemetry(telemetry: Telemetry) -> Iterator[Metric]:
    yield _counter("telemetry_written_rows", telemetry.written_rows)
    yield _counter("telemetry_dropped_rows", telemetry.dropped_rows)
    yield _counter("telemetry_errors", telemetry.errors)
    yield _gauge("telemetry_lake_bytes", telemetry.lake.bytes)


def _traces(traces: Traces) -> Iterator[Metric]:
    yield _counter("traces_followed", traces.sampling.followed)
    yield _counter("traces_skipped", traces.sampling.skipped)
    yield _counter("traces_exported_spans", traces.exported_spans)
    yield _by(_counter("traces_dropped", labels=["why"]), traces.dropped)
    yield _gauge("traces_waiting", traces.waiting)
    yield _gauge("traces_failing", float(bool(traces.last_error)))


def _history(writer: HistoryWriter) -> Iterator[Metric]:
    yield _counter("history_written_entries", writer.written_entries)
    yield _counter("history_dropped_entries", writer.dropped_entries)
    yield _counter("history_errors", writer.errors)
    yield _gauge("history_failing", float(bool(writer.last_error)))
    yield _gauge("history_bytes", writer.bytes)


def _journal(writer: JournalWriter) -> Iterator[Metric]:
    journal = writer.stats()
    yield _counter("journal_commits", journal.commits)
    yield _counter("journal_failures", journal.failures)
    yield _gauge("journal_set_aside", journal.set_aside)
    yield _gauge("journal_failing", float(bool(journal.error)))
    yield _gauge("journal_waiting_bytes", journal.waiting_bytes)
    yield _gauge("journal_places", journal.places)
    yield _by(_gauge("journal_bytes", labels=["stream"]), journal.streams)


def _pools(whole: stats.BrokerStats) -> Iterator[Metric]:
    used = _gauge("pool_bytes", labels=["pool", "medium"])
    limit = _gauge("pool_limit_bytes", labels=["pool", "medium"])
    for pool in whole.pools:
        used.add_metric([pool.name, "memory"], pool.memory_bytes)
        used.add_metric([pool.name, "disk"], pool.disk_bytes)
        used.add_metric([pool.name, "clients"], pool.clients_bytes)
        used.add_metric([pool.name, "states"], pool.state_bytes)
        limit.add_metric([pool.name, "memory"], pool.memory_limit_bytes)
        limit.add_metric([pool.name, "disk"], pool.disk_limit_bytes)
        limit.add_metric([pool.name, "clients"], pool.clients_limit_bytes)
    yield used
    yield limit


def _all_consumers(whole: stats.BrokerStats, census: stats.Census) -> Iterator[Metric]:
    yield _by(_counter("gap_records", labels=["reason"]), whole.gap_records)
    yield _by(_counter("unpublished_records", labels=["kind"]), whole.unpublished_records)
    yield _by(_gauge("consumers", labels=["state"]), census.states)
    yield _gauge("lag_records", census.lag_records)
    yield _gauge("lag_bytes", census.lag_bytes)
    yield _gauge("lag_bytes_max", census.lag_bytes_max)


def verdict_family(counts: Mapping[tuple[Cause | None, ActionKind, bool], int]) -> Metric:
    """How many verdicts fired. Causes and kinds of action are enumerated, so there are few series, whatever clients and
    plug-ins do."""
    family = _counter("verdicts_by_cause", labels=["cause", "action", "enforced"])
    for (cause, action, enforced), count in counts.items():
        family.add_metric([cause or "none", action, "true" if enforced else "false"], count)
    return family


def consumer_families(consumers: Iterable[stats.ConsumerStats]) -> Iterator[Metric]:
    names = ("lag_records", "lag_bytes", "held_bytes", "blocked_seconds", "blocked_ms", "slow", "view_age_seconds")
    families = [_gauge(f"consumer_{name}", labels=["client", "filter", "consumer"]) for name in names]
    for one in consumers:
        labels = [label(one.client), label(one.filter), label(one.consumer)]
        figures = (one.lag_records, one.lag_bytes, one.held_bytes, one.blocked_ms / 1000, one.blocked_ms, one.slow,
                   one.view_age_ms / 1000)  # fmt: skip
        for family, figure in zip(families, figures, strict=True):
            family.add_metric(labels, float(figure))
    return iter(families)


def queue_families(queues: Iterable[stats.QueueStats]) -> Iterator[Metric]:
    names = ("records", "bytes", "unacknowledged", "consumers")
    families = [_gauge(f"queue_{name}", labels=["queue"]) for name in names]
    dropped = _counter("queue_dropped_records", labels=["queue", "reason"])
    for one in queues:
        for family, figure in zip(families, (one.records, one.bytes, one.unacknowledged, one.consumers), strict=True):
            family.add_metric([label(one.name)], figure)
        for reason, count in one.dropped_records.items():
            dropped.add_metric([label(one.name), reason], count)
    yield from families
    yield dropped
