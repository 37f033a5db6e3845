"""Writers over a disk that loses power: what a batch was to bring is in the journal once, however it was broken off."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.server.journal_stage import JournalStage, Publisher
from tests.sim.seeds import seeds_of_the_day
from tests.store.journal.fake_files import FakeFiles, PowerLoss

from headway.core.clients.publishers import Origin
from headway.core.log.durable import MAIN
from headway.core.message.record import TOPICS, Run
from headway.core.permission import NOBODY
from headway.core.routing.matching.bindings import Binding, Destination
from headway.server.journal.entries import decode_runs, stream_name
from headway.server.journal.writing import TIDY_EVERY_S

RECORDED = ("a", "b")
CONFIG = "".join(f'[[topic]]\nfilter = "{topic}"\nkeep = "7d"\n' for topic in RECORDED)
SIZE = 900
"""Bytes of a row, so that a batch fills more than a segment."""
Rows = list[tuple[str, int]]


class World:
    """One broker after another on the same disk. ``q`` is a durable queue that is bound to the topic c."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.stage = JournalStage(config=CONFIG)
        self.got: Counter[int] = Counter()
        self.crashes = 0
        self.stage.declare("q")
        self.stage.broker.queues.bind(self.stage.session, Binding(TOPICS, Destination("queue", "q"), "c"))
        self.stage.turn()

    def publish(self, batch: int, rows: Rows) -> None:
        """Until it is done; the power fails twice at most."""
        for attempt in range(3):
            try:
                self.stage.files.hook = self._failing() if attempt < 2 else None
                self._attempt(batch, rows)
                self.stage.files.hook = None
                return
            except PowerLoss:
                self.crashes += 1
                self.stage = JournalStage(self.stage.files.crash(self.rng), config=CONFIG)

    def _failing(self) -> Callable[[str, Path], None]:
        left = self.rng.randrange(self.rng.choice((8, 60)))  # often soon after the beginning

        def hook(operation: str, _: Path) -> None:
            nonlocal left
            left -= operation in ("write", "sync", "rename", "remove")
            if left < 0:
                raise PowerLoss

        return hook

    def _attempt(self, batch: int, rows: Rows) -> None:
        """As server/streams/writers.py does it, but for the parts; in other ranges each time."""
        stage, writers = self.stage, self.stage.broker.writers
        last = writers.last("w")
        if last is not None and last.number == batch and not last.parts:
            return
        if last is None or last.number < batch:
            writers.begin("w", batch, ("part",), stage.now, NOBODY)
            self._kept()
        at = 0
        while at < len(rows):
            topic, stop = rows[at][0], at + 1
            longest = self.rng.randrange(1, 30)
            while stop < len(rows) and rows[stop][0] == topic and stop - at < longest:
                stop += 1
            session = writers.attach("w", lambda: None, stage.now)
            writers.publish(session, Origin("w", batch, at), _run(topic, rows[at:stop]), stage.now)
            at = stop
            if self.rng.random() < 0.3:
                stage.turn()
            if self.rng.random() < 0.1:
                self._consume()
                stage.loop.now += TIDY_EVERY_S + 1
        self._kept()
        writers.done("w", stage.now)
        self._kept()

    def _kept(self) -> None:
        self.stage.turn()
        assert self.stage.journal.committed == self.stage.journal.ledger.number - 1

    def _consume(self) -> None:
        """What was seen may be seen again after a crash; what was settled and confirmed may not, but for that the
        confirmation itself gets lost."""
        while (found := self.stage.get("q")) is not None:
            number, got = found
            self.got[number] += 1
            self.stage.ack(got)

    def recorded(self, topic: str) -> list[int]:
        stream = self.stage.journal.streams[stream_name(topic)]
        runs = [one.run for _, batch in stream.read(stream.first_sequence, stream.last_sequence)
                for one in decode_runs(batch, 0.0)]  # fmt: skip
        return [int(run.payload(index).split()[0]) for run in runs for index in range(len(run))]

    def queued(self) -> Counter[int]:
        """How often the queue has been given each, as far as the journal says that it was not settled."""
        self._consume()
        return self.got


def _run(topic: str, rows: Rows) -> Run:
    data = b"".join(b"%d " % number + b"." * (SIZE - len(b"%d " % number)) for _, number in rows)
    ends = range(SIZE, SIZE * len(rows) + 1, SIZE)
    return Run(topic, data, ends, range(0, SIZE * len(rows), SIZE), qos=1)


def some_rows(rng: random.Random, first: int) -> Rows:
    rows: Rows = []
    while len(rows) < 200:
        topic = rng.choice((*RECORDED, "c"))
        rows += [(topic, first + len(rows) + number) for number in range(rng.randrange(1, 20))]
    return rows


@pytest.mark.parametrize("seed", seeds_of_the_day(range(12)))
def test_each_row_is_in_the_journal_once(seed: int) -> None:
    world, chance = World(seed), random.Random(seed)
    wanted: dict[str, list[int]] = {topic: [] for topic in (*RECORDED, "c")}
    for batch in range(4):
        rows = some_rows(chance, 1000 * batch)
        for topic, number in rows:
            wanted[topic].append(number)
        world.publish(batch, rows)
    for topic in RECORDED:
        assert world.recorded(topic) == wanted[topic]
    queued = world.queued()
    assert sorted(queued) == wanted["c"]


@pytest.mark.parametrize("seed", seeds_of_the_day(range(12)))
def test_a_writer_that_was_forgotten_begins_again_with_its_old_numbers(seed: int) -> None:
    """The journal still has rows of its former batches, under the same names."""
    world, chance = World(seed), random.Random(seed)
    wanted: dict[str, list[int]] = {topic: [] for topic in RECORDED}
    for life in range(4):
        rows = [row for row in some_rows(chance, 1000 * life) if row[0] in RECORDED]
        for topic, number in rows:
            wanted[topic].append(number)
        world.publish(1, rows)
        world.stage.broker.writers.forget("w")
        world._kept()
    assert {topic: world.recorded(topic) for topic in RECORDED} == wanted


def test_the_power_does_fail() -> None:
    """What the test above is worth."""
    worlds = [World(seed) for seed in range(10)]
    for world in worlds:
        for batch in range(3):
            world.publish(batch, some_rows(world.rng, 1000 * batch))
    assert sum(world.crashes for world in worlds) > 10


def test_what_a_batch_is_known_by_is_not_freed_before_it_is_done() -> None:
    """Else rows that were settled would come again, after much else has gone through the journal."""
    stage, rows = World(1).stage, [("c", number) for number in range(50)]
    publish(stage, rows)
    publisher = Publisher(stage)
    for number in range(1000):
        publisher.publish("q", number, size=SIZE)
        if number % 100 == 0:
            settle(stage)
    settle(stage)
    assert stage.journal.streams[MAIN].bytes > 1000 * SIZE, "though nobody else needs it"
    stage = JournalStage(stage.files.crash(random.Random(1)), config=CONFIG)
    publish(stage, rows)
    assert stage.get("q") is None
    stage.broker.writers.done("w", stage.now)
    settle(stage)
    settle(stage)
    assert stage.journal.streams[MAIN].bytes < 1000 * SIZE, "and now it is freed"


def publish(stage: JournalStage, rows: Rows) -> None:
    """These, of a batch that has more."""
    writers = stage.broker.writers
    if not writers.unfinished():
        writers.begin("w", 0, ("part",), stage.now, NOBODY)
        stage.turn()
    writers.publish(writers.attach("w", lambda: None, stage.now), Origin("w", 0, 0), _run("c", rows), stage.now)
    stage.turn()


def settle(stage: JournalStage) -> None:
    """All that waits; and let the journal tidy."""
    while (found := stage.get("q")) is not None:
        stage.ack(found[1])
    stage.turn()
    stage.loop.now += TIDY_EVERY_S + 1
    stage.turn()


def test_the_last_batch_is_known_however_long_ago_it_was() -> None:
    """And after a start that finds it done."""
    world = World(3)
    world.publish(7, some_rows(world.rng, 0))
    publisher = Publisher(world.stage)
    for number in range(1000):
        publisher.publish("q", number, size=SIZE)
        if number % 100 == 0:
            settle(world.stage)
    files: FakeFiles = world.stage.files
    for _ in range(2):
        files.kill()
        stage = JournalStage(files, config=CONFIG)
        assert stage.broker.writers.last("w") is not None
        assert stage.broker.writers.last("w")[:2] == (7, ())  # type: ignore[index]
        assert stage.broker.writers.unfinished() == {}
        stage.turn()
