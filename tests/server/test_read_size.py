"""The size of a publisher's reads: it follows from who gets its records."""

from __future__ import annotations

from math import inf

import pytest
from bench.wires.packets import encode_disconnect, encode_publish, encode_subscribe
from pamqp.commands import Basic, Queue
from tests.server.amqp_stage import Client, House
from tests.server.test_turn_budget import Person

from headway.core.delivery import FLUSH_BYTES
from headway.server.connections.ends import FLOOD_BYTES
from headway.wire.mqtt.packets import TopicRequest

KIB = 1024
LEVELS = 8
CROWD = FLUSH_BYTES // (96 * KIB) + 1
LISTENER = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n'


def readers_of(house: House, count: int, filters: int = 1, name: str = "") -> list[Person]:
    """Returns so many consumers of one topic, who have so many filters."""
    readers = [Person(house, f"{name}{number}") for number in range(count)]
    for number, reader in enumerate(readers):
        topic = "/".join("+t"[number % filters >> bit & 1] for bit in range(LEVELS))
        reader.send(encode_subscribe(1, [TopicRequest(topic)]))
    house.run()
    return readers


def read_at_once(house: House, publisher: Person) -> int:
    """Returns how much is read at once of a publisher that has published to this topic."""
    publisher.send(encode_publish("/".join("t" * LEVELS), b"x"))
    house.run()
    return publisher.connection.read_bytes


def test_a_read_is_large_while_nobody_lags() -> None:
    house = House(LISTENER)
    readers_of(house, 3)
    assert read_at_once(house, Person(house, "publisher")) == 240 * KIB


@pytest.mark.parametrize("others", [0, 3])
def test_while_somebody_lags_a_read_leaves_room_for_another_in_kernels(others: int) -> None:
    house = House(LISTENER)
    readers_of(house, others)
    [slow] = readers_of(house, 1, name="slow")
    publisher = Person(house, "publisher")
    slow.sock.capacity = 0
    read_at_once(house, publisher)
    assert read_at_once(house, publisher) == 96 * KIB
    slow.sock.capacity = inf
    house.run()
    assert read_at_once(house, publisher) == 240 * KIB


def test_a_read_is_large_where_it_takes_turns_to_send_it_to_all() -> None:
    house = House(LISTENER)
    readers, publisher = readers_of(house, CROWD + 1), Person(house, "publisher")
    readers[0].sock.capacity = 0
    read_at_once(house, publisher)
    assert read_at_once(house, publisher) == 240 * KIB
    for reader in readers[10:]:
        reader.send(encode_disconnect())
    house.run()
    assert read_at_once(house, publisher) == 96 * KIB


def test_other_protocols_read_much_for_a_crowd_too() -> None:
    house = House(LISTENER)
    readers, publisher = readers_of(house, CROWD + 1), Client(house)
    readers[0].sock.capacity = 0
    for _ in range(2):
        publisher.put("t." * (LEVELS - 1) + "t", b"x", exchange="amq.topic")
    assert publisher.connection.read_bytes == 240 * KIB


@pytest.mark.parametrize("exchange", ["", "amq.topic"])
def test_a_read_for_a_queue_is_large_while_it_has_handed_out_everything(exchange: str) -> None:
    house = House()
    publisher, consumer = Client(house), Client(house)
    publisher.declare("q")
    publisher.say(Queue.Bind(queue="q", exchange="amq.topic", routing_key="q"))
    publisher.put("q", b"x", exchange=exchange)
    publisher.put("q", b"x", exchange=exchange)
    assert publisher.connection.read_bytes == 96 * KIB, "nobody consumes"
    consumer.say(Basic.Consume(queue="q", no_ack=True))
    publisher.put("q", b"x", exchange=exchange)
    assert publisher.connection.read_bytes == 240 * KIB


def test_reads_are_small_while_several_flood_the_broker() -> None:
    """All others wait for all that is read in a turn."""
    house = House(LISTENER)
    readers_of(house, 1)
    one, other = Person(house, "one"), Person(house, "other")
    assert read_at_once(house, one) == 240 * KIB
    flood = encode_publish("/".join("t" * LEVELS), bytes(FLOOD_BYTES))
    for flooding, expected in (((one, other), 96 * KIB), ((one,), 240 * KIB)):
        for _ in range(2):
            for publisher in flooding:
                publisher.send(flood)
            house.run()
        assert one.connection.read_bytes == expected


def test_many_lanes_share_the_pool() -> None:
    house = House(LISTENER)
    readers_of(house, 256, filters=256)
    assert read_at_once(house, Person(house, "publisher")) == 64_000_000 // 4 // 256


def test_a_small_buffer_of_the_kernel_makes_for_small_reads() -> None:
    house = House(LISTENER + '[server]\nsend_buffer = "16KiB"\n')
    assert read_at_once(house, Person(house, "publisher")) == 6 * KIB
