"""Bindings, flow, tags, and many clients that come and go are the work that they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pamqp import base
from pamqp.commands import Basic, Channel, Exchange, Queue
from tests.server.amqp_stage import Client, House, method
from tests.server.amqp_turns import client as client
from tests.server.amqp_turns import house as house
from tests.server.amqp_turns import queues, send

from headway.core.base.deferred import DEFERRED_WORK_MAX
from headway.core.base.errors import Reason
from headway.core.clients.queues import NAMES_PER_WORK, REBIND_WORK, UNBIND_WORK
from headway.core.message import Run
from headway.core.queue.queue import BindingSet
from headway.core.routing.matching import bindings
from headway.core.routing.matching import bindings as exchange
from headway.core.routing.matching.bindings import Binding, Destination, Exchanges
from headway.core.routing.matching.router import SEARCHED_A_UNIT
from headway.server.amqp.channel import QUEUES_PER_WORK, TAGS_PER_WORK, AmqpChannel
from headway.server.amqp.peer import AmqpPeer
from headway.server.connections.turn_budget import BUDGET_WORK, SUBSCRIBE_WORK

LED_TO = Destination("exchange", "amq.fanout")


def test_a_binding_of_a_queue_that_has_many_is_much_work(
    house: House, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[int] = []
    join = BindingSet.feed_name
    monkeypatch.setattr(
        BindingSet, "feed_name", lambda self, *, called: joined.append(len(self)) or join(self, called=called)
    )
    client.declare("q")
    queues, session = house.broker.queues, house.broker.registry.sessions["greedy"]
    for number in range(3000):
        queues.bind(session, Binding("amq.topic", Destination("queue", "q"), f"there.{number}"))
    _change_bindings(client)
    assert _most_in_a_turn(house, joined) <= BUDGET_WORK * NAMES_PER_WORK + 3000
    client.run()
    assert len(client.new()) == 200


def _change_bindings(client: Client) -> None:
    """A hundred are made, and ended again."""
    client.new()
    named = [(f"k.{number}", change) for number in range(100) for change in (Queue.Bind, Queue.Unbind)]
    send(client, *(method(1, change(queue="q", exchange="amq.topic", routing_key=key)) for key, change in named))


def _most_in_a_turn(house: House, counted: list[int]) -> int:
    most = 0
    del counted[:]
    while house.pretended.once():
        most = max(most, sum(counted))
        del counted[:]
    return most


@pytest.mark.parametrize("stays", [True, False])
def test_an_exchange_with_many_bindings_is_deleted_in_slices(house: House, client: Client, *, stays: bool) -> None:
    """Also if whoever asked for it is gone before it is done."""
    client.say(Exchange.Declare(exchange="e", exchange_type="direct"))
    most = max(BUDGET_WORK, DEFERRED_WORK_MAX) // UNBIND_WORK
    broker = house.broker
    for number in range(8 * most):
        broker.queues.bind(broker.registry.sessions["greedy"], Binding("e", LED_TO, f"{number}"))
    bindings = broker.registry.router.exchanges.by_name["e"].bindings.all
    client.new()
    send(client, method(1, Exchange.Delete(exchange="e")))
    steps, before = 0, len(bindings)
    while house.pretended.once():
        assert before - len(bindings) <= 2 * most, "its share, and one step of deferred work"
        steps, before = steps + (before > len(bindings)), len(bindings)
        if bindings and steps == 1 and not stays:
            client.connection.close(Reason.KEEP_ALIVE)
    assert steps > 1
    assert "e" not in broker.registry.router.exchanges.by_name
    client.run()
    assert client.new() == (["1 Exchange.DeleteOk"] if stays else [])


def test_flow_and_qos_are_the_work_that_they_are(
    house: House, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = queues(client, 640)
    client.say(*(Basic.Consume(queue=name, consumer_tag=name, no_ack=True) for name in names))
    woken: dict[int, int] = {}

    def wake(self: AmqpChannel) -> None:
        woken[house.turns] = woken.get(house.turns, 0) + 1
        real(self)

    real = AmqpChannel.wake
    monkeypatch.setattr(AmqpChannel, "wake", wake)
    client.say(*(Basic.Qos(prefetch_count=10, global_=True) for _ in range(200)))
    assert sum(woken.values()) == 200
    assert max(woken.values()) <= BUDGET_WORK // (640 // QUEUES_PER_WORK) + 1
    woken.clear()
    client.say(*(Channel.Flow(active=bool(number % 2)) for number in range(200)))
    assert sum(woken.values()) == 200
    assert max(woken.values()) <= BUDGET_WORK // (640 // QUEUES_PER_WORK + 640 // TAGS_PER_WORK) + 1
    woken.clear()
    client.say(*[Channel.Flow(active=True)] * 10)
    assert not woken, "it flows already"


def test_a_free_tag_is_not_looked_for(client: Client) -> None:
    client.declare("q")
    client.say(*(Basic.Consume(queue="q", consumer_tag=f"amq.ctag-{number}") for number in range(1, 6)))
    made = []
    for _ in range(3):
        client.say(Basic.Consume(queue="q"))
        made.append(client.last(Basic.ConsumeOk).consumer_tag)
        client.say(Basic.Cancel(made[-1]))
    assert made == ["amq.ctag-6", "amq.ctag-7", "amq.ctag-8"]


OTHER = Queue.Declare(queue="other", nowait=True), Queue.Delete(queue="other", nowait=True)
CONSUMER = Basic.Consume(queue="q", consumer_tag="c", nowait=True), Basic.Cancel("c", nowait=True)
BINDING = [kind(queue="q", exchange="amq.topic", routing_key="k") for kind in (Queue.Bind, Queue.Unbind)]


@pytest.mark.parametrize(
    ("both", "work"), [(OTHER, SUBSCRIBE_WORK), (CONSUMER, SUBSCRIBE_WORK), (BINDING, REBIND_WORK)],
    ids=["queues", "consumers", "bindings"],
)  # fmt: skip
def test_to_begin_and_to_end_is_the_work_that_it_is(
    house: House, client: Client, monkeypatch: pytest.MonkeyPatch, both: Sequence[base.Frame], work: int
) -> None:
    client.declare("q")
    per_turn: dict[int, int] = {}
    real = AmqpPeer._channel_method

    def handle(self: AmqpPeer, number: int, command: base.Frame) -> None:
        per_turn[house.turns] = per_turn.get(house.turns, 0) + 1
        real(self, number, command)

    monkeypatch.setattr(AmqpPeer, "_channel_method", handle)
    client.say(*[*both] * 300)
    assert sum(per_turn.values()) == 600
    assert max(per_turn.values()) <= 2 * BUDGET_WORK // work, "it may be read once more before the turn is over"


def test_patterns_have_a_limit(house: House, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bindings, "STEPS_MAX", bindings.WORDS_MAX + 4)
    client.declare("q")
    for key in ("*.a", "a.*", "b.*", "b.c", "*.a"):
        send(client, method(1, Queue.Bind(queue="q", exchange="amq.topic", routing_key=key)))
        client.run()
    client.new()
    send(client, method(1, Queue.Bind(queue="q", exchange="amq.topic", routing_key="a.#.b")))
    client.run()
    (closed,) = client.new()
    assert "506" in closed
    assert len(house.broker.registry.router.exchanges.by_name["amq.topic"].bindings.all) == 4


def test_exchanges_that_lead_to_too_much_are_refused_and_looking_at_them_is_work(
    house: House, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "WALK_MAX", 49 * 16 + 1)
    exchanges = house.broker.registry.router.exchanges
    for number in range(49):
        exchanges.add(exchange.Exchange(f"e{number}", "fanout", alternate=f"e{number + 1}"))
    per_turn: dict[int, int] = {}
    check = Exchanges.check_walks

    def counted(self: Exchanges, *how: Any) -> None:
        per_turn[house.turns] = per_turn.get(house.turns, 0) + 1
        check(self, *how)

    monkeypatch.setattr(Exchanges, "check_walks", counted)
    for second in (Exchange.Unbind, Exchange.Bind):
        client.say(*(how(destination="e0", source="e48") for _ in range(100) for how in (Exchange.Bind, second)))
    assert "e0" in exchanges.by_name["e48"].bindings.exchanges
    assert sum(per_turn.values()) == 101, "a second binding leads nowhere else"
    assert max(per_turn.values()) <= BUDGET_WORK * SEARCHED_A_UNIT // (2 * 49) + 1
    before = exchanges.bytes
    send(client, method(1, Exchange.Declare(exchange="e49", exchange_type="topic")))
    client.run()
    assert "506" in "".join(client.new())
    assert "e49" not in exchanges.by_name
    assert exchanges.bytes == before


def test_finding_where_the_messages_of_a_commit_go_is_its_work(house: House) -> None:
    router = house.broker.registry.router
    for number in range(2):
        words = f"{number:010b}".replace("0", "a.#.").replace("1", "*.#.")
        router.exchanges.bind(Binding("amq.topic", Destination("exchange", "amq.fanout"), f"#.{words}z"))
    runs = [Run(f"{'a/' * 120}{number}", b"x", [1], [0], None) for number in range(20)]
    work = sum(house.broker.intake.check_room(runs, lambda: 0.0))
    assert work > 20 * 2000 // SEARCHED_A_UNIT
    assert not router.searched
