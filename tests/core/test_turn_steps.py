"""Records that are written one by one are work: a turn does some of it, for all clients together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.core.stage import Client, Stage
from tests.sim.outlet import PretendedOutlet

from headway.core.clients.queues import _put_on
from headway.core.consumer import NO_LIMIT, Channel, SubscribeRequest, SubscriptionOptions
from headway.core.delivery import fanout, rendering
from headway.core.delivery import rendering as backfilling
from headway.core.delivery.fanout import OFFERS_A_STEP
from headway.core.delivery.rendering import BATCH_RECORDS, COPIES_A_STEP, ENCODED_A_STEP, WRITTEN_A_STEP
from headway.core.log.states import StatePass
from headway.core.message.record import SCAN_MAX, Record
from headway.wire.amqp.dialect import AmqpDialect
from headway.wire.amqp.envelope import AmqpEnvelope

KEYED = '[[topic]]\nfilter = "t/#"\n'
ROOM = {"memory": "200MB", "disk": "200MB"}
TURN_STEPS, STEPS_MAX = 64, 64
A_TURN = 2 * TURN_STEPS + STEPS_MAX
"""Steps: those of a turn, and the last that was begun in it, of feeds and of sessions that go on."""


@pytest.fixture(autouse=True)
def _a_turn_has_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "TURN_STEPS", TURN_STEPS)
    monkeypatch.setattr(fanout, "STEPS_MAX", STEPS_MAX)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The clients for which records are written one by one, once for each."""
    found: list[str] = []
    write = backfilling.write_frame

    def counted(subscription: Any, record: Record, *rest: Any) -> bytes | None:
        found.append(subscription.session.client)
        return write(subscription, record, *rest)

    monkeypatch.setattr(backfilling, "write_frame", counted)
    return found


def turns(stage: Stage, counted: list[Any]) -> Iterator[int]:
    """Turns until nothing is left to do; how much each has counted."""
    while stage.broker.has_work:
        before = len(counted)
        stage.broker.flush(stage.now)
        yield len(counted) - before


def displays(stage: Stage, count: int) -> list[Client]:
    return [stage.client(f"display {number}", buffer=10**7) for number in range(count)]


@pytest.mark.parametrize("what", ["retained", "state"])
def test_a_hundred_who_want_all_there_is_at_once_get_a_little_of_it_a_turn(what: str, written: list[str]) -> None:
    stage = Stage(KEYED, **ROOM)
    publisher = stage.client("publisher")
    for number in range(100):
        publisher.publish(f"t/{number}", number, 1, size=10)
        if what == "retained":
            stage.broker.retained.put(Record(f"t/{number}", b"%d" % number, retain=True, sequence=1))
    clients = displays(stage, 100)
    for client in clients:
        client.subscribe("t/#", **({"snapshot": "true"} if what == "state" else {}))
    assert max(turns(stage, written)) <= A_TURN * ENCODED_A_STEP
    assert len(written) == 100 * 100
    for client in clients:
        client.read(10**7)
        assert sorted(client.numbers) == list(range(100))


def test_whoever_wants_little_does_not_wait_for_those_who_want_much(written: list[str]) -> None:
    stage = Stage(KEYED, **ROOM)
    publisher = stage.client("publisher")
    for number in range(3000):
        publisher.publish(f"t/{number}", number, 1, size=10)
    for client in displays(stage, 50):
        client.subscribe("t/#", snapshot="true")
    stage.broker.flush(stage.now)
    last = stage.client("last", buffer=10**7)
    last.subscribe("t/7", snapshot="true")
    while not last.outlet.taken:
        stage.broker.flush(stage.now)
    had = Counter(written)
    assert max(had.values()) <= 2 * BATCH_RECORDS, "each had its turn, and nobody all of it"


def test_a_step_that_finds_one_record_in_a_hundred_looks_at_no_more_than_one_that_finds_none() -> None:
    stage = Stage(KEYED, **ROOM)
    publisher, looked = stage.client("publisher"), list[Record]()
    for number in range(4000):
        publisher.publish(f"t/{number}", number, 1, size=10)
    client = stage.client("c", buffer=10**7)
    subscription = client.subscribe("t/+", selector="topic LIKE '%00'", snapshot="true")
    source, accept = subscription.backfills[0].records, subscription.feed.accepts
    assert isinstance(source, StatePass)
    source.accept = lambda record: not looked.append(record) and accept(record)  # type: ignore[func-returns-value]
    assert max(turns(stage, looked)) <= STEPS_MAX * WRITTEN_A_STEP + BATCH_RECORDS + SCAN_MAX
    client.read(10**7)
    assert len(client.numbers) == 39
    assert len(looked) == 4000


def test_records_that_are_put_into_envelopes_one_by_one_are_more_work(written: list[str]) -> None:
    stage = Stage(KEYED, **ROOM)
    publisher = stage.client("publisher")
    for number in range(600):
        publisher.publish(f"t/{number}", number, 1, size=10)
    for client in displays(stage, 8):
        options = SubscriptionOptions(snapshot=True)
        request = SubscribeRequest("t/#", AmqpDialect(topics=True), options=options, name=(1, "tag"),
                                   envelope=AmqpEnvelope(1, "tag", 131_072))  # fmt: skip
        client.outlet.sink = lambda data: None
        _put_on(Channel(NO_LIMIT, NO_LIMIT, 1, client.session.number),
                stage.broker.subscribe(client.session, request, stage.now), NO_LIMIT)  # fmt: skip
    assert max(turns(stage, written)) <= A_TURN * ENCODED_A_STEP + BATCH_RECORDS
    assert len(written) == 8 * 600


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Of records with an id for each consumer, one for each copy."""
    found: list[None] = []
    delivery, row = rendering.Delivery, rendering.Row
    monkeypatch.setattr(rendering, "Delivery", lambda *args: found.append(None) or delivery(*args))
    monkeypatch.setattr(rendering, "Row", lambda at, n, *args: found.extend([None] * n) or row(at, n, *args))
    return found


def test_records_with_ids_are_copied_for_some_consumers_a_turn_and_publishers_wait(copied: list[None]) -> None:
    stage = Stage(**ROOM)
    publisher = stage.client("publisher")
    clients = [stage.consumer(f"c{number}", "t", 1, buffer=10**7) for number in range(50)]
    feed = next(iter(clients[0].session.subscriptions.values())).feed
    publisher.publish("t", 0, 600, size=10, qos=1)
    waited = 0
    for count in turns(stage, copied):
        assert count <= A_TURN * COPIES_A_STEP
        waited += bool(feed.left)
    assert waited > 2, "no more is read for this feed before all have it"
    assert len(copied) == 50 * 600
    for client in clients:
        client.read(10**7)
        assert client.numbers == list(range(600))


def test_what_was_not_acknowledged_is_sent_again_over_several_turns_to_those_who_come_back_at_once() -> None:
    stage = Stage(**ROOM)
    clients = [stage.consumer(f"c{number}", "t", 1, buffer=10**7, expiry_s=3600.0, acks=False) for number in range(20)]
    stage.client("publisher").publish("t", 0, 400, size=10, qos=1)
    stage.run(1)
    for client in clients:
        assert len(client.numbers) == 400
        client.leave()
        client.connect()
        client.seen.clear()
    sent = [0]
    while stage.broker.has_work:
        before = sum(len(client.session.channel.replay) for client in clients)
        stage.broker.flush(stage.now)
        sent.append(before - sum(len(client.session.channel.replay) for client in clients))
    assert sum(sent) == 20 * 400
    assert max(sent) <= A_TURN * WRITTEN_A_STEP
    for client in clients:
        client.read(10**7)
        assert client.numbers == list(range(400))


def test_a_turn_sends_to_some_of_many_consumers_of_a_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "TURN_STEPS", 8)
    stage, sent = Stage(**ROOM), list[object]()
    clients = [stage.consumer(f"c{number}", "t") for number in range(300)]
    stage.turn()
    send = PretendedOutlet.send
    monkeypatch.setattr(PretendedOutlet, "send", lambda self, *some: sent.append(self) or send(self, *some))
    stage.client("publisher").publish("t", 0, 1)
    assert max(turns(stage, sent)) <= 2 * 8 * OFFERS_A_STEP
    assert len(sent) == 300
    for client in clients:
        client.read(10**7)
        assert client.numbers == [0]
