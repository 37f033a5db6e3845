"""Commits are whole or not there, whenever the process is killed: a dead letter and the settlement of its origin are
one commit, although they may be in two streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from tests.core.queue_wire import run_of
from tests.server.journal_stage import JournalStage
from tests.store.journal.fake_files import FakeFiles, PowerLoss

from headway.core.consumer.effects import DeadLetter
from headway.core.consumer.request import QueueTerms
from headway.core.log.durable import MAIN
from headway.core.message.record import TOPICS
from headway.core.routing.matching.bindings import Binding, Destination
from headway.server.engine.dead_letters import publish_dead_letter
from headway.store.journal.disk import Buffer
from headway.store.journal.journal import Journal
from headway.store.journal.segments.batch import BODY_BYTES, Entry
from headway.wire.amqp.dialect import AmqpDialect

CONFIG = '[[topic]]\nfilter = "dead/#"\nkeep = "7d"\n'
DEAD = QueueTerms(durable=True, dead_letter_exchange=TOPICS, dead_letter_key="dead.letters")
COUNT = 3


class KilledFiles(FakeFiles):
    """A disk whose process is killed in the write with this number: a part of it is there."""

    left = -1

    def write(self, fd: int, views: Sequence[Buffer], offset: int) -> int:
        self.left -= 1
        if self.left == 0:
            super().write(fd, [b"".join(views)[: sum(map(len, views)) * 2 // 3]], offset)
            raise PowerLoss
        return super().write(fd, views, offset)


class House:
    """A queue of records that die, whose dead letters go to a queue, and to a recorded topic."""

    def __init__(self, files: FakeFiles | None, terms: QueueTerms) -> None:
        self.stage = stage = JournalStage(files or KilledFiles(), config=CONFIG)
        queues, dialect = stage.broker.queues, AmqpDialect()
        queues.declare(stage.session, "work", terms, dialect, stage.now)
        queues.declare(stage.session, "dead", QueueTerms(durable=True), dialect, stage.now)
        queues.bind(stage.session, Binding(TOPICS, Destination("queue", "dead"), "dead.#"))

    def turn(self) -> None:
        broker, now = self.stage.broker, self.stage.now
        broker.registry.timers.run(now)
        broker.flush(now)
        while effects := broker.take_effects():
            for effect in effects:
                if isinstance(effect, DeadLetter):
                    publish_dead_letter(broker, effect, now, now)
        self.stage.turn()

    def publish(self, count: int, body: int = 0) -> None:
        for number in range(count):
            run = run_of("work", [b"%d " % number + b"." * body])
            self.stage.broker.intake.publish_to(self.stage.session, run, self.stage.now)

    def recorded(self) -> Counter[int]:
        archive = self.stage.journal.archive
        runs = archive.runs("dead/#", 0, self.stage.broker.registry.sequence)
        records = (run.record(at, first, 0.0) for run, first, _ in runs for at in range(len(run)))
        return Counter(int(record.payload.split()[0]) for record in records)


def refuse(house: House) -> None:
    stage = house.stage
    while (got := stage.get("work")) is not None:
        stage.broker.queues.refuse(stage.channel, [got[1].delivery_id], requeue=False)


def expire(house: House) -> None:
    house.stage.loop.now += 10.0


def give_back(house: House) -> None:
    stage = house.stage
    while (got := stage.get("work")) is not None:
        stage.broker.queues.refuse(stage.channel, [got[1].delivery_id], requeue=True)


WAYS: dict[str, tuple[QueueTerms, Callable[[House], None]]] = {
    "rejected": (DEAD, refuse),
    "expired": (msgspec.structs.replace(DEAD, ttl_s=5.0), expire),
    "delivery limit": (msgspec.structs.replace(DEAD, returns_max=1), give_back),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [0, BODY_BYTES])
def test_a_kill_at_any_write_makes_no_second_dead_letter_and_loses_none(way: str, size: int) -> None:
    """``size``: the commit takes one batch, or several."""
    terms, die = WAYS[way]
    cut = 0
    for left in range(1, 50):
        house = House(None, terms)
        house.publish(COUNT, size)
        house.turn()
        files = house.stage.files
        assert isinstance(files, KilledFiles)
        die(house)
        files.left = left
        try:
            house.turn()
            break
        except PowerLoss:
            cut += 1
        files.left = -1
        files.kill()
        house = House(files, terms)
        die(house)
        house.turn()
        once = dict.fromkeys(range(COUNT), 1)
        assert Counter(house.stage.all_of("dead")) == once
        assert house.recorded() == once
        assert house.stage.get("work") is None
    assert cut >= 2


def entries(first: int, count: int, size: int = 10) -> list[Entry]:
    return [Entry(1, sequence, 1, (bytes(size),)) for sequence in range(first, first + count)]


def sequences(journal: Journal, name: str) -> list[int]:
    return [one.sequence for _, batch in journal.stream(name).scan() for one in batch]


@pytest.mark.parametrize("size", [10, BODY_BYTES // 2])
def test_a_commit_is_in_all_streams_or_in_none(size: int) -> None:
    names, before = ["main", "a", "b"], {"main": [1], "a": [2], "b": [3]}
    after = {"main": [1, 10, 11, 12], "a": [2, 20, 21, 22], "b": [3, 30, 31, 32]}
    outcomes = []
    for left in range(1, 20):
        files = KilledFiles()
        journal = Journal(files, Path("/j"))
        journal.open(names)
        journal.commit({name: entries(first, 1) for name, (first,) in before.items()}, 1)
        files.left = left
        with suppress(PowerLoss):
            journal.commit({"main": entries(10, 3, size), "a": entries(20, 3, size), "b": entries(30, 3, size)}, 2)
        over, files.left = files.left > 0, -1
        files.kill()
        again = Journal(files, Path("/j"))
        said = again.open(names)
        found = {name: sequences(again, name) for name in names}
        assert found in (before, after), found
        assert bool(said) == (found == before)
        again.commit({name: entries(40, 1) for name in names}, 3)
        again.check()
        again.close()
        last = Journal(files, Path("/j"))
        assert last.open(names) == []
        assert {name: sequences(last, name) for name in names} == {name: [*had, 40] for name, had in found.items()}
        outcomes.append(found == after)
        if over:
            break
    assert outcomes == [False] * (len(outcomes) - 1) + [True]
    assert len(outcomes) >= 4


def test_a_commit_that_needs_no_other_stream_stays_without_it() -> None:
    files = KilledFiles()
    journal = Journal(files, Path("/j"))
    journal.open(["main", "a"])
    journal.commit({"a": entries(1, 2)}, 1)
    journal.commit({"main": entries(3, 1), "a": entries(4, 1)}, 2)
    journal.commit({"a": entries(5, 1)}, 3)
    files.kill()
    again = Journal(files, Path("/j"))
    assert again.open(["main", "a"]) == []
    assert sequences(again, "a") == [1, 2, 4, 5]


def test_what_settles_is_not_on_disk_before_what_another_stream_cannot_take() -> None:
    """A disk that takes the one and not the other: the dead letter would be lost."""
    files = KilledFiles()
    journal = Journal(files, Path("/j"))
    journal.open([MAIN, "a"])
    journal.commit({MAIN: entries(1, 1), "a": entries(2, 1)}, 1)

    def hook(operation: str, path: Path) -> None:
        if operation == "sync" and path.parent.name == "a":
            raise OSError(28, "No space left on device")

    files.hook = hook
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            journal.commit({MAIN: entries(3, 1), "a": entries(4, 1)} if _ == 0 else {}, 2)
    files.kill()
    again = Journal(files, Path("/j"))
    again.open([MAIN, "a"])
    assert sequences(again, MAIN) == [1]
    assert sequences(again, "a") == [2]
