"""Any number of clients may come at once: those who are here do not wait for them."""

from __future__ import annotations

import pytest
from bench.wires.packets import connect, encode_publish, encode_subscribe
from tests.server.amqp_stage import House
from tests.server.greedy_stage import Greedy

from headway.server.engine.engine import NEWCOMER_S
from headway.server.mqtt.peer import MqttPeer
from headway.server.transport import AcceptShare
from headway.server.transport.byte_stream import ACCEPTS_LEAST, ACCEPTS_PER_TURN, WAITING_MAX
from headway.wire.mqtt.packets import TopicRequest

MANY = 60


@pytest.fixture
def house() -> House:
    return House('[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n')


def subscribes(number: int) -> bytes:
    """A great deal of work."""
    return encode_subscribe(1, [TopicRequest(f"of/{number}/{filter}", 1) for filter in range(50)])


def turns_until(house: House, client: Greedy) -> int:
    client.sock.taken.clear()
    before = house.turns
    while not client.sock.taken:
        assert house.pretended.once()
    return house.turns - before


def test_who_is_here_is_served_before_newcomers(house: House) -> None:
    here, watcher = (Greedy(house, MqttPeer, connect(name)) for name in ("here", "watcher"))
    watcher.say(encode_subscribe(1, [TopicRequest("t", 0)]))
    house.pass_time(NEWCOMER_S + 0.1)
    newcomers = [Greedy(house, MqttPeer, connect(f"new {number}")) for number in range(MANY)]
    for number, one in enumerate(newcomers):
        one.send(subscribes(number))
    here.connection.pause_reading("")
    here.connection.resume_reading("")  # it is read last, when the turn's work is used up
    here.send(encode_publish("t", b"x"))
    assert turns_until(house, watcher) <= 2
    assert house.waiting > MANY // 2
    house.run()
    assert not house.waiting
    assert all(len(one.connection.peer_side.session.subscriptions) == 50 for one in newcomers)  # type: ignore[union-attr]


def test_newcomers_have_all_that_nobody_else_needs(house: House) -> None:
    newcomer = Greedy(house, MqttPeer, connect("new"))
    quick = newcomer.turns(subscribes(0))
    house.pass_time(NEWCOMER_S + 0.1)
    assert newcomer.turns(subscribes(1)) == quick


def test_few_more_are_accepted_while_many_wait(house: House) -> None:
    waiting = 0
    share = AcceptShare(house.pretended, lambda: waiting)  # type: ignore[arg-type]
    assert share.left() == ACCEPTS_PER_TURN
    waiting = WAITING_MAX
    assert share.left() == ACCEPTS_LEAST
