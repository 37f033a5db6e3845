"""A subscriber's image of a keyed topic, built from what it read and nothing else, and what it has to be.

What it has to be follows from the truth and from the last record that was read: records come in the order of their
changes, so every key that has not changed since then is in the image as it is. When nothing waits for the subscriber,
this holds for all keys. A gap for any other reason than conflation says that the image may be wrong; it counts no more
until the next snapshot.
"""

from __future__ import annotations

import json
from math import inf
from typing import Any

from tests.sim.images.truth import Event, Name, Truth, merge
from tests.sim.model import Seen, matches

SELECTOR = "v > 50"
SELECT = "/n, /k AS kind"
HARMLESS = ("conflated",)


class Image:
    def __init__(self, truth: Truth, filter: str, *, selector: bool, focused: bool = False,
                 projected: bool = False, deltas: bool = False) -> None:
        self.truth = truth
        self.filter = filter
        self.selector = selector
        self.focused = focused
        """It is told of keys that it loses sight of."""
        self.projected = projected
        """It asked for some fields of each record."""
        self.deltas = deltas
        """It asked for what has changed."""
        self.contents: dict[Name, Any] = {}
        """What it has of each key, put together from whole records and deltas."""
        self.values: dict[Name, Event] = {}
        self.last = 0
        """The sequence of the last record that was read."""
        self.since = 0
        """Changes up to this sequence are only known if there was a snapshot."""
        self.sound = True
        self.between: int | None = None
        """The number of records since the mark at the begin of a snapshot; None: it is over."""

    def begin(self, sequence: int, *, snapshot: bool) -> None:
        """A new subscription, at this sequence. Without ``snapshot`` it has only what comes from now on."""
        self.values.clear()
        self.contents.clear()
        self.between = None
        self.last, self.since, self.sound = 0 if snapshot else sequence, 0 if snapshot else sequence, True

    def take(self, seen: Seen) -> None:
        if seen.gap is not None:
            self.hears_of(seen.gap.records, seen.gap.reason)
        if seen.event in ("snapshot_begin", "snapshot_end"):
            self.take_mark(seen)
            return
        assert seen.offset is not None
        assert seen.offset > self.last, f"{seen.offset} comes after {self.last}"
        event = self.truth.events[seen.offset]
        if seen.event == "out_of_focus":
            self.lose(seen, event)
            return
        assert seen.topic == event.topic, f"{seen} is not {event}"
        self.compare(seen, event)
        event_told = "" if seen.event == "delta" else seen.event or ""
        assert matches(self.filter, event.topic)
        assert event.selected or not self.selector
        assert (event_told == "delete") == event.deletes, f"{seen} is said to be {seen.event!r}: {event}"
        if self.between is not None:
            self.between += 1
            assert seen.key == event.key, f"{seen} has {event.key}"
        if event.deletes and not event.payload:
            assert seen.key == event.key, f"{seen} deletes {event.key}"
        self.last = seen.offset
        if event.deletes or not event.payload:
            self.contents.pop(event.name, None)
        if event.deletes:
            self.values.pop(event.name, None)
        else:
            self.values[event.name] = event

    def compare(self, seen: Seen, event: Event) -> None:
        if self.deltas and event.payload:
            self.put_together(seen, event)
            return
        assert seen.event != "delta"
        if not (self.projected and event.payload):
            assert seen.payload == event.payload, f"{seen} is not {event}"
            return
        whole = json.loads(event.payload)
        assert json.loads(seen.payload) == {"n": whole["n"], "kind": whole["k"]}, f"{seen} is not {event}"
        assert seen.key == event.key, f"{seen} has {event.key}"

    def put_together(self, seen: Seen, event: Event) -> None:
        """Whatever it has missed, and whatever it was told of that: a delta fits what it has."""
        told, wanted = json.loads(seen.payload), json.loads(event.payload)
        if self.projected:
            wanted = {"n": wanted["n"], "kind": wanted["k"]}
        if seen.event == "delta":
            assert event.name in self.contents, f"{seen} is a delta of what it does not have"
            assert seen.key == event.key
            assert len(seen.payload) < len(event.payload)
            told = merge(self.contents[event.name], told)
        elif not self.projected:
            assert seen.payload == event.payload
        assert told == wanted, f"{seen} makes {told}, and not {wanted}"
        self.contents[event.name] = told

    def lose(self, seen: Seen, event: Event) -> None:
        assert self.focused
        assert not event.selected, f"{seen} is in focus: {event}"
        assert (seen.topic, seen.payload, seen.key) == (event.topic, b"", event.key)
        assert seen.figures["headway-why"] == ("deleted" if event.deletes else "changed")
        assert matches(self.filter, event.topic)
        assert seen.offset is not None
        self.last = seen.offset
        self.values.pop(event.name, None)
        self.contents.pop(event.name, None)

    def take_mark(self, seen: Seen) -> None:
        assert matches(self.filter, seen.topic)
        if seen.event == "snapshot_begin":
            self.begin(0, snapshot=True)
            self.between = 0
        else:
            assert seen.figures["headway-records"] == str(self.between), seen
            assert seen.figures["headway-missing"] == "0", "there is room for all"
            self.last = max(self.last, int(seen.figures["headway-offset"]))
            self.between = None

    def hears_of(self, records: int, reason: str) -> None:
        if records and reason not in HARMLESS:
            self.sound = False

    def check(self, *, all_read: bool) -> None:
        if not self.sound:
            return
        upto = inf if all_read else self.last
        for name in self.truth.changes:
            if not matches(self.filter, name[0]):
                continue
            last = self.truth.last(name, inf)
            if last <= self.since or last > upto:
                continue
            event = self.truth.events[last]
            if self.selector and not event.selected and not self.focused:
                continue  # it is not told what it has lost sight of
            wanted = None if event.deletes or (self.selector and not event.selected) else event
            assert self.values.get(name) == wanted, f"{name} is {self.values.get(name)}, and not {wanted} ({last})"
