"""Any number of clients may come at once: those who are here do not wait for them."""

from __future__ import annotations

import pytest
from bench.wires.packets import connect, encode_publish, encode_subscribe
from tests.server.amqp_stage import House
from tests.server.greedy_stage import Greedy
from tests.server.pretended import Socket

from headway.server.connections.turn_budget import LEAST_WORK, TurnWork
from headway.server.mqtt.peer import MqttPeer
from headway.server.transport import AcceptShare
from headway.server.transport.byte_stream import ACCEPTS_LEAST, ACCEPTS_PER_TURN, WAITING_MAX
from headway.wire.mqtt.packets import TopicRequest

MANY = 300


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    """Its turns have little work left, because they took long."""
    house = House('[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n')
    house.turn_work.most = LEAST_WORK
    monkeypatch.setattr(TurnWork, "end", lambda _: None)
    return house


def test_who_is_here_is_served_before_newcomers(house: House) -> None:
    here, watcher = (Greedy(house, MqttPeer, connect(name)) for name in ("here", "watcher"))
    watcher.say(encode_subscribe(1, [TopicRequest("t", 0)]))
    newcomers = [Socket() for _ in range(MANY)]
    for number, sock in enumerate(newcomers):
        house.accept(sock, "mqtt", MqttPeer)
        sock.incoming.append(connect(f"new {number}") + encode_subscribe(1, [TopicRequest("of/mine", 0)]))
    here.connection.pause_reading("")
    here.connection.resume_reading("")  # it is read last, when the turn's work is used up
    here.send(encode_publish("t", b"x"))
    watcher.sock.taken.clear()
    before = house.turns
    while not watcher.sock.taken:
        assert house.pretended.once()
    assert house.turns - before <= 2
    assert house.waiting > MANY // 2
    house.run()
    assert not house.waiting
    assert len(house.broker.registry.sessions) == MANY + 2, "and all come in"
    assert house.broker.registry.totals.consumers["of/mine"] == MANY


def test_few_more_are_accepted_while_many_wait(house: House) -> None:
    waiting = 0
    share = AcceptShare(house.pretended, lambda: waiting)  # type: ignore[arg-type]
    assert share.left() == ACCEPTS_PER_TURN
    waiting = WAITING_MAX
    assert share.left() == ACCEPTS_LEAST
