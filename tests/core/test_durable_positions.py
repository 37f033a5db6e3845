"""What is told to the ledger, and what a broker makes of it that starts again: one story each. Whole lives of many
clients are in tests/sim; the pretended tape that stands for the journal is from there."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.queues_stage import PLAIN, QueueStage
from tests.core.stage import STUCK
from tests.sim.tape import NothingRecorded, Tape, wanted

from headway.core.base.errors import Reason
from headway.core.clients.folding import Folding
from headway.core.log import NOT_DURABLE, HeldBack
from headway.core.log.ledger import Ledger


class DurableQueues(QueueStage):
    def __init__(self, toml: str = "", **pool: str) -> None:
        super().__init__(toml, **pool)
        self.tape = Tape(self.broker, PLAIN)

    def turn(self) -> None:
        super().turn()
        self.tape.take(self.now)


@pytest.fixture
def kept() -> DurableQueues:
    return DurableQueues()


def test_what_a_queue_refused_is_forgotten_when_all_before_it_is_settled(kept: DurableQueues) -> None:
    owner = kept.peer("owner")
    owner.declare("q", durable=True, refuses=True, records_max=1)
    for first in range(0, 30, 3):
        owner.publish("q", first, 3)
        kept.turn()
        assert owner.get("q", acks=True) is not None
        kept.turn()
    [one] = kept.tape.ledger.positions.values()
    place = one.whole_position(kept.broker.registry.sequence)
    assert len(place.settled) == 2, "one stretch"


def test_what_only_a_passing_queue_has_is_kept_no_longer(kept: DurableQueues) -> None:
    """A durable queue that shared its lane has left it."""
    owner = kept.peer("owner")
    for name, durable in (("lasting", True), ("passing", False)):
        owner.declare(name, durable=durable)
        owner.bind(name, "amq.fanout")
    owner.publish("", 1, exchange="amq.fanout")
    kept.turn()
    owner.unbind("lasting", "amq.fanout")
    owner.publish("", 2, exchange="amq.fanout")
    kept.turn()
    assert len(kept.tape.written) == 1


def test_what_is_owed_after_two_ways_of_subscribing_is_owed_after_a_start_too(kept: DurableQueues) -> None:
    publisher = kept.client("publisher")
    slow = kept.client("slow", reads=STUCK, window=5, expiry_s=3600.0, acks=False)
    slow.subscribe("t", 1)
    publisher.publish("t", 0, 60, qos=1)
    kept.run(0.5)
    slow.subscribe("t", 2)
    publisher.publish("t", 60, 20, qos=1)
    kept.run(0.5)
    settled = len(slow.session.channel.in_flight)
    slow.acknowledge(settled)
    kept.run(0.5)
    _, ledger = kept.tape.restored(kept.now)
    assert len(kept.tape.written) == 80
    found = sorted(one.sequence for place in ledger.positions.values() for one in wanted(place))
    assert found == sorted(kept.tape.written)[settled:]


@pytest.mark.parametrize("unsubscribes", [True, False])
def test_what_a_client_cannot_be_sent_again_is_counted_to_who_published_it(
    kept: DurableQueues, unsubscribes: bool
) -> None:
    publisher, away = kept.client("publisher"), kept.client("away", expiry_s=3600.0, acks=False)
    away.subscribe("t", 1)
    publisher.publish("t", 0, 3, qos=1)
    kept.turn()
    if unsubscribes:
        kept.broker.unsubscribe(away.session, "t", kept.now)
    away.leave()
    away.request = msgspec.structs.replace(away.request, max_packet_bytes=50)
    away.connect()
    kept.turn()
    assert len(away.seen) == 3
    assert publisher.session.lost_records == {Reason.TOO_LARGE_FOR_CLIENT: 3}


def test_what_was_left_out_does_not_come_again_after_a_start() -> None:
    kept = DurableQueues("""
        [[policy]]
        name = "p"
        [[policy.rule]]
        when = { lag_records = 20 }
        then = { action = "discard", which = "oldest", keep_records = 10 }
    """)
    publisher = kept.client("publisher")
    kept.client("slow", reads=STUCK, window=5, expiry_s=3600.0, acks=False).subscribe("t", 1)
    publisher.publish("t", 0, 60, qos=1)
    kept.run(1)
    _, ledger = kept.tape.restored(kept.now)
    found = sorted(one.sequence for place in ledger.positions.values() for one in wanted(place))
    written = sorted(kept.tape.written)
    assert found == [*written[:5], *written[50:]], "what is in flight, and what was to be kept"


def test_nobody_wants_what_a_deleted_queue_had() -> None:
    stage, ledger, folding = QueueStage(), Ledger(), Folding()
    stage.broker.keep(ledger, NothingRecorded())
    owner = stage.peer("owner")

    def needed() -> int:
        commit = ledger.take(stage.broker.registry.sequence)
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


def test_nothing_waits_for_a_position_that_is_not_durable(kept: DurableQueues) -> None:
    """Everything that is not durable has the same position: one that kept what it is told would mix them up."""
    kept.client("lasting", expiry_s=600).subscribe("t", qos=1)
    passing = kept.client("passing").subscribe("t", qos=1)
    kept.client("publisher").publish("t", 0, 3, qos=1)
    kept.turn()
    assert passing.cursor.durable_position is NOT_DURABLE
    assert len(kept.tape.ledger.positions) == 1, "only the lasting one has a place in the journal"
    client = Waiting()
    with pytest.raises(AssertionError):
        NOT_DURABLE.hold_back(client, b"a frame")
    assert not client.held_back.size
    with pytest.raises(AttributeError):
        NOT_DURABLE.number = 1
