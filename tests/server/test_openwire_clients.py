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
