"""The size of a publisher's reads: it follows from who gets its records."""

from __future__ import annotations

import pytest
from bench.wires.packets import encode_disconnect, encode_publish, encode_subscribe
from pamqp.commands import Queue
from tests.server.amqp_stage import Client, House
from tests.server.test_turn_budget import Person

from headway.core.delivery import FLUSH_BYTES
from headway.wire.mqtt.packets import TopicRequest

KIB = 1024
LEVELS = 8
CROWD = FLUSH_BYTES // (96 * KIB) + 1
LISTENER = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n'


def readers_of(house: House, count: int, filters: int = 1) -> list[Person]:
    """Returns so many consumers of one topic, who have so many filters."""
    readers = [Person(house, f"{number}") for number in range(count)]
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


@pytest.mark.parametrize(("readers", "expected"), [(0, 96 * KIB), (1, 96 * KIB), (CROWD - 1, 96 * KIB)])
def test_a_read_to_few_leaves_room_for_another_in_their_kernels(readers: int, expected: int) -> None:
    house = House(LISTENER)
    readers_of(house, readers)
    assert read_at_once(house, Person(house, "publisher")) == expected


def test_a_read_is_larger_while_it_goes_to_a_crowd() -> None:
    house = House(LISTENER)
    readers, publisher = readers_of(house, CROWD), Person(house, "publisher")
    assert read_at_once(house, publisher) == 240 * KIB
    for reader in readers[10:]:
        reader.send(encode_disconnect())
    house.run()
    assert read_at_once(house, publisher) == 96 * KIB


def test_other_protocols_read_much_for_a_crowd_too() -> None:
    house = House(LISTENER)
    readers_of(house, CROWD)
    publisher = Client(house)
    publisher.put("t." * (LEVELS - 1) + "t", b"x", exchange="amq.topic")
    assert publisher.connection.read_bytes == 240 * KIB


@pytest.mark.parametrize("exchange", ["", "amq.topic"])
def test_a_read_for_queues_is_large(exchange: str) -> None:
    """Queues hand out what consumers have room for, in any case."""
    house = House()
    publisher = Client(house)
    publisher.declare("q")
    publisher.say(Queue.Bind(queue="q", exchange="amq.topic", routing_key="q"))
    publisher.put("nobody", b"x", exchange=exchange)
    assert publisher.connection.read_bytes < 240 * KIB
    publisher.put("q", b"x", exchange=exchange)
    assert publisher.connection.read_bytes == 240 * KIB


def test_many_lanes_share_the_pool() -> None:
    house = House(LISTENER)
    readers_of(house, 256, filters=256)
    assert read_at_once(house, Person(house, "publisher")) == 64_000_000 // 4 // 256


def test_a_small_buffer_of_the_kernel_makes_for_small_reads() -> None:
    house = House(LISTENER + '[server]\nsend_buffer = "16KiB"\n')
    assert read_at_once(house, Person(house, "publisher")) == 6 * KIB
