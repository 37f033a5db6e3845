"""What clients of JMS count on: their own numbers in responses, room in their caches, and the name of who sent."""

from __future__ import annotations

from struct import pack

import pytest
from tests.server.amqp_stage import Client, House
from tests.server.greedy_stage import Greedy
from tests.wire import openwire_frames as frames

from headway.server.openwire.peer import OpenWirePeer
from headway.wire.openwire.codes import Type

YES = b"\1"


def client(house: House, form: bytes, user: str = "alice") -> Greedy:
    return Greedy(house, OpenWirePeer, form + frames.connection_info("c", user))


@pytest.mark.parametrize("number", [-(2**31), -1, 2**31 - 1])
def test_numbers_of_commands_go_round(number: int) -> None:
    one = client(House(), frames.wire_format())
    for said in (
        frames.frame(Type.SESSION_INFO, YES + b"\x79" + frames.text("ID:c") + pack(">q", 1), number=number),
        frames.message(Type.BYTES_MESSAGE, frames.queue("q"), b"x", number=number) * 3,
    ):
        assert pack(">i", number) in one.say(said)
    assert one.connection.open


def cached(frame: bytes, *known: bytes) -> bytes:
    """The same frame from a client that keeps objects, and does not number these."""
    for one in known:
        frame = frame.replace(one, b"\1\xff\xff" + one)
    return pack(">i", len(frame) - 4) + frame[4:]


def test_a_client_is_told_no_more_numbers_than_it_has_room_for() -> None:
    form = frames.wire_format(known={"CacheEnabled": b"\1\1", "CacheSize": b"\5" + pack(">i", 3)})
    one = Greedy(House(), OpenWirePeer, form + cached(frames.connection_info("c"), frames.connection_id()))
    consumers, queue = [frames.consumer_id(value=at) for at in range(5)], frames.queue("q")
    told = [one.say(cached(frames.consumer_info(consumer, queue), consumer, queue)) for consumer in consumers]
    pairs = enumerate(zip(consumers, told, strict=True), 1)
    numbered = [b"\1" + pack(">H", slot) + consumer in said for slot, (consumer, said) in pairs]
    assert numbered == [True, True, False, False, False]


@pytest.mark.parametrize(("said", "got"), [("mallory", "alice"), ("alice", "alice"), (None, None)])
@pytest.mark.parametrize("count", [1, 20], ids=["one", "alike"])
def test_the_user_of_a_message_is_who_sent_it(said: str | None, got: str | None, count: int) -> None:
    house = House()
    one = client(house, frames.wire_format())
    one.say(b"".join(
        frames.message(Type.BYTES_MESSAGE, frames.queue("q"), b"x", user=said, sequence=at) for at in range(count)
    ))  # fmt: skip
    reader = Client(house)
    users = [content.properties.user_id for _ in range(count) if (content := reader.take("q")) is not None]
    assert users == [got] * count


# -- what is refused --------------------------------------------------------------------------------------------------


ONE = frames.message_id(1, 1)


@pytest.mark.parametrize("transaction", [b"\0", b"\1\x6f" + pack(">q", 1) + frames.connection_id()])
@pytest.mark.parametrize("kind", [7, 99, 255])
def test_an_acknowledgement_of_an_unknown_type_is_refused_and_settles_nothing(kind: int, transaction: bytes) -> None:
    house = House()
    one = client(house, frames.wire_format())
    one.say(frames.message(Type.BYTES_MESSAGE, frames.queue("q"), b"x"))
    one.say(frames.consumer_info(frames.consumer_id(), frames.queue("q")))
    assert house.stats("q").unacknowledged == 1
    answer = one.say(frames.frame(Type.MESSAGE_ACK, b"\0", transaction, frames.consumer_id(), bytes((kind,)), ONE, ONE,
                                  pack(">i", 1), b"\0"))  # fmt: skip
    assert b"MessageAck (22) has the unknown type %d" % kind in answer
    assert not one.connection.open
    assert (house.stats("q").records, house.stats("q").unacknowledged) == (1, 0)


def test_a_destination_is_made_or_ended_and_nothing_else() -> None:
    house = House()
    one = client(house, frames.wire_format())
    one.say(frames.destination_info(frames.queue("a,topic://t,b")))
    assert house.queues.keys() == {"a", "b"}
    assert b"DestinationInfo (8) has the unknown operation 2" in one.say(frames.destination_info(frames.queue("c"), 2))
    assert house.queues.keys() == {"a", "b"}


@pytest.mark.parametrize("name", ["a.>", "a.*.b", ">", "b,a.>"])
@pytest.mark.parametrize("what", ["destination", "producer", "message", "messages"])
def test_no_queue_gets_a_name_with_wildcards(what: str, name: str) -> None:
    """Nobody could consume from it: to a consumer the name means all queues that match."""
    house, queue = House(), frames.queue(name)
    one = client(house, frames.wire_format())
    message = frames.message(Type.BYTES_MESSAGE, queue, b"x")
    answer = one.say({
        "destination": frames.destination_info(queue), "message": message, "messages": message * 10,
        "producer": frames.frame(Type.PRODUCER_INFO, frames.producer_id(), queue, b"\0", b"\0", pack(">i", 0)),
    }[what])  # fmt: skip
    assert b"javax.jms.InvalidDestinationException" in answer
    assert b"%s has wildcards" % name.rpartition(",")[2].encode() in answer
    assert one.connection.open
    assert house.queues.keys() <= {"b"}


def test_a_queue_of_a_virtual_topic_may_have_wildcards_in_its_name() -> None:
    house, name = House(), "Consumer.A.VirtualTopic.>"
    one = client(house, frames.wire_format())
    one.say(frames.destination_info(frames.queue(name)))
    one.say(frames.message(Type.BYTES_MESSAGE, frames.queue(name), b"x"))
    assert house.stats(name).records == 1
