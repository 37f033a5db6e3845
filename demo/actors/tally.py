"""A consumer's ledger: what came, in what order, how late, and what it was told was left out."""

from __future__ import annotations

import time
from array import array
from collections import Counter

import msgspec
from paho.mqtt.client import MQTTMessage

from demo.reports import ActorReport, percentile


class Stamp(msgspec.Struct):
    """The part of a payload that the ledger is about."""

    n: int
    sent_s: float


_decode = msgspec.json.Decoder(Stamp).decode


class Tally:
    def __init__(self) -> None:
        self.records = 0
        self.topics: Counter[str] = Counter()
        self.latest: dict[str, int] = {}
        """The highest number seen, per topic."""
        self.missing = 0
        self.disorder = 0
        self.latencies_s = array("d")
        self.gap_records: Counter[str] = Counter()
        self.connects = 0
        self.refusals = 0
        self.lost_connections = 0
        self.told: dict[str, None] = {}
        self._window = 0

    def enter(self, message: MQTTMessage) -> None:
        now = time.monotonic()
        stamp = _decode(message.payload)
        topic = message.topic
        self.records += 1
        self.topics[topic] += 1
        self.latencies_s.append(now - stamp.sent_s)
        before = self.latest.get(topic, 0)
        if stamp.n == before + 1:
            self.latest[topic] = stamp.n
        elif stamp.n > before:
            self.missing += stamp.n - before - 1
            self.latest[topic] = stamp.n
        else:
            self.disorder += 1
        if message.properties is not None and hasattr(message.properties, "UserProperty"):
            self._enter_gap(dict(message.properties.UserProperty))

    def _enter_gap(self, said: dict[str, str]) -> None:
        if "gap-records" in said:
            self.gap_records[said.get("gap-reason", "?")] += int(said["gap-records"])

    def live(self) -> ActorReport:
        """So far; the latencies are those since the last such report."""
        recent = sorted(self.latencies_s[self._window :])
        self._window = len(self.latencies_s)
        return self._report("live", recent)

    def done(self) -> ActorReport:
        report = self._report("done", sorted(self.latencies_s))
        report.topics = dict(self.topics)
        return report

    def _report(self, kind: str, latencies_s: list[float]) -> ActorReport:
        return ActorReport(
            kind, records=self.records, missing=self.missing, disorder=self.disorder,
            p50_ms=1000 * percentile(latencies_s, 0.5), p99_ms=1000 * percentile(latencies_s, 0.99),
            max_ms=1000 * (latencies_s[-1] if latencies_s else 0.0), gap_records=dict(self.gap_records),
            connects=self.connects, refusals=self.refusals, told=list(self.told),
            lost_connections=self.lost_connections,
        )  # fmt: skip
