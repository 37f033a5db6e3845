"""A world of one keyed topic, publishers who put and delete, and subscribers who keep an image of it.

Subscribers read fast, slowly or not at all, are conflated by an interval, by their sockets, by a policy or by their
topic, which a reload changes now and then, are cut and come back with a snapshot or from the offset that they last
read. After every step each image has to be true.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections import Counter, deque
from random import Random
from typing import Any

from bench.wires.packets import encode_publish
from tests.core.stage import Client, Stage, terms_of
from tests.sim.images.image import SELECT, SELECTOR, Image
from tests.sim.images.pages import PageViewer
from tests.sim.images.truth import KINDS, Event, Truth, merge
from tests.sim.model import matches

from headway.core.base.errors import Refused
from headway.core.consumer.subscription import Subscription
from headway.core.delivery import rendering as batch
from headway.core.live import live_query
from headway.core.live import live_query as head
from headway.core.log import states as focus
from headway.core.log import states as state
from headway.core.log.states import StatePass, StateReading
from headway.core.message.record import Properties

STEPS = 110
TOPICS = tuple(f"k/{name}" for name in "abcdef")
FILTERS = ("k/#", "k/#", "k/a", "k/+")
READS = (float("inf"), float("inf"), 0.0, 300.0, 3000.0)
POLICIES = (
    "",
    '[[policy]]\nname = "p"\ntopics = ["k/#"]\n[[policy.rule]]\nwhen = { lag_records = 20 }\nthen = "conflate"\n',
    '[[policy]]\nname = "p"\ntopics = ["k/#"]\n[[policy.rule]]\nwhen = { lag_records = 40 }\n'
    'then = { action = "discard", which = "oldest", keep_records = 10 }\n',
)


class Viewer:
    """A client with one subscription and the image that it keeps."""

    def __init__(self, world: World, number: int) -> None:
        rng = self.rng = world.rng
        self.world = world
        self.client: Client = world.stage.client(f"viewer {number}", reads=rng.choice(READS), buffer=1000)
        selector = rng.random() < 0.5
        self.image = Image(world.truth, rng.choice(FILTERS), selector=selector,
                           focused=selector and rng.random() < 0.7, projected=rng.random() < 0.3,
                           deltas=rng.random() < 0.5)
        self.marks = rng.random() < 0.5
        self.conflate = world.config.choice(("off", None, None, "0", "500ms"))
        if world.alike:  # they share one lane of deltas
            self.image.filter, self.image.selector, self.image.focused = FILTERS[0], False, False
            self.image.projected, self.image.deltas, self.conflate = False, True, "off"
        self.taken = 0
        self.subscription = self.subscribe(resume=False)

    def subscribe(self, *, resume: bool) -> Subscription:
        options = {"offsets": "true"}
        if self.conflate is not None:
            options["conflate"] = self.conflate
        if self.marks:
            options["marks"] = "true"
        if self.image.focused:
            options["out_of_focus"] = "true"
        if self.image.deltas:
            options["delta"] = "true"
        if self.image.projected:
            options["select"] = SELECT
        if self.image.selector:
            options["selector"] = SELECTOR
        if resume:
            options["from_"] = str(max(self.image.last, self.image.since))
        elif self.rng.random() < 0.7:
            options["snapshot"] = "true"
        self.taken, self.image.between = 0, None
        if not resume:
            self.image.begin(self.world.sequence, snapshot="snapshot" in options)
        self.world.note("subscribes", self.client.name, sorted(options.items()))
        self.world.count("resumes" if resume else "snapshots" if "snapshot" in options else "begins")
        return self.client.subscribe(self.image.filter, **options)

    def come_back(self) -> None:
        """The connection is cut, and what was not read is lost."""
        self.read()
        self.client.leave()
        self.client.seen.clear()
        self.client.connect()
        resume = self.image.sound and self.rng.random() < 0.6
        self.subscription = self.subscribe(resume=resume)

    def read(self) -> None:
        for seen in self.client.seen[self.taken :]:
            self.world.note("reads", self.client.name, seen.offset, seen.event, seen.gap)
            self.world.count(f"reads {seen.event or 'a record'}")
            self.image.take(seen)
        self.taken = len(self.client.seen)

    @property
    def all_read(self) -> bool:
        outlet, subscription = self.client.outlet, self.subscription
        if outlet.out or outlet.taken != outlet.drained or subscription.has_more:
            return False
        return subscription.cursor.number == subscription.feed.lane.count

    def check(self) -> None:
        self.read()
        all_read = self.all_read
        if self.subscription.gap is not None:  # it is told of it with the next record
            self.image.hears_of(self.subscription.gap.records, self.subscription.gap.reason)
        for backfill in self.subscription.backfills:  # ... or with the one after this pass
            if isinstance(backfill.records, StatePass):
                self.image.hears_of(backfill.records.missed, "discarded")
        self.world.count("checks in full" if all_read and self.image.sound else "checks in part")
        self.image.check(all_read=all_read)


class World:
    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.hash = hashlib.sha256()
        self.trail: deque[str] = deque(maxlen=60)
        self.counts: Counter[str] = Counter()
        self.kind = rng.choice(KINDS)
        self.tombstones = rng.random() < 0.9
        state.DELETES_MAX = rng.choice((2, 20, 10_000))
        batch.BATCH_BYTES = rng.choice((300, 64 * 1024))
        focus.LOST_MAX = rng.choice((1, 5, 256))
        live_query.DELETES_MAX = rng.choice((1, 5, 256))
        head.SPARE_RECORDS = rng.choice((1, 64))
        self.config = Random(f"config {seed}")
        table = f'[[topic]]\nfilter = "k/#"\nkey = "{self.kind}"\ntombstones = {str(self.tombstones).lower()}\n'
        self.table = table
        self.stage = Stage(self.a_table() + rng.choice(POLICIES))
        self.truth = Truth()
        self.publisher = self.stage.client("publisher")
        self.asker = self.stage.client("asker", reads=rng.choice((float("inf"), 3000.0)), buffer=1000)
        self.asked = FILTERS[0]
        self.numbers = 0
        self.readings: deque[StateReading] = deque()
        self.alike = rng.random() < 0.4
        self.viewers = [Viewer(self, number) for number in range(rng.randint(2, 5))]
        self.pages = [PageViewer(self, number) for number in range(rng.randint(0, 4))]

    @property
    def sequence(self) -> int:
        return self.stage.broker.registry.sequence

    def note(self, *what: Any) -> None:
        line = f"{self.stage.now:.3f} {' '.join(map(str, what))}"
        self.hash.update(line.encode() + b"\n")
        self.trail.append(line)

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def a_table(self) -> str:
        """The ``[[topic]]``, conflated or not."""
        return self.table + self.config.choice(("", "", 'conflate = "0s"\n', 'conflate = "300ms"\n'))

    def reload(self) -> None:
        table = self.a_table()
        self.note("reloads", table)
        self.count("reloads")
        self.stage.broker.declare_states(map(terms_of, tomllib.loads(table)["topic"]), self.stage.now)

    # -- publishing -------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        topic, data, events = self.rng.choice(TOPICS), b"", []
        for _ in range(self.rng.choice((1, 1, 3, 10, 30))):
            if self.rng.random() < 0.3:
                topic = self.rng.choice(TOPICS)
            event, user = self.an_event(topic)
            events.append(event)
            data += encode_publish(topic, event.payload, properties=Properties(user=user))
        runs = self.publisher.runs(data)
        for sequence, event in enumerate(events, self.sequence + 1):
            self.note("publishes", sequence, event)
            self.truth.add(sequence, event)
        before = self.sequence
        self.stage.broker.publish(self.publisher.session, runs, self.stage.now)
        assert self.sequence == before + len(events)

    def patch(self) -> None:
        """A publisher merges onto the record of a key; if there is none, the patch is refused."""
        topic, said = self.rng.choice(TOPICS), str(self.rng.randint(0, 3))
        key = topic if self.kind == "topic" else said
        self.numbers += 1
        change: dict[str, Any] = {"v": self.rng.randint(0, 100), "n": self.numbers}
        change |= self.rng.choice(({}, {"x": {"y": self.numbers}}, {"x": None}, {"x": {"y": None, "z": "\u00e9"}}))
        change |= {"k": said} if self.kind == "/k" else {}
        user = (("merge", "1"), *((("id", said),) if self.kind == "property:id" else ()))
        last = self.truth.last((topic, key), float("inf")) if (topic, key) in self.truth.changes else 0
        before = self.truth.events[last] if last else None
        data = encode_publish(topic, json.dumps(change).encode(), properties=Properties(user=user))
        (run,) = self.publisher.runs(data)
        sequence = self.sequence
        try:
            self.stage.broker.publish(self.publisher.session, [run], self.stage.now)
        except Refused:
            assert before is None or before.deletes or not before.payload, f"{change} onto {before}"
            assert self.sequence == sequence
            self.count("patches refused")
            return
        assert before is not None
        assert not before.deletes
        whole = json.dumps(merge(json.loads(before.payload), change), separators=(",", ":"), ensure_ascii=True)
        self.truth.add(self.sequence, Event(topic, key, whole.encode(), False))
        self.note("merges", self.sequence, whole)
        self.count("patches merged")

    def an_event(self, topic: str) -> tuple[Event, tuple[tuple[str, str], ...]]:
        """A record and its user properties."""
        rng, kind = self.rng, self.kind
        self.numbers += 1
        said = str(rng.randint(0, 3))
        key: str | None = topic if kind == "topic" else said
        body = json.dumps({"k": said, "v": rng.randint(0, 100), "n": self.numbers}).encode()
        user = (("id", said),) if kind == "property:id" else ()
        dice = rng.random()
        if dice < 0.7:
            return Event(topic, key, body, False), user
        if dice < 0.75:
            return Event(topic, key, body, self.tombstones), (*user, ("delete", "true"))
        if kind == "/k" and dice < 0.8:
            return Event(topic, None, b"", False), user
        if kind == "/k":
            user = (("key", said),)
        return Event(topic, key, b"", self.tombstones), user

    # -- steps ------------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> str:
        for _ in range(steps):
            self.step()
        for viewer in (*self.viewers, *self.pages):
            viewer.client.reads = float("inf")
        self.stage.run(2.0)
        for page in self.pages:
            page.check()
            assert page.client.connected
            if page.sound:
                page.check_all()
        for viewer in self.viewers:
            viewer.check()
            assert viewer.all_read, f"something waits for {viewer.client.name} for ever"
        return self.hash.hexdigest()

    def query(self) -> None:
        """A query over MQTT by somebody who reads at some pace: what it answers was true as of its offset."""
        outlet = self.asker.outlet
        if self.asker.session.subscriptions or outlet.taken != outlet.drained:
            return
        seen, filter = self.asker.seen, self.asked
        if seen:
            assert [seen[0].event, seen[-1].event] == ["snapshot_begin", "snapshot_end"]
            upto, answer = int(seen[0].figures["headway-offset"]), seen[1:-1]
            last = [self.truth.last(name, upto) for name in self.truth.changes if matches(filter, name[0])]
            wanted = sorted(one for one in last if one and not self.truth.events[one].deletes)
            assert [one.offset for one in answer] == wanted, f"as of {upto}"
            assert seen[-1].figures["headway-records"] == str(len(wanted))
            self.count("queries")
        seen.clear()
        self.asked = self.rng.choice(FILTERS)
        self.asker.subscribe(self.asked, query="true", offsets="true")

    def check_state(self) -> None:
        """A query that began some steps ago, and is read now, answers what was true then."""
        (kept,) = self.stage.broker.registry.router.states
        kept.check()
        tab, newest_first = self.asker.session.tab, self.rng.random() < 0.5
        self.readings.append(StateReading(kept, self.sequence, tab, newest_first=newest_first))
        if len(self.readings) > 3:
            reading = self.readings.popleft()
            found = [record.sequence for record in reading.take(10**6)]
            last = [self.truth.last(name, reading.upto) for name in self.truth.changes]
            wanted = sorted(one for one in last if one and not self.truth.events[one].deletes)
            assert sorted(found) == wanted, f"as of {reading.upto}"

    def step(self) -> None:
        rng = self.rng
        for _ in range(rng.choice((0, 1, 1, 3))):
            self.publish()
        if rng.random() < 0.4:
            self.patch()
        dice = rng.random()
        viewer = rng.choice(self.viewers)
        if dice < 0.05:
            viewer.come_back()
        elif dice < 0.1:
            viewer.client.reads = rng.choice(READS)
        elif dice < 0.2 and self.pages:
            page = rng.choice(self.pages)
            if dice < 0.15:
                page.come_back()
            else:
                page.client.reads = rng.choice(READS)
        if self.config.random() < 0.03:
            self.reload()
        by_topic = sum(bool(viewer.subscription.conflation.by_topic) for viewer in self.viewers)
        self.counts["conflated by the topic"] += by_topic
        if rng.random() < 0.5:
            self.stage.run(rng.choice((0.1, 0.1, 0.5)))
        else:
            self.stage.turn()
        self.check_state()
        self.query()
        for page in self.pages:
            page.check()
        for viewer in self.viewers:
            viewer.check()
