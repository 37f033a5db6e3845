"""Subscribers of live pages and of kept aggregates, and what each has to know when nothing waits for it."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

from tests.core.stage import Client
from tests.sim.images.image import HARMLESS, SELECTOR
from tests.sim.images.truth import Event, Name, Truth
from tests.sim.model import Seen, matches

from headway.core.consumer.subscription import Subscription

if TYPE_CHECKING:
    from tests.sim.images.world import World

LATEST = "offset DESC"
ORDERS = ("/v", "/v DESC", LATEST)
GROUPS = {"select": "topic, count(*) AS n, sum(/v) AS sum, min(/v) AS min, max(/v) AS max", "group_by": "topic"}


class PageTerms:
    """What one of them asks for."""

    def __init__(self, rng: Random) -> None:
        self.filter = rng.choice(("k/#", "k/a", "k/+"))
        self.order, self.selector = rng.choice(ORDERS), rng.random() < 0.4
        self.start, self.top = rng.choice((0, 0, 1, 5)), rng.choice((0, 1, 3, 10))
        self.rows = rng.random() < 0.3
        self.conflate = rng.choice((None, None, "500ms"))

    @property
    def options(self) -> dict[str, str]:
        options = GROUPS if self.rows else {"order_by": self.order, "top": str(self.top), "skip": str(self.start)}
        options = options | ({"selector": SELECTOR} if self.selector else {})
        return options | ({} if self.conflate is None else {"conflate": self.conflate})

    def wanted(self, truth: Truth) -> dict[Any, bytes | dict[str, Any]]:
        """Returns what is to be seen, by looking at every key."""
        last = [truth.last(name, float("inf")) for name in truth.changes if matches(self.filter, name[0])]
        there = [(one, truth.events[one]) for one in sorted(last) if not truth.events[one].deletes]
        there = [(one, event) for one, event in there if event.selected or not self.selector]
        if self.rows:
            return _rows([event for _, event in there])
        there.sort(key=self._place)
        return {event.name: event.payload for _, event in there[self.start : self.start + self.top]}

    def _place(self, one: tuple[int, Event]) -> tuple[bool, int, int]:
        sequence, event = one
        if self.order == LATEST:
            return False, -sequence, 0
        value = json.loads(event.payload)["v"] if event.payload else 0
        return not event.payload, -value if "DESC" in self.order else value, sequence


def _rows(events: list[Event]) -> dict[Any, bytes | dict[str, Any]]:
    found: dict[Any, bytes | dict[str, Any]] = {}
    for topic in {event.topic for event in events}:
        values = [json.loads(event.payload)["v"] for event in events if event.topic == topic and event.payload]
        found[topic] = {
            "topic": topic, "n": sum(event.topic == topic for event in events), "sum": sum(values) if values else None,
            "min": min(values, default=None), "max": max(values, default=None),
        }  # fmt: skip
    return found


class PageViewer:
    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.terms = PageTerms(world.rng)
        reads = world.rng.choice((float("inf"), 0.0, 300.0, 3000.0))
        self.client: Client = world.stage.client(f"page viewer {number}", reads=reads, buffer=1000)
        self.subscription = self.subscribe()

    def subscribe(self) -> Subscription:
        self.image: dict[Any, Any] = {}
        self.sound, self.between = True, 0
        self.world.note("subscribes", self.client.name, sorted(self.terms.options.items()))
        return self.client.subscribe(self.terms.filter, self.world.rng.choice((0, 1)), **self.terms.options)

    def come_back(self) -> None:
        self.client.leave()
        self.client.seen.clear()
        self.client.connect()
        self.subscription = self.subscribe()

    def take(self, seen: Seen) -> None:
        self.world.count(f"pages read {seen.event or 'a record'}")
        if seen.gap is not None and seen.gap.records and seen.gap.reason not in HARMLESS:
            self.sound = False
        if seen.event == "snapshot_begin":
            self.image, self.between, self.sound = {}, 0, True
        elif seen.event == "snapshot_end":
            assert seen.figures["headway-records"] == str(self.between) == str(len(self.image))
        elif seen.event == "out_of_focus":
            self.image.pop(seen.key if self.terms.rows else (seen.topic, seen.key), None)
        elif self.terms.rows:
            row = json.loads(seen.payload)
            self.image[row["topic"]] = row
        else:
            name = self.name_of(seen)
            self.image[name] = seen.payload
            assert any(self.world.truth.events[one].payload == seen.payload for one in self.world.truth.changes[name])
        self.between += 1 if not seen.event else 0

    def name_of(self, seen: Seen) -> Name:
        if self.world.kind == "topic":
            return seen.topic, seen.topic
        if self.world.kind == "/k":
            said = json.loads(seen.payload)["k"] if seen.payload else dict(seen.properties.user).get("key")
            return seen.topic, said
        return seen.topic, dict(seen.properties.user).get("id")

    def check(self) -> None:
        for seen in self.client.seen:
            self.world.note("reads", self.client.name, seen.offset, seen.event, seen.gap)
            self.take(seen)
        self.client.seen.clear()
        outlet, subscription = self.client.outlet, self.subscription
        waits = outlet.out or outlet.taken != outlet.drained or subscription.has_more or subscription.gap is not None
        if waits or not self.sound or self.terms.conflate is not None:
            return
        self.world.count("checks of pages")
        self.check_all()

    def check_all(self) -> None:
        assert self.image == self.terms.wanted(self.world.truth), self.terms.options
