"""All kinds of the set."""

from __future__ import annotations

from bench.behaviours.consumers.actor import KINDS, Kind
from bench.behaviours.kinds import (
    cursors,
    field_habits,
    field_rhythms,
    field_troubled,
    healthy,
    jobs,
    paces,
    sessions,
    troubled,
    troubled_others,
    workers,
)

__all__ = [
    "EVERY", "Kind", "cursors", "field_habits", "field_rhythms", "field_troubled", "healthy", "jobs", "paces",
    "sessions", "troubled", "troubled_others", "workers",
]

EVERY = KINDS
