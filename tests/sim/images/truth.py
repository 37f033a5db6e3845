"""The truth about a keyed topic: what was published, in order, and so the value of every key at any time."""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import Any, NamedTuple

KINDS = ("topic", "/k", "property:id")
"""The kinds of keys."""
Name = tuple[str, str | None]
"""A topic and a key."""


class Event(NamedTuple):
    """A record as its publisher wrote it. ``deletes``: it is meant to delete its key."""

    topic: str
    key: str | None
    payload: bytes
    deletes: bool

    @property
    def name(self) -> Name:
        return self.topic, self.key

    @property
    def selected(self) -> bool:
        """Whether the selector ``v > 50`` wants it."""
        return bool(self.payload) and json.loads(self.payload)["v"] > 50


def merge(whole: Any, patch: Any) -> Any:
    """Merges as RFC 7396, section 2, has it, word by word."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(whole) if isinstance(whole, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


class Truth:
    def __init__(self) -> None:
        self.events: dict[int, Event] = {}
        self.changes: dict[Name, list[int]] = {}
        """The sequences of all changes of a key."""

    def add(self, sequence: int, event: Event) -> None:
        self.events[sequence] = event
        self.changes.setdefault(event.name, []).append(sequence)

    def last(self, name: Name, upto: float) -> int:
        """The last change of a key up to this sequence; 0: there is none."""
        found = self.changes[name]
        at = bisect_right(found, upto)
        return found[at - 1] if at else 0
