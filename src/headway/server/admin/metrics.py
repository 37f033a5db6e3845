"""Prometheus metrics, read at each scrape from counters that the broker keeps anyway.

``/metrics`` has the figures of the whole broker; its length does not depend on the number of consumers and queues.
Series per consumer and per queue are on pages of their own, for those with the most lag (``listings.EACH_MAX``).

Names follow the conventions of Prometheus: base units (seconds, bytes), and ``_total`` on counters. A renamed metric
keeps its old name for one release, and the help text of the old name gives the new one (metric_help.py).
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any
from zlib import crc32

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headway import __version__
from headway.core.base import Cause
from headway.core.policy import ActionKind
from headway.core.telemetry import stats
from headway.server.admin.listings import Listings
from headway.server.admin.metric_help import HELP
from headway.server.engine import Engine, HistoryWriter, Telemetry
from headway.server.journal import JournalWriter
from headway.server.loop import BOUNDS_S, Pulse, memory_peak_bytes, memory_rss_bytes
from headway.server.traces import Traces

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
