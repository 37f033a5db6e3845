"""Judgement: did the healthy notice anything, and what became of the others?

Pure: reports and verdicts in, words out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from demo.cast import Role
from demo.reports import ActorReport
from headway.core.message import matches

DEEDS = {
    "notify": "reported as slow",
    "conflate": "conflated",
    "discard": "oldest discarded",
    "offline": "offlined to disk",
    "block_publishers": "publishers held back",
    "return": "relieved of records",
    "close_consumer": "asked to close",
    "disconnect": "disconnected",
    "delete_subscription": "unsubscribed",
}


class Outcome(msgspec.Struct):
    """The outcome of one consumer."""

    part: Role
    report: ActorReport
    published: int
    """Records that its filter matches."""
    verdicts: list[dict[str, Any]]
    """Oldest first, as the admin API has them."""
    gap_records: dict[str, int]
    """Skipped, by reason, as the broker counted them."""
    complaints: list[str] = []

    @property
    def deeds(self) -> list[str]:
        """Decisions in the order of their first occurrence, and how often."""
        counts = Counter(deed(verdict) for verdict in self.verdicts if verdict["kind"] == "fire")
        return [word if count == 1 else f"{word} ({count} times)" for word, count in counts.items()]

    @property
    def decisive(self) -> dict[str, Any] | None:
        """The verdict that says most about it: the last of the severest kind."""
        order = list(DEEDS)
        fired = [verdict for verdict in self.verdicts if verdict["kind"] == "fire"]
        return max(fired, key=lambda verdict: (order.index(action(verdict)), verdict["number"]), default=None)


def action(verdict: Mapping[str, Any]) -> str:
    """The action's word."""
    said = verdict["action"]
    return str(said["kind"] if isinstance(said, Mapping) else said)


def deed(verdict: Mapping[str, Any]) -> str:
    return DEEDS.get(action(verdict), action(verdict))


def expected(part: Role, published: Mapping[str, int]) -> dict[str, int]:
    """The publisher's counts of the topics this part reads."""
    return {topic: count for topic, count in published.items() if matches(part.filter, topic)}


def complete(part: Role, report: ActorReport, published: Mapping[str, int]) -> bool:
    """As many have come as were sent."""
    return report.records >= sum(expected(part, published).values())


def judge(part: Role, report: ActorReport, published: Mapping[str, int], verdicts: list[dict[str, Any]],
          gap_records: Mapping[str, int], limit_ms: float) -> Outcome:
    """The outcome of one consumer; a healthy one may complain."""
    due = expected(part, published)
    outcome = Outcome(part, report, sum(due.values()), verdicts, {**report.gap_records, **gap_records})
    if part.healthy:
        outcome.complaints = list(complaints(outcome, due, limit_ms))
    return outcome


def complaints(outcome: Outcome, due: Mapping[str, int], limit_ms: float) -> list[str]:
    """Everything a healthy consumer should not have seen."""
    report, found = outcome.report, []
    lost = {topic: count - report.topics.get(topic, 0) for topic, count in due.items()}
    short = {topic: count for topic, count in lost.items() if count > 0}
    if short:
        worst = max(short, key=lambda topic: short[topic])
        found.append(f"lost {sum(short.values()):,} records on {len(short)} topics, most on {worst} ({short[worst]:,})")
    surplus = sum(-count for count in lost.values() if count < 0) + sum(
        count for topic, count in report.topics.items() if topic not in due
    )
    if surplus:
        found.append(f"got {surplus:,} records too many")
    if report.disorder:
        found.append(f"got {report.disorder:,} records out of order or twice")
    if outcome.gap_records:
        found.append(f"was told of a gap: {gaps_in_words(outcome.gap_records)}")
    if report.lost_connections:
        found.append("lost its connection: " + ("; ".join(report.told) or "nothing was said"))
    if outcome.verdicts:
        found.append(f"got a verdict: {outcome.verdicts[-1]['text']}")
    if not report.records:
        found.append("got nothing at all")
    if report.p99_ms > limit_ms:
        found.append(f"was held up: p99 {report.p99_ms:,.0f} ms, more than {limit_ms:,.0f} ms")
    return found


def gaps_in_words(gap_records: Mapping[str, int]) -> str:
    """``12,345 conflated, 6 expired``."""
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(gap_records.items()) if count)
