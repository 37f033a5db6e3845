"""The pretended world around a broker with queues: it rolls the dice, carries out effects, and asks the checkers."""

from __future__ import annotations

import hashlib
from math import inf
from random import Random
from typing import Any

from tests.core.queues_stage import purged
from tests.sim.disk import Disk
from tests.sim.queues import audit, chance, changes, effects, takebacks
from tests.sim.queues.model import PRESSURE, Flight, QueueModel, patience_of
from tests.sim.queues.party import Party
from tests.sim.queues.wiring import Tie, Wiring
from tests.sim.seeds import in_full

from headway.core.base.errors import Reason
from headway.core.broker import SWEEP_S, Broker
from headway.core.consumer.feed import Feed
from headway.core.log.lanes import cursor, lane
from headway.core.log.lanes.pool import Pool
from headway.core.policy.evaluation import FlapControl
from headway.core.policy.rules.rule import ActionKind
from headway.core.queue import dispatch
from headway.core.routing import registry as overdue
from headway.core.routing.registry import Limits


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = Random(seed)
        self.now = 1000.0
        self.hash = hashlib.sha256()
        self.trail: list[str] = []
        """The last events, for people who look into a failure."""
        self._sizes()
        self.pool = Pool("global", rng.choice((40_000, 2_000_000, 2_000_000)), rng.choice((0, 100_000, 2_000_000)),
                         rng.choice((0.1, 0.5, 1.0)))
        self.policies = chance.policies(rng)
        self.broker = Broker({"": Limits()}, {"": self.pool}, self.policies, flap=FlapControl(base_s=0.0))
        self.disk = Disk(rng, rng.choice((0.0, 0.0, 0.3, 1.0)), rng.choice((0.0, 0.0, 0.0, 0.0, 0.05)),
                         rng.choice((0.0, 0.1, 1.0)))
        self.readable = not self.disk.unreadable
        self.shy = rng.choice((0.0, 0.1, 0.5))
        self.by_name = rng.random() < 0.6
        """Queues are published to by their names as well; from then on they share no lane."""
        self.size_max = rng.choice((100, 100, 3000))
        self.wiring = Wiring()
        self.models: dict[str, QueueModel] = {}
        self.payloads: dict[int, bytes] = {}
        self.counts: dict[str, int] = {}
        self._numbers = self._turns = 0
        self._next_tick = self.now
        self.unexplained: list[QueueModel] = []
        """Queues that ended as if their owner was gone."""
        self.moved: list[Flight] = []
        """Redelivered elsewhere by the broker's own decision; an effect must say why."""
        self.allowed = PRESSURE if self.readable else PRESSURE | {Reason.SPILL_FAILED}
        """Why queues may leave records out, besides what their terms and clients say."""
        self.may_return = self.may_delete = False
        self._permit()
        self.last_own = self.closed_bytes = 0
        """By how much the pool grew with what connections that are gone, and the broker itself, published."""
        self.ungated: dict[tuple[str, Feed], float] = {}
        """Publishers that wait for a lane that nobody holds back any more, and since when."""
        self.refusing = False
        """There is (or was) a queue that refuses; never two, so that it is known who took how many."""
        self.innocent: set[str] = set()
        """Who must never be cut."""
        self.parties = [Party(self, number, rng.choice(chance.MANNERS)) for number in range(rng.randint(3, 7))]
        self.parties.append(Party(self, 99, chance.HEALTHY))
        self.innocent |= {party.name for party in self.parties if party.manner.healthy}
        self._begin()

    def _sizes(self) -> None:
        """Small chunks, batches and portions, so that their edges come up all the time."""
        rng = self.rng
        lane.CHUNK_BYTES = rng.choice((200, 2000, 64 * 1024))
        cursor.SETTLED_BYTES = 4 * lane.CHUNK_BYTES
        dispatch.BATCH_BYTES = rng.choice((300, 3000, 64 * 1024))
        dispatch.PUMP_BYTES = rng.choice((500, 5000, 1024 * 1024))
        dispatch.PORTION_RECORDS = rng.choice((1, 3, 32))
        overdue.OVERDUE_WORK = rng.choice((1, 5, 4096))

    def _permit(self) -> None:
        """What policies may do, from now on."""
        actions = {rule.then.kind for policy in self.policies for rule in policy.rules}
        self.may_return |= ActionKind.RETURN in actions
        self.may_delete |= ActionKind.DELETE_SUBSCRIPTION in actions
        if ActionKind.DISCARD in actions:
            self.allowed |= {Reason.DISCARDED}

    def _begin(self) -> None:
        party = self.parties[-1]
        changes.add_exchange(self, chance.DEAD, "fanout", auto_delete=False, alternate=None)
        changes.declare(self, party, chance.DEAD, plain=True)
        changes.bind(self, party, Tie(chance.DEAD, ("queue", chance.DEAD), ""))
        for _ in range(self.rng.randint(1, 4)):
            changes.declare(self, self.rng.choice(self.parties), self.rng.choice(chance.QUEUES))
        for _ in range(self.rng.randint(1, 6)):
            changes.rewire(self)
        if self.rng.random() < 0.6:
            changes.bind_alike(self)
        for party in self.parties:
            for _ in range(self.rng.choice((0, 1, 1, 2))):
                changes.consume(self, party)

    # -- notes ------------------------------------------------------------------------------------------------------

    def note(self, *what: Any) -> None:
        """Put an event on record: the same seed must give the same record."""
        line = f"{self.now:.6f} {' '.join(map(str, what))}"
        self.hash.update(line.encode() + b"\n")
        self.trail.append(line)
        del self.trail[:-80]

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # -- queues -----------------------------------------------------------------------------------------------------

    def add(self, model: QueueModel) -> None:
        self.models[model.name] = model
        self.wiring.queues[model.name] = None

    def forget(self, model: QueueModel) -> None:
        self.note("gone", model.name)
        model.gone = True
        del self.models[model.name]
        self.wiring.remove_queue(model.name)

    # -- publishing -------------------------------------------------------------------------------------------------

    def publish(self, party: Party | None, exchange: str, key: str, headers: dict[str, object], sizes: list[int],
                priority: int | None, lifetime_s: float | None, *, as_topic: bool = False) -> None:  # fmt: skip
        takebacks.reap(self)
        numbers = [self.next_number() for _ in sizes]
        payloads = [f"{number} ".encode().ljust(size, b".") for number, size in zip(numbers, sizes, strict=True)]
        self.payloads.update(zip(numbers, payloads, strict=True))
        expires_s = inf if lifetime_s is None else self.now + lifetime_s
        source = party or self.parties[0]
        run = source.run(exchange, key, headers, payloads, priority, expires_s)
        run.confirmed = party is not None and numbers[0] % 3 > 0
        run.qos = int(run.confirmed)
        reached = self.wiring.reaches(exchange, key, headers)
        self.note("publishes", party.name if party else "the broker", exchange, key, numbers[0], len(numbers),
                  sorted(reached), priority, lifetime_s)  # fmt: skip
        refusing = next((name for name in reached if self.models[name].terms.refuses), None)
        before = self.pool.memory_bytes
        session = party.session if party is not None else None
        if as_topic and exchange == "amq.topic" and refusing is None:
            self.broker.publish(session, [run], self.now)
            accepted = len(numbers)
        else:
            published = self.broker.intake.publish_to(session, run, self.now)
            accepted = published.accepted
            assert bool(published.taken) == bool(reached), f"taken by {published.taken}, wanted by {reached}"
        assert accepted == len(numbers) or refusing is not None
        for name in sorted(reached):
            model = self.models[name]
            taken = numbers[:accepted] if name == refusing else numbers
            for number in taken:
                model.published(number, priority or 0, self.now, expires_s, promised=run.confirmed)
                model.entries[number].patience_s = patience_of(numbers[0], len(numbers))
        if refusing is not None and accepted < len(numbers):
            self.count("refused")
            model = self.models[refusing]
            most = model.terms.records_max
            assert most is not None
            assert model.lag + accepted >= most, f"{model} refuses though it has room"
        grown = max(0, self.pool.memory_bytes - before)
        if party is not None:
            party.last_bytes += grown
        else:
            self.last_own += grown

    # -- the turn ---------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Everything that came goes out; healthy parties take it at once."""
        for _ in range(20_000):
            self.broker.flush(self.now)
            effects.carry_out(self)
            busy = False
            for party in self.parties:
                if party.manner.healthy:
                    busy |= party.read(1e12)
                    busy |= party.handle()
            effects.carry_out(self)
            if not busy and not self.broker.has_work and not self.broker.registry.effects:
                break
        else:
            raise AssertionError("the turn does not end")
        self._turns += 1
        audit.after_turn(self, full=in_full(self._turns))

    def pass_time(self, seconds: float) -> None:
        self.now = round(self.now + seconds, 6)
        if self.disk.work(self.broker, self.now):
            effects.carry_out(self)
        if self.now >= self._next_tick:
            self._next_tick = self.now + SWEEP_S
            late_s, before = self.broker.governor.late_s, audit.before_look(self)
            self.broker.tick(self.now)
            self.broker.flush(self.now)
            if self.broker.governor.late_s == late_s and not self.broker.governor.sweeping:
                audit.looked_at(self, before)
            effects.carry_out(self)

    # -- steps ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        rng = self.rng
        self.pass_time(rng.choice((0.0, 0.001, 0.01, 0.05, 0.1)) if rng.random() > 0.003 else rng.choice((1.0, 5.0)))
        for party in rng.sample(self.parties, k=min(3, len(self.parties))):
            self._act(party)
        if rng.random() < 0.05:
            changes.rewire(self)
        if rng.random() < 0.02:
            self._end_one()
        if rng.random() < 0.003:
            self.note("reload")
            self.policies = chance.policies(rng)
            self._permit()
            self.broker.set_policies(self.policies, self.now)
        self.turn()
        self.note("state", self._numbers, self.pool.memory_bytes, self.pool.disk_bytes,
                  {name: model.lag for name, model in self.models.items()})  # fmt: skip

    def _end_one(self) -> None:
        """Purge a queue, or delete it."""
        if not self.models:
            return
        model = self.rng.choice(list(self.models.values()))
        if self.rng.random() < 0.6:
            self.note("purges", model.name)
            model.purged(purged(model.queue))
        elif model.name != chance.DEAD:
            self.note("deletes", model.name)
            waiting = model.lag
            assert self.broker.queues.delete(model.queue, self.now) == waiting
            self.forget(model)

    def _act(self, party: Party) -> None:
        rng = self.rng
        if not party.connected:
            if self.now >= party.away_until_s and rng.random() < 0.3 and party.connect():
                self.note("connected", party.name)
                for _ in range(rng.randint(0, 3)):
                    changes.consume(self, party)
            return
        self._work(party)
        dice = rng.random()
        if dice < 0.35:
            party.publish()
        elif dice < 0.37 and len(party.consumers) < 5:
            changes.consume(self, party)
        elif dice < 0.39 and not party.manner.healthy and self.models:
            model = rng.choice(list(self.models.values()))
            if model.owner in (None, party):
                for _ in range(rng.choice((1, 1, 5))):
                    party.get(model)
        elif dice < 0.41 and party.consumers:
            consumer = rng.choice(list(party.consumers.values()))
            self.note("cancels", party.name, consumer.tag)
            party.cancel(consumer)
        elif dice < 0.415 and party.channels:
            number = rng.choice(list(party.channels))
            self.note("closes", party.name, number)
            party.close(number)
        elif dice < 0.42 and party.channels:
            party.recover(rng.choice(list(party.channels)))
        elif dice < 0.43:
            changes.declare(self, party, rng.choice(chance.QUEUES))
        elif dice < 0.45:
            party.hears_an_answer()
        elif dice < 0.455 and not party.manner.healthy:
            party.flow(active=False)
        elif dice < 0.47:
            party.flow(active=True)
        if party.connected and rng.random() < party.manner.vanishes:
            self.note("vanishes", party.name)
            party.leave()

    def _work(self, party: Party) -> None:
        manner = party.manner
        if self.rng.random() < manner.naps:
            party.naps_until_s = self.now + self.rng.choice((0.3, 1.0, 4.0))
        if self.now < party.naps_until_s:
            return
        party.read((self.now - party.last_read_s) * manner.reads)
        party.last_read_s = self.now
        party.handle()

    def run(self, steps: int) -> str:
        """The whole story; the hash of all that happened."""
        for _ in range(steps):
            self.step()
        self.settle()
        self.end()
        return self.hash.hexdigest()

    # -- the end ----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Nobody publishes any more, and everybody reads and settles: all must arrive."""
        self.note("settles")
        self.disk.full = self.disk.unreadable = 0.0
        self.disk.delay_s = 0.0
        self.broker.set_policies((), self.now)
        effects.carry_out(self)
        for party in self.parties:
            party.manner = chance.HEALTHY
            party.hands = [(self.now, number, delivery_id) for number, delivery_id in party.flights]
            party.flow(active=True)
        self.turn()
        self.innocent |= {party.name for party in self.parties}
        for party in self.parties:
            if not party.connected:
                assert party.connect()
        for model in list(self.models.values()):
            if not any(consumer.live for consumer in model.consumers):
                party = model.owner or self.parties[-1]
                party.consume(model, acks=True, channel=7, prefetch=3)
        self.turn()
        for _ in range(30):
            self.pass_time(0.25)
            self.turn()
        audit.after_turn(self, full=True)
        audit.settled(self)

    def end(self) -> None:
        """Everybody goes, all is deleted: nothing may be left."""
        self.note("ends")
        for party in self.parties:
            if party.connected:
                party.leave()
        effects.carry_out(self)
        for model in list(self.models.values()):
            self.broker.queues.delete(model.queue, self.now)
            self.forget(model)
        for _ in range(10):
            self.pass_time(1.0)
            self.turn()
        audit.ended(self)
