"""Large compressed bodies of JMS are inflated in pieces: others are served between, and few are in the making at once.
"""

from __future__ import annotations

import zlib
from random import Random
from struct import pack

import pytest
from tests.server.amqp_stage import House
from tests.server.greedy_stage import Greedy
from tests.server.test_unfinished import openwire, stomp
from tests.wire import openwire_frames as frames

from headway.core.base import ProtocolError, Reason
from headway.server.openwire.peer import INFLATING_MAX, OpenWirePeer, inflating_of
from headway.wire.openwire.codes import Type
from headway.wire.openwire.decoder import OpenWireDecoder, Sent
from headway.wire.openwire.messages import PIECE_BYTES, Inflation

LARGE = 6_000_000


@pytest.fixture
def house() -> House:
    return House()


def text_of(size: int, seed: int = 1) -> bytes:
    """Half of it repeats."""
    rng = Random(seed)
    return b"".join(rng.randbytes(500).hex().encode()[:500] + bytes([rng.randrange(32, 127)]) * 500
                    for _ in range(size // 1000))  # fmt: skip


def message(body: bytes, *, kind: Type = Type.TEXT_MESSAGE, to: str = "work") -> bytes:
    raw = zlib.compress(pack(">i", len(body)) + body, 1)
    if kind is Type.BYTES_MESSAGE:
        raw = pack(">i", len(body)) + zlib.compress(body, 1)
    return frames.message(kind, frames.queue(to), raw, compressed=True)


def pieces_inflated(house: House, one: Greedy, data: bytes) -> list[int]:
    """How much is inflated between two looks at all sockets."""
    peer = one.connection.peer_side
    assert isinstance(peer, OpenWirePeer)
    one.send(data)
    found, before = [], 0
    while house.pretended.once():
        now = peer.decoder.inflated_bytes
        found.append(max(0, now - before))
        before = now
    return found


@pytest.mark.parametrize("kind", [Type.TEXT_MESSAGE, Type.BYTES_MESSAGE])
def test_it_takes_several_turns_and_is_the_same(house: House, kind: Type) -> None:
    one, body = openwire(house), text_of(LARGE)
    pieces = pieces_inflated(house, one, message(body, kind=kind))
    assert house.stats("work").records == 1
    assert max(pieces) <= LARGE / 2
    assert len([piece for piece in pieces if piece]) >= 2
    reader = openwire(house, "reader")
    assert body in reader.say(frames.consumer_info(frames.consumer_id(), frames.queue("work")))


def test_others_are_served_between(house: House) -> None:
    one, canary = openwire(house), stomp(house)
    one.send(message(text_of(LARGE)))
    answered = 0
    while "work" not in house.queues or not house.stats("work").records:
        canary.sock.taken.clear()
        canary.sock.incoming.append(b"SEND\ndestination:/topic/x\nreceipt:r\n\n\0")
        house.pretended.once()
        house.pretended.once()
        answered += b"RECEIPT" in canary.sock.taken
    assert answered >= 2


def test_what_is_inflated_counts_and_few_are_at_once(house: House) -> None:
    many = [openwire(house, f"c{number}") for number in range(3 * INFLATING_MAX)]
    data = message(text_of(LARGE))
    for one in many:
        one.send(data)
    most = 0
    while house.pretended.once():
        inflating = inflating_of(house)
        most = max(most, len(inflating))
        assert len(inflating) <= INFLATING_MAX
        for peer in inflating:
            assert peer.session is not None
            assert peer.session.tab.amounts["held_messages"] >= peer.decoder.inflated_bytes > 0
    assert most == INFLATING_MAX
    assert not inflating_of(house)
    assert all(one.connection.open for one in many)


@pytest.mark.parametrize("how", ["gone", "paused"])
def test_who_is_not_read_any_more_leaves_its_place(house: House, how: str) -> None:
    one = openwire(house)
    peer = one.connection.peer_side
    assert isinstance(peer, OpenWirePeer)
    one.send(message(text_of(LARGE)))
    while not peer.decoder.inflated_bytes:
        assert house.pretended.once()
    if how == "gone":
        one.connection.close(Reason.NORMAL)
    else:
        peer.paused("for a test")
        assert not peer.decoder.inflated_bytes
    assert not inflating_of(house)
    house.run()
    assert how == "gone" or house.stats("work").records == 1


@pytest.mark.parametrize(("spoil", "size"), [(True, 100), (True, 3_000_000), (False, 100), (False, 3_000_000)])
def test_a_body_that_cannot_be_inflated_ends_the_connection(house: House, spoil: bool, size: int) -> None:
    one, body = openwire(house), text_of(max(1000, size))
    raw = bytearray(zlib.compress(pack(">i", len(body)) + body, 1))
    if spoil:
        raw[len(raw) // 2 :] = b"\xff" * (len(raw) - len(raw) // 2)
    else:
        del raw[len(raw) // 2 :]
    said = one.say(frames.message(Type.TEXT_MESSAGE, frames.queue("work"), bytes(raw), compressed=True))
    assert b"cannot be inflated" in said
    assert not one.connection.open


def test_a_body_that_is_too_large_when_it_is_inflated_is_refused_on_the_way() -> None:
    decoder = OpenWireDecoder(1_000_000)
    decoder.feed(frames.wire_format() + frames.connection_info("c"))
    bomb = zlib.compress(pack(">i", 5_000_000) + bytes(5_000_000))
    assert decoder.feed(frames.message(Type.TEXT_MESSAGE, frames.queue("q"), bomb, compressed=True)) == []
    assert "to more than 1000000 bytes" in str(decoder.error)
    fits = zlib.compress(pack(">i", 999_996) + bytes(999_996))
    decoder = OpenWireDecoder(1_000_000)
    decoder.feed(frames.wire_format() + frames.connection_info("c"))
    (sent,) = decoder.feed(frames.message(Type.TEXT_MESSAGE, frames.queue("q"), fits, compressed=True))
    assert isinstance(sent, Sent)
    assert len(sent.message.payload) == 999_996


def test_input_that_inflates_to_nothing_is_read_a_little_at_a_time() -> None:
    raw = b"\x78\x01" + b"\0\0\0\xff\xff" * 200_000  # stored blocks without a byte
    inflation = Inflation(raw, 1_000_000)
    for _ in range(len(raw) // (2 * PIECE_BYTES) + 1):
        assert inflation.step() <= 2 * PIECE_BYTES
        assert not inflation.bytes
    with pytest.raises(ProtocolError, match="cannot be inflated"):
        inflation.step()
