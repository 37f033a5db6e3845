"""The pretended world around a broker: it rolls the dice, carries out effects, and asks the checkers all the time."""

from __future__ import annotations

import hashlib
from collections import Counter
from random import Random
from typing import Any

from tests.sim import audit, chance, subscribing
from tests.sim.client import Client
from tests.sim.disk import Disk
from tests.sim.in_rows import in_flight
from tests.sim.model import GroupModel, History, Published, SubModel
from tests.sim.record import Records
from tests.sim.seeds import in_full
from tests.sim.stream import Stream

from headway.core.allowance import UNLIMITED, Allowance
from headway.core.base.errors import Reason, Refused
from headway.core.broker import SWEEP_S, Broker
from headway.core.consumer.connection.outlet import Outlet
from headway.core.consumer.effects import CloseConsumer, Disconnect, Effect, Pause, Resume, Spill
from headway.core.consumer.feed import Feed
from headway.core.consumer.session import Session
from headway.core.delivery import fanout
from headway.core.delivery import fanout as offer
from headway.core.delivery import rendering as batch
from headway.core.governance import memory as pressure
from headway.core.log.lanes import cursor, lane
from headway.core.log.lanes.pool import Pool
from headway.core.log.states import StateTerms
from headway.core.message.record import Run
from headway.core.message.topics import matches
from headway.core.policy.rules.rule import Policy
from headway.core.policy.verdicts import DecisionKind, Verdict
from headway.core.routing.registry import Limits

SLOW_REASONS = frozenset({Reason.NORMAL, Reason.CLIENT_GONE, Reason.TAKEN_OVER, Reason.ADMIN})


MOMENTARY = frozenset({"lag_records", "lag_bytes", "slow_count", "slow_fraction"})
"""Meters of what waits now, however short."""
SETTLES_S = 130
"""A rule that went to and fro takes up to a minute to step back; a second one may begin when it has."""


class World:
    STATES = 0.5
    """How often there is a declared state."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = Random(seed)
        self.now = 1000.0
        self.hash = hashlib.sha256()
        self.trail: list[str] = []
        """The last events, for people who look into a failure."""
        self._sizes()
        pool = Pool("global", rng.choice((40_000, 200_000, 2_000_000)), rng.choice((0, 100_000, 2_000_000)),
                    rng.choice((0.1, 0.5, 1.0)))
        self.pool = pool
        self.broker = Broker({"": Limits(in_flight_max=rng.choice((3, 30, 1024)))}, self._pools(pool), self._policies())
        self.disk = Disk(rng, rng.choice((0.0, 0.0, 0.0, 0.3, 1.0)), rng.choice((0.0, 0.0, 0.0, 0.05)),
                         rng.choice((0.0, 0.1, 2.0)))
        self.readable = not self.disk.unreadable
        self.shy = rng.choice((0.0, 0.1, 0.5))
        self.size_max = rng.choice((100, 2000, 20_000))
        self.history = History()
        self.models: list[SubModel] = []
        self.active: list[SubModel] = []
        """Those of them that have not ended."""
        self.groups: dict[Feed, GroupModel] = {}
        self.by_outlet: dict[Outlet, tuple[Client, Stream]] = {}
        self.streams = self._audits = 0
        self._numbers = 0
        self._retained: dict[str, int] = {}
        self.emptied: set[str] = set()
        self._next_tick = self.now
        self._read_upto = 0
        """The last record when the last turn ended: healthy clients have read what there was."""
        self.charged: set[str] = set()
        self.last_reads: dict[str, Counter[Pool]] = {}
        """By how much each pool grew with what was read last from each publisher."""
        self.closed_bytes: Counter[Pool] = Counter()
        """The most that was in closed lanes of each pool, since then."""
        self.own_words: Counter[Pool] = Counter()
        """... and, since it was within its limit, with what the broker itself and earlier connections published."""
        self.counts: dict[str, int] = {}
        self._at_once: Counter[tuple[float, str, str]] = Counter()
        self._tap()
        self.records = Records(self)
        self.config = Random(f"config {seed}")
        self.declared: list[tuple[str, str]] = []
        if rng.random() < self.STATES:
            self.declared = [(rng.choice(("#", "a/#", "b/#")), rng.choice(chance.KEYS))]
            self.broker.declare_state(StateTerms(*self.declared[0], conflate_s=chance.interval_s(self.config)))
        self.clients = [Client(self, n, rng.choice(chance.MANNERS)) for n in range(rng.randint(3, 10))]
        self.clients.append(Client(self, 99, chance.HEALTHY))
        self.healthy = {client.name for client in self.clients if client.manner.healthy}

    def reload_topic(self) -> None:
        """A reload, which has the declared topic conflated otherwise."""
        interval_s = chance.interval_s(self.config)
        self.note("reloads", interval_s)
        self.broker.declare_states([StateTerms(*one, conflate_s=interval_s) for one in self.declared], self.now)

    def _pools(self, pool: Pool) -> dict[str, Pool]:
        return {"": pool}

    def _held(self) -> Counter[Pool]:
        return Counter({pool: pool.memory_bytes for pool in self.broker.registry.distinct_pools()})

    def _policies(self) -> tuple[Policy, ...]:
        return chance.policies(self.rng)

    def allowance_of(self, client: Client) -> Allowance:
        """The limits of the client's user."""
        return UNLIMITED

    def _sizes(self) -> None:
        """Small chunks and batches, so that their edges come up all the time."""
        rng = self.rng
        lane.CHUNK_BYTES = rng.choice((200, 2000, 64 * 1024))
        cursor.SETTLED_BYTES = 4 * lane.CHUNK_BYTES
        pressure.MORE_BYTES = lane.CHUNK_BYTES
        batch.BATCH_BYTES = rng.choice((300, 3000, 64 * 1024))
        fanout.PUMP_BYTES = rng.choice((1000, 1024 * 1024))
        offer.VIEWS_MAX = rng.choice((2, 16))

    def _tap(self) -> None:
        """Listen to what is published (the broker publishes, too) and what is judged."""
        publishing, book = self.broker._publishing, self.broker.verdicts
        publish, add = publishing.publish, book.add

        def heard(session: Session | None, runs: list[Run], now: float) -> int:
            first, before = self.broker.registry.sequence + 1, self._held()
            try:
                return publish(session, runs, now)
            finally:
                self._heard(session, runs, first)
                if session is None:
                    self.own_words += self._held() - before

        def judged(verdict: Verdict, user: str = "") -> None:
            add(verdict, user)
            self._judged(verdict)

        publishing.publish = heard  # type: ignore[method-assign]
        book.add = judged  # type: ignore[method-assign]

    # -- notes ------------------------------------------------------------------------------------------------------

    def note(self, *what: Any) -> None:
        """Put an event on record: the same seed must give the same record."""
        line = f"{self.now:.6f} {' '.join(map(str, what))}"
        self.hash.update(line.encode() + b"\n")
        self.trail.append(line)
        del self.trail[:-60]

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _heard(self, session: Session | None, runs: list[Run], sequence: int) -> None:
        number = session.number if session is not None else 0
        models = [m for m in self.active if m.shared is None and m.live]
        groups = [g for g in self.groups.values() if g.live]
        for run in runs:
            for index in range(len(run)):
                record = Published(sequence, run.topic, run.payload(index), run.qos, run.retain, run.properties,
                                   run.expires_s, number)
                sequence += 1
                self.history.add(record)
                for model in models:
                    model.published(record)
                for group in groups:
                    group.published(record)
                if record.retain:
                    if record.payload:
                        self._retained[record.topic] = record.sequence
                    else:
                        self._retained.pop(record.topic, None)
        assert sequence == self.broker.registry.sequence + 1, "records were numbered otherwise than they were published"

    def retained_for(self, filter: str) -> dict[str, int]:
        return {topic: s for topic, s in self._retained.items() if filter and matches(filter, topic)}

    def _judged(self, verdict: Verdict) -> None:
        self.note("verdict", verdict.client, verdict.filter, verdict.action.kind, verdict.reason, verdict.kind)
        self._at_once[self.now, verdict.client, verdict.filter] += 1
        assert self._at_once[self.now, verdict.client, verdict.filter] < 10, f"judged over and over: {verdict.text}"
        self.count(f"{verdict.kind} {verdict.action.kind}")
        self.count(f"reason {verdict.reason}")
        if not verdict.policy:
            for model in self.models:
                session = model.subscription.session
                if model.live and session.client == verdict.client and model.subscription.filter == verdict.filter:
                    self._unsure(model, session)
        session = self.broker.registry.sessions.get(verdict.client)
        if self.disk.unreadable and verdict.reason is Reason.SPILL_FAILED:
            self.charged.add(verdict.client)  # what cannot be read back is lost to the healthy, too
            return
        by_share = any(reading.meter == "pool_share" for reading in verdict.readings)
        subscriptions = session.subscriptions.values() if by_share and session is not None else ()
        if any(s.conflation.state is not None for s in subscriptions):
            self.charged.add(verdict.client)  # a state kept for a client is charged to it, however fast it reads
            return
        if verdict.client in self.healthy and session is not None and session.connected:
            if verdict.kind is DecisionKind.FIRE and self._no_time_to_read(verdict, session):
                self.charged.add(verdict.client)
                return
            assert verdict.kind is DecisionKind.CLEAR, f"a verdict on a healthy client: {verdict.text}"

    def _no_time_to_read(self, verdict: Verdict, session: Session) -> bool:
        """Tells whether a rule that grants no time found too much that came since the last turn ended. The looks
        of a sweep go on in the turns after it, also before the clients read what is new."""
        new = self.broker.registry.sequence > self._read_upto
        new = new or any(one.conflation.by_clock for one in session.subscriptions.values())
        return new and not verdict.window_s and {one.meter for one in verdict.readings if one.held} <= MOMENTARY

    def _unsure(self, model: SubModel, session: Session) -> None:
        """It is written off what it has not acknowledged, whether it has it or not."""
        unsure = sum(delivery.subscription is model.subscription for delivery in in_flight(session.channel).values())
        model.excess += unsure
        if model.shared is not None:
            model.shared.excess += unsure
            model.shared.returned.update(model.unsettled.values())

    # -- commands ---------------------------------------------------------------------------------------------------

    def publish(self, client: Client, runs: list[Run]) -> None:
        before = self._held()
        try:
            self.broker.publish(client.session, runs, self.now)
        except Refused:
            self.count("refused to retain")
        self.last_reads[client.name].update(self._held())
        self.last_reads[client.name].subtract(before)

    def reap(self, client: str = "", boundary: tuple[int, int] | None = None) -> None:
        """Note which subscriptions have ended by now; those of ``client`` at this place in its streams."""
        for model in self.active:
            if model.live or model.ended is not None:
                continue
            session = model.subscription.session
            if boundary is not None and session.client == client:
                model.ended = boundary
            else:
                entry = self.by_outlet.get(session.outlet)
                model.ended = (entry[1].number, entry[1].boundary) if entry else (self.streams, 10**18)
            if model.shared is not None and session.ended:
                model.shared.returned.update(model.unsettled.values())
                model.shared.excess += len(model.unsettled)
        self.active = [model for model in self.active if model.live]

    # -- the turn ---------------------------------------------------------------------------------------------------

    def carry_out(self) -> None:
        for effect in self.broker.take_effects():
            self._carry_out_one(effect)
        self.reap()

    def _carry_out_one(self, effect: Effect) -> None:
        match effect:
            case Disconnect(session, outlet, reason, text, rest):
                self._disconnected(session, outlet, reason, text, rest)
            case Spill():
                self.note("spill", len(effect.chunks))
                self.count("spills")
                self.disk.submit(effect, self.now)
            case Pause(session=session) | Resume(session):
                for client in self.clients:
                    if client.session is session:
                        client.paused = isinstance(effect, Pause)
                        self.count("pauses")
            case CloseConsumer(subscription, _):
                if self.rng.random() < 0.5 and not subscription.ended:
                    self.broker.unsubscribe(subscription.session, subscription.filter, self.now)

    def _disconnected(
        self, session: Session, outlet: Outlet, reason: Reason, text: str, rest: bytes | memoryview | None
    ) -> None:
        client, stream = self.by_outlet.pop(outlet)
        self.note("disconnected", client.name, reason)
        self.count(f"disconnected {reason}")
        innocent = client.name in self.healthy and client.name not in self.charged
        assert not innocent or reason in SLOW_REASONS, f"{client.name} was disconnected: {text}"
        last = bytes(outlet.out) + (stream.replies.disconnect_for(reason, text) or b"")
        outlet.out.clear()
        self.reap(client.name, (stream.number, 10**18))
        client.closed(stream, None if rest is None else bytes(rest) + last)
        self.broker.disconnect(session, outlet, reason, self.now)

    def turn(self) -> None:
        """Everything that came goes out; healthy clients take it at once."""
        for _ in range(100_000):
            self.broker.flush(self.now)
            self.carry_out()
            busy = False
            for client in self.clients:
                if client.manner.healthy:
                    busy |= client.read(1e12)
                    busy |= client.acknowledge()
            self.carry_out()
            if not busy and not self.broker.has_work:
                break
        else:
            raise AssertionError("the turn does not end")
        self._read_upto = self.broker.registry.sequence

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        if self.disk.work(self.broker, self.now):
            self.carry_out()
        if self.now >= self._next_tick:
            self._next_tick = self.now + SWEEP_S
            late_s, comes = self.broker.governor.late_s, bool(self.broker.registry.backpressure.wide.coming)
            self.broker.tick(self.now)
            self.broker.flush(self.now)
            if not comes and self.broker.governor.late_s == late_s and not self.broker.governor.sweeping:
                audit.looked_at(self)
            self.carry_out()

    # -- steps ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        rng = self.rng
        self.pass_time(rng.choice((0.0, 0.001, 0.01, 0.05, 0.1)) if rng.random() > 0.003 else rng.choice((1.0, 5.0)))
        for client in rng.sample(self.clients, k=min(3, len(self.clients))):
            self._act(client)
        if self.declared and self.config.random() < 0.01:
            self.reload_topic()
        self.turn()
        self._audit()
        self.note("state", self.broker.registry.sequence, self.pool.memory_bytes, self.pool.disk_bytes)

    def _audit(self) -> None:
        self._audits += 1
        full = in_full(self._audits)
        audit.after_turn(self, full=full)
        self.records.audit(full=full)

    def _act(self, client: Client) -> None:
        rng = self.rng
        if client.stream is None:
            if self.now >= client.away_until_s and rng.random() < 0.3 and client.connect():
                self.note("connected", client.name, client.session is not None and client.session.present)
                if not any(model.live for model in client.models):
                    for _ in range(rng.randint(0, 3)):
                        self._subscribe(client)
            return
        self._consume(client)
        dice = rng.random()
        if dice < 0.35:
            client.publish()
        elif dice < 0.38:
            self._subscribe(client)
        elif dice < 0.40:
            subscribing.unsubscribe(client)
        elif dice < 0.405:
            client.connect()  # a takeover
        elif dice < 0.41:
            self.note("leaves", client.name)
            client.vanish(politely=True)
        elif dice < 0.415:
            live = [model for model in client.models if model.live]
            if live:  # once more, all the same
                model = rng.choice(live)
                subscribing.subscribe(client, model.subscription.filter, model.subscription.request)
        if client.stream is not None and rng.random() < client.manner.vanishes:
            self.note("vanishes", client.name)
            client.vanish()

    def _subscribe(self, client: Client) -> None:
        full = subscribing.pick_filter(client)
        if full is not None:
            try:
                subscribing.subscribe(client, full)
            except Refused as error:
                self.count(f"refused {error.reason}")

    def _consume(self, client: Client) -> None:
        manner, rng = client.manner, self.rng
        if rng.random() < manner.naps:
            client.naps_until_s = self.now + rng.choice((0.3, 1.0, 4.0))
        if self.now < client.naps_until_s:
            return
        client.read((self.now - client.last_read_s) * manner.reads)
        client.last_read_s = self.now
        client.acknowledge()

    def run(self, steps: int) -> str:
        """The whole story; the hash of all that happened."""
        for _ in range(steps):
            self.step()
        self.settle()
        self.end()
        return self.hash.hexdigest()

    # -- the end ----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Nobody publishes any more, and everybody who is there reads and acknowledges: all must arrive."""
        self.disk.full = self.disk.unreadable = 0.0
        self.disk.delay_s = 0.05
        for client in self.clients:
            client.manner = chance.HEALTHY
            if client.stream is None and self.rng.random() < 0.7 and self.now >= client.away_until_s:
                client.connect(clean=False)
        self.turn()
        for quarter in range(4 * SETTLES_S):
            if quarter >= 120 and not self.broker.registry.watched:
                break
            self.pass_time(0.25)
            self.turn()
            self._audit()
        audit.after_turn(self, full=True)
        audit.settled(self)

    def end(self) -> None:
        """Everybody goes, sessions expire: nothing may be left."""
        for client in self.clients:
            if client.stream is not None:
                client.vanish(politely=True, expiry_s=0.0)
        for _ in range(80):
            self.pass_time(1.0)
            self.turn()
        audit.ended(self)
        self.records.audit(full=True)
        self.records.ended()
