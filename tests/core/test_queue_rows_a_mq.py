"""The rows of JBoss A-MQ over queues, one story each (test_rows_activemq.py has them over topics)."""

from __future__ import annotations

import pytest
from tests.core.queue_rows import assert_told_why
from tests.core.queues_stage import Peer, QueueStage, consumer, owner
from tests.core.stage import STUCK, documented

from headway.core.base.errors import Reason

# -- JBoss A-MQ -----------------------------------------------------------------------------------------------------


def test_j1_a_constant_number_pends_on_top_of_the_prefetch() -> None:
    stage = QueueStage(documented("J1"))
    publisher = owner(stage, "q", "fifty")
    slow = consumer(stage, "slow", "q", 10, acks=False)
    exact = consumer(stage, "just within", "fifty", 10, acks=False)
    for number, _ in enumerate(stage.steps(2)):
        publisher.publish("q", number * 10, 10)
        if number < 6:
            publisher.publish("fifty", number * 10, 10)
    stage.run(1)
    assert stage.counts("q") == {"discarded": 140}
    assert stage.counts("fifty") == {}
    for peer, name in ((slow, "q"), (exact, "fifty")):
        peer.acks[1, name] = True
        peer.ack_upto(0)
    stage.run(1)
    assert slow.numbers == [*range(10), *range(150, 200)], "its window's worth, and the newest 50"
    assert exact.numbers == list(range(60)), "50 pending are within the limit"
    assert stage.pool.memory_bytes == 0


def test_j2_the_pending_limit_is_a_multiple_of_the_prefetch() -> None:
    stage = QueueStage(documented("J2"))
    publisher = owner(stage, "3", "20", "by channel")
    for name in ("3", "20", "by channel"):
        publisher.bind(name, "amq.fanout")
    small = consumer(stage, "window of 3", "3", 3, acks=False)
    large = consumer(stage, "window of 20", "20", 20, acks=False)
    channel = stage.peer("channel of 4")
    channel.channel(1, limit=4)
    channel.consume("by channel", 20, acks=False)
    unbounded = without_a_window(stage)
    for number, _ in enumerate(stage.steps(2)):
        publisher.publish("", number * 10, 10, exchange="amq.fanout")
    stage.run(1)
    for peer, name in ((small, "3"), (large, "20"), (channel, "by channel")):
        peer.acks[1, name] = True
        peer.ack_upto(0)
    stage.run(1)
    assert small.numbers == [0, 1, 2, *range(194, 200)], "3 and 2 x 3"
    assert large.numbers == [*range(20), *range(160, 200)], "20 and 2 x 20"
    assert channel.numbers == [*range(4), *range(192, 200)], "4 and 2 x 4: what both windows leave"
    assert unbounded.connected
    assert stage.queue("unbounded").backlog.lag_records > 490, "who has no window has no multiple of it"


def without_a_window(stage: QueueStage) -> Peer:
    """A stuck consumer with some 500 records behind it."""
    peer = stage.peer("no window", reads=STUCK, buffer=100)
    peer.declare("unbounded")
    peer.consume("unbounded", acks=None)
    peer.publish("unbounded", 0, 500)
    return peer


def test_j3_slow_for_too_long_or_too_often_and_never_for_one_bad_second() -> None:
    stage = QueueStage(documented("J3"))
    names = ["too long", "too often", "one bad second", "behind and steady"]
    publisher = owner(stage, *names)
    for name in names:
        publisher.bind(name, "amq.fanout")
    long, often, brief, steady = (consumer(stage, name, name, 5, acks=name == "one bad second") for name in names)
    publisher.publish("", 10_000, 50, exchange="amq.fanout")
    pauses = 0
    for number, now in enumerate(stage.steps(95)):
        since = round(now - 1000, 1)
        before = often.acks[1, "too often"]
        often.acks[1, "too often"] = since % 3 >= 2
        if since % 3 >= 2 and not before:
            often.ack_upto(0)
            pauses += 1
        brief.acks[1, "one bad second"] = not 28.9 <= since <= 30.1
        if brief.acks[1, "one bad second"]:
            brief.ack_upto(0)
        steady.ack(steady.ids()[0])
        publisher.publish("", number, exchange="amq.fanout")
        if since < 30:
            assert long.connected
        if since > 32:
            assert not long.connected
        if pauses < 29:
            assert often.connected, f"after {pauses} times"
    assert_told_why(long, Reason.CREDIT_EXHAUSTED, "window full", "5 records unacknowledged", "limit 30 s")
    assert_told_why(often, Reason.CREDIT_EXHAUSTED, "for the 30th time")
    assert brief.connected
    assert len(brief.seen) == 50 + 950
    assert stage.queue("behind and steady").backlog.lag_records > 40
    assert steady.connected, "who acknowledges is slow no more, and then again"


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("then", ['"close_consumer"', '"disconnect"', '{ action = "disconnect", connection = true }'])
def test_j4_the_client_is_asked_to_close_or_channel_or_connection_is_cut(then: str, elsewhere: bool) -> None:
    stage = QueueStage(documented("J4").replace('"close_consumer"', then))
    abort_connection = "disconnect" in then
    publisher = owner(stage, "q", "other")
    slow = consumer(stage, "slow", prefetch=5, acks=False)
    if elsewhere:
        slow.consume("other", channel=2)
    publisher.publish("q", 0, 100)
    stage.run(29)
    assert slow.connected
    assert not slow.asked_to_close
    stage.run(2)
    if not abort_connection:
        assert slow.asked_to_close == ["q"]
        assert stage.told("close_consumer", "slow")[0]["filter"] == "$queue/q"
        assert slow.connected
        assert not slow.closed
        slow.cancel("q")
        slow.ack_upto(0)
    elif elsewhere and "true" not in then:
        assert slow.connected
        (closed,) = slow.closed
        assert closed.channel.number == 1
        assert closed.reason is Reason.CREDIT_EXHAUSTED
        assert "limit 30 s" in closed.text
        publisher.publish("other", 1000)
        stage.turn()
        assert slow.of("other", 2) == [1000], "its other channel lives on"
    else:
        assert_told_why(slow, Reason.CREDIT_EXHAUSTED, "limit 30 s", "5 records unacknowledged")
    heir = consumer(stage, "heir")
    stage.run(1)
    first = 0 if abort_connection else 5
    assert heir.numbers == list(range(first, 100))
    assert heir.again == list(range(5)) if abort_connection else not heir.again
    assert stage.pool.memory_bytes == 0


def test_j5_wildcard_destinations_and_the_first_policy_that_covers_all_of_a_binding() -> None:
    stage = QueueStage(documented("J5"))
    publisher = owner(stage, "american", "british", "wider", "both")
    for name, key in (("american", "stocks.us.ibm"), ("british", "stocks.uk.bp"), ("wider", "stocks.#"),
                      ("both", "stocks.uk.bp"), ("both", "stocks.us.*")):
        publisher.bind(name, "amq.topic", key)
    american, british, wider, both = (
        consumer(stage, name, name, acks=None, reads=STUCK) for name in ("american", "british", "wider", "both")
    )
    for number, _ in enumerate(stage.steps(2)):
        publisher.publish("stocks.us.ibm", number * 5, 5, exchange="amq.topic")
        publisher.publish("stocks.uk.bp", number * 5, 5, exchange="amq.topic")
    assert_told_why(american, Reason.LAG_RECORDS, "policy 'american stocks'")
    assert_told_why(both, Reason.LAG_RECORDS, "policy 'american stocks'")
    assert british.connected
    assert wider.connected, "a queue bound to more than the policy is about is not governed by it"
    publisher.publish("stocks.uk.bp", 1000, 600, exchange="amq.topic")
    stage.run(1)
    assert_told_why(british, Reason.LAG_RECORDS, "policy 'the rest'")
    assert_told_why(wider, Reason.LAG_RECORDS, "policy 'the rest'")
