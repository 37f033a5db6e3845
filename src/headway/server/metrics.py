"""Prometheus metrics, collected when asked for; nothing is counted twice for their sake."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from zlib import crc32

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headway.core import stats
from headway.server.engine import Engine
from headway.server.journal.keeper import Keeper
from headway.server.process import memory_peak_bytes, memory_rss_bytes
from headway.server.pulse import BOUNDS_S, Pulse
from headway.server.telemetry import Telemetry

CONSUMERS_MAX = 1000
"""Consumers, and queues, with series of their own: those with most lag. The rest is in the totals."""


LABEL_CHARS_MAX = 120
"""Names and filters may have 65,535 letters, and each stands on the page once for each of its series."""


def label(text: str) -> str:
    """The text; of a longer one the beginning, and a number that tells it from others that begin so."""
    if len(text) <= LABEL_CHARS_MAX:
        return text
    return f"{text[: LABEL_CHARS_MAX - 10]}…{crc32(text.encode()):08x}"


class Metrics(Collector):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def page(self) -> bytes:
        """The exposition text."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        engine = self._engine
        whole = stats.whole(engine.broker)
        for name, text, value in (
            ("connections", "Open connections", len(engine.connections)),
            ("sessions", "Sessions, also of clients that are away", whole.sessions),
            ("subscriptions", "Subscriptions", whole.subscriptions),
            ("lanes", "Encoded streams shared by subscriptions", whole.lanes),
            ("lagging_consumers", "Consumers the governor is watching", whole.watched),
            ("retained_records", "Retained records", whole.retained),
            ("memory_rss_bytes", "Resident memory of the process", memory_rss_bytes()),
            ("memory_peak_bytes", "Highest resident memory of the process", memory_peak_bytes()),
            ("longest_turn_seconds", "Longest flush so far", engine.longest_turn_s),
            ("loop_late_longest_seconds", "Longest that the loop was late so far", engine.pulse.longest_s),
            ("loop_late_lately_seconds", "Longest that it was in the last minute or two", engine.pulse.lately_s),
        ):
            yield GaugeMetricFamily(f"headway_{name}", text, value)
        for name, text, value in (
            ("published_records", "Records published", whole.published_records),
            ("published_bytes", "Bytes published", whole.published_bytes),
            ("delivered_records", "Records delivered", whole.delivered_records),
            ("delivered_bytes", "Bytes delivered", whole.delivered_bytes),
            ("loop_late_seconds", "Time by which the loop was late, and verdicts suspended", whole.loop_late_s),
            ("verdicts", "Verdicts made", whole.verdicts),
            ("connections_refused", "Connections refused", engine.connections_refused),
            ("protocol_errors", "Connections ended for a protocol error", engine.protocol_errors),
        ):
            yield CounterMetricFamily(f"headway_{name}", text, value)
        ended = CounterMetricFamily("headway_connections_ended", "Connections that ended", labels=["reason"])
        for reason, count in engine.ends.counts.items():
            ended.add_metric([reason], count)
        yield ended
        yield from _late(engine.pulse)
        if engine.telemetry is not None:
            yield from self._telemetry(engine.telemetry)
        if engine.keeper is not None:
            yield from self._journal(engine.keeper)
        yield from self._pools(whole)
        yield from self._consumers(whole)
        yield from self._queues()

    def _queues(self) -> Iterator[Metric]:
        families = {
            name: GaugeMetricFamily(f"headway_queue_{name}", text, labels=["queue"])
            for name, text in (
                ("records", "Records that wait in this queue"),
                ("bytes", "Bytes that wait in this queue"),
                ("unacknowledged", "Records of this queue that are with consumers"),
                ("consumers", "Consumers of this queue"),
            )
        }
        dropped = CounterMetricFamily(
            "headway_queue_dropped_records", "Records this queue left out", labels=["queue", "reason"]
        )
        for queue in stats.queues(self._engine.broker, self._engine.now())[:CONSUMERS_MAX]:
            for name, family in families.items():
                family.add_metric([label(queue.name)], float(getattr(queue, name)))
            for reason, count in queue.dropped_records.items():
                dropped.add_metric([label(queue.name), reason], count)
        yield from families.values()
        yield dropped

    def _telemetry(self, telemetry: Telemetry) -> Iterator[Metric]:
        for name, text, value in (
            ("telemetry_written_rows", "Rows written to the lake", telemetry.written_rows),
            ("telemetry_dropped_rows", "Rows that could not be written", telemetry.dropped_rows),
            ("telemetry_errors", "How often rows could not be written", telemetry.errors),
        ):
            yield CounterMetricFamily(f"headway_{name}", text, value)
        yield GaugeMetricFamily("headway_telemetry_lake_bytes", "What the lake takes up", telemetry.lake.bytes)

    def _journal(self, keeper: Keeper) -> Iterator[Metric]:
        journal = keeper.stats()
        yield CounterMetricFamily("headway_journal_commits", "Groups of records brought to disk", journal.commits)
        yield CounterMetricFamily("headway_journal_failures", "How often that failed", journal.failures)
        for name, text, value in (
            ("journal_failing", "1 while nothing can be confirmed", float(bool(journal.error))),
            ("journal_waiting_bytes", "What is not known to be on disk yet", journal.waiting_bytes),
            ("journal_places", "Durable subscriptions and queues", journal.places),
        ):
            yield GaugeMetricFamily(f"headway_{name}", text, value)
        size = GaugeMetricFamily("headway_journal_bytes", "What a stream takes up on disk", labels=["stream"])
        for stream, taken in journal.streams.items():
            size.add_metric([stream], taken)
        yield size

    def _pools(self, whole: stats.BrokerStats) -> Iterator[Metric]:
        used = GaugeMetricFamily("headway_pool_bytes", "Bytes held by a pool", labels=["pool", "medium"])
        limit = GaugeMetricFamily("headway_pool_limit_bytes", "Limit of a pool", labels=["pool", "medium"])
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

    def _consumers(self, whole: stats.BrokerStats) -> Iterator[Metric]:
        gaps = CounterMetricFamily("headway_gap_records", "Records some consumer was not given", labels=["reason"])
        for reason, count in whole.gap_records.items():
            gaps.add_metric([reason], count)
        yield gaps
        labels = ["client", "filter", "consumer"]
        families = {
            name: GaugeMetricFamily(f"headway_consumer_{name}", text, labels=labels)
            for name, text in (
                ("lag_records", "Records that wait for this consumer"),
                ("lag_bytes", "Bytes that wait for this consumer"),
                ("held_bytes", "This consumer's share of what is really held"),
                ("blocked_ms", "For how long its socket has taken nothing"),
                ("slow", "1 while a rule holds it to be slow"),
            )
        }
        now = self._engine.now()
        for consumer in stats.consumers(self._engine.broker, now)[:CONSUMERS_MAX]:
            for name, family in families.items():
                names = [label(consumer.client), label(consumer.filter), label(consumer.consumer)]
                family.add_metric(names, float(getattr(consumer, name)))
        yield from families.values()


def _late(pulse: Pulse) -> Iterator[Metric]:
    """How late the loop was, and what took it: in all, whether verdicts were suspended for it or not."""
    text = "Time by which the loop was late"
    causes = CounterMetricFamily("headway_loop_late_by_cause_seconds", text, labels=["cause"])
    for cause, late_s in pulse.late_s.items():
        causes.add_metric([cause], late_s)
    yield causes
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    buckets = list(zip(bounds, accumulate(pulse.counts), strict=True))
    text = "How late the loop was, looked at fifty times a second"
    yield HistogramMetricFamily("headway_loop_lateness_seconds", text, buckets, sum(pulse.late_s.values()))
