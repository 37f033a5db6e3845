"""Clients of JMS that ask for much: it is done a share at a time, and what they have the broker keep is counted."""

from __future__ import annotations

import zlib
from struct import pack

import pytest
from tests.server.amqp_stage import House
from tests.server.greedy_stage import Greedy
from tests.wire import openwire_frames as frames

from headway.server.openwire.peer import OpenWirePeer
from headway.wire.openwire.codes import AckType, Type

INFLATED = 2_000_000
NO, YES = b"\0", b"\1"


@pytest.fixture
def house() -> House:
    return House()


def client(house: House, name: str = "greedy") -> Greedy:
    return Greedy(house, OpenWirePeer, frames.wire_format() + frames.connection_info(name))


def consumer(number: int, session: int = 1) -> bytes:
    return frames.consumer_id(session=session, value=number)


def bomb(to: str) -> bytes:
    text = pack(">i", INFLATED) + bytes(INFLATED)
    return frames.message(Type.TEXT_MESSAGE, frames.queue(to), zlib.compress(text, 9), compressed=True)


def filled(house: House, count: int) -> Greedy:
    one = client(house, "fills")
    one.say(b"".join(frames.message(Type.BYTES_MESSAGE, frames.queue("work"), b"x") for _ in range(count)))
    assert house.stats("work").records == count
    return one


def test_bodies_that_explode_come_one_at_a_time(house: House) -> None:
    greedy = client(house)
    greedy.say(bomb("work"))
    assert house.stats("work").records == 1
    before = house.turns
    greedy.send(bomb("work") * 20)
    most = 0
    while house.pretended.once():
        decoded = [item for item in getattr(greedy.connection.peer_side, "_held", ()) if not isinstance(item, int)]
        most = max(most, len(decoded))
    assert house.turns - before >= 10
    assert most <= 2
    assert house.stats("work").records == 21


def test_looking_up_acknowledgements_is_work(house: House) -> None:
    filled(house, 2000)
    greedy = client(house)
    greedy.say(frames.consumer_info(consumer(1), frames.queue("work"), prefetch=5000))
    assert house.stats("work").unacknowledged == 2000
    again = frames.ack(consumer(1), AckType.REDELIVERED, frames.message_id(1, 1), frames.message_id(1, 2000), 2000)
    assert greedy.turns(again * 100) >= 8
    assert house.stats("work").unacknowledged == 2000


def test_many_consumers_are_counted_and_end_a_share_at_a_time(house: House) -> None:
    greedy = client(house)
    for start in range(0, 1000, 100):
        greedy.say(b"".join(
            frames.consumer_info(consumer(at), frames.topic(f"t.{at}")) for at in range(start, start + 100)
        ))  # fmt: skip
    assert greedy.tab["consumers"] >= 1000 * 2000
    end = frames.frame(Type.REMOVE_INFO, YES + b"\x79" + frames.text("ID:c") + pack(">q", 1), pack(">q", 0))
    assert greedy.turns(end) >= 1000 * 16 // 1024
    assert not {"consumers", "subscriptions"} & greedy.tab.keys()


def test_a_consumer_of_very_many_queues_is_refused(house: House) -> None:
    filler = client(house, "fills")
    for start in range(0, 600, 50):
        filler.say(b"".join(
            frames.message(Type.BYTES_MESSAGE, frames.queue(f"many.{at}"), b"x") for at in range(start, start + 50)
        ))  # fmt: skip
    greedy = client(house)
    answer = greedy.say(frames.consumer_info(consumer(1), frames.queue("many.>")))
    assert b"many.> matches 600 queues (at most 500 for one consumer)" in answer
    assert greedy.connection.open
    assert "consumers" not in greedy.tab


def test_temporary_destinations_are_counted_and_end_over_several_turns(house: House) -> None:
    follows = client(house, "follows")
    follows.say(frames.consumer_info(consumer(1), frames.topic("ActiveMQ.Advisory.TempTopic"), prefetch=1000))
    greedy = client(house)

    def made(name: str, operation: int = 0) -> bytes:
        destination = YES + b"\x67" + frames.text(f"ID:c:{name}")
        return frames.frame(Type.DESTINATION_INFO, frames.connection_id(), destination, bytes((operation,)),
                            pack(">q", 0), NO)  # fmt: skip

    assert b"(at most 1255)" in greedy.say(made("x" * 2000))
    for start in range(0, 500, 50):
        greedy.say(b"".join(made(f"{at}") for at in range(start, start + 50)))
    assert greedy.tab["temporaries"] >= 500 * 1000
    greedy.say(made("0", 1))
    assert greedy.tab["temporaries"] < 500 * 1050
    follows.sock.taken.clear()
    before = house.turns
    greedy.say(b"")
    assert not greedy.connection.open
    assert house.turns - before >= 499 * 8 // 2048
    assert bytes(follows.sock.taken).count(b"ID:c:") >= 499


def test_producers_with_windows_are_counted(house: House) -> None:
    greedy = client(house)

    def producer(number: int) -> bytes:
        return frames.frame(Type.PRODUCER_INFO, frames.producer_id("ID:" + "c" * 900, 1, number),
                            frames.queue("work"), NO, NO, pack(">i", 1000))  # fmt: skip

    for start in range(0, 500, 100):
        greedy.say(b"".join(producer(at) for at in range(start, start + 100)))
    assert greedy.tab["producers"] >= 500 * 1000
    long = frames.frame(Type.PRODUCER_INFO, frames.producer_id("c" * 5000), NO, NO, NO, pack(">i", 1))
    assert b"an id of 5000 bytes" in greedy.say(long)
    assert not greedy.connection.open
