"""What the broker wants of AMQP clients: publishers that are to wait, consumers and channels that are to go."""

from __future__ import annotations

import pytest
from pamqp.commands import Basic, Channel, Queue
from tests.server.amqp_frames import BYE, MISTAKE, OPENING, TUNED, close_by_effect
from tests.server.amqp_stage import ABLE, Client, House, method, reason_of

from headway.core.base.errors import Reason
from headway.core.consumer.effects import CloseChannel


def policy(then: str, *, queue: str = "q", when: str = "lag_records = 3") -> str:
    return f"""
[[policy]]
name = "p"
topics = ["$queue/{queue}"]
[[policy.rule]]
when = {{ {when} }}
then = "{then}"
"""


# -- publishers are to wait --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("able", [True, False])
def test_who_publishes_too_fast_is_told_if_it_understands(able: bool) -> None:
    house = House(policy("block_publishers"))
    consumer = Client(house, "consumer")
    consumer.declare("q")
    consumer.say(Basic.Qos(prefetch_count=1), Basic.Consume(queue="q", consumer_tag="t"))
    publisher = Client(house, "publisher", able=ABLE if able else ())
    publisher.put("q", *[b"x"] * 6)
    house.pass_time(0.5)
    assert publisher.put("q", b"x") == ["Connection.Blocked"] * able
    assert publisher.connection.reading_paused_by == {"publisher": None}
    assert publisher.say(Basic.Qos()) == []  # it is not read
    assert consumer.say(Basic.Ack(0, True), Basic.Cancel("t"))[-1] == "1 Basic.CancelOk t"
    publisher.run()
    assert publisher.new() == ["Connection.Unblocked"] * able + ["1 Basic.QosOk"]


def test_nobody_waits_for_itself(house: House) -> None:
    """Not even if it waited for somebody else before: its acks would never be read."""
    house = House(policy("block_publishers"))
    both, consumer = Client(house, "both"), Client(house, "consumer")
    both.declare("q")
    for one in (both, consumer):
        one.say(Basic.Qos(prefetch_count=1), Basic.Consume(queue="q", consumer_tag="t"))
    Client(house, "publisher").put("q", *[b"x"] * 8)
    house.pass_time(0.5)
    both.put("q", b"x")
    assert both.connection.reading_paused_by == {"publisher": None}
    consumer.leave()
    house.pass_time(0.5)
    assert both.connection.reading_paused_by == {}
    assert "1 Basic.Deliver t 2 x!" in both.say(Basic.Ack(1))


def test_who_is_not_in_yet_is_told_nothing(house: House) -> None:
    client = Client(house, begin=False)
    client.send(OPENING, method(0, client.start_ok()))
    client.peer.paused(True)
    client.peer.paused(False)
    client.run()
    assert client.new() == TUNED


# -- what the broker wants of a channel --------------------------------------------------------------------------------


def test_a_verdict_on_a_channel(client: Client) -> None:
    client.say(Basic.Consume(queue="q"))
    core = client.peer.channels[1].core
    assert close_by_effect(client) == ["1 Channel.Close 506"]
    close = client.last(Channel.Close)
    assert (close.class_id, close.method_id, close.reply_text) == (0, 0, "RESOURCE_ERROR - too slow")
    assert not client.house.queues["q"].members
    assert close_by_effect(client, core=core) == []  # once is enough
    assert client.say(Basic.Qos(), channel=2) == ["2 Basic.QosOk"]


def test_a_verdict_on_a_channel_that_is_another_now(client: Client) -> None:
    session, core = client.peer.session, client.peer.channels[1].core
    assert session is not None
    client.say(BYE, Channel.Open())
    client.peer.close_channel(CloseChannel(session, core, Reason.LAG_AGE, "too late"))
    client.peer.close_channel(CloseChannel(session, client.peer.channels[2].core, Reason.ADMIN, "now"))
    client.house.turn_soon()
    client.run()
    assert client.new() == ["2 Channel.Close 320"]
    assert client.say(Channel.CloseOk(), channel=2) == []
    client.peer.close_channel(CloseChannel(session, core, Reason.LAG_AGE, "gone"))
    assert client.say(Basic.Qos()) == ["1 Basic.QosOk"]


def lag(client: Client, tag: str = "t", channel: int = 1) -> None:
    """A consumer that takes one, of six."""
    client.say(Basic.Qos(prefetch_count=1), Basic.Consume(queue="q", consumer_tag=tag), channel=channel)
    client.put("q", *[b"x"] * 6)
    client.new()
    client.house.pass_time(0.5)
    client.run()


@pytest.mark.parametrize(("others", "expected"), [(True, "1 Channel.Close 506"), (False, "Connection.Close 506")])
def test_a_slow_consumer_is_disconnected(others: bool, expected: str) -> None:
    """Its channel, if there are consumers on others."""
    house = House(policy("disconnect"))
    client = Client(house, "slow", channels=2)
    client.declare("q")
    client.declare("another")
    if others:
        client.say(Basic.Consume(queue="another", consumer_tag="u"), channel=2)
    lag(client)
    assert client.new()[-1] == expected
    if others:
        assert client.put("another", b"y", channel=2) == ["2 Basic.Deliver u 1 y"]
    else:
        assert reason_of(client) is Reason.LAG_RECORDS


@pytest.mark.parametrize(
    ("able", "expected"), [(True, "1 Basic.Cancel t"), (False, "1 Channel.Close 506")], ids=["able", "not able"]
)
def test_a_slow_consumer_is_closed(able: bool, expected: str) -> None:
    """Who does not know that a server cancels consumers loses its channel."""
    house = House(policy("close_consumer"))
    client = Client(house, "slow", able=ABLE if able else ())
    client.declare("q")
    lag(client)
    assert client.new()[-1] == expected
    assert house.queues["q"].members.consumers == []
    if able:  # the rest of the channel goes on; what it has it may settle
        said = client.say(Basic.Ack(1), Basic.Consume(queue="q", consumer_tag="t", no_ack=True))
        assert said[0] == "1 Basic.ConsumeOk t"


def test_a_consumer_that_is_to_be_closed_and_has_gone(client: Client) -> None:
    client.say(Basic.Consume(queue="q", consumer_tag="t"))
    [subscription] = client.house.queues["q"].members.consumers
    client.say(Basic.Cancel("t"))
    client.peer.close_consumer(subscription, "too slow")
    client.peer.cancelled(subscription, answered=False)
    client.house.turn_soon()
    client.run()
    assert client.new() == []
    client.say(Basic.Consume(queue="q", consumer_tag="t"))
    [subscription] = client.house.queues["q"].members.consumers
    client.say(MISTAKE)
    client.peer.close_consumer(subscription, "too slow")
    client.peer.cancelled(subscription, answered=False)
    client.house.turn_soon()
    client.run()
    assert client.new() == []


@pytest.mark.parametrize("able", [True, False])
def test_consumers_of_a_queue_that_is_deleted(house: House, able: bool) -> None:
    client = Client(house, able=ABLE if able else ())
    client.declare("q")
    client.say(*(Basic.Consume(queue="q", consumer_tag=tag) for tag in "tu"))
    client.put("q", b"1")
    other = Client(house)
    assert other.say(Queue.Delete(queue="q")) == ["1 Queue.DeleteOk 0"]
    client.run()
    assert sorted(client.new()) == ["1 Basic.Cancel t", "1 Basic.Cancel u"] * able
    assert client.say(Basic.Ack(1), Basic.Cancel("t")) == ["1 Basic.CancelOk t"]
    client.declare("q")
    assert client.say(Basic.Consume(queue="q", consumer_tag="t")) == ["1 Basic.ConsumeOk t"]
    assert client.put("q", b"2") == ["1 Basic.Deliver t 2 2"]


def test_a_queue_made_anew_in_the_same_breath(client: Client) -> None:
    client.say(Basic.Consume(queue="q", consumer_tag="t"))
    said = client.say(Queue.Delete(queue="q"), Queue.Declare(queue="q"), Basic.Consume(queue="q", consumer_tag="t"))
    assert said == ["1 Queue.DeleteOk 0", "1 Queue.DeclareOk q 0 0", "1 Basic.ConsumeOk t"]
