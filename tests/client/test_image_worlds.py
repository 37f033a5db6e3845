"""Seeded worlds: whatever comes and is cut, an image is never wrong, says how old it is, and tells what changed."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import NamedTuple

import pytest

from headway.client.changes import Change, Current, Delete, Entry, Gap, Key, Put, Stale
from headway.client.image import Changes, Image, Sent
from headway.core.message import difference

KEYS = [Key("t", name) for name in "abcdef"]
LIMIT_S = 5.0
STEPS = 300


class Event(NamedTuple):
    offset: int
    key: Key
    entry: Entry | None
    """None: a delete."""
    at_s: float


class World:
    """A log, a subscription to it that sends what waits bit by bit, and the image at its other end."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now = 0.0
        self.log: list[Event] = []
        self.waiting: list[Event] = []
        """What the broker has not sent: first a snapshot, then changes."""
        self.snapshot = 0
        """How much of it is a snapshot."""
        self.gap: Gap | None = None
        self.subscribed = False
        self.sent: dict[Key, Entry] = {}
        """The latest records that the subscription was sent, of which deltas may be."""
        self.image = Image(LIMIT_S)
        self.told: dict[Key, Entry] = {}
        self.current = False
        self.counts: Counter[str] = Counter()

    # -- what happens -------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        offset = self.log[-1].offset + self.rng.randint(1, 3) if self.log else 1
        key = self.rng.choice(KEYS)
        entry = None if self.rng.random() < 0.25 else Entry(self.payload(), offset)
        event = Event(offset, key, entry, self.now)
        self.log.append(event)
        if not self.subscribed:
            return
        for at in range(self.snapshot):
            if self.waiting[at].key == key:  # the snapshot comes to it no more
                del self.waiting[at]
                self.snapshot -= 1
                break
        self.waiting.append(event)

    def payload(self) -> bytes:
        return b'{"v":%d,"w":%d,"x":{"y":%d}}' % tuple(self.rng.randint(0, 3) for _ in range(3))

    def subscribe(self) -> None:
        if self.subscribed:
            return
        self.sent.clear()
        self.subscribed, self.gap = True, None
        if self.image.true_s is not None and not self.image.wants_snapshot and self.rng.random() < 0.5:
            self.image.resume()
            self.waiting, self.snapshot = [event for event in self.log if event.offset > self.image.offset], 0
            self.image.granted(self.last)
            self.counts["resumes"] += 1
            return
        self.image.begin()
        state = self.truth(self.last)
        self.waiting = sorted((Event(e.offset, key, e, 0.0) for key, e in state.items()), key=lambda e: e.offset)
        self.snapshot = len(self.waiting)
        self.image.granted(self.last)
        self.counts["snapshots"] += 1

    def send(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            if not self.waiting or not self.subscribed:
                return
            event = self.waiting.pop(0)
            self.snapshot = max(0, self.snapshot - 1)
            if self.gap is not None:
                self.hear(self.image.gap(self.gap))
                self.gap = None
            before = self.sent.pop(event.key, None)
            if event.entry is None:
                self.hear(self.image.delete(event.key, event.offset))
            elif before is not None and self.rng.random() < 0.7:
                delta = difference(before.payload, event.entry.payload)
                assert delta is not None
                self.hear(self.image.patch(event.key, Entry(delta, event.offset)))
                self.counts["deltas"] += 1
            else:
                self.hear(self.image.put(event.key, event.entry))
            if event.entry is not None:
                self.sent[event.key] = event.entry
            self.ask_anew()

    def discard(self) -> None:
        if self.subscribed and len(self.waiting) > self.snapshot and self.rng.random() < 0.3:
            lost = self.waiting.pop(self.rng.randrange(self.snapshot, len(self.waiting)))
            last = max(lost.offset, self.gap.last if self.gap else 0)
            self.gap = Gap(1, "discarded", last)
            self.counts["gaps"] += 1

    def prove(self) -> None:
        if not self.subscribed or self.snapshot:
            return
        if self.gap is not None:
            self.hear(self.image.gap(self.gap))
            self.ask_anew()
            return
        sent = Sent(self.last, 0.0, self.last)
        if self.waiting:
            sent = Sent(self.waiting[0].offset - 1, self.now - self.waiting[0].at_s, self.last)
        self.hear(self.image.proved(sent, self.now, self.now))

    def ask_anew(self) -> None:
        if self.image.wants_snapshot:
            self.cut()

    def cut(self) -> None:
        if self.subscribed:
            self.subscribed = False
            self.hear(self.image.cut("cut"))
            self.counts["cuts"] += 1

    def pass_time(self) -> None:
        self.now += self.rng.choice((0.1, 0.5, 2.0, 7.0))
        self.hear(self.image.look(self.now))

    # -- what has to be -----------------------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        return self.log[-1].offset if self.log else 0

    def truth(self, upto: int) -> dict[Key, Entry]:
        state: dict[Key, Entry] = {}
        for event in self.log:
            if event.offset > upto:
                break
            if event.entry is None:
                state.pop(event.key, None)
            else:
                state[event.key] = event.entry
        return state

    def hear(self, changes: Changes) -> None:
        for change in changes:
            self.counts[type(change).__name__] += 1
            self.follow(change)

    def follow(self, change: Change) -> None:
        match change:
            case Put(key, entry, before):
                assert self.told.get(key) == before
                self.told[key] = entry
            case Delete(key, before):
                assert self.told.pop(key) == before
            case Stale():
                assert self.current
                self.current = False
            case Current(offset):
                assert not self.current
                assert offset == self.image.offset
                self.current = True
            case _:
                assert isinstance(change, Gap)

    def check(self) -> None:
        image = self.image
        assert image.entries.of == self.told, "what was told adds up to the image"
        if image.true_s is None:
            assert not image.entries.of
            return
        offsets = [image.offset, *(event.offset for event in self.log if event.offset > image.offset)]
        assert image.entries.of in map(self.truth, offsets), "it is the state as of its offset, or a later one"
        before = [event.offset for event in self.log if event.at_s < self.now - image.stale_s(self.now) - 1e-6]
        assert image.offset >= max(before, default=0), "it is no older than it says"
        if image.is_current(self.now):
            assert self.subscribed

    def run(self) -> None:
        deeds = [self.publish] * 4 + [self.send] * 4 + [self.prove] * 3 + [self.pass_time] * 2
        deeds += [self.subscribe] * 2 + [self.cut, self.discard]
        for _ in range(STEPS):
            self.rng.choice(deeds)()
            self.check()
        self.subscribe()
        while self.waiting:
            self.send()
            self.subscribe()
        self.prove()
        if not self.subscribed:  # a gap was told instead
            self.subscribe()
            while self.waiting:
                self.send()
            self.prove()
        self.check()
        assert self.image.entries.of == self.truth(self.last)
        assert self.image.is_current(self.now)


@pytest.mark.parametrize("seed", range(60))
def test_an_image_is_never_wrong(seed: int) -> None:
    World(seed).run()


def test_much_happens() -> None:
    counts: Counter[str] = Counter()
    for seed in range(20):
        world = World(seed)
        world.run()
        counts += world.counts
    assert counts["Gap"] > 5, "most come while an image is gathered, and these are not told"
    for what in ("Put", "Delete", "Stale", "Current", "resumes", "snapshots", "cuts", "gaps", "deltas"):
        assert counts[what] > 20, counts
