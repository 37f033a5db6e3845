"""The pretended world around a broker with queues: it rolls the dice, carries out effects, and asks the checkers."""

from __future__ import annotations

import hashlib
from math import inf
from random import Random
from typing import Any

import msgspec
import pytest
from tests.core.queue_wire import PLAIN
from tests.core.queues_stage import purged
from tests.sim.disk import Disk
from tests.sim.queues import audit, chance
from tests.sim.queues.model import PRESSURE, Entry, Flight, QueueModel
from tests.sim.queues.party import Consumer, Party
from tests.sim.queues.wiring import Tie, Wiring

from headway.core.base.errors import Reason, Refused
from headway.core.broker import SWEEP_S, Broker
from headway.core.consumer.effects import (
    Cancelled,
    CloseChannel,
    CloseConsumer,
    DeadLetter,
    Disconnect,
    Effect,
    Pause,
    Resume,
)
from headway.core.consumer.effects import Spill as SpillEffect
from headway.core.consumer.feed import Feed
from headway.core.consumer.options import QueueTerms
from headway.core.log import lane
from headway.core.log.pool import Pool
from headway.core.message.record import routing_key_of
from headway.core.policy.action import ActionKind
from headway.core.policy.flap import FlapControl
from headway.core.queue import dispatch
from headway.core.routing import overdue
from headway.core.routing.bindings import Binding, Destination
from headway.core.routing.exchange import Exchange
from headway.core.routing.registry import Limits

INNOCENT = frozenset({Reason.NORMAL, Reason.CLIENT_GONE, Reason.TAKEN_OVER, Reason.ADMIN})


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
        self._numbers = 0
        self._next_tick = self.now
        self.unexplained: list[QueueModel] = []
        """Queues that ended as if their owner was gone."""
        self._moved: list[Flight] = []
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
        self._add_exchange(chance.DEAD, "fanout", auto_delete=False, alternate=None)
        self._declare(party, chance.DEAD, plain=True)
        self._tie(party, Tie(chance.DEAD, ("queue", chance.DEAD), ""))
        for _ in range(self.rng.randint(1, 4)):
            self._declare(self.rng.choice(self.parties), self.rng.choice(chance.QUEUES))
        for _ in range(self.rng.randint(1, 6)):
            self._rewire()
        if self.rng.random() < 0.6:
            self._alike()
        for party in self.parties:
            for _ in range(self.rng.choice((0, 1, 1, 2))):
                self._consume(party)

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

    # -- publishing -------------------------------------------------------------------------------------------------

    def publish(self, party: Party | None, exchange: str, key: str, headers: dict[str, object], sizes: list[int],
                priority: int | None, lifetime_s: float | None, *, as_topic: bool = False) -> None:  # fmt: skip
        self.reap()
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

    # -- the wiring -------------------------------------------------------------------------------------------------

    def _declare(self, party: Party, name: str, *, plain: bool = False) -> None:
        known = self.models.get(name)
        assert party.session is not None
        if known is not None:
            if known.owner not in (None, party):
                return
            again = self.broker.queues.declare(party.session, name, known.terms, PLAIN, self.now)
            assert again is known.queue
            known.used_s = self.now
            return
        terms = QueueTerms() if plain else chance.terms(self.rng, may_refuse=not self.refusing)
        if not self.readable:  # a record's priority cannot be read then either
            terms = msgspec.structs.replace(terms, priorities=0)
        self.refusing |= terms.refuses
        self.note("declares", party.name, name, terms)
        made = self.broker.queues.declare(party.session, name, terms, PLAIN, self.now)
        model = self.models[name] = QueueModel(made, self.now)
        model.owner = party if terms.exclusive else None
        self.wiring.queues[name] = None

    def _add_exchange(self, name: str, kind: str, *, auto_delete: bool, alternate: str | None) -> None:
        self.broker.queues.declare_exchange(Exchange(name, kind, auto_delete=auto_delete, alternate=alternate))
        hub = self.wiring.hubs[name] = type(self.wiring.hubs[""])(kind, auto_delete=auto_delete, alternate=alternate)
        assert not hub.ties

    def _tie(self, party: Party, tie: Tie, *, tied: bool = True) -> None:
        kind, name = tie.to
        binding = Binding(tie.source, Destination(kind, name), tie.key, tie.wanted)  # type: ignore[arg-type]
        model = self.models.get(name) if kind == "queue" else None
        locked = model is not None and model.owner not in (None, party)
        assert party.session is not None
        self.note("binds" if tied else "unbinds", party.name, tie)
        change = self.broker.queues.bind if tied else self.broker.queues.unbind
        if locked:
            with pytest.raises(Refused):
                change(party.session, binding)
            return
        change(party.session, binding)
        if tied:
            self.wiring.tie(tie)
        else:
            self.wiring.untie(tie)

    def _rewire(self) -> None:
        """Bind, unbind, add or remove something."""
        rng, dice = self.rng, self.rng.random()
        parties = [party for party in self.parties if party.connected]
        if not parties:
            return
        party = rng.choice(parties)
        absent = [name for name in chance.EXCHANGES if name not in self.wiring.hubs]
        ties = [tie for tie in self.wiring.all() if tie.source != chance.DEAD]
        if absent and dice < 0.3:
            name = rng.choice(absent)
            alternate = "e.rest" if name != "e.rest" and rng.random() < 0.3 else None
            self.note("exchange", name)
            self._add_exchange(name, chance.EXCHANGES[name], auto_delete=rng.random() < 0.2, alternate=alternate)
        elif dice < 0.35:
            name = rng.choice([name for name in chance.EXCHANGES if name in self.wiring.hubs] or [""])
            if name:
                self.note("deletes exchange", name)
                list(self.broker.queues.delete_exchange(name, if_unused=False))
                self.wiring.remove(name)
        elif dice < 0.45:
            self._alike()
        elif ties and dice < 0.55:
            self._tie(party, rng.choice(ties), tied=False)
        else:
            source = rng.choice([name for name in self.wiring.hubs if name and name != chance.DEAD])
            kind = self.wiring.hubs[source].kind
            to = ("exchange", rng.choice([name for name in self.wiring.hubs if name and name != chance.DEAD]))
            if rng.random() < 0.85 and self.models:
                to = ("queue", rng.choice(list(self.models)))
            key = rng.choice(chance.PATTERNS if kind == "topic" else chance.KEYS)
            wanted = tuple(sorted(rng.choice(chance.WANTED).items())) if kind == "headers" else ()
            self._tie(party, Tie(source, to, key, wanted))

    def _alike(self) -> None:
        """Bind one queue as another is, so that they share a lane."""
        names = [name for name in self.models if name != chance.DEAD]
        if not names:
            return
        like, other = self.rng.choice(names), self.rng.choice(names)
        owner = self.models[other].owner or self.parties[-1]
        if not owner.connected:
            return
        for tie in [tie for tie in self.wiring.all() if tie.to == ("queue", other)]:
            self._tie(owner, tie, tied=False)
        for tie in [tie for tie in self.wiring.all() if tie.to == ("queue", like)]:
            self._tie(owner, tie._replace(to=("queue", other)))

    def _consume(self, party: Party) -> None:
        models = [model for model in self.models.values() if model.owner in (None, party)]
        if party.manner.healthy and self.rng.random() < 0.4:  # not all of them at one queue
            models = [model for model in models if not model.consumers] or models
        if not models:
            return
        model = self.rng.choice(models)
        # Who never acknowledges is healthy as long as it need not.
        acks = False if not party.manner.acks and self.rng.random() < 0.3 else None
        if party.consume(model, acks=acks):
            self.note("consumes", party.name, model.name)

    # -- what the broker does by itself -----------------------------------------------------------------------------

    def taken_from(self, entry: Entry) -> None:
        """A record is handed out that is in flight. Has the broker taken it back from whom it thinks is gone, or late?
        """
        flight = entry.flight
        assert flight is not None
        if flight.id in flight.core.timed_out:
            self._returned(flight)
            return
        session = flight.party.session
        assert flight.id not in flight.core.in_flight, f"{entry.number} is in flight to {flight.party.name}, and given"
        assert session is not None
        self._moved.append(flight)
        flight.model.back(entry)

    def _returned(self, flight: Flight) -> None:
        if flight.returned:
            return
        patience_s = flight.consumer.subscription.patience_s if flight.consumer is not None else 0.0
        assert self.may_return or patience_s, f"{flight.entry.number} was taken from {flight.party.name}"
        assert self.now - flight.sent_s >= max(0.3, patience_s) - 1e-6, f"{flight.entry.number} was taken back at once"
        self.count("returned")
        self.note("returned", flight.party.name, flight.entry.number)
        flight.returned = True
        if flight.entry.flight is flight and not flight.model.gone:
            flight.model.back(flight.entry)

    def look(self) -> None:
        """What was taken back for taking too long, and which queues there are."""
        for party in self.parties:
            for number, channel in party.channels.items():
                for delivery_id in channel.timed_out:
                    self._returned(party.flights[number, delivery_id])
        self.reap()

    def reap(self) -> None:
        """Queues that ended by themselves: had they a reason to?"""
        known = self.broker.registry.router.queues
        for name, model in list(self.models.items()):
            if known.get(name) is model.queue:
                continue
            terms = model.terms
            unused = not any(consumer.live for consumer in model.consumers)
            reasons = (
                terms.auto_delete and model.had_consumer and unused,
                terms.exclusive and model.owner is None,
                terms.idle_s is not None and unused and self.now >= model.used_s + terms.idle_s - 1e-6,
                self.may_delete and unused,
            )
            if terms.exclusive and not any(reasons):
                self.unexplained.append(model)  # its owner may be gone: an effect must say so
            else:
                assert any(reasons), f"{model} is gone: {terms}"
            self.count("queues ended")
            self.forget(model)

    def forget(self, model: QueueModel) -> None:
        self.note("gone", model.name)
        model.gone = True
        del self.models[model.name]
        self.wiring.remove_queue(model.name)

    # -- the turn ---------------------------------------------------------------------------------------------------

    def carry_out(self) -> None:
        for effect in self.broker.take_effects():
            self._carry_out_one(effect)
        self.look()
        for flight in self._moved:
            assert flight.lost or flight.returned, f"{flight.entry.number} was taken from {flight.party.name}: why?"
        self._moved.clear()
        for model in self.unexplained:
            assert model.owner is None, f"{model} is gone, and its owner is there"
        self.unexplained.clear()

    def _carry_out_one(self, effect: Effect) -> None:
        match effect:
            case Disconnect(session, outlet, reason, text, rest):
                party = next(party for party in self.parties if party.session is session)
                self.note("disconnected", party.name, reason)
                self.count(f"disconnected {reason}")
                assert party.outlet is outlet
                assert self._deserved(party, reason), f"{party.name} was disconnected: {text}"
                assert rest == b"", "queues leave nothing half sent but in the outlet"
                channels = list(party.channels.values())
                party.gone()
                self.broker.disconnect(session, outlet, reason, self.now)
                for channel in channels:
                    self.broker.queues.close_channel(session, channel, self.now)
            case CloseChannel(session, channel, reason, text):
                party = next(party for party in self.parties if party.session is session)
                self.note("channel closed", party.name, channel.number, reason)
                self.count(f"channel closed {reason}")
                assert self._deserved(party, reason), f"{party.name} was cut: {text}"
                party.close(channel.number)
            case Cancelled(subscription):
                consumer = self._consumer(subscription)
                if consumer is not None:
                    self.note("cancelled", consumer[0].name, consumer[1].tag)
                    self.count("cancelled")
                    consumer[0].ended(consumer[1])
            case CloseConsumer(subscription, _):
                consumer = self._consumer(subscription)
                if consumer is not None and not subscription.ended and self.rng.random() < 0.7:
                    self.count("asked to close")
                    consumer[0].cancel(consumer[1])
            case DeadLetter(name, _, record, reason):
                self._bury(name, record.payload, reason, routing_key_of(record.topic))
            case SpillEffect():
                self.note("spill", len(effect.chunks))
                self.count("spills")
                self.disk.submit(effect, self.now)
            case Pause(session=session) | Resume(session):
                for party in self.parties:
                    if party.session is session:
                        party.paused = isinstance(effect, Pause)
                        self.count("pauses")

    def _deserved(self, party: Party, reason: Reason) -> bool:
        """Who reads and settles everything at once is never cut; unless what waits is too much for a policy at the very
        instant at which it inherits it."""
        heir = reason in (Reason.LAG_RECORDS, Reason.LAG_BYTES, Reason.LAG_AGE) and party.given_s == self.now
        return party.name not in self.innocent or reason in INNOCENT or heir

    def _consumer(self, subscription: Any) -> tuple[Party, Consumer] | None:
        for party in self.parties:
            for consumer in party.consumers.values():
                if consumer.subscription is subscription:
                    return party, consumer
        return None

    def _bury(self, name: str, payload: bytes, reason: Reason, key: str) -> None:
        self.count(f"dead letter {reason}")
        model = self.models.get(name)
        if model is not None:
            model.dead[reason] += 1
        self.publish(None, chance.DEAD, key, {}, [len(payload)], None, None)

    def turn(self) -> None:
        """Everything that came goes out; healthy parties take it at once."""
        for _ in range(20_000):
            self.broker.flush(self.now)
            self.carry_out()
            busy = False
            for party in self.parties:
                if party.manner.healthy:
                    busy |= party.read(1e12)
                    busy |= party.handle()
            self.carry_out()
            if not busy and not self.broker.has_work and not self.broker.registry.effects:
                break
        else:
            raise AssertionError("the turn does not end")
        audit.after_turn(self)

    def pass_time(self, seconds: float) -> None:
        self.now = round(self.now + seconds, 6)
        if self.disk.work(self.broker, self.now):
            self.carry_out()
        if self.now >= self._next_tick:
            self._next_tick = self.now + SWEEP_S
            self.broker.tick(self.now)
            self.carry_out()

    # -- steps ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        rng = self.rng
        self.pass_time(rng.choice((0.0, 0.001, 0.01, 0.05, 0.1)) if rng.random() > 0.003 else rng.choice((1.0, 5.0)))
        for party in rng.sample(self.parties, k=min(3, len(self.parties))):
            self._act(party)
        if rng.random() < 0.05:
            self._rewire()
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
                    self._consume(party)
            return
        self._work(party)
        dice = rng.random()
        if dice < 0.35:
            party.publish()
        elif dice < 0.37 and len(party.consumers) < 5:
            self._consume(party)
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
            self._declare(party, rng.choice(chance.QUEUES))
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
        self.carry_out()
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
        audit.settled(self)

    def end(self) -> None:
        """Everybody goes, all is deleted: nothing may be left."""
        self.note("ends")
        for party in self.parties:
            if party.connected:
                party.leave()
        self.carry_out()
        for model in list(self.models.values()):
            self.broker.queues.delete(model.queue, self.now)
            self.forget(model)
        for _ in range(10):
            self.pass_time(1.0)
            self.turn()
        audit.ended(self)
