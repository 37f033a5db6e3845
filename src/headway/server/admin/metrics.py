"""Prometheus metrics, collected when asked for; nothing is counted twice for their sake.

``/metrics`` has the whole, whatever number of consumers and queues there are. Series for each of them are on pages of
their own, for those with most lag only (``listings.EACH_MAX``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from zlib import crc32

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headway.core.telemetry import stats
from headway.server.admin.listings import Listings
from headway.server.engine import Engine, Telemetry
from headway.server.journal import JournalWriter
from headway.server.loop import BOUNDS_S, Pulse, memory_peak_bytes, memory_rss_bytes

LABEL_CHARS_MAX = 120
"""Names and filters may have 65,535 letters, and each stands on the page once for each of its series."""


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def label(text: str) -> str:
    """The text; of a longer one the beginning, and a number that tells it from others that begin so."""
    if len(text) <= LABEL_CHARS_MAX:
        return text
    return f"{text[: LABEL_CHARS_MAX - 10]}…{crc32(text.encode()):08x}"


def _text(families: list[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return generate_latest(registry)


class Metrics:
    """Each page is an exposition text."""

    def __init__(self, engine: Engine, listings: Listings) -> None:
        self._engine = engine
        self._listings = listings

    async def page(self) -> bytes:
        census = await self._listings.census()
        return _text(list(self._whole(census)))

    async def consumers(self) -> bytes:
        """Consumers with most lag, a series each."""
        told = await self._listings.consumers()
        return await self._written(list(self._consumers(told["consumers"])))

    async def queues(self) -> bytes:
        """Longest queues, a series each."""
        told = await self._listings.queues()
        return await self._written(list(self._queues(told["queues"])))

    async def _written(self, families: list[Metric]) -> bytes:
        """Beside the loop: thousands of lines take longer than a turn may."""
        return await self._engine.loop.run_in_executor(None, _text, families)

    def _whole(self, census: stats.Census) -> Iterator[Metric]:
        engine = self._engine
        whole = stats.whole(engine.broker, census)
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
        failures = CounterMetricFamily("headway_plugin_failures", "How often a plug-in raised", labels=["plugin"])
        for name, count in engine.broker.governor.plugged.failures.items():
            failures.add_metric([name], count)
        yield failures
        yield from _late(engine.pulse)
        if engine.telemetry is not None:
            yield from self._telemetry(engine.telemetry)
        if engine.journal is not None:
            yield from self._journal(engine.journal)
        yield from self._pools(whole)
        yield from self._together(whole, census)

    def _queues(self, queues: list[stats.QueueStats]) -> Iterator[Metric]:
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
        for queue in queues:
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

    def _journal(self, journal: JournalWriter) -> Iterator[Metric]:
        told = journal.stats()
        yield CounterMetricFamily("headway_journal_commits", "Groups of records brought to disk", told.commits)
        yield CounterMetricFamily("headway_journal_failures", "How often that failed", told.failures)
        for name, text, value in (
            ("journal_failing", "1 while nothing can be confirmed", float(bool(told.error))),
            ("journal_waiting_bytes", "What is not known to be on disk yet", told.waiting_bytes),
            ("journal_places", "Durable subscriptions and queues", told.places),
        ):
            yield GaugeMetricFamily(f"headway_{name}", text, value)
        size = GaugeMetricFamily("headway_journal_bytes", "What a stream takes up on disk", labels=["stream"])
        for stream, taken in told.streams.items():
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

    def _together(self, whole: stats.BrokerStats, census: stats.Census) -> Iterator[Metric]:
        gaps = CounterMetricFamily("headway_gap_records", "Records some consumer was not given", labels=["reason"])
        for reason, count in whole.gap_records.items():
            gaps.add_metric([reason], count)
        yield gaps
        states = GaugeMetricFamily("headway_consumers", "Consumers, by how they are", labels=["state"])
        for state, consumers in census.states.items():
            states.add_metric([state], consumers)
        yield states
        for name, text, value in (
            ("lag_records", "Records that wait, for all consumers together", census.lag_records),
            ("lag_bytes", "Bytes that wait, for all consumers together", census.lag_bytes),
            ("lag_bytes_max", "Bytes that wait for the consumer with most lag", census.lag_bytes_max),
            ("queues", "Queues", len(self._engine.broker.registry.router.queues)),
        ):
            yield GaugeMetricFamily(f"headway_{name}", text, value)

    def _consumers(self, consumers: list[stats.ConsumerStats]) -> Iterator[Metric]:
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
        for consumer in consumers:
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
