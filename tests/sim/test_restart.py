"""What would be there if the process died at this moment? The simulators' worlds, with everything durable on tape."""

from __future__ import annotations

import json
from random import Random

import msgspec
import pytest
from tests.core.queue_wire import PLAIN
from tests.sim.away import AwayWorld
from tests.sim.once.world import World as OnceWorld
from tests.sim.queues import chance
from tests.sim.queues.world import World as QueueWorld
from tests.sim.seeds import counts_of, counts_so_far, run_seed, seeds_of_the_day, steps_of_the_day
from tests.sim.tape import Tape, assert_the_same, slices_of
from tests.sim.world import World

from headway.core.broker import Broker
from headway.core.consumer.effects import Effect, Spill
from headway.core.consumer.request import QueueTerms
from headway.core.message.record import Durability, Run
from headway.server.journal import entries as entry_codec
from headway.server.mqtt.peer import MqttPeer
from headway.wire.mqtt.packets import PubRel
from headway.wire.mqtt.replies import Replies


class Taped:
    """A world whose journal is looked at now and then. ``compared``: records, in all looks."""

    tape: Tape
    counts: dict[str, int]
    compared = 0
    looks = 0

    def looked_at(self, world: World | QueueWorld, dice: Random, *, ttl: bool) -> None:
        self.tape.take(world.now)
        if dice.random() < 0.03:
            self.tape.roll(world.now)
        if dice.random() < 0.06:
            again, ledger = self.tape.restored(world.now)
            self.compared += assert_the_same(self.tape, again, ledger, world.now, ttl=ttl)
            self.looks += 1
            self._sessions(again)

    def end(self) -> None:
        super().end()  # type: ignore[misc]
        tape = self.tape
        self.counts |= {
            "looks": self.looks, "compared": self.compared, "segments freed": tape.freed,
            "segments freed between": tape.freed_between, "snapshots in slices": tape.sliced,
        }  # fmt: skip

    def _sessions(self, again: Broker) -> None:
        registry = again.registry
        live = self.broker.registry  # type: ignore[attr-defined]
        assert {name for name, one in live.sessions.items() if one.durable} == set(registry.sessions)
        for name, session in registry.sessions.items():
            assert set(session.subscriptions) == set(live.sessions[name].subscriptions)
        durable = {name for name, one in live.router.queues.items() if one.terms.durable and not one.terms.exclusive}
        assert durable == set(registry.router.queues)


class DurableQueues(Taped, QueueWorld):
    def _begin(self) -> None:
        self.dice = Random(self.seed)
        self.tape = Tape(self.broker, PLAIN, slices=slices_of(self.seed))
        declare = self.broker.queues.declare_exchange

        def durable(exchange: object) -> None:
            exchange.durable = True  # type: ignore[attr-defined]
            declare(exchange)  # type: ignore[arg-type]

        self.broker.queues.declare_exchange = durable  # type: ignore[method-assign, assignment]
        super()._begin()

    def turn(self) -> None:
        super().turn()
        self.looked_at(self, self.dice, ttl=True)


class DurableTopics(Taped, World):
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        super().__init__(seed)
        self.tape = Tape(self.broker, PLAIN, slices=slices_of(seed))

    def turn(self) -> None:
        super().turn()
        self.tape.take(self.now)
        while self.broker.has_work:  # what was held back until it was on tape
            super().turn()
            self.tape.take(self.now)
        self.looked_at(self, self.dice, ttl=False)

    def _sessions(self, again: Broker) -> None:
        super()._sessions(again)
        for client in self.clients:
            session = again.registry.sessions.get(client.name)
            for delivery_id in client.received if session is not None else ():
                assert session is not None
                known = session.channel.in_flight.get(delivery_id)
                sequence = client.by_id[delivery_id][1]
                same = known is not None and sequence == (
                    known.number if known.chunk is None else known.chunk.sequence_of(known.index)
                )  # fmt: skip
                assert same or delivery_id in session.channel.orphaned_ids, f"{client.name} holds {delivery_id}"


class OnTape:
    """A chunk's bytes, as the journal has them: they take up nothing of the spill's disk."""

    fd, offset, disk_bytes = -1, 0, 0

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, start: int, stop: int) -> bytes:
        return self._data[start:stop]

    def release(self) -> None:
        pass


class DurableAway(DurableTopics, AwayWorld):
    """Of what leaves memory only what is not on tape goes to the spill's disk, which is small, or takes nothing."""

    def _carry_out_one(self, effect: Effect) -> None:
        if isinstance(effect, Spill):
            for chunk in effect.chunks:
                if chunk.journaled and chunk.last_sequence <= self.broker.registry.journaled:
                    self.count("forgotten")
                    self.broker.spilled(effect.lane, chunk, chunk.size, OnTape(bytes(chunk.data)), "", self.now)
        super()._carry_out_one(effect)


@pytest.fixture
def durable(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = chance.terms

    def durable_terms(rng: Random, *, may_refuse: bool) -> QueueTerms:
        made = terms(rng, may_refuse=may_refuse)
        return msgspec.structs.replace(made, durable=True)

    monkeypatch.setattr(chance, "terms", durable_terms)
    # The simulator writes headers as JSON, not as AMQP does.
    queues = entry_codec.QUEUES._replace(read_headers=lambda raw: dict(json.loads(raw)))
    monkeypatch.setattr(entry_codec, "QUEUES", queues)


SEEDS = (1, 2, 3, 4, 5, 6, 18)
"""Few free anything between: 4 and 18."""


@pytest.mark.usefixtures("durable")
@pytest.mark.parametrize("seed", seeds_of_the_day(SEEDS))
def test_queues(seed: int) -> None:
    run_seed(DurableQueues, seed, steps_of_the_day(120))


@pytest.mark.usefixtures("durable")
@pytest.mark.parametrize("seed", seeds_of_the_day(SEEDS))
def test_topics(seed: int) -> None:
    run_seed(DurableTopics, seed, steps_of_the_day(120))


@pytest.mark.parametrize("seed", seeds_of_the_day(range(1, 4)))
def test_little_room_and_durable_subscribers_who_are_away(seed: int) -> None:
    run_seed(DurableAway, seed, steps_of_the_day(150))


def test_what_is_on_tape_and_is_given_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator is worth something: that a full disk of the spill drops what the journal has, put back, is
    found."""
    assert counts_so_far(DurableAway, range(1, 3), 150)["forgotten"] > 10
    monkeypatch.setattr(Run, "durability", Durability.TRANSIENT)
    for seeds in ((5, 1, 2), (6, 3, 4)):
        with pytest.raises(AssertionError):  # most often "promised and not given"
            counts_of(DurableAway, seeds, 150)


@pytest.mark.parametrize("seed", seeds_of_the_day(range(1, 7)))
def test_exactly_once(seed: int) -> None:
    run_seed(OnceWorld, seed, steps_of_the_day(200))


def test_much_is_exactly_once() -> None:
    counts = counts_so_far(OnceWorld, range(1, 21), 200)
    assert counts["crashes"] > 15
    assert counts["clean"] > 5
    assert counts["completed"] > 50


def test_an_id_that_is_free_before_the_journal_knows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator is worth something: what swallowed records, put back, is found."""
    pubcomp = Replies.pubcomp
    written: list[MqttPeer] = []

    def at_once(replies: Replies, packet_id: int, code: int = 0) -> bytes:
        written[-1].write(pubcomp(replies, packet_id, code))
        return b""

    def released(peer: MqttPeer, item: PubRel) -> None:
        written.append(peer)
        as_it_is(peer, item)

    as_it_is = MqttPeer._on_pubrel
    monkeypatch.setattr(Replies, "pubcomp", at_once)
    monkeypatch.setattr(MqttPeer, "_on_pubrel", released)
    with pytest.raises(AssertionError, match="never had"):
        counts_of(OnceWorld, range(1, 31), 200)


@pytest.mark.usefixtures("durable")
def test_much_is_compared() -> None:
    for kind in (DurableQueues, DurableTopics):
        counts = counts_so_far(kind, SEEDS, 100)
        assert counts["looks"] > 10
        assert counts["compared"] > 200
        assert counts["segments freed"] > 3
        assert counts["snapshots in slices"] > 3
    assert counts["segments freed between"] > 0
