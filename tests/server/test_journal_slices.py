"""What looks at all there is does so in slices: a turn has as much to do with a thousand durable subscriptions as with
many more. Counted are steps of the interpreter; the writer's are not the loop's."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from tests.core.test_idle import steps
from tests.server.journal_stage import JournalStage, Publisher
from tests.sim.queues.outlet import QueueOutlet

from headway.core.base.errors import Reason
from headway.core.consumer.request import ConnectRequest, SubscribeRequest
from headway.core.log.durable import OutOfOrderProgress
from headway.core.log.lanes.chunk import Chunk
from headway.core.queue.queue import queue_of
from headway.server.journal.compaction import PAUSE_S, Needs, SequenceRange, Snapshot, UnneededRanges
from headway.wire.mqtt.dialect import MqttDialect

FEW, MANY = 1000, 5000
FILTERS_EACH = 100


class Apart:
    """An executor whose work is done when it is told to."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()

    def submit(self, work: Callable[..., object], *arguments: object) -> None:
        self.waiting.append((work, arguments))

    def work(self) -> None:
        while self.waiting:
            work, arguments = self.waiting.popleft()
            work(*arguments)

    def shutdown(self, *, wait: bool = True) -> None: ...


class Crowded:
    def __init__(self, subscriptions: int) -> None:
        self.stage = stage = JournalStage(memory="400MB")
        self.writer = Apart()
        stage.journal._thread = cast(ThreadPoolExecutor, self.writer)
        stage.declare("q")
        for client in range(subscriptions // FILTERS_EACH):
            outlet = QueueOutlet(stage.now, 100_000, random.Random(1), 0.0, lambda *_: None)
            request = ConnectRequest(f"c{client}", "", protocol="mqtt5", expiry_s=1e6)
            session = stage.broker.connect(request, outlet, stage.now)
            for number in range(FILTERS_EACH):
                asked = SubscribeRequest(f"t/{client}/{number}", MqttDialect(5), qos=1)
                stage.broker.subscribe(session, asked, stage.now)
        self.publisher = Publisher(stage)
        self.turns_until(lambda: not stage.journal._snapshots.requested)

    def turn(self) -> int:
        """Its steps, and those of what the writer answers."""
        taken = steps(self.stage.turn_now)
        self.writer.work()
        taken = max(taken, steps(self.stage.loop.work))
        return max(taken, steps(lambda: self.stage.loop.pass_time(PAUSE_S)))

    def turns_until(self, done: Callable[[], bool]) -> tuple[int, int]:
        """How many, and the steps of the longest."""
        taken = []
        while not done():
            taken.append(self.turn())
            assert len(taken) < 1000
        return len(taken), max(taken)

    def snapshot(self) -> tuple[int, int]:
        journal = self.stage.journal
        before = journal._tidying.snapshots[-1]
        journal._snapshots.requested = True
        self.publisher.publish("q", 1)
        return self.turns_until(lambda: journal._tidying.snapshots[-1] > before)

    def tidying(self) -> tuple[int, int]:
        journal = self.stage.journal
        self.stage.loop.pass_time(6.0)
        taken, turns, longest = self.turn(), 0, 0
        if journal._tidying.under_way:
            turns, longest = self.turns_until(lambda: not journal._tidying.under_way)
        return 1 + turns, max(taken, longest)

    def search(self) -> tuple[int, int]:
        """An old record of the queue waits, and there are new snapshots behind it."""
        searched = self.stage.journal._tidying._searched_snapshot
        found = self.tidying()
        assert self.stage.journal._tidying._searched_snapshot > searched
        return found

    def many_unloaded(self) -> tuple[int, int]:
        """There are as many chunks whose bytes are only in the journal as there are subscriptions."""
        chunks = {Chunk(0, number): 2**62 for number in range(len(self.stage.journal.ledger.positions))}
        self.stage.journal.chunk_cache.unloaded.update(chunks)
        return self.tidying()


def test_a_turn() -> None:
    """One after the other, for what snapshots leave is tidied up, and then searched."""
    few, many = Crowded(FEW), Crowded(MANY)
    for work in (Crowded.snapshot, Crowded.snapshot, Crowded.tidying, Crowded.search):
        (few_turns, few_steps), (many_turns, many_steps) = work(few), work(many)
        assert many_turns > 3 * few_turns, "it goes on in other turns"
        assert many_steps < 1.2 * few_steps


def test_a_turn_with_many_unloaded_chunks() -> None:
    places_only, _ = Crowded(FEW).tidying()
    turns, _ = Crowded(FEW).many_unloaded()
    assert turns > 1.8 * places_only, "they are looked at in turns of their own"


def test_it_goes_on_without_traffic() -> None:
    crowd = Crowded(FEW)
    journal = crowd.stage.journal
    before = journal._tidying.snapshots[-1]
    journal._snapshots.requested = True
    crowd.publisher.publish("q", 1)
    crowd.turn()
    for _ in range(100):
        crowd.stage.loop.pass_time(PAUSE_S)
        crowd.writer.work()
    assert journal._tidying.snapshots[-1] > before


def test_who_closes_in_the_middle_of_a_snapshot_has_the_one_before() -> None:
    crowd = Crowded(FEW)
    stage, journal = crowd.stage, crowd.stage.journal
    before = list(journal._tidying.snapshots)
    journal._snapshots.requested = True
    crowd.publisher.publish("q", 1)
    crowd.turn()
    assert journal._snapshots.current is not None
    journal._thread.submit(journal.close)
    store, journal.store.close = journal.store, lambda: None  # type: ignore[method-assign]
    crowd.writer.work()
    del journal.store.close
    store.close()
    again = JournalStage(stage.files, memory="400MB")
    assert again.journal._tidying.snapshots == before
    assert again.all_of("q") == [1]
    assert len(again.journal.ledger.positions) == FEW + 1


def test_a_client_that_ends_after_a_snapshot_saw_it_does_not_come_back() -> None:
    crowd = Crowded(FEW)
    stage, journal = crowd.stage, crowd.stage.journal
    before = journal._tidying.snapshots[-1]
    journal._snapshots.requested = True
    crowd.publisher.publish("q", 1)
    snapshot_seen: list[Snapshot] = []

    def has_seen_it() -> bool:
        snapshot_seen.extend([journal._snapshots.current] if journal._snapshots.current is not None else [])
        return bool(snapshot_seen) and "c0" in snapshot_seen[-1]._clients

    crowd.turns_until(has_seen_it)
    gone = stage.broker.registry.sessions["c0"]
    assert gone.connected
    stage.broker.disconnect(gone, gone.outlet, Reason.SUBSCRIPTION_ENDED, stage.now, expiry_s=0.0)
    crowd.turns_until(lambda: journal._tidying.snapshots[-1] > before)
    crowd.writer.work()
    again = JournalStage(stage.files.crash(random.Random(1)), memory="400MB")
    assert before < again.journal._tidying.snapshots[-1]
    assert "c0" not in again.broker.registry.sessions
    assert "c1" in again.broker.registry.sessions


def test_the_writer_tells_of_a_position_that_goes_back() -> None:
    crowd = Crowded(2 * FEW)
    stage, journal = crowd.stage, crowd.stage.journal
    stage.loop.pass_time(6.0)
    for step in (stage.turn_now, crowd.writer.work, stage.loop.work, stage.turn_now):
        if journal._tidying._search is None:
            step()
    needs = journal._tidying._search
    assert isinstance(needs, Needs)
    assert needs._seen
    sequence = stage.broker.registry.sequence
    position = journal.ledger.positions[next(iter(needs._seen))]
    position.cursors.append(Back(sequence))
    position.moved()
    crowd.turn()
    assert needs.main == sequence


class Back:
    """A reader with no settled records from this sequence on."""

    attached, ended = True, 0

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence

    def unsettled_sequence(self) -> int:
        return self.sequence

    unsent_sequence = unsettled_sequence

    def unsettled_ranges(self, last: int) -> list[tuple[int, int]]:
        return [(self.sequence, last)]


def test_a_position_that_goes_back_while_others_are_looked_at_is_seen() -> None:
    crowd = Crowded(FILTERS_EACH)
    ledger = crowd.stage.journal.ledger
    sequence = crowd.stage.broker.registry.sequence
    needs = Needs(ledger, sequence, ["t/0/+"])
    needs.advance()
    assert needs.done
    assert needs.main == needs.of_topic["t/0/+"] == sequence + 1

    position = next(one for one in ledger.positions.values() if list(one.filters()) == ["t/0/7"])
    position.cursors.append(Back(sequence))
    position.moved()
    commit = ledger.take(sequence, 0.0)
    assert commit is not None
    needs.on_commit(commit.positions)
    assert needs.main == needs.of_topic["t/0/+"] == sequence


def test_a_position_that_is_new_while_others_are_looked_at_is_seen() -> None:
    crowd = Crowded(FILTERS_EACH)
    ledger, sequence = crowd.stage.journal.ledger, crowd.stage.broker.registry.sequence
    needs = Needs(ledger, sequence + 10, [])
    position = ledger.add_position([])
    crowd.publisher.publish("q", 1)
    queue = queue_of(crowd.stage.broker.registry.router.queues["q"])
    assert queue.durable_position.durable
    position.cursors = list(queue.durable_position.cursors)
    needs.on_commit([])
    assert needs.main == sequence + 1


def test_a_chunk_that_is_unloaded_while_others_are_looked_at_is_seen() -> None:
    crowd = Crowded(FILTERS_EACH)
    journal = crowd.stage.journal
    crowd.publisher.publish("q", 1)
    crowd.turns_until(lambda: journal.committed_sequence >= crowd.stage.broker.registry.sequence)
    journal._tidying.begin()
    lane = queue_of(crowd.stage.broker.registry.router.queues["q"]).backlog.cursor.lane
    assert journal.chunk(lane, lane.first) is not None
    needs = journal._tidying._search
    assert isinstance(needs, Needs)
    assert needs.unloaded == lane.first.sequence_of(0)


def test_a_position_with_new_out_of_order_progress_keeps_its_range() -> None:
    crowd = Crowded(FILTERS_EACH)
    ledger, sequence = crowd.stage.journal.ledger, crowd.stage.broker.registry.sequence
    ranges = [SequenceRange(sequence - 3, sequence - 2), SequenceRange(sequence - 1, sequence)]
    search = UnneededRanges(crowd.stage.broker, ledger, (), ranges)
    search.advance()
    assert list(search.found) == ranges
    position = next(iter(ledger.positions.values()))
    position.cursors.append(OutOfOrderProgress(position, sequence, sequence))
    position.moved()
    commit = ledger.take(sequence, 0.0)
    assert commit is not None
    search.on_commit(commit.positions)
    assert list(search.found) == ranges[:1]
