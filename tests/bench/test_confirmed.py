"""Publishers that want confirms: each message is counted once, however it is confirmed, and the window is kept."""

from __future__ import annotations

import socket
import struct

import pytest
from bench.driver.confirmed import ConfirmedPublisher
from bench.driver.message import FILLER
from bench.errors import PeerFailed
from bench.wires.durable import CONFIRM, AmqpDurable, Confirms
from bench.wires.durable_session import Deliveries
from bench.wires.packets import encode_ack, encode_pingreq, encode_publish
from tests.bench.wired import scripted

SIZE = 100
Pair = tuple[socket.socket, socket.socket]


def ack(tag: int, *, several: bool = False) -> bytes:
    return CONFIRM.pack(1, 1, 13, 60, 80, tag, several, 0xCE)


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ([], 0),
        ([ack(1), ack(2), ack(3)], 3),
        ([ack(3), ack(1)], 2),
        ([ack(3), ack(1), ack(2)], 3),
        ([ack(5, several=True)], 5),
        ([ack(4), ack(3, several=True)], 4),
        ([ack(2), ack(4), ack(5, several=True), ack(6)], 6),
        ([ack(4, several=True), ack(2), ack(3, several=True)], 4),
    ],
)
def test_a_message_is_confirmed_once_alone_or_with_others_in_any_order(said: list[bytes], count: int) -> None:
    whole, piecewise = Confirms(), Confirms()
    whole.take(b"".join(said))
    for byte in b"".join(said):
        piecewise.take(bytes((byte,)))
    assert whole.count == piecewise.count == count


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (CONFIRM.pack(1, 1, 13, 60, 120, 7, 0, 0xCE), "refused message 7"),
        (struct.pack(">BHIHH", 1, 1, 14, 20, 40) + b"\x00" * 20, "said something else"),
    ],
)
def test_a_message_that_was_refused_is_no_confirmed_one(frame: bytes, words: str) -> None:
    with pytest.raises(PeerFailed, match=words):
        Confirms().take(frame)


def test_no_more_than_a_window_is_unconfirmed(pair: Pair) -> None:
    ours, theirs = pair
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    publisher = ConfirmedPublisher(ours, 10, lambda first, count: b"x" * (SIZE * count))
    publisher.publish()
    publisher.publish()
    assert publisher.published == 10
    theirs.sendall(ack(4, several=True))
    publisher.read()
    publisher.publish(3)
    assert publisher.published == 13, "there is room for four"
    publisher.publish()
    assert publisher.published == 14
    assert len(theirs.recv(20 * SIZE)) == 14 * SIZE
    assert publisher.waits_ns == [], "of no write all is confirmed"
    theirs.sendall(ack(13, several=True))
    publisher.read()
    assert len(publisher.waits_ns) == 2


def test_a_numbered_publisher_begins_with_none(pair: Pair) -> None:
    ours, _ = pair
    asked: list[tuple[int, int]] = []
    publisher = ConfirmedPublisher(ours, 10, lambda first, count: b"x" * (asked.append((first, count)) or count))
    publisher.publish(4)
    publisher.publish(100)
    assert asked == [(0, 4), (4, 6)]


def test_who_is_cut_off_does_not_wait_for_confirms(pair: Pair) -> None:
    ours, theirs = pair
    publisher = ConfirmedPublisher(ours, 10, lambda first, count: b"x" * count)
    theirs.close()
    with pytest.raises(PeerFailed, match="closed"):
        publisher.read()


def test_a_persistent_message_says_so_and_goes_to_a_durable_queue() -> None:
    wire, named = AmqpDurable(), b"\x00\x00\x03a.b"
    there = b"\x00\x32\x00\x0b\x03a.b" + (7).to_bytes(4, "big") + b"\x00" * 4
    answers = (there, there, b"\x00\x55\x00\x0b")
    replies = [b"\x01\x00\x01" + len(answer).to_bytes(4, "big") + answer + b"\xce" for answer in answers]
    with scripted(replies) as server, socket.create_connection(("127.0.0.1", server.port)) as sock:
        wire.declare(sock, ("a", "b"))
        assert wire.count(sock, ("a", "b")) == 7
        wire.confirms(sock)
    declare, count, select = (said[7:-1] for said in server.heard)
    assert declare == b"\x00\x32\x00\x0a" + named + b"\x02" + b"\x00" * 4, "durable, not exclusive, not auto-delete"
    assert count == b"\x00\x32\x00\x0a" + named + b"\x03" + b"\x00" * 4
    assert select == b"\x00\x55\x00\x0a\x00"
    method, header, body = wire.publication(sock, ("a", "b"), FILLER * 5).split(b"\xce")[:3]
    assert method[7:] == b"\x00\x3c\x00\x28\x00\x00\x00\x03a.b\x00"
    assert header[7:] == b"\x00\x3c\x00\x00" + b"\x00" * 7 + b"\x05\x10\x00\x02", "delivery mode 2"
    assert body[7:] == FILLER * 5


def test_deliveries_are_told_apart_by_their_numbers_and_each_is_acknowledged() -> None:
    def delivery(number: int, packet_id: int, size: int) -> bytes:
        payload = number.to_bytes(8, "big").ljust(size, b"x")
        return encode_publish("a/b", payload, qos=1, packet_id=packet_id)

    found = Deliveries()
    data = delivery(5, 1, 8) + encode_pingreq() + delivery(6, 2, 300) + delivery(5, 3, 8)
    said = b"".join(found.take(data[at : at + 7]) for at in range(0, len(data), 7))
    assert said == b"".join(encode_ack(4, packet_id) for packet_id in (1, 2, 3))
    assert (found.numbers, found.count) == ({5, 6}, 3)
