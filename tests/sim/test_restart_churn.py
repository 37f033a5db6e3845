"""Clients, queues, exchanges and bindings that come and go, again and again under the same names and with other terms,
around records; looked at now and then as it would be after a start, by the restart simulator's checker.

And its price: what a start does goes with what is alive, not with what there ever was."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from tests.core.queue_wire import PLAIN, run_of
from tests.core.stage import SHARED
from tests.sim.outlet import PretendedOutlet
from tests.sim.tape import Tape, assert_the_same, slices_of

from headway.core.base.errors import Reason, Refused
from headway.core.broker import Broker
from headway.core.clients.durability import Folding
from headway.core.clients.restoring import Restoring
from headway.core.consumer.channel import Channel
from headway.core.consumer.credit import NO_LIMIT
from headway.core.consumer.effects import Cancelled
from headway.core.consumer.request import ConnectRequest, QueueTerms, SubscribeRequest, SubscriptionOptions
from headway.core.consumer.session import Session
from headway.core.log.durable import Ledger, MetadataChange
from headway.core.log.lanes.pool import Pool
from headway.core.routing.matching.bindings import Binding, Destination, Exchange
from headway.core.routing.registry import Limits
from headway.wire.mqtt.dialect import MqttDialect

CLIENTS, QUEUES, EXCHANGES, TOPICS = ["ann", "bob", "cy"], ["q1", "q2", "q3"], ["e1", "e2"], ["a.b", "a.c", "d"]
FILTERS = ["a/b", "a/+", "#", "d", "$share/g/a/#"]


class Churn:
    def __init__(self, seed: int) -> None:
        self.dice, self.now = Random(seed), 1.0
        self.broker = Broker({"": Limits()}, {"": Pool("global", 10**8, 0, 1.0)})
        self.tape = Tape(self.broker, PLAIN, slices=slices_of(seed))
        self.operator = self._session("operator", expiry_s=0.0)
        self.channel = Channel(NO_LIMIT, NO_LIMIT, 1, self.operator.number)
        self.compared = self.gone = 0
        self.steps: list[Callable[[], object]] = [
            self.come, self.come, self.go, self.subscribe, self.subscribe, self.unsubscribe, self.settle, self.declare,
            self.delete, self.exchange, self.delete_exchange, self.bind, self.bind, self.bind, self.unbind,
            self.publish, self.publish, self.publish, self.take, self.take,
        ]  # fmt: skip

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now += 0.1
            try:
                self.dice.choice(self.steps)()
            except Refused:
                continue
            self.broker.flush(self.now)
            self.gone += sum(isinstance(effect, Cancelled) for effect in self.broker.take_effects())
            self.tape.take(self.now)
            if self.dice.random() < 0.05:
                self.tape.roll(self.now)
            if self.dice.random() < 0.1:
                self.look()

    def look(self) -> None:
        again, ledger = self.tape.restored(self.now)
        assert told(ledger) == told(self.tape.ledger)
        self.compared += assert_the_same(self.tape, again, ledger, self.now, ttl=False)

    # -- clients ----------------------------------------------------------------------------------------------------

    def _session(self, name: str, *, expiry_s: float, clean: bool = False) -> Session:
        outlet = PretendedOutlet(self.now, 10**9, self.dice, 0.0, lambda data: None)
        return self.broker.connect(ConnectRequest(name, "", clean, expiry_s), outlet, self.now)

    def _anybody(self) -> Session:
        there = [session for session in self.broker.registry.sessions.values() if session.client in CLIENTS]
        return self.dice.choice(there) if there else self.come()

    def come(self) -> Session:
        return self._session(self.dice.choice(CLIENTS), expiry_s=self.dice.choice([0.0, 1e6, 1e6, 1e6]),
                             clean=self.dice.random() < 0.4)  # fmt: skip

    def go(self) -> None:
        session = self._anybody()
        if session.connected:
            self.broker.disconnect(session, session.outlet, Reason.SUBSCRIPTION_ENDED, self.now)

    def subscribe(self) -> None:
        qos = self.dice.choice([0, 1, 1, 2])
        selector = self.dice.choice([None, None, "size > 3"])
        request = SubscribeRequest(self.dice.choice(FILTERS), MqttDialect(5, qos), SHARED, qos,
                                   options=SubscriptionOptions(selector=selector))  # fmt: skip
        self.broker.subscribe(self._anybody(), request, self.now)

    def unsubscribe(self) -> None:
        self.broker.unsubscribe(self._anybody(), self.dice.choice(FILTERS), self.now)

    def settle(self) -> None:
        session = self._anybody()
        for delivery_id in list(session.channel.in_flight)[: self.dice.randint(1, 5)]:
            self.broker.acknowledge(session, delivery_id, self.now)

    # -- queues, exchanges, bindings --------------------------------------------------------------------------------

    def declare(self) -> None:
        terms = QueueTerms(durable=True, idle_s=self.dice.choice([None, 1e6]),
                           priorities=self.dice.choice([0, 0, 3]))  # fmt: skip
        self.broker.queues.declare(self.operator, self.dice.choice(QUEUES), terms, PLAIN, self.now)

    def _queue(self) -> str:
        return self.dice.choice(list(self.broker.registry.router.queues) or QUEUES)

    def delete(self) -> None:
        self.broker.queues.delete(self.broker.queues.queue(self.operator, self._queue()), self.now)

    def exchange(self) -> None:
        self.broker.queues.declare_exchange(Exchange(
            self.dice.choice(EXCHANGES), self.dice.choice(["topic", "fanout", "direct"]), durable=True,
            auto_delete=self.dice.random() < 0.5, alternate=self.dice.choice([None, None, "amq.fanout"]),
        ))  # fmt: skip

    def delete_exchange(self) -> None:
        list(self.broker.queues.delete_exchange(self.dice.choice(EXCHANGES), if_unused=False))

    def bind(self) -> None:
        source = self.dice.choice([*EXCHANGES, "amq.topic", "amq.fanout"])
        to = self.dice.choice([Destination("queue", self._queue())] * 3 + [Destination("exchange", EXCHANGES[0])])
        self.broker.queues.bind(self.operator, Binding(source, to, self.dice.choice(["a.b", "a.*", "#"])), self.now)

    def unbind(self) -> None:
        exchanges = self.broker.registry.router.exchanges.by_name.values()
        bindings = [binding for exchange in exchanges for binding in exchange.bindings.all]
        if bindings:
            self.broker.queues.unbind(self.operator, self.dice.choice(bindings))

    def publish(self) -> None:
        exchange = self.dice.choice(["", "amq.topic", "amq.topic", "amq.fanout", *EXCHANGES])
        if exchange in self.broker.registry.router.exchanges.by_name:
            key = self._queue() if not exchange else self.dice.choice(TOPICS)
            sizes = [self.dice.randint(1, 6) for _ in range(self.dice.randint(1, 4))]
            run = run_of(key, [b"x" * size for size in sizes], exchange=exchange)
            self.broker.intake.publish_to(None, run, self.now)

    def take(self) -> None:
        name = self._queue()
        request = SubscribeRequest(f"$queue/{name}", PLAIN, qos=1, polling=True, name=(1, "get", name))
        queue = self.broker.queues.queue(self.operator, name)
        got = self.broker.queues.get(self.operator, self.channel, queue, request, NO_LIMIT, self.now)
        if got is not None and self.dice.random() < 0.7:
            self.broker.queues.acknowledge(self.channel, [got.delivery_id])


def told(ledger: Ledger) -> set[object]:
    """All there is, as a snapshot would say it; of sessions and exchanges their names, of deliveries nothing."""
    return {
        (change.what, change.name, "" if change.what in ("session", "exchange") else change.terms)
        for change in ledger.all_metadata() if change is not None and change.what != "flight"
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(1, 13))
def test_what_came_and_went_around_records(seed: int) -> None:
    world = Churn(seed)
    world.run(400)
    assert world.compared > 20
    assert world.tape.freed + world.tape.freed_between > 0


class Counted:
    """What a start does, by counting calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = self.folded = 0
        make, fold = Restoring.make, Folding.change

        def counted(*arguments: object) -> None:
            self.made += 1
            make(*arguments)  # type: ignore[arg-type]

        def folded(folding: Folding, change: MetadataChange, *, again: bool) -> None:
            self.folded += 1
            fold(folding, change, again=again)

        monkeypatch.setattr(Restoring, "make", counted)
        monkeypatch.setattr(Folding, "change", folded)


def test_what_is_made_goes_with_what_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, world = Counted(monkeypatch), Churn(0)
    keeper = world._session("keeper", expiry_s=1e6)
    world.broker.subscribe(keeper, SubscribeRequest("a/b", MqttDialect(5, 1), SHARED, 1), world.now)
    for number in range(300):
        session = world._session(f"s{number}", expiry_s=1e6)
        world.broker.subscribe(session, SubscribeRequest(f"t/{number}", MqttDialect(5, 1), SHARED, 1), world.now)
        world.broker.queues.declare(world.operator, f"q{number}", QueueTerms(durable=True), PLAIN, world.now)
        queue = world.broker.queues.queue(world.operator, f"q{number}")
        world.broker.queues.bind(world.operator, Binding("amq.topic", Destination("queue", queue.name), "a.b"), 0.0)
        world.broker.intake.publish_to(None, run_of("a.b", [b"x"], exchange="amq.topic"), world.now)
        world.tape.take(world.now)
        world.broker.queues.delete(queue, world.now)
        assert session.connected
        world.broker.disconnect(session, session.outlet, Reason.SUBSCRIPTION_ENDED, world.now, expiry_s=0.0)
        world.broker.flush(world.now)
        world.tape.take(world.now)
    again, _ = world.tape.restored(world.now)
    assert list(again.registry.sessions) == ["keeper"]
    assert counted.folded > 300 * 7
    assert counted.made == 2, "a session and its subscription"
    assert again.registry.session_number == 1
    (subscription,) = again.registry.sessions["keeper"].subscriptions.values()
    assert subscription.feed.lane.count == 300
