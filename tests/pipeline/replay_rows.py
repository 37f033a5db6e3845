"""Recordings of one consumer, made by hand."""

from __future__ import annotations

from tests.pipeline.recordings import rate, samples, total

STUCK = samples(rate(100), rate(100, until=10), 60, blocked_from=10)
"""100 records of 100 bytes a second; from 10 s on its socket takes nothing."""
SLOW = samples(rate(100), total(rate(100, until=10), rate(30, since=10)), 60)
"""From 10 s on it takes 30 of the 100 records offered each second."""
RECOVERS = samples(rate(100), total(rate(100, until=10), rate(2000, since=20)), 60, blocked_from=10)
