"""Changes and positions in the ledger, and the broker that is restored from them: one story each. Whole lives of many
clients are in tests/sim; the model of a journal is from there."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.queue_wire import PLAIN
from tests.core.queues_stage import QueueStage
from tests.core.stage import STUCK
from tests.sim.tape import NothingRecorded, Tape, unsettled

from headway.core.base.errors import Reason
from headway.core.clients.durability import Folding
from headway.core.log import NOT_DURABLE, HeldBack
from headway.core.log.durable import Ledger
from headway.core.queue import queue_of


class DurableQueues(QueueStage):
    def __init__(self, toml: str = "", **pool: str) -> None:
        super().__init__(toml, **pool)
        self.tape = Tape(self.broker, PLAIN)

    def turn(self, moved: bool = True) -> bool:
        checked = super().turn(moved)
        self.tape.take(self.now)
        return checked


@pytest.fixture
def stage() -> DurableQueues:
    return DurableQueues()


def test_what_a_queue_refused_is_forgotten_when_all_before_it_is_settled(stage: DurableQueues) -> None:
    owner = stage.peer("owner")
    owner.declare("q", durable=True, refuses=True, records_max=1)
    for first in range(0, 30, 3):
        owner.publish("q", first, 3)
        stage.turn()
        assert owner.get("q", acks=True) is not None
        stage.turn()
    [one] = stage.tape.ledger.positions.values()
    position = one.complete_position(stage.broker.registry.sequence)
    assert len(position.settled) == 2, "one range"


def test_a_queue_that_stays_full_remembers_no_more_with_each_record_that_it_refuses(stage: DurableQueues) -> None:
    owner = stage.peer("owner")
    owner.declare("q", durable=True, refuses=True, records_max=3)
    owner.publish("q", 0, 3)
    stage.turn()
    [position] = stage.tape.ledger.positions.values()
    for taken in (0, 1, 2):
        for _ in range(50):
            owner.publish("q", 100)
            stage.turn()
        assert len(position._refused) == taken + 1
        owner.get("q", channel=2)  # it keeps the record, and so the first unsettled record stays where it is
        owner.publish("q", 10 + taken)
        stage.turn()
    broker, _ = stage.tape.restored(stage.now)
    restored = queue_of(broker.registry.router.queues["q"])
    assert restored.backlog.lag_records == 6, "three that were with the client, and three that waited"


def test_what_only_a_passing_queue_has_is_kept_no_longer(stage: DurableQueues) -> None:
    """A durable queue that shared its lane has left it."""
    owner = stage.peer("owner")
    for name, durable in (("lasting", True), ("passing", False)):
        owner.declare(name, durable=durable)
        owner.bind(name, "amq.fanout")
    owner.publish("", 1, exchange="amq.fanout")
    stage.turn()
    owner.unbind("lasting", "amq.fanout")
    owner.publish("", 2, exchange="amq.fanout")
    stage.turn()
    assert len(stage.tape.written) == 1


def test_what_is_owed_after_two_ways_of_subscribing_is_owed_after_a_start_too(stage: DurableQueues) -> None:
    publisher = stage.client("publisher")
    slow = stage.client("slow", reads=STUCK, window=5, expiry_s=3600.0, acks=False)
    slow.subscribe("t", 1)
    publisher.publish("t", 0, 60, qos=1)
    stage.run(0.5)
    slow.subscribe("t", 2)
    publisher.publish("t", 60, 20, qos=1)
    stage.run(0.5)
    settled = len(slow.session.channel.in_flight)
    slow.acknowledge(settled)
    stage.run(0.5)
    _, ledger = stage.tape.restored(stage.now)
    assert len(stage.tape.written) == 80
    found = sorted(one.sequence for position in ledger.positions.values() for one in unsettled(position))
    assert found == sorted(stage.tape.written)[settled:]


@pytest.mark.parametrize("unsubscribes", [True, False])
def test_what_a_client_cannot_be_sent_again_is_counted_to_who_published_it(
    stage: DurableQueues, unsubscribes: bool
) -> None:
    publisher, away = stage.client("publisher"), stage.client("away", expiry_s=3600.0, acks=False)
    away.subscribe("t", 1)
    publisher.publish("t", 0, 3, qos=1)
    stage.turn()
    if unsubscribes:
        stage.broker.unsubscribe(away.session, "t", stage.now)
    away.leave()
    away.request = msgspec.structs.replace(away.request, max_packet_bytes=50)
    away.connect()
    stage.turn()
    assert len(away.seen) == 3
    assert publisher.session.lost_records == {Reason.TOO_LARGE_FOR_CLIENT: 3}


def test_the_policy_that_a_client_asked_for_is_its_policy_after_a_start_too() -> None:
    stage = DurableQueues("""
        [[policy]]
        name = "for all"
        [[policy]]
        name = "asked for"
        topics = ["nowhere"]
    """)
    client = stage.client("c", expiry_s=3600.0)
    client.subscribe("a", 1, policy="asked for")
    client.subscribe("b", 1)
    stage.turn()
    broker, _ = stage.tape.restored(stage.now, stage.broker.registry.policies)
    subscriptions = broker.registry.sessions["c"].subscriptions.values()
    assert {one.filter: one.case.policy.name for one in subscriptions} == {"a": "asked for", "b": "for all"}


def test_what_was_left_out_does_not_come_again_after_a_start() -> None:
    stage = DurableQueues("""
        [[policy]]
        name = "p"
        [[policy.rule]]
        when = { lag_records = 20 }
        then = { action = "discard", which = "oldest", keep_records = 10 }
    """)
    publisher = stage.client("publisher")
    stage.client("slow", reads=STUCK, window=5, expiry_s=3600.0, acks=False).subscribe("t", 1)
    publisher.publish("t", 0, 60, qos=1)
    stage.run(1)
    _, ledger = stage.tape.restored(stage.now)
    found = sorted(one.sequence for position in ledger.positions.values() for one in unsettled(position))
    written = sorted(stage.tape.written)
    assert found == [*written[:5], *written[50:]], "what is in flight, and what was to be kept"


def test_nobody_wants_what_a_deleted_queue_had() -> None:
    stage, ledger, folding = QueueStage(), Ledger(), Folding()
    stage.broker.keep(ledger, NothingRecorded())
    owner = stage.peer("owner")

    def needed() -> int:
        commit = ledger.take(stage.broker.registry.sequence, 0.0)
        assert commit is not None
        for change in commit.changes:
            folding.change(change, again=False)
        return folding.needed()

    owner.declare("q", durable=True)
    assert needed() == 1
    owner.publish("q", 1)
    owner.delete("q")
    assert needed() == 0


def told_of_a_gap(max_packet_bytes: int) -> tuple[dict[str, int], int]:
    """What a client that takes no larger packets is told with its next record, and the size of that."""
    stage = QueueStage()
    publisher, reader = stage.client("publisher"), stage.client("reader")
    reader.leave()
    reader.request = msgspec.structs.replace(reader.request, max_packet_bytes=max_packet_bytes)
    reader.connect()
    reader.subscribe("t").note_gap(3, 1, 3, Reason.DISCARDED)
    before = reader.outlet.taken
    publisher.publish("t", 7)
    stage.turn()
    assert reader.numbers == [7]
    return reader.gap_told, reader.outlet.taken - before


def test_a_gap_is_told_with_a_record_that_is_just_small_enough() -> None:
    gap, size = told_of_a_gap(2**62)
    assert gap == {"discarded": 3}
    assert told_of_a_gap(size) == (gap, size)
    assert told_of_a_gap(size - 1)[0] == {}


class Waiting:
    def __init__(self) -> None:
        self.held_back = HeldBack()

    def written(self, number: int) -> None:
        raise AssertionError("nothing is written for it")


def test_nothing_waits_for_a_position_that_is_not_durable(stage: DurableQueues) -> None:
    """Everything that is not durable has the same position: one that stored reports would mix them up."""
    stage.client("lasting", expiry_s=600).subscribe("t", qos=1)
    passing = stage.client("passing").subscribe("t", qos=1)
    stage.client("publisher").publish("t", 0, 3, qos=1)
    stage.turn()
    assert passing.cursor.durable_position is NOT_DURABLE
    assert len(stage.tape.ledger.positions) == 1, "only the lasting one has a durable position"
    client = Waiting()
    with pytest.raises(AssertionError):
        NOT_DURABLE.hold_back(client, b"a frame")
    assert not client.held_back.size
    with pytest.raises(AttributeError):
        NOT_DURABLE.number = 1
