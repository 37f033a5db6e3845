"""The pretended world around a broker whose queues have consumers with selectors and groups: it rolls the dice, and
asks the checker after every turn."""

from __future__ import annotations

import hashlib
from collections import Counter
from math import inf
from random import Random
from typing import Any

from tests.core.queue_wire import PLAIN, run_of
from tests.core.queues_stage import purged
from tests.core.test_queue_picking_seeded import COLOURS, SELECTORS
from tests.sim.audit import standing
from tests.sim.disk import Disk
from tests.sim.in_rows import in_flight
from tests.sim.queues.picking.client import HEALTHY, MANNERS, Client
from tests.sim.queues.picking.truth import PRESSURE, Facts, Truth
from tests.sim.seeds import in_full

from headway.core.base.errors import Reason
from headway.core.broker import SWEEP_S, Broker
from headway.core.consumer.credit import NO_LIMIT
from headway.core.consumer.effects import Disconnect, Pause, Resume, Spill
from headway.core.consumer.request import QueueTerms
from headway.core.log.lanes import cursor, lane
from headway.core.log.lanes.pool import Pool
from headway.core.message.record import Properties
from headway.core.policy.evaluation import FlapControl
from headway.core.policy.rules.rule import parse_policy
from headway.core.queue import dispatch
from headway.core.queue.picking import groups, picker, picking
from headway.core.queue.picking import groups as reserved
from headway.core.routing import registry as overdue
from headway.core.routing.matching.bindings import Binding, Destination, Exchange
from headway.core.routing.registry import Limits

CLIENTS_MAX = 6
TAKERS_MAX = 10
WAITING_MAX = 400


class World:
    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.now = 1000.0
        self.hash = hashlib.sha256()
        self.trail: list[str] = []
        self.counts: Counter[str] = Counter()
        self.small = rng.random() < 0.3
        self._sizes()
        self.pool = Pool("global", 30_000 if self.small else 8_000_000, rng.choice((0, 100_000)), 0.5)
        self.lag_max = rng.choice((2, 20))
        rules: list[dict[str, Any]] = [
            {"when": {"lag_records": f"> {self.lag_max}"}, "then": "notify"},
            {"when": {rng.choice(("credit_exhausted_time", "lag_age", "blocked_time")): "300ms"}, "then": "notify"},
        ]
        self.policies = (parse_policy({"name": "p", "topics": ["#"], "rule": rules}),)
        self.broker = Broker({"": Limits()}, {"": self.pool}, self.policies, flap=FlapControl(base_s=0.0))
        self.disk = Disk(rng, 0.0, 0.0, 0.1)
        self.shy = rng.choice((0.0, 0.0, 0.3))
        self.group_names = [f"g{number}" for number in range(rng.choice((2, 4, 30)))]
        self.grouped = rng.choice((0.0, 0.3, 0.8, 1.0))
        self.plain = rng.choice((0.1, 0.5, 1.0))
        """How many consumers have no selector."""
        self.next_number = self.names = self._rests = 0
        self.next_tick = self.now
        self.clients: list[Client] = []
        self.publishers = [Client(self, f"publisher {number}", HEALTHY._replace(name="")) for number in range(2)]
        self.clients.clear()
        self.truths: list[Truth] = []
        self.bound: dict[Truth, bool] = {}
        self._declare()

    def _sizes(self) -> None:
        """Small ones, so that their edges come up all the time."""
        rng = self.rng
        lane.CHUNK_BYTES = rng.choice((300, 3000, 64 * 1024))
        cursor.SETTLED_BYTES = 4 * lane.CHUNK_BYTES
        dispatch.PORTION_RECORDS = rng.choice((1, 4, 32))
        dispatch.ROUND_MEMBERS = picking.RESERVED_FOR = rng.choice((1, 256))
        dispatch.BATCH_BYTES = rng.choice((300, 64 * 1024))
        picker.FOUND_ENOUGH = rng.choice((1, 3, 64))
        picker.PASSED_AT_ONCE = rng.choice((1, 7, 64))
        overdue.OVERDUE_WORK = rng.choice((40, 400, 4096))
        groups.RESERVED_MAX = rng.choice((3, 20, 2000))
        reserved.RESERVED_EACH = rng.choice((1, 3, 16))
        groups.GROUPS_MAX = 10_000 if self.small else rng.choice((2, 10_000, 10_000))
        groups.BUCKETS = rng.choice((1, 3, 256))

    def _declare(self) -> None:
        rng, session = self.rng, self.publishers[0].session
        self.broker.queues.declare_exchange(Exchange("e", "topic"))
        for number in range(rng.choice((1, 1, 2))):
            limited = rng.random() < 0.1
            terms = QueueTerms(
                priorities=rng.choice((0, 0, 0, 3)), ttl_s=rng.choice((None, None, None, 0.5)),
                records_max=50 if limited else None, single_active=rng.random() < 0.1,
                leaves_out=self.publishers[0].name if rng.random() < 0.2 else None,
            )  # fmt: skip
            queue = self.broker.queues.declare(session, f"q{number}", terms, PLAIN, self.now)
            truth = Truth(queue)
            self.truths.append(truth)
            self.bound[truth] = False
            self.note("declares", queue.name, terms)

    # -- notes ------------------------------------------------------------------------------------------------------

    def note(self, *what: Any) -> None:
        """Put an event on record: the same seed must give the same record."""
        line = f"{self.now:.6f} {' '.join(map(str, what))}"
        self.hash.update(line.encode() + b"\n")
        self.trail.append(line)
        del self.trail[:-120]

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def next_name(self) -> int:
        self.names += 1
        return self.names

    # -- the turn ---------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        self._note_owing()
        self.broker.flush(self.now)
        self._carry_out()

    def turn(self) -> None:
        """Everything that came goes out, until nothing goes round."""
        for _ in range(5000):
            self.flush()
            busy = False
            for client in list(self.clients):
                if client.manner.healthy:
                    busy |= client.read()
                    busy |= client.settle(1.0)
            if not busy and not self.broker.has_work:
                break
        else:
            raise AssertionError("the turn does not end")
        self._at_rest()

    def _at_rest(self) -> None:
        for client in self.clients:
            client.outlet.check()
            assert set(in_flight(client.channel)) == set(client.held)
        for truth in self.truths:
            truth.at_rest(self.now)
            self._nobody_forgotten(truth)
        self._rests += 1
        if in_full(self._rests):
            self._books()
        before = self.counts["given"]
        self.broker.registry.ready_queues |= {truth.queue: None for truth in self.truths}
        self.flush()
        assert before == self.counts["given"], "a queue at rest had more to hand out"
        while self.broker.has_work:
            self.flush()

    def _books(self) -> None:
        for feed in self.broker.registry.router.feeds.values():
            cursors = [one for queue in feed.queues for one in (*queue.backlog.cursors, *queue.backlog.draining)]
            standing(feed, [one for one in cursors if one.feed is feed])
            if not any(queue.backlog.has_more for queue in feed.queues) and not feed.lane.cursors_awaiting_acks:
                held = feed.lane.resident_bytes + feed.lane.spilled_bytes
                assert not held, "everybody has everything, and it is still held"
        self.pool.check([feed.lane for feed in self.broker.registry.router.feeds.values()])
        for truth in self.truths:
            truth.queue.backlog.check()
            truth.queue.members.check()

    def _nobody_forgotten(self, truth: Truth) -> None:
        """What waits has nobody who may have it and has room; but for as many as the queue has left out."""
        unknown = truth.unknown()
        for client in self.clients:
            for taker, queue in client.takers.values():
                if queue is not truth or taker.gone or not truth.eligible(taker) or not client.has_room(taker):
                    continue
                mine = [one for one in truth.for_taker(taker) if one.facts.expires_s > self.now]
                assert len(mine) <= unknown, f"{truth}: {mine[0].facts} waits, and {taker.name} could take it"

    def _carry_out(self) -> None:
        for effect in self.broker.take_effects():
            match effect:
                case Disconnect(session=session, reason=reason):
                    client = next(client for client in self.clients if client.session is session)
                    self._is_guilty(client, reason)
                    client.vanish(reason)
                case Spill():
                    self.count("spills")
                    self.disk.submit(effect, self.now)
                case Pause(session=session) | Resume(session):
                    self.count("pauses")
                    for client in (*self.publishers, *self.clients):
                        if client.session is session:
                            client.paused = isinstance(effect, Pause)

    def _note_owing(self) -> None:
        """Who is cut has lost all of it to others before this world hears of it."""
        for client in self.clients if self.small else ():
            client.owes = bool(client.held) or any(
                not taker.gone and any(truth.may_have(taker, record) for record in truth.waiting())
                for taker, truth in client.takers.values()
            )

    def _is_guilty(self, client: Client, reason: Reason) -> None:
        """Who is cut because memory is short holds something, or leaves something that it could take. Of one that wants
        nothing for now, or asks for each record, it is not known whether it would."""
        self.count(f"cut {reason}")
        assert reason in PRESSURE
        if client.flows and not client.asks:
            assert client.owes, f"{client.name} is cut, and neither holds anything nor leaves anything"
            heir = client.came_s > self.now - 1.0  # it inherits what has waited for long
            assert heir or not client.manner.healthy, f"{client.name} is cut"

    def pass_time(self, seconds: float) -> None:
        self.now = round(self.now + seconds, 6)
        self._note_owing()
        if self.disk.work(self.broker, self.now):
            self._carry_out()
        if self.now >= self.next_tick:
            self.next_tick = self.now + SWEEP_S
            self.broker.tick(self.now)
            self.broker.flush(self.now)
            while self.broker.governor.sweeping:
                self.broker.governor.go_on(self.now, 0)
            self._nobody_slow_for_others()
            self._carry_out()

    def _nobody_slow_for_others(self) -> None:
        for truth in self.truths:
            for taker in truth.takers:
                was, taker.slow = taker.slow, taker.subscription.case.slow
                if taker.slow and not was and not taker.subscription.session.ended:
                    self.count("slow")
                    looks = truth.queue.picking.looks_for(taker.subscription)
                    waits = truth.for_taker(taker, returning=True) if looks else truth.queue.backlog.has_more
                    assert waits, f"{taker.name} is called slow, and nothing waits for it"

    # -- steps ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        rng = self.rng
        if rng.random() > 0.01:
            self.pass_time(rng.choice((0.0, 0.01, 0.05, 0.1)))
        else:
            self.turn()  # who is healthy does not leave anything for so long
            self.pass_time(1.0)
        dice = rng.random()
        if dice < 0.45:
            self.publish()
        elif dice < 0.52:
            self.come()
        elif dice < 0.56:
            self._do_to_queue()
        for client in rng.sample(self.clients, k=min(3, len(self.clients))):
            self._act(client)
        if rng.random() < 0.7:
            self.turn()
        else:
            self.flush()
        self.note("state", *(truth.queue.backlog.lag_records for truth in self.truths), self.pool.memory_bytes)

    def publish(self) -> None:
        rng = self.rng
        publisher, lifetime_s = rng.choice(self.publishers), rng.choice((inf, inf, inf, 0.3))
        if publisher.paused:
            self.count("held up")
            return
        to = rng.choice(self.truths)
        everywhere = rng.random() < 0.3
        reached = [one for one, bound in self.bound.items() if bound] if everywhere else [to]
        reached = [one for one in reached if one.queue.terms.leaves_out != publisher.name]
        if any(one.queue.backlog.lag_records > WAITING_MAX for one in reached):
            return
        group = rng.choice(self.group_names) if rng.random() < self.grouped else None
        closes = group is not None and rng.random() < 0.1
        user = (("colour", rng.choice(COLOURS)), ("n", str(rng.randrange(100))), ("priority", str(rng.randrange(5))))
        count = 1 if closes else rng.choice((1, 1, 3, 10, 60))
        facts = [Facts(self.next_number + at, int(user[2][1]), user[0][1], int(user[1][1]), group, closes, self.now,
                       self.now + lifetime_s) for at in range(count)]  # fmt: skip
        self.next_number += count
        if group is not None:
            user += (("JMSXGroupID", group), ("JMSXGroupSeq", "-1" if closes else "1"))
        size = rng.choice((10, 10, 200))
        payloads = [f"{one.number} ".encode().ljust(size, b".") for one in facts]
        run = run_of("k" if everywhere else to.queue.name, payloads,
                     exchange="e" if everywhere else "", properties=Properties(user=user), qos=rng.randrange(2),
                     expires_s=self.now + lifetime_s)  # fmt: skip
        self.note("publishes", publisher.name, everywhere, facts[0], count)
        self.broker.intake.publish_to(publisher.session, run, self.now)
        for truth in reached:
            for one in facts:
                truth.published(one)

    def come(self) -> None:
        rng = self.rng
        if len(self.clients) < CLIENTS_MAX and (not self.clients or rng.random() < 0.5):
            self.clients.append(Client(self, str(self.next_name()), rng.choice(MANNERS)))
        client = rng.choice(self.clients)
        if sum(len(one.takers) for one in self.clients) >= TAKERS_MAX or not client.flows:
            return
        truth = rng.choice(self.truths)
        selector = None if rng.random() < self.plain else rng.choice(SELECTORS)
        prefetch = rng.choice((1, 1, 2, 5, 40, NO_LIMIT))
        taker = client.consume(truth, selector, prefetch, alone=rng.random() < 0.03)
        self.note("comes", taker.name, truth, selector, prefetch, taker.alone)

    def _do_to_queue(self) -> None:
        """Purge it, browse it, or bind it anew."""
        rng, truth = self.rng, self.rng.choice(self.truths)
        dice = rng.random()
        if dice < 0.1:
            self.turn()
            self.note("purges", truth)
            if not truth.unknown() and not truth.queue.drops.by_reason[Reason.EXPIRED]:
                self.count("purges")
                purged(truth.queue)
                truth.purged()
        elif dice < 0.6:
            self.turn()
            self.count("browses")
            waiting = truth.queue.waiting(10**6, 10**9, self.now)
            found = [int(PLAIN.decode(frame).payload.split()[0]) for frame, _ in waiting]
            there = [one.facts.number for one in truth.waiting() if one.facts.expires_s > self.now]
            assert found == there or (truth.unknown() and set(found) <= set(there)), f"{truth}: {found}, not {there}"
        else:
            self.count("binds")
            bound = self.bound[truth] = not self.bound[truth]
            binding = Binding("e", Destination("queue", truth.queue.name), "k", ())
            self.note("binds" if bound else "unbinds", truth)
            change = self.broker.queues.bind if bound else self.broker.queues.unbind
            change(self.publishers[0].session, binding)

    def _act(self, client: Client) -> None:
        rng, manner = self.rng, client.manner
        if rng.random() < manner.stands_still:
            client.still_until_s = self.now + rng.choice((0.3, 2.0))
        client.read()
        client.settle(manner.share)
        dice = rng.random()
        if dice < 0.02 and client.takers:
            tag = rng.choice(list(client.takers))
            if not client.takers[tag][0].gone:
                client.cancel(tag)
        elif dice < 0.025:
            client.close_channel()
        elif dice < 0.03:
            client.recover()
        elif dice < 0.05:
            client.fetch(rng.choice(self.truths))
        elif dice < 0.07:
            client.flow(active=not client.flows and not manner.healthy)
        elif dice < 0.1 and not client.flows:
            client.flow(active=True)
        elif rng.random() < manner.vanishes + 0.005:
            client.vanish()

        if groups.GROUPS_MAX < 10_000:
            while self.broker.has_work:  # which groups are known by name depends on who has left before
                self.flush()

    def run(self, steps: int) -> str:
        """The whole story; the hash of all that happened."""
        for _ in range(steps):
            self.step()
        self._settle()
        return self.hash.hexdigest()

    # -- the end ----------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Everybody reads and settles; in the end all have left but one, who takes everything."""
        self.note("settles")
        for client in self.clients:
            client.manner, client.still_until_s = HEALTHY, 0.0
            if not client.flows:
                client.flow(active=True)
        self.turn()
        for client in list(self.clients):
            client.settle(1.0)
            self.turn()
            client.vanish()
            self.turn()
        last = Client(self, "last", HEALTHY)
        self.clients.append(last)
        for truth in self.truths:
            last.consume(truth, None, 3, alone=False)
        for _ in range(3):
            self.pass_time(0.3)
            self.turn()
        for truth in self.truths:
            assert not truth.queue.backlog.lag_records, f"{truth}: {truth.queue.backlog.lag_records} are never given"
        assert not last.held
        last.vanish()
        self.turn()
        for truth in self.truths:
            self.broker.queues.delete(truth.queue, self.now)
        self.flush()
        registry = self.broker.registry
        router = registry.router
        for table in (registry.watched, registry.ready_queues, registry.put_off, router.queues, router.feeds):
            assert not table, table
        assert not registry.totals.slow
        assert self.pool.disk_bytes == 0
