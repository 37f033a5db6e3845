"""Consumers of topics over AMQP: ``basic.consume`` of ``amq.topic``, with the options that subscriptions have."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pamqp.commands import Basic, Channel, Queue
from tests.server.amqp_stage import Client, House
from tests.server.amqp_topics_stage import TOPICS, publish, reader

from headway.server.amqp.channel import PLACE_BYTES

# -- what arrives ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "wanted"),
    [("a.b", "a.b"), ("a.*", "a.b a.c"), ("a.#", "a a.b a.c a.b.c"), ("*", "a b"), ("#", "a b a.b a.c a.b.c")],
)
def test_everybody_reads_the_topics_of_a_binding_key(house: House, publisher: Client, key: str, wanted: str) -> None:
    readers = [reader(house, "one"), reader(house, "two", frame_max=4096)]
    for one in readers:
        assert one.consume(key) == ["1 Basic.ConsumeOk t"]
    publish(publisher, a=1, b=2, a_b=3, a_c=4, a_b_c=5)
    for one in readers:
        one.run()
        assert sorted(found for found, _ in one.got) == sorted(wanted.split())
        assert [content.method.delivery_tag for content in one.contents] == list(range(1, len(wanted.split()) + 1))
        assert {content.method.exchange for content in one.contents} == {TOPICS}


def test_records_larger_than_a_frame_and_empty_ones_arrive_whole(house: House, publisher: Client) -> None:
    readers = [reader(house, "small", frame_max=4096), reader(house, "large")]
    for one in readers:
        one.consume("big")
    texts = [b"x" * 10_000, b"", b"y" * 4096, b"z"]
    publisher.put("big", *texts, exchange=TOPICS, content_type="text/plain", headers={"n": 7})
    for one in readers:
        one.run()
        assert [content.body for content in one.contents] == texts
        assert {(content.properties.content_type, content.headers["n"]) for content in one.contents} == {
            ("text/plain", 7)
        }


def test_two_consumers_and_a_queue_on_one_channel_number_their_deliveries_together(
    house: House, publisher: Client
) -> None:
    one = reader(house)
    one.declare("q", exclusive=True)
    one.say(Queue.Bind(queue="q", exchange=TOPICS, routing_key="a"))
    one.consume("a", "t1")
    one.consume("#", "t2")
    one.say(Basic.Consume(queue="q", consumer_tag="t3", no_ack=True))
    publish(publisher, a=1)
    publish(publisher, a=2)
    one.run()
    assert sorted(content.method.delivery_tag for content in one.contents) == list(range(1, 7))
    assert sorted((content.method.consumer_tag, content.body) for content in one.contents) == [
        (tag, text) for tag in ("t1", "t2", "t3") for text in (b"1", b"2")
    ]


def test_whoever_reads_slowly_gets_the_same(house: House, publisher: Client) -> None:
    """Its socket takes a few bytes at a time, so deliveries are cut anywhere."""
    fast, slow = reader(house, "fast"), reader(house, "slow")
    for one in (fast, slow):
        one.consume("#")
    slow.sock.capacity = 100
    slow.reads = False
    chance = random.Random(1)
    for number in range(60):
        publisher.put(chance.choice("ab"), b"%d:" % number + b"." * chance.randrange(300), exchange=TOPICS)
    fast.run()
    slow.reads = True
    slow.run()
    assert len(fast.got) == 60
    assert slow.got == fast.got
    assert [content.method.delivery_tag for content in slow.contents] == list(range(1, 61))


def test_what_has_expired_does_not_arrive(house: House, publisher: Client) -> None:
    slow = reader(house)
    slow.consume("a")
    slow.sock.capacity, slow.reads = 10, False
    publisher.put("a", b"first", exchange=TOPICS)
    publisher.put("a", b"old", exchange=TOPICS, expiration="100")
    publisher.put("a", b"new", exchange=TOPICS)
    house.pass_time(1.0)
    slow.reads = True
    slow.run()
    assert [body for _, body in slow.got] == [b"first", b"new"]


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_lease_ends_the_consumer_unless_it_consumes_again(house: House, publisher: Client) -> None:
    one = reader(house)
    one.consume("#", lease="1s")
    house.pass_time(0.8)
    assert one.consume("#", lease="1s") == ["1 Basic.ConsumeOk t"]
    house.pass_time(0.8)
    publish(publisher, a=1)
    one.run()
    assert one.got == [("a", b"1")]
    one.new()
    house.pass_time(1.0)
    one.run()
    assert one.new() == ["1 Basic.Cancel t"]
    publish(publisher, a=2)
    one.run()
    assert one.new() == []
    assert one.consume("b") == ["1 Basic.ConsumeOk t"], "its tag is free"


def test_a_message_renews_the_leases_of_its_client_alone(house: House, publisher: Client) -> None:
    one, other = reader(house), reader(house)
    for client in (one, other):
        client.consume("#", lease="1s")
        client.consume("a", "long", lease="10s")
    house.pass_time(0.8)
    one.put("$headway.renew", b"", exchange=TOPICS)
    house.pass_time(0.8)
    one.put("$headway.renew", b"", exchange=TOPICS)
    other.run()
    assert other.new()[-1] == "1 Basic.Cancel t"
    one.new()

    def told_after(seconds: float) -> list[str]:
        house.pass_time(seconds)
        one.run()
        return one.new()

    assert [told_after(0.9), told_after(0.2)] == [[], ["1 Basic.Cancel t"]]
    assert [told_after(8.8), told_after(0.2)] == [[], ["1 Basic.Cancel long"]], "ten seconds after the last renewal"


@pytest.mark.parametrize("way", ["cancel", "close", "leave"])
def test_nothing_is_left_of_a_consumer_that_ends(house: House, publisher: Client, way: str) -> None:
    one = reader(house)
    one.consume("#", snapshot="true")
    one.consume("a", "other", channel=1)
    publish(publisher, a=1)
    registry = house.broker.registry
    assert registry.router.feeds
    match way:
        case "cancel":
            one.say(Basic.Cancel("t"), Basic.Cancel("other"))
        case "close":
            one.say(Channel.Close(0, "", 0, 0))
        case "leave":
            one.leave()
    publish(publisher, a=2)
    house.pass_time(1.0)
    assert [key.filter for key in registry.router.feeds if not key.filter.startswith("$")] == []
    assert [text for _, text in one.got].count(b"2") == 0


def test_a_channel_that_is_stopped_gets_nothing(house: House, publisher: Client) -> None:
    one = reader(house)
    one.consume("#")
    one.say(Channel.Flow(active=False))
    publish(publisher, a=1)
    one.run()
    assert one.got == []
    one.say(Channel.Flow(active=True))
    house.run()
    one.run()
    assert one.got == [("a", b"1")]


def test_a_policy_closes_the_consumer_alone(publisher: Client) -> None:
    house = House("""
[[policy]]
name = "p"
topics = ["a"]
[[policy.rule]]
when = { lag_records = 5 }
then = "close_consumer"
""")
    source, slow = Client(house, "publisher"), reader(house, "slow")
    slow.consume("a")
    slow.consume("b", "u")
    slow.sock.capacity, slow.reads = 10, False
    for number in range(10):
        publish(source, a=number)
    house.pass_time(1.0)
    slow.reads = True
    slow.run()
    assert "1 Basic.Cancel t" in slow.new()
    publish(source, b="still")
    slow.run()
    assert slow.got[-1] == ("b", b"still")


def test_a_consumer_of_topics_is_charged_for_its_lane(house: House) -> None:
    """A consumer of a queue has none."""
    one = reader(house)
    one.declare("q", exclusive=True)
    tab = one.peer.channels[1].session.tab
    charged = []
    for consume in (
        lambda: one.say(Basic.Consume(queue="q", no_ack=True)),
        lambda: one.consume("a.b", selector="x > 1"),
    ):
        before = tab.bytes
        consume()
        charged.append(tab.bytes - before)
    assert charged[0] < 2500
    assert charged[1] > 3500
    one.say(Basic.Cancel("t"))
    assert tab.bytes == before + PLACE_BYTES


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        ({"no_ack": False}, 406, "acknowledges nothing"),
        ({"exclusive": True}, 406, "exclusive"),
        ({"arguments": {"x-headway-topics": "#.a"}}, 406, "'#' stands at the end"),
        ({"arguments": {"x-headway-topics": "a/#"}}, 406, "binding key"),
        ({"arguments": {"x-headway-topics": "a.+"}}, 406, "binding key"),
        ({"arguments": {"x-headway-topics": "$queue.q"}}, 406, "no topics"),
        ({"arguments": {"x-headway-topics": 7}}, 406, "takes a text"),
        ({"arguments": {"x-headway-topic": "a"}}, 406, "x-headway-topic"),
        ({"arguments": {"x-headway-conflat": "1s"}}, 406, "conflate"),
        ({"arguments": {"x-headway-selector": "a >"}}, 406, "selector"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_the_reason(house: House, asked: dict[str, Any], code: int, text: str) -> None:
    one = reader(house)
    assert one.say(Basic.Consume(queue=TOPICS, **{"no_ack": True, **asked})) == [f"1 Channel.Close {code}"]
    assert text in one.last(Channel.Close).reply_text


def test_another_request_under_the_same_tag_is_refused(house: House) -> None:
    one = reader(house)
    one.consume("a", conflate="1s")
    [said] = one.consume("a", conflate="2s")
    assert "Close" in said
    assert "530" in said


def test_whoever_asks_whether_there_is_such_a_queue_is_told_yes_and_cannot_declare_it(house: House) -> None:
    one = reader(house)
    assert one.say(Queue.Declare(queue=TOPICS, passive=True)) == ["1 Queue.DeclareOk amq.topic 0 0"]
    assert one.say(Queue.Declare(queue=TOPICS)) == ["1 Channel.Close 403"]
