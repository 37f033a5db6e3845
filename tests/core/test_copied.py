"""What waits for many consumers at one place is copied once and numbered for each (core/delivery/rendering.py)."""

from __future__ import annotations

import pytest
from tests.core.stage import STUCK, Client, Stage

from headway.core.delivery import fanout
from headway.core.delivery.rendering import Copied

SIZE = 100


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who was sent records that way."""
    found: list[str] = []
    number = Copied.number

    def noted(copied: Copied, subscription: fanout.Subscription, now: float) -> bytearray | None:
        found.append(subscription.session.client)
        return number(copied, subscription, now)

    monkeypatch.setattr(Copied, "number", noted)
    return found


def all_settled(*clients: Client) -> bool:
    """A client of the stage acknowledges by the ids that it reads."""
    return not any(client.session.channel.used for client in clients)


def test_each_has_its_own_ids(numbered: list[str]) -> None:
    stage = Stage()
    publisher = stage.client("p")
    early, late = stage.consumer("early", "t", 1), stage.client("late")
    publisher.publish("t", 0, 3, qos=1)
    stage.run(0.5)
    late.subscribe("t", 1)
    twin = stage.consumer("twin", "t", 2)
    for first in range(3, 60, 5):
        publisher.publish("t", first, 5, qos=2)
        stage.run(0.5)
    assert (early.numbers, late.numbers, twin.numbers) == (list(range(63)), list(range(3, 63)), list(range(3, 63)))
    assert {early.session.channel.last_id, late.session.channel.last_id} == {63, 60}
    assert all_settled(early, late)
    assert set(numbered) == {"early", "late", "twin"}


def test_ids_begin_again(numbered: list[str]) -> None:
    stage = Stage()
    publisher, one, other = stage.client("p"), stage.consumer("one", "t", 1), stage.consumer("other", "t", 1)
    one.session.channel.go_on_after(65_530)
    for first in range(0, 30, 5):
        publisher.publish("t", first, 5, qos=1)
        stage.run(0.5)
    assert one.numbers == other.numbers == list(range(30))
    assert one.session.channel.last_id < 65_530
    assert all_settled(one, other)


def test_a_socket_takes_the_beginning_and_the_rest_follows_in_order(numbered: list[str]) -> None:
    stage = Stage()
    publisher = stage.client("p")
    slow, fast = stage.consumer("slow", "t", 1, reads=200, buffer=150), stage.consumer("fast", "t", 1)
    publisher.publish("t", 0, 4, size=SIZE, qos=1)
    stage.turn()
    assert slow.session.subscriptions["t"] in slow.session.lagging, "what waits for it is a lag"
    publisher.publish("t", 4, 4, size=SIZE, qos=1)
    stage.run(10)
    assert slow.numbers == fast.numbers == list(range(8))
    assert all_settled(slow, fast)
    assert not slow.session.lagging


def test_who_has_no_credit_for_all_gets_what_it_has(numbered: list[str]) -> None:
    stage = Stage()
    publisher = stage.client("p")
    narrow, wide = stage.consumer("narrow", "t", 1, window=3), stage.consumer("wide", "t", 1)
    publisher.publish("t", 0, 10, qos=1)
    stage.run(1)
    assert narrow.numbers == wide.numbers == list(range(10))
    assert "narrow" not in numbered
    assert all_settled(narrow, wide)


def test_who_takes_records_and_settles_none_is_looked_at(numbered: list[str]) -> None:
    stage = Stage("""
    [[policy]]
    name = "silent"
    topics = ["t"]
    [[policy.rule]]
    when = { ack_age = "2s" }
    then = "disconnect"
    """)  # fmt: skip
    publisher = stage.client("p")
    silent, good = stage.consumer("silent", "t", 1, acks=False), stage.consumer("good", "t", 1)
    publisher.publish("t", 0, 2, qos=1)
    stage.run(5)
    assert numbered == ["silent", "good"]
    assert not silent.connected
    assert good.connected
    assert good.session.subscriptions["t"] not in stage.broker.registry.watched


def test_what_a_client_is_to_get_again_comes_first() -> None:
    stage = Stage()
    publisher = stage.client("p")
    client = stage.client("c", acks=False, expiry_s=100.0, buffer=100_000)
    client.subscribe("t", 1)
    publisher.publish("t", 0, 3, qos=1)
    stage.turn()
    client.leave()
    client.reads, client.buffer = STUCK, 10
    client.connect()
    stage.broker.flush(stage.now)
    publisher.publish("t", 3, 2, qos=1)
    stage.turn()
    client.seen.clear()
    client.reads = float("inf")
    stage.run(1)
    assert client.numbers == [0, 1, 2, 3, 4]


def test_of_many_topics_that_grew_a_client_gets_all(monkeypatch: pytest.MonkeyPatch, numbered: list[str]) -> None:
    stage = Stage()
    publisher, reader = stage.client("p"), stage.client("r", buffer=100_000)
    topics = [f"t{number}" for number in range(3 * fanout.JOINED_FEEDS_MIN)]
    for topic in topics:
        reader.subscribe(topic, 1)
    for first in (0, 3):
        for topic in topics:
            publisher.publish(topic, first, 3, qos=1)
        stage.turn()
    assert len(numbered) == 2 * len(topics)
    assert {topic: [int(one.payload.split()[0]) for one in reader.seen if one.topic == topic] for topic in topics} == (
        {topic: list(range(6)) for topic in topics}
    )
    assert all_settled(reader)


def test_what_is_left_of_a_lifetime_is_the_same_for_all() -> None:
    stage = Stage()
    publisher = stage.client("p")
    readers = [stage.consumer(name, "t", qos) for name, qos in (("a", 0), ("b", 0), ("c", 1), ("d", 1))]
    publisher.publish("t", 0, 2, qos=1, expiry_s=60)
    stage.turn()
    publisher.publish("t", 2, 2, qos=1, expiry_s=30)
    stage.now += 7.2
    stage.turn()
    assert [[one.expiry_s for one in reader.seen] for reader in readers] == [[60, 60, 23, 23]] * 4
    assert [reader.numbers for reader in readers] == [[0, 1, 2, 3]] * 4


def test_a_lifetime_never_grows() -> None:
    stage = Stage()
    publisher = stage.client("p")
    readers = [stage.consumer(name, "t", qos) for name, qos in (("a", 0), ("b", 1))]
    for number in range(300):
        stage.now += 0.1 + number / 7919
        publisher.publish("t", number, qos=1, expiry_s=1000)
        stage.turn()
    assert {one.expiry_s for reader in readers for one in reader.seen} == {1000}


def test_what_expires_before_the_turn_ends_is_left_out() -> None:
    stage = Stage()
    publisher = stage.client("p")
    readers = [stage.consumer(name, "t", qos) for name, qos in (("a", 0), ("b", 1))]
    publisher.publish("t", 0, 2, qos=1, expiry_s=3)
    publisher.publish("t", 2, 2, qos=1, expiry_s=30)
    stage.now += 5.0
    stage.turn()
    assert [reader.numbers for reader in readers] == [[2, 3], [2, 3]]
    assert all(reader.session.subscriptions["t"].counters.gap_records == {"expired": 2} for reader in readers)


def test_too_large_for_some() -> None:
    stage = Stage()
    publisher, small, large = stage.client("p"), stage.client("small"), stage.consumer("large", "t", 1)
    small.session.max_packet_bytes = 300
    small.subscribe("t", 1)
    publisher.publish("t", 0, 2, size=100, qos=1)
    publisher.publish("t", 2, 1, size=500, qos=1)
    publisher.publish("t", 3, 1, size=100, qos=1)
    stage.run(1)
    assert (small.numbers, large.numbers) == ([0, 1, 3], [0, 1, 2, 3])
    assert small.gap_told == {"too_large_for_client": 1}
