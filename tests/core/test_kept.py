"""What is told to the ledger, and what a broker makes of it that starts again: one story each. Whole lives of many
clients are in tests/sim; the pretended tape that stands for the journal is from there."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.queues_stage import PLAIN, QueueStage
from tests.core.stage import STUCK
from tests.sim.tape import Tape, wanted

from headway.core.errors import Reason


class Kept(QueueStage):
    def __init__(self, toml: str = "", **pool: str) -> None:
        super().__init__(toml, **pool)
        self.tape = Tape(self.broker, PLAIN)

    def turn(self) -> None:
        super().turn()
        self.tape.take(self.now)


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_what_a_queue_refused_is_forgotten_when_all_before_it_is_settled(kept: Kept) -> None:
    owner = kept.peer("owner")
    owner.declare("q", durable=True, refuses=True, records_max=1)
    for first in range(0, 30, 3):
        owner.publish("q", first, 3)
        kept.turn()
        assert owner.get("q", acks=True) is not None
        kept.turn()
    [place] = kept.tape.ledger.snapshot(kept.broker.registry.sequence)[1]
    assert len(place.settled) == 2, "one stretch"


def test_what_only_a_passing_queue_has_is_kept_no_longer(kept: Kept) -> None:
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


def test_what_is_owed_after_two_ways_of_subscribing_is_owed_after_a_start_too(kept: Kept) -> None:
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
    found = sorted(one.sequence for place in ledger.kept.values() for one in wanted(place))
    assert found == sorted(kept.tape.written)[settled:]


@pytest.mark.parametrize("unsubscribes", [True, False])
def test_what_a_client_cannot_be_sent_again_is_counted_to_who_published_it(kept: Kept, unsubscribes: bool) -> None:
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
