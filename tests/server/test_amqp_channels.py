"""AMQP channels: opened and closed, with messages and deliveries in the middle of it."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import pytest
from pamqp import base
from pamqp.commands import Basic, Channel, Confirm, Exchange, Queue, Tx
from tests.server.amqp_frames import BYE, LONG, MISTAKE, PARTS, close_by_effect
from tests.server.amqp_stage import Client, House, message, raw
from tests.sim.outlet import PretendedOutlet

from headway.core.consumer.request import ConnectRequest, SubscribeRequest
from headway.core.log.states import State
from headway.core.message.keys import compile_key
from headway.wire.mqtt.dialect import MqttDialect

# -- channels, opened and closed ---------------------------------------------------------------------------------------


def test_channels_are_opened_once_and_up_to_what_was_agreed(house: House) -> None:
    client = Client(house, channel_max=5, channels=0)
    assert client.say(Channel.Open(), channel=5) == ["5 Channel.OpenOk"]
    assert client.say(Channel.Open(), channel=6) == ["Connection.Close 504"]
    client = Client(house)
    assert client.say(Channel.Open()) == ["Connection.Close 504"]


MUTE: dict[str, base.Frame | list[bytes]] = {
    "queue.declare": Queue.Declare(queue="new"), "exchange.declare": Exchange.Declare(exchange="new"),
    "queue.delete": Queue.Delete(queue="q"), "queue.bind": Queue.Bind(queue="q", exchange="amq.fanout"),
    "basic.consume": Basic.Consume(queue="q"), "basic.get": Basic.Get(queue="q"), "basic.qos": Basic.Qos(),
    "qos in bytes": Basic.Qos(prefetch_size=1), "basic.ack": Basic.Ack(1), "ack of nothing": MISTAKE,
    "basic.nack": Basic.Nack(1), "basic.recover": Basic.Recover(True), "channel.flow": Channel.Flow(False),
    "confirm.select": Confirm.Select(), "tx.select": Tx.Select(), "tx.commit": Tx.Commit(),
    "channel.flow-ok": Channel.FlowOk(True), "basic.publish": message(1, "q", b"no"),
    "large": message(1, "q", bytes(9000)),
    "too large": [message(1, "q", b"")[0], raw(2, 1, struct.pack(">HHQH", 60, 0, 17_000_000, 0))],
}  # fmt: skip


@pytest.mark.parametrize("what", MUTE)
@pytest.mark.parametrize("breath", [True, False], ids=["at once", "later"])
def test_a_channel_that_we_have_closed_is_deaf_until_the_client_knows(client: Client, what: str, breath: bool) -> None:
    client.put("q", b"yes")
    if breath:
        assert client.say(MISTAKE, MUTE[what]) == ["1 Channel.Close 406"]
    else:
        assert client.say(MISTAKE) == ["1 Channel.Close 406"]
        assert client.say(MUTE[what]) == []
    assert list(client.house.queues) == ["q"]
    assert client.say(Basic.Get(queue="q"), channel=2) == ["2 Basic.GetOk 1 yes 0"]
    assert client.say(Channel.CloseOk(), Channel.Open(), Basic.Qos()) == ["1 Channel.OpenOk", "1 Basic.QosOk"]


def test_nor_does_it_give_tickets(house: House) -> None:
    client = Client(house, version="0-9")
    request = raw(1, 1, (30 << 16 | 10).to_bytes(4, "big") + b"\x00\x00")
    assert client.say(request) == ["1 Other 30 11"]
    assert client.say(MISTAKE, request) == ["1 Channel.Close 406"]


def test_both_close_at_once(client: Client) -> None:
    """Each gets its answer; the number is free once ours has come."""
    assert client.say(MISTAKE, BYE) == ["1 Channel.Close 406", "1 Channel.CloseOk"]
    assert client.say(Basic.Qos()) == []
    assert client.say(BYE) == ["1 Channel.CloseOk"]
    assert client.say(Channel.CloseOk(), Channel.Open(), Basic.Qos()) == ["1 Channel.OpenOk", "1 Basic.QosOk"]


@pytest.mark.parametrize(
    "said", [[BYE, Basic.Qos()], [BYE, BYE], [Channel.CloseOk()], [MISTAKE, Channel.CloseOk(), Channel.CloseOk()],
             [MISTAKE, Channel.Open()], [MISTAKE, BYE, Channel.Open()]],
    ids=["used after its end", "closed twice", "granted unasked", "granted twice", "opened again", "opened too early"],
)  # fmt: skip
def test_a_number_is_used_for_what_it_is_not(client: Client, said: list[base.Frame]) -> None:
    assert client.say(*said)[-1] == "Connection.Close 504"


def test_what_a_channel_held_is_for_others_when_it_ends(client: Client, other: Client) -> None:
    """At once, not when the client knows of it; and in its old place."""
    client.say(Basic.Consume(queue="q", consumer_tag="t"), Confirm.Select())
    assert client.put("q", b"1", b"2") == ["1 Basic.Ack 2+", "1 Basic.Deliver t 1 1", "1 Basic.Deliver t 2 2"]
    assert client.say(MISTAKE) == ["1 Channel.Close 406"]
    assert other.drain("q") == [b"1", b"2"]
    assert client.say(Channel.CloseOk(), Channel.Open(), Confirm.Select(), channel=1)[-1] == "1 Confirm.SelectOk"
    assert client.put("q", b"3") == ["1 Basic.Ack 1"]  # it counts anew
    assert client.say(Basic.Get(queue="q")) == ["1 Basic.GetOk 1 3 0"]


def test_the_other_channel_notices_nothing(client: Client) -> None:
    client.say(Basic.Consume(queue="q", consumer_tag="t"), channel=2)
    assert client.say(MISTAKE, message(2, "q", b"x")) == ["1 Channel.Close 406", "2 Basic.Deliver t 1 x"]
    assert client.say(Basic.Ack(1), Basic.Qos(), channel=2) == ["2 Basic.QosOk"]


# -- a message in the middle -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [1, 2, 3], ids=["method", "header", "some of its body"])
@pytest.mark.parametrize("then", ["the rest", "nothing", "half"])
def test_a_channel_ends_in_the_middle_of_a_message(client: Client, said: int, then: str) -> None:
    client.say(*PARTS[:said])
    assert close_by_effect(client) == ["1 Channel.Close 506"]
    rest = PARTS[said:]
    assert client.say(*{"the rest": rest, "nothing": [], "half": rest[:1]}[then]) == []
    assert client.say(Channel.CloseOk(), Channel.Open()) == ["1 Channel.OpenOk"]
    assert client.put("q", b"whole") == []
    assert client.drain("q") == [b"whole"]


@pytest.mark.parametrize("said", [1, 2, 3], ids=["method", "header", "some of its body"])
def test_a_mistake_and_some_of_a_message(client: Client, said: int) -> None:
    assert client.say(MISTAKE, *PARTS[:said]) == ["1 Channel.Close 406"]
    again: list[Any] = [Channel.CloseOk(), Channel.Open(), message(1, "q", b"new")]
    assert client.say(*PARTS[said:], *again) == ["1 Channel.OpenOk"]
    assert client.drain("q") == [b"new"]


def test_messages_on_two_channels_frame_by_frame(client: Client) -> None:
    theirs = message(2, "q", b"y" * 6000)
    mixed = [frame for pair in zip(PARTS, theirs, strict=True) for frame in pair]
    assert client.say(*mixed[:5]) == []
    assert close_by_effect(client, channel=2) == ["2 Channel.Close 506"]
    assert client.say(*mixed[5:]) == []
    assert client.drain("q") == [LONG]


def test_what_comes_of_a_channel_that_was_closed_is_not_kept(house: House) -> None:
    """Or parts of too many messages would be there."""
    client = Client(house, packet_bytes_given=6000, channels=4)
    for channel in range(1, 5):
        assert client.say(message(channel, "q", LONG, frame_max=5000)[:3], channel=channel) == []
        assert close_by_effect(client, channel) == [f"{channel} Channel.Close 506"]
        assert client.say(raw(3, channel, LONG[4992:-1])) == []


@pytest.mark.parametrize("said", [1, 2, 3], ids=["method", "header", "some of its body"])
def test_a_client_closes_its_channel_in_the_middle_of_a_message(client: Client, said: int) -> None:
    assert client.say(*PARTS[:said], BYE) == ["Connection.Close 505"]


@pytest.mark.parametrize("said", [1, 2, 3], ids=["method", "header", "some of its body"])
def test_a_number_used_again_in_the_same_breath(client: Client, said: int) -> None:
    """What has come of the new channel's first message is no message of the old one's."""
    assert client.say(BYE, Channel.Open(), *PARTS[:said]) == ["1 Channel.CloseOk", "1 Channel.OpenOk"]
    client.say(*PARTS[said:])
    assert client.drain("q") == [LONG]


def test_a_message_that_is_too_large_ends_its_channel_at_once(house: House) -> None:
    client = Client(house, packet_bytes_given=5000)
    client.declare("q")
    assert client.say(*PARTS[:2]) == ["1 Channel.Close 311"]
    assert client.say(*PARTS[2:]) == []
    assert client.say(Channel.CloseOk(), Channel.Open(), message(1, "q", b"x" * 5000)) == ["1 Channel.OpenOk"]
    assert client.drain("q") == [b"x" * 5000]


def test_parts_of_too_many_messages(house: House) -> None:
    """Two of the largest may be there in part, on however many channels."""
    client = Client(house, packet_bytes_given=5000, channels=4)
    for channel in (1, 2):
        assert client.say(message(channel, "q", b"x" * 4999, frame_max=5006)[:3], channel=channel) == []
    assert client.say(message(3, "q", b"x" * 4999, frame_max=5006)[:2], message(4, "q", b"x"), channel=4) == []
    assert client.say(message(3, "q", b"x" * 4999, frame_max=5006)[2]) == ["Connection.Close 506"]


# -- deliveries --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("immediate", [True, False])
def test_deliveries_wait_for_what_was_answered_before(client: Client, immediate: bool) -> None:
    """Also where a publish has the queue look for somebody to take it at once."""
    client.declare("full", {"x-max-length": 1, "x-overflow": "reject-publish"})
    said = [message(1, "full", text, immediate=immediate) for text in (b"1", b"2")]
    heard = client.say(message(1, "full", b"0"), Basic.Consume(queue="full", consumer_tag="t", no_ack=True), *said)
    assert heard[0] == "1 Basic.ConsumeOk t"
    assert "1 Basic.Deliver t 1 0" in heard[1:]


# -- flow --------------------------------------------------------------------------------------------------------------


def test_flow_holds_back_deliveries_and_nothing_else(client: Client) -> None:
    client.say(Basic.Consume(queue="q", consumer_tag="t"))
    client.say(Basic.Consume(queue="q", consumer_tag="u"), channel=2)
    client.say(Basic.Cancel("u"), channel=2)
    assert client.say(Channel.Flow(False)) == ["1 Channel.FlowOk False"]
    assert client.put("q", b"1", b"2") == []
    assert client.say(Basic.Get(queue="q")) == ["1 Basic.GetOk 1 1 1"]
    assert client.say(Channel.Flow(False)) == ["1 Channel.FlowOk False"]
    assert client.say(Channel.Flow(True)) == ["1 Channel.FlowOk True", "1 Basic.Deliver t 2 2"]


def test_flow_is_about_consumers_to_come_too(client: Client) -> None:
    client.put("q", b"1")
    assert client.say(Channel.Flow(False), Basic.Consume(queue="q", consumer_tag="t")) == [
        "1 Channel.FlowOk False", "1 Basic.ConsumeOk t"
    ]  # fmt: skip
    assert client.say(Channel.Flow(True)) == ["1 Channel.FlowOk True", "1 Basic.Deliver t 1 1"]


# -- ways to a queue ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["bound to it", "its alternate"])
def test_by_way_of_the_default_exchange(client: Client, how: str) -> None:
    """To the queue of that name, and not to those that are bound as it is."""
    for name in ("a", "b"):
        client.declare(name)
        client.say(Queue.Bind(queue=name, exchange="amq.direct", routing_key="k"))
    alternate: dict[str, Any] = {"alternate-exchange": ""} if how == "its alternate" else {}
    client.say(Exchange.Declare(exchange="e", exchange_type="fanout" if how == "bound to it" else "direct",
                                arguments=alternate))  # fmt: skip
    if how == "bound to it":
        client.say(Exchange.Bind(destination="", source="e"))
    client.put("a", b"x", exchange="e")
    assert client.drain("b") == []
    assert client.drain("a") == [b"x"]


def test_a_key_that_is_no_topic(client: Client) -> None:
    """Queues get it, subscribers to topics do not."""
    taken = bytearray()
    outlet, house = PretendedOutlet(client.house.now(), 1 << 20, Random(0), 0.0, taken.extend), client.house
    session = house.broker.connect(ConnectRequest("mqtt", "", protocol="mqtt5"), outlet, house.now())
    house.broker.subscribe(session, SubscribeRequest("#", MqttDialect(5, 0, None, False, False)), house.now())
    client.say(Queue.Bind(queue="q", exchange="amq.topic", routing_key="#"))
    for key in ("a\0b", "a.+", "#", ""):
        client.put(key, b"x", exchange="amq.topic")
    assert client.drain("q") == [b"x"] * 4
    assert not taken
    assert house.broker.registry.totals.unpublished_records == {"no_topic": 4}


def test_keys_that_are_no_topics_are_told_of_if_somebody_would_have_them(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    house, missed = client.house, client.house.broker.registry.totals.unpublished_records
    client.say(Queue.Bind(queue="q", exchange="amq.topic", routing_key="#"))
    client.put("lang.c++", b"x", exchange="amq.topic")
    assert not missed, "nobody subscribes"
    outlet = PretendedOutlet(house.now(), 1 << 20, Random(0), 0.0, bytearray().extend)
    session = house.broker.connect(ConnectRequest("mqtt", "", protocol="mqtt5"), outlet, house.now())
    house.broker.subscribe(session, SubscribeRequest("lang/#", MqttDialect(5, 0, None, False, False)), house.now())
    for key in ("lang.c++", "lang.c#", "lang.python", "other.c++", "lang.a..b"):
        client.put(key, b"x", exchange="amq.topic")
    client.put("lang.c++", b"x", exchange="")  # a queue's name
    assert missed == {"no_topic": 2}
    for _ in range(2):
        house._tell_unpublished(house.now())
    client.put("lang.c++", b"x", exchange="amq.topic")
    house._tell_unpublished(house.now())
    assert len(caplog.messages) == 1, "at most once a second"
    house._tell_unpublished(house.now() + 1)
    lines = [one.getMessage() for one in caplog.records if "no topics" in one.getMessage()]
    assert ["only queues do: 2;" in lines[0], "only queues do: 1;" in lines[1], len(lines)] == [True, True, 2]
    assert lines[0].endswith(f"the last one: 'lang.c#' by {client.name!r}")
    assert "for want of room" not in caplog.text


@pytest.mark.parametrize("key", ["lang.c++", "lang.c#", "lang.a\0", "#"])
@pytest.mark.parametrize("kept_by", ["state", "journal", "CC"])
def test_a_state_and_a_recorded_topic_miss_keys_that_are_no_topics(house: House, kept_by: str, key: str) -> None:
    router = house.broker.registry.router
    client = Client(house, "client", channels=2)
    client.declare("q")
    client.say(Queue.Bind(queue="q", exchange="amq.topic", routing_key="#"))
    if kept_by == "state":
        router.add_state(State("#", compile_key("topic"), house.broker.registry.pools[""]))
    else:
        router.recorded_in = lambda topic: "all"
    headers = {"CC": [key]} if kept_by == "CC" else {}
    client.put("lang.c" if headers else key, b"x", exchange="amq.topic", **({"headers": headers} if headers else {}))
    assert house.broker.registry.totals.unpublished_records == {"no_topic": 1}
