"""The clients of one queue: the publisher keeps step, and every delivery is acknowledged once, in order."""

from __future__ import annotations

import socket
import struct

import pytest
from bench.driver.consumers import AHEAD, STEP, Consumers, QueuePublisher
from bench.driver.message import Template
from bench.wires.amqp import AmqpQueue
from bench.wires.wire import Frame

FRAME_BYTES = 200
ACK = struct.Struct(">BHIHHQBB")
Pair = tuple[socket.socket, socket.socket]


def taken(sock: socket.socket, count: int) -> int:
    """Read so many messages; how many there were."""
    return len(sock.recv(count * FRAME_BYTES, socket.MSG_WAITALL)) // FRAME_BYTES


def template(sock: socket.socket) -> Template:
    """Of messages of ``FRAME_BYTES``."""
    least = Template(AmqpQueue(), sock, ("q",), 1).size_bytes
    return Template(AmqpQueue(), sock, ("q",), FRAME_BYTES - least + 1)


def consumers(*socks: socket.socket) -> Consumers:
    return Consumers(AmqpQueue(), {sock.fileno(): sock for sock in socks}, ("q",), Frame(FRAME_BYTES, 0))


def tags(data: bytes) -> list[int]:
    """Of single acknowledgements, and nothing else."""
    found = list(ACK.iter_unpack(data))
    assert {(*row[:5], *row[6:]) for row in found} <= {(1, 1, 13, 60, 80, 0, 0xCE)}
    return [row[5] for row in found]


def test_the_publisher_is_ahead_by_so_many_and_no_more(pair: Pair) -> None:
    ours, theirs = pair
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * AHEAD * FRAME_BYTES)
    publisher = QueuePublisher(ours, template(ours))
    for delivered in (0, 0, STEP - 1):
        publisher.publish(delivered)
        assert publisher.published == AHEAD
    publisher.publish(STEP)
    assert publisher.published == AHEAD + STEP
    assert taken(theirs, publisher.published) == publisher.published


def test_a_broker_that_does_not_read_holds_up_only_the_publisher(pair: Pair) -> None:
    ours, theirs = pair
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    publisher = QueuePublisher(ours, template(ours))
    publisher.publish(0)
    assert publisher.published < STEP
    assert not publisher.finish()
    read = 0
    while not publisher.finish():
        read += len(theirs.recv(65_536))
    assert publisher.published == STEP, "the rest of what was begun, and nothing more"
    assert read + len(theirs.recv(65_536)) == STEP * FRAME_BYTES


def test_what_a_read_brought_is_acknowledged_one_by_one(pair: Pair) -> None:
    ours, theirs = pair
    given = consumers(ours)
    event = [(ours.fileno(), 0)]
    theirs.sendall(b"x" * (2 * FRAME_BYTES + 50))
    assert given.read(event) == []
    assert given.delivered == 2
    theirs.sendall(b"x" * (FRAME_BYTES - 50))
    assert given.read(event) == []
    assert given.read(event) == [], "nothing there is no mistake"
    assert given.delivered == 3
    assert tags(theirs.recv(65_536)) == [1, 2, 3]


def test_who_is_cut_off_is_counted_and_told(pair: Pair) -> None:
    ours, theirs = pair
    given = consumers(ours)
    theirs.close()
    assert given.read([(ours.fileno(), 0)]) == [ours.fileno()]
    assert (given.delivered, given.disconnected) == (0, 1)


@pytest.mark.parametrize("first", [1, 255, 256, 65_534, 65_535, 65_536, 3 * 65_536 - 1, 2**40 - 2])
def test_every_delivery_has_its_own_number(first: int) -> None:
    assert tags(AmqpQueue().acknowledgements(first, 5)) == list(range(first, first + 5))


def test_many_are_acknowledged_over_several_blocks() -> None:
    assert tags(AmqpQueue().acknowledgements(65_000, 70_000)) == list(range(65_000, 135_000))
    assert AmqpQueue().acknowledgements(7, 0) == b""
