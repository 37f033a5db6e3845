"""What is told to the ledger, and what a broker makes of it that starts again: one story each. Whole lives of many
clients are in tests/sim; the pretended tape that stands for the journal is from there."""

from __future__ import annotations

import pytest
from tests.core.queues_stage import PLAIN, QueueStage
from tests.sim.tape import Tape


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
