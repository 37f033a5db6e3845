"""Very many deliveries in flight: what is asked of one consumer costs no look at those of its channel's others."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from tests.core.queues_stage import Peer, QueueStage, filled
from tests.core.test_idle import steps

from headway.core.consumer.channel import Channel, Delivery
from headway.core.consumer.credit import NO_LIMIT
from headway.core.consumer.subscription import Subscription
from headway.core.delivery import set_free

EACH = 10
SHARE = 3000
"""The most deliveries that a turn's share of deferred work returns."""


def busy(members: int, patience_s: float = 5.0) -> tuple[QueueStage, Peer]:
    """A client with so many consumers on one channel, each of which holds some records of its own queue."""
    stage = QueueStage(memory="64MB")
    peer, publisher = stage.peer("busy"), stage.peer("publisher")
    for number in range(members):
        peer.declare(f"q{number}")
        peer.consume(f"q{number}", acks=False, patience_s=patience_s)
        publisher.publish(f"q{number}", 0, EACH)
    while stage.broker.has_work:
        stage.broker.flush(stage.now)
    assert len(peer.ids()) == members * EACH
    return stage, peer


def lines_of_looks(members: int) -> int:
    stage, peer = busy(members)
    late = stage.now + 6.0

    def look() -> None:
        for member in peer.consumers.values():
            queue = stage.broker.queues.queue(peer.session, member.filter.removeprefix("$queue/"))
            assert len(queue.unsettled.requeue_late(member, late)) == EACH

    return steps(look)


def test_a_look_at_each_of_many_consumers_of_a_channel_looks_at_each_delivery_once() -> None:
    assert lines_of_looks(100) <= 5.5 * lines_of_looks(20)


def lines_of_nothing_late(members: int) -> int:
    stage, peer = busy(members)

    def look() -> None:
        for member in peer.consumers.values():
            queue = stage.broker.queues.queue(peer.session, member.filter.removeprefix("$queue/"))
            assert queue.unsettled.requeue_late(member, stage.now) == []

    look()
    return steps(look)


def test_looks_at_consumers_that_hold_their_records_in_time_look_at_their_own() -> None:
    assert lines_of_nothing_late(100) <= 5.5 * lines_of_nothing_late(20)


def test_a_channel_knows_when_its_counts_are_wrong() -> None:
    _, peer = busy(3)
    channel = peer.channels[1]
    channel.check()
    for window in (channel, next(iter(peer.consumers.values())).window):
        window.used += 1
        with pytest.raises(AssertionError):
            channel.check()
        window.used -= 1
    channel.check()


def test_very_many_that_are_late_at_once_are_returned_little_by_little() -> None:
    stage = QueueStage(memory="64MB")
    peer = filled(stage, 0)
    hog = stage.peer("hog")
    member = hog.consume("q", acks=False, patience_s=5.0)
    peer.publish("q", 0, 4 * SHARE)
    while stage.broker.has_work:
        stage.broker.flush(stage.now)
        hog.read(inf)
    assert len(hog.ids()) == 4 * SHARE
    queue = stage.broker.queues.queue(peer.session, "q")
    stage.now += 6.0
    assert len(queue.unsettled.requeue_late(member, stage.now)) == 4 * SHARE
    left = len(hog.ids())
    assert left >= 3 * SHARE
    assert queue.unsettled.requeue_late(member, stage.now) == [], "they are being returned"
    hog.ack(hog.ids()[-1])
    while hog.ids():
        stage.broker.registry.deferred.turn(stage.now)
        assert left - SHARE <= len(hog.ids()) < left
        left = len(hog.ids())
    assert queue.backlog.lag_records == 4 * SHARE - 1, "the one that it settled meanwhile stays settled"
    assert member.window.used == 4 * SHARE - 1
    stage.check()


def test_a_topic_consumer_that_ends_does_not_look_at_what_others_of_its_channel_hold() -> None:
    def lines(members: int) -> int:
        _, peer = busy(members)
        other = peer.consume("q0", tag="other")
        return steps(lambda: set_free(other))

    assert lines(100) <= lines(20) + 20


@pytest.mark.parametrize("seed", range(5))
def test_the_deliveries_of_a_consumer_are_those_in_flight_whatever_came_and_went(seed: int) -> None:
    chance = Random(seed)
    stage = QueueStage()
    peer = stage.peer("busy")
    peer.declare("q")
    members = [peer.consume("q", acks=False, tag=f"c{number}") for number in range(5)]
    channel = members[0].channel

    def held_by(member: Subscription) -> list[int]:
        return [known for known, one in channel.in_flight.items() if one.subscription is member]

    for _ in range(600):
        if chance.random() < 0.6:
            channel.add(channel.take_ids(1), Delivery(chance.choice(members), 0.0))
        elif channel.in_flight:
            settled = chance.choice(list(channel.in_flight))
            channel.remove(settled)
        if chance.random() < 0.2:
            one = chance.choice(members)
            assert channel.ids_of(one) == held_by(one)
    for member in members:
        assert channel.ids_of(member) == held_by(member)


def test_what_is_known_of_deliveries_that_are_settled_has_an_end() -> None:
    stage = QueueStage()
    peer = stage.peer("busy")
    peer.declare("q")
    asked, busy = (peer.consume("q", acks=False, tag=tag) for tag in ("asked", "busy"))
    channel: Channel = asked.channel
    channel.add(channel.take_ids(1), Delivery(asked, 0.0))
    for _ in range(3000):
        channel.add(channel.take_ids(1), Delivery(busy, 0.0))
        assert channel.ids_of(asked) == [1]
        channel.remove(channel.last_id)
    assert channel.by_consumer is not None
    assert channel.by_consumer.known <= 2 * len(channel.in_flight) + 64


def test_ids_that_begin_again_are_found_too() -> None:
    stage = QueueStage()
    peer = stage.peer("busy")
    peer.declare("q")
    member = peer.consume("q", acks=False)
    channel = Channel(NO_LIMIT, id_max=3)
    for delivery_id in (2, 3, 1):
        channel.add(delivery_id, Delivery(member, 0.0))
    assert channel.ids_of(member) == [2, 3, 1]
