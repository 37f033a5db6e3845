"""Reports of actors to the demo: one JSON object a line."""

from __future__ import annotations

import msgspec


class ActorReport(msgspec.Struct, omit_defaults=True):
    """An actor's account so far; ``kind`` is ready, live, done or failed."""

    kind: str
    text: str = ""
    records: int = 0
    """Received, or by the publisher sent."""
    topics: dict[str, int] = {}
    """Per topic; in the last report only."""
    total: int = 0
    moment: str = ""
    """How far into the year the publisher is."""
    late_s: float = 0.0
    """How far behind its own schedule the publisher was at worst: how long the broker did not read it."""
    missing: int = 0
    """Records whose number jumped ahead of the one before in its topic."""
    disorder: int = 0
    """Records that came late or twice."""
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    gap_records: dict[str, int] = {}
    """Announced to it as skipped, by reason."""
    connects: int = 0
    refusals: int = 0
    told: list[str] = []
    """Reasons that the broker gave when it ended or refused a connection, each once."""
    lost_connections: int = 0
    stale_s: float = 0.0
    """The age of a view's image now."""
    oldest_s: float = 0.0
    """The highest age of that image so far."""
    back_s: float = 0.0
    """The time that a view took to be current again, once its reader read on."""
    image: dict[str, int] = {}
    """The offsets of an image's entries, by topic and key; in the last report only."""


def percentile(ordered: list[float], share: float) -> float:
    """Percentile of values in ascending order; 0 when there are none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
