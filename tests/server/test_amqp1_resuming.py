"""Links of AMQP 1.0 that are resumed (2.6.13): the broker says that it knows none of their deliveries, and means it.

No client that tests could have says ``unsettled`` or ``resume`` (Proton, Qpid's for JMS), so these are bare frames.
"""

from __future__ import annotations

import pytest
from tests.server.amqp_stage import House
from tests.server.test_amqp1_greedy import client, filled, performatives, receiver, sender, transfer

from headway.wire.amqp1 import values as writing
from headway.wire.amqp1.performatives import Attach, Detach, Flow, Source, Target
from headway.wire.amqp1.replies import frame, write
from headway.wire.amqp1.values import skip

ATTACH = 0x12


@pytest.fixture
def house() -> House:
    return House()


def attaches(said: bytes) -> list[Attach]:
    return [one for one in performatives(said) if isinstance(one, Attach)]


def resumed(role: bool, address: str, unsettled: bytes, *, whole: bool = True) -> bytes:
    """An attach with a map of deliveries, as it is written."""
    place = Source(address) if role else Target(address)
    attach = Attach("link", 0, role, source=place if role else Source(), target=Target() if role else place,
                    initial_delivery_count=None if role else 0)  # fmt: skip
    plain = write(0, attach)
    fields = plain[8:]
    parts = _parts(fields)
    parts += [writing.NULL] * (8 - len(parts))
    parts[7] = unsettled
    if not whole:
        parts += [writing.NULL] * (9 - len(parts))
        parts[8] = writing.boolean(True)
    return frame(0, ATTACH, parts)


def _parts(fields: bytes) -> list[bytes]:
    """The fields of a performative, as they are written."""
    wide = fields[3] == 0xD0
    at = 3 + (9 if wide else 3)
    count = int.from_bytes(fields[8:12], "big") if wide else fields[5]
    parts = []
    for _ in range(count):
        end = skip(fields, at, len(fields))
        parts.append(fields[at:end])
        at = end
    return parts


def unsettled_map(*tags: bytes) -> bytes:
    body = b"".join(writing.binary(tag) + writing.NULL for tag in tags)
    return b"\xd1" + (4 + len(body)).to_bytes(4, "big") + (2 * len(tags)).to_bytes(4, "big") + body


@pytest.mark.parametrize("role", [True, False], ids=["receiver", "sender"])
def test_the_broker_knows_none_of_the_deliveries_of_a_link_that_is_resumed(house: House, role: bool) -> None:
    filled(house, 100)
    one = client(house)
    [answer] = attaches(one.say(resumed(role, "queue://work", unsettled_map(b"a", b"b"))))
    assert answer.unsettled == {}
    assert answer.source is not None
    assert answer.target is not None


@pytest.mark.parametrize("role", [True, False], ids=["receiver", "sender"])
def test_a_link_that_is_attached_anew_has_no_map(house: House, role: bool) -> None:
    one = client(house)
    [answer] = attaches(one.say(receiver(0, "queue://work") if role else sender(0, "queue://work")))
    assert answer.unsettled is None


def test_what_was_unsettled_comes_again_on_a_link_that_is_resumed(house: House) -> None:
    filled(house, 100)
    first = client(house, "same")
    first.say(receiver(0, "queue://work"))
    first.say(write(0, Flow(0, 1 << 30, 0, 1 << 30, 0, 0, 10)))
    assert house.stats("work").unacknowledged == 10
    first.say(b"")
    assert not first.connection.open
    assert house.stats("work").unacknowledged == 0
    again = client(house, "same")
    again.say(resumed(True, "queue://work", unsettled_map(b"\0\0\0\0", b"\0\0\0\1")))
    again.say(write(0, Flow(0, 1 << 30, 0, 1 << 30, 0, 0, 10)))
    assert (house.stats("work").unacknowledged, house.stats("work").records) == (10, 90)


def test_who_has_not_said_all_that_is_unsettled_gets_nothing_new(house: House) -> None:
    filled(house, 100)
    one = client(house)
    one.say(resumed(True, "queue://work", unsettled_map(b"a"), whole=False))
    one.say(write(0, Flow(0, 1 << 30, 0, 1 << 30, 0, 0, 10)))
    assert house.stats("work").unacknowledged == 0
    one.say(write(0, Detach(0, False)) + receiver(0, "queue://work"))
    one.say(write(0, Flow(0, 1 << 30, 0, 1 << 30, 0, 0, 10)))
    assert house.stats("work").unacknowledged == 10


def resumes(handle: int, number: int, body: bytes, *, more: bool = False, first: bool = True) -> bytes:
    fields = [writing.uint(handle), writing.uint(number), writing.binary(b"t"), writing.uint(0), writing.boolean(False),
              writing.boolean(more), writing.NULL, writing.NULL, writing.boolean(first)]  # fmt: skip
    content = frame(0, 0x14, fields)[8:] + body
    return (8 + len(content)).to_bytes(4, "big") + b"\2\0\0\0" + content


@pytest.mark.parametrize("parts", [1, 3])
def test_messages_that_are_resumed_are_ignored(house: House, parts: int) -> None:
    """The broker has said that it knows none of them; who sends them anew does so without ``resume``."""
    one = client(house)
    one.say(resumed(False, "queue://work", unsettled_map(b"t")))
    body = writing.described(0x75, writing.binary(b"x" * 90))
    size = len(body) // parts
    pieces = [body[at * size : (at + 1) * size if at < parts - 1 else None] for at in range(parts)]
    said = b"".join(resumes(0, 0, piece, more=at < parts - 1, first=not at) for at, piece in enumerate(pieces))
    answer = one.say(said)
    assert b"\0\x53\x15" not in answer, "nothing is said of them"
    assert one.connection.open
    assert "work" not in house.queues or not house.stats("work").records
    one.say(transfer(0, 1, b"anew"))
    assert house.stats("work").records == 1
