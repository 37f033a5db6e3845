"""Very many connections that end in one moment: each turn ends some of them, and the others are served between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from tests.server.amqp_stage import House
from tests.server.greedy_stage import Greedy
from tests.server.test_unfinished import mqtt, openwire, stomp
from tests.wire import openwire_frames as frames

from headway.core.base import Reason
from headway.core.base.deferred import DEFERRED_WORK_MAX
from headway.core.log import CHUNK_BYTES
from headway.server.amqp1.peer import Amqp1Peer
from headway.server.connections import END_WORK, TURN_WORK
from headway.server.connections.linger import ENDS_MAX
from headway.wire.amqp1.performatives import Attach, Begin, Open, Source, Target
from headway.wire.amqp1.replies import write

CLIENTS = 4 * ENDS_MAX


@pytest.fixture
def house() -> House:
    return House()


def of_stomp(house: House, name: str) -> Greedy:
    one = stomp(house)
    one.say(b"SUBSCRIBE\nid:0\ndestination:/topic/t\n\n\0SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client\n\n\0")
    return one


def of_openwire(house: House, name: str) -> Greedy:
    one = openwire(house, name)
    one.say(frames.consumer_info(frames.consumer_id(), frames.topic("t")))
    return one


def of_amqp1(house: House, name: str) -> Greedy:
    begin = write(0, Begin(None, 0, 1 << 30, 1 << 30, 4095))
    link = write(0, Attach("r", 0, True, 0, source=Source("topic://t"), target=Target()))
    return Greedy(house, Amqp1Peer, b"AMQP\0\1\0\0" + write(0, Open(name, None, 65_536, 255)), begin + link)


def of_mqtt(house: House, name: str) -> Greedy:
    one = mqtt(house, name)
    one.say(b"\x82\x06\0\1\0\1t\0")
    return one


def steps(house: House, greedy: list[Greedy], canary: Greedy, *, answered: bool = True) -> list[int]:
    """How many connections end between two looks at all sockets. A canary is read and ``answered`` in each."""
    found = []
    left = len(greedy)
    while left:
        canary.sock.taken.clear()
        canary.sock.incoming.append(b"SEND\ndestination:/topic/x\nreceipt:r\n\n\0")
        assert house.pretended.once()
        assert house.pretended.once()
        assert b"RECEIPT" in canary.sock.taken or not answered
        now = sum(one.connection.open for one in greedy)
        found.append(left - now)
        left = now
    house.run()
    return found


@pytest.mark.parametrize("client", [of_stomp, of_openwire, of_amqp1, of_mqtt], ids=lambda one: one.__name__)
@pytest.mark.parametrize("how", ["vanish", "silent", "reset"])
def test_they_end_a_share_at_a_time(house: House, client: Callable[..., Greedy], how: str) -> None:
    greedy = [client(house, f"c{number}") for number in range(CLIENTS)]
    canary = stomp(house)
    assert all(one.connection.open for one in greedy)
    for one in greedy:
        if how == "vanish":
            one.sock.incoming.append(b"")
        elif how == "reset":
            house.pretended.call_soon(one.connection._broken, ConnectionResetError())
        else:
            end = partial(one.connection.end_soon, Reason.KEEP_ALIVE, "nothing was heard", told=True)
            house.pretended.call_soon(end)
    ended = steps(house, greedy, canary)
    assert max(ended) <= 2 * ENDS_MAX  # there are two rounds between two looks
    assert sum(ended) == CLIENTS
    assert len(house.connections) == 1
    assert not house._busy
    said = {end.text for end in house.ends.of("c1")}
    assert said <= {"the socket was closed without a goodbye", "nothing was heard", "the client reset the connection"}


def test_goodbyes_are_work_too(house: House) -> None:
    """Clients that have more to do than one turn allows have turns, the canary among them."""
    greedy = [stomp(house) for _ in range(5 * TURN_WORK // END_WORK)]
    canary = stomp(house)
    for one in greedy:
        one.sock.incoming.append(b"DISCONNECT\n\n\0")
    assert max(steps(house, greedy, canary, answered=False)) <= 3 * TURN_WORK // END_WORK


def test_who_is_about_to_end_is_neither_read_nor_ended_twice(house: House) -> None:
    many = [stomp(house) for _ in range(ENDS_MAX + 1)]
    one = many[-1]
    for other in many:
        other.connection.end_soon(Reason.CLIENT_GONE, "first")
    one.connection.end_soon(Reason.CLIENT_GONE, "second")
    one.sock.incoming.append(b"SEND\ndestination:/queue/q\n\nx\0")
    one.connection.read_now()
    assert one.connection.open
    house.run()
    assert not one.connection.open
    assert "q" not in house.queues
    assert [end.text for end in house.ends.of(one.connection.client)] == ["first"]


def test_who_was_far_behind_takes_more_of_a_turn_to_end(house: House) -> None:
    """Each chunk that a consumer did not read is visited at its end, for what it held is counted by publisher."""
    greedy = [of_mqtt(house, f"c{number}") for number in range(40)]
    for one in greedy:
        one.sock.capacity = 0
    publisher = stomp(house)
    bodies = b"SEND\ndestination:/topic/t\n\n" + b"x" * 4000 + b"\0"
    for _ in range(50):
        publisher.say(bodies * 100)
    [feed] = [one for one in house.broker.registry.router.feeds.values() if one.key.filter == "t"]
    chunks = feed.lane.resident_bytes // CHUNK_BYTES
    assert chunks > 250
    assert len(feed.subscriptions) == len(greedy)
    for one in greedy:
        one.sock.incoming.append(b"")
    ended, left = [], len(greedy)
    while left:
        assert house.pretended.once()
        ended.append(left - len(feed.subscriptions))
        left = len(feed.subscriptions)
    assert max(ended) <= DEFERRED_WORK_MAX // chunks + 1
