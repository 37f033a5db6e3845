"""All kinds of the set."""

from __future__ import annotations

from bench.behaviours.actor import KINDS, Kind
from bench.behaviours.kinds import (
    aside,
    aside_habits,
    aside_troubled,
    cursors,
    healthy,
    jobs,
    paces,
    sessions,
    troubled,
    troubled_others,
    workers,
)

__all__ = [
    "EVERY", "Kind", "aside", "aside_habits", "aside_troubled", "cursors", "healthy", "jobs", "paces", "sessions",
    "troubled", "troubled_others", "workers",
]

EVERY = KINDS
