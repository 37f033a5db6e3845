"""Budgets: what one step, turn or look of one client may cost the others, counted in what is touched."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import pytest
from bench.wires.packets import encode_publish
from tests.core.stage import STUCK, Client, Stage

from headway.core.base.errors import Reason
from headway.core.consumer.connection.outlet import Outlet
from headway.core.consumer.session import BEHIND_MAX
from headway.core.consumer.subscription import Subscription
from headway.core.delivery.fanout import STEPS_MAX, Fanout
from headway.core.governance.governor import BYTES_A_LOOK, LOOKS_AT_ONCE, LOOKS_LEAST, Governor
from headway.core.governance.watching import LOOKS_MAX as LOOKS_A_SWEEP
from headway.core.log.lanes.chunk import Chunk
from headway.core.log.lanes.lane import Lane
from headway.core.log.lanes.pool import Pool
from headway.core.log.states import StatePass
from headway.core.message.record import SCAN_MAX, Record, Run
from headway.core.message.topics import TopicTree
from headway.core.routing.publishing import Replay
from headway.wire.mqtt.dialect import MqttDialect


def test_a_run_of_many_records_is_more_work_than_a_run_of_one() -> None:
    stage = Stage(memory="64MB")
    stage.consumer("c", "t")
    publisher = stage.client("publisher")
    long = encode_publish("t", b"x") * 1280
    (long_run,) = publisher._sends.feed(long)
    assert isinstance(long_run, Run)
    runs_done = [
        stage.broker.intake.publish_some(publisher.session, [run] * 400, stage.now, 1024).runs
        for run in (long_run, Record("t", b"x", sequence=1).run())
    ]
    assert runs_done == [86, 400], "the others wait for the next turn"


def test_nothing_is_copied_beyond_what_credit_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    read = Chunk.read
    monkeypatch.setattr(Chunk, "read", lambda self, start, stop: copied.append(stop - start) or read(self, start, stop))
    stage = Stage()
    consumer = stage.consumer("c", "t", 1, window=3, acks=False)
    stage.client("publisher").publish("t", 0, 500, qos=1)
    stage.turn()
    assert consumer.numbers == [0, 1, 2]
    assert sum(copied) < 3 * 150
    for count in range(4, 20):
        del copied[:]
        consumer.acknowledge()
        stage.turn()
        assert consumer.numbers == list(range(count))
        assert sum(copied) < 150, "one record"
        del copied[:]
        stage.broker.fanout.again[consumer.session] = None
        stage.turn()
        assert not copied, "nothing, without credit"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The filters of those that are looked at, one by one, to be given something."""
    made: list[str] = []
    advance = Fanout._advance

    def counted(self: Fanout, subscription: Subscription, outlet: Outlet, now: float) -> bool:
        made.append(subscription.filter)
        return advance(self, subscription, outlet, now)

    monkeypatch.setattr(Fanout, "_advance", counted)
    return made


def crowded(qos: int, size: int = 100, **how: Any) -> tuple[Stage, Client, Client]:
    """A client of 1,000 filters for each of which a record waits."""
    stage = Stage()
    client = stage.client("c", reads=STUCK, buffer=0, **how)
    for number in range(1000):
        client.subscribe(f"t/{number}", qos)
    publisher = stage.client("publisher")
    for number in range(1000):
        publisher.publish(f"t/{number}", number, 1, qos=qos, size=size)
    stage.turn()
    assert len(client.session.lagging) == 1000
    client.outlet.capacity = 10**9
    return stage, client, publisher


def test_a_client_of_many_filters_is_given_a_little_of_them_a_turn(steps: list[str]) -> None:
    stage, client, _ = crowded(0, size=3000)
    del steps[:]
    turns, most = 0, 0
    stage.broker.writable(client.session, stage.now)
    while client.session.lagging:
        before = len(steps)
        stage.broker.flush(stage.now)
        turns, most = turns + 1, max(most, len(steps) - before)
    assert most <= STEPS_MAX
    assert turns >= 1000 // STEPS_MAX - 1
    assert len(steps) == len(set(steps)) == 1000, "nobody is looked at in vain"
    client.reads = inf
    stage.run(1)
    assert sorted(client.numbers) == list(range(1000))


def test_who_waits_for_credit_is_not_looked_at_before_there_is_some(steps: list[str]) -> None:
    stage, client, _ = crowded(1, window=2, acks=False)
    client.reads = inf
    stage.broker.writable(client.session, stage.now)
    stage.turn()
    assert len(client.numbers) == 2
    for count in range(3, 100):
        del steps[:]
        stage.turn()
        stage.broker.fanout.again[client.session] = None
        stage.turn()
        assert not steps, "there is no credit"
        client.acknowledge()
        stage.turn()
        assert len(client.numbers) == count
        assert len(steps) <= 6
    client.acks = True
    while client.session.channel.in_flight:
        client.acknowledge(2)
        stage.turn()
    assert sorted(client.numbers) == list(range(1000))
    stage.run(1)
    assert not client.session.lagging
    assert not client.session.starved


@pytest.mark.parametrize("what", ["retained", "state"])
def test_who_wants_few_of_many_looks_at_a_little_of_them_a_turn(what: str) -> None:
    stage = Stage('[[topic]]\nfilter = "t/#"\n')
    publisher, other = stage.client("publisher"), stage.consumer("other", "else")
    looked: list[Record] = []
    for number in range(3000):
        publisher.publish(f"t/{number}", number, 1)
        if what == "retained":
            stage.broker.retained.put(Record(f"t/{number}", b"%d" % number, retain=True, sequence=1))
    client = stage.client("c")
    selector = "topic = 't/2999'"
    subscription = client.subscribe("t/+", selector=selector, **({"snapshot": "true"} if what == "state" else {}))
    source = subscription.backfills[-1].records
    accept = subscription.feed.accepts

    def counted(record: Record) -> bool:
        looked.append(record)
        return accept(record)

    if what == "state":
        assert isinstance(source, StatePass)
        source.accept = counted
    turns, before = 0, 0
    publisher.publish("else", 1, 1)
    while subscription.backfills:
        stage.broker.flush(stage.now)
        assert len(looked) - before <= 2 * SCAN_MAX
        before, turns = len(looked), turns + 1
    assert turns >= 3000 // SCAN_MAX - 1
    stage.turn()
    assert [seen.topic for seen in client.seen] == ["t/2999"]
    assert other.numbers == [1]


def test_a_walk_that_finds_nothing_says_so_now_and_then() -> None:
    tree: TopicTree[int] = TopicTree()
    for number in range(1000):
        tree.set(f"a/{number}/b", number)
    walk = list(tree.scan("+/+/c", 100))
    assert walk.count(None) == len(walk) >= 10
    assert [found for found in tree.scan("+/7/b", 1) if found is not None] == [("a/7/b", 7)]


def test_a_replay_that_wants_little_of_much_goes_on_from_turn_to_turn() -> None:
    read: list[int] = []

    def runs() -> Iterator[tuple[Run, int, float]]:
        for number in range(1, 3001):
            read.append(number)
            yield Run("t/3000" if number == 3000 else "else", b"x", [1], [0], None), number, 0.0

    replay = Replay(runs(), 0, 3000, lambda topic: topic == "t/3000")
    lane = Lane(MqttDialect(5), Pool("p", 10**6, 0))
    turns, before = 0, 0
    while not lane.count:
        assert replay.fill(lane)
        assert len(read) - before <= SCAN_MAX
        before, turns = len(read), turns + 1
    assert turns > 3000 // SCAN_MAX
    assert not replay.fill(lane)


def test_a_turn_makes_a_few_looks_and_the_next_ones_make_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    stuck = [stage.client(f"stuck-{number}", reads=STUCK, buffer=0).subscribe("t") for number in range(50)]
    publisher = stage.client("publisher")
    publisher.publish("t", 0, 5)
    stage.turn()
    looked: list[str] = []
    look = Governor._look

    def noted(self: Governor, subscription: Subscription, *args: Any) -> None:
        looked.append(subscription.session.client)
        look(self, subscription, *args)

    monkeypatch.setattr(Governor, "_look", noted)
    stage.broker.tick(stage.now)
    assert 0 < len(looked) <= 2 * LOOKS_LEAST < len(stuck), "a tick ends with a turn"
    while stage.broker.has_work:
        before = len(looked)
        stage.broker.flush(stage.now)
        assert len(looked) - before <= LOOKS_LEAST
    assert sorted(looked) == sorted(f"stuck-{number}" for number in range(50)), "each of them once"
    del looked[:]
    ticks = len(stuck) // LOOKS_LEAST + 2
    for number in range(1, ticks):
        stage.broker.tick(stage.now + 0.2 * number)
    assert len(set(looked[: len(stuck)])) == len(stuck), "whoever was not looked at comes first in the next sweep"
    stage.broker.tick(stage.now + 0.2 * ticks)
    del looked[:]
    healthy = stage.client("healthy", buffer=2 * LOOKS_AT_ONCE * BYTES_A_LOOK)
    healthy.subscribe("t")
    publisher.publish("t", 5, size=LOOKS_AT_ONCE * BYTES_A_LOOK)
    stage.broker.flush(stage.now + 0.2 * ticks)
    assert len(looked) == LOOKS_AT_ONCE, "a turn that takes long makes more of them"


@pytest.mark.parametrize("subscriptions", [3, 300])
def test_a_look_at_one_is_no_look_at_all_of_its_client(subscriptions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(memory="2MB", disk="1GB")
    client = stage.client("c", reads=STUCK, buffer=0)
    for number in range(subscriptions):
        client.subscribe(f"t/{number}")
    publisher = stage.client("publisher")
    for number in range(subscriptions):
        publisher.publish(f"t/{number}", 0, 5)
    stage.turn()
    asked: list[Subscription] = []
    gating = Subscription.gating_bytes.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(Subscription, "gating_bytes", property(lambda self: asked.append(self) or gating(self)))
    for _ in range(3):
        del asked[:]
        stage.tick()
        assert len(asked) <= LOOKS_A_SWEEP * (1 + 3 * BEHIND_MAX)
    wanted = sum(gating(subscription) for subscription in client.session.lagging)
    assert client.session.holdings.gating_bytes == wanted, "all have been looked at"
    client.reads = inf
    client.outlet.capacity = 10**9
    stage.broker.writable(client.session, stage.now)
    stage.turn()
    assert client.session.holdings.gating_bytes == client.session.holdings.disk_bytes == 0


def test_many_small_lags_are_one_client_s_share_together() -> None:
    stage = Stage(memory="200KB", disk="200KB", max_client_share="10%")
    client = stage.client("c", reads=STUCK, buffer=0)
    for number in range(100):
        client.subscribe(f"t/{number}")
    publisher = stage.client("publisher")
    for round in range(20):
        for number in range(100):
            publisher.publish(f"t/{number}", round, 1, size=200)
        stage.run(1)
    last = stage.broker.verdicts.last("c")
    assert last is not None
    assert last.reason in (Reason.CLIENT_SHARE, Reason.MEMORY_LIMIT)
