"""Clients that come back before they may: MQTT tells them why, and when to try again."""

from __future__ import annotations

import pytest
from bench.wires.packets import connect, encode_publish, encode_subscribe
from tests.server.amqp_stage import House
from tests.server.pretended import Socket
from tests.server.test_turn_budget import READ, Person

from headway.core.broker import SWEEP_S
from headway.server.config.reading import parse_settings
from headway.server.mqtt.peer import MqttPeer
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import ConnAck, TopicRequest

LISTENER = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n'
EVERYTHING = '[[permission]]\npublish = ["#"]\nsubscribe = ["#"]\n'
ONE = '[[permission]]\npublish = ["#"]\nsubscribe = ["kept"]\n'
CUT = """
[[policy]]
name = "p"
[[policy.rule]]
when = { lag_records = 10 }
then = "disconnect"
"""
MANY = 3000


class Visit:
    """A connection of a client that is back, and the answer to its CONNECT."""

    def __init__(self, house: House, name: str, version: int = 5, *, keep: bool = False) -> None:
        self.sock, self._version = Socket(), version
        house.accept(self.sock, "mqtt", MqttPeer)
        self.sock.incoming.append(connect(name, version, keep=keep))

    @property
    def answer(self) -> ConnAck:
        """What is behind CONNACK is not read."""
        (answer,) = MqttDecoder(role="client", version=self._version).feed(bytes(self.sock.taken), 1)
        assert isinstance(answer, ConnAck)
        return answer


def waits_s(answer: ConnAck) -> float:
    return float(dict(answer.fields.user)["retry-after-s"])


def many_revoked() -> tuple[House, Person]:
    """A reload has cut the client, and the first of its many subscriptions have ended."""
    house = House(LISTENER + EVERYTHING)
    house.read_bytes = house.usual_read_bytes = READ
    ann = Person(house, "ann", connect("ann", keep=True))
    for first in range(0, MANY, 1000):
        ann.send(encode_subscribe(1, [TopicRequest(f"t/{number}") for number in range(first, first + 1000)]))
        house.run()
    ann.send(encode_subscribe(2, [TopicRequest("kept")]))
    house.run()
    house.permissions.reload(parse_settings(LISTENER + ONE), house.now())
    house.turn_soon()
    while ann.connection.open:
        house.pretended.once()
    return house, ann


@pytest.mark.parametrize("version", [5, 4])
def test_who_was_cut_by_a_reload_waits_until_what_was_revoked_has_ended(version: int) -> None:
    house, _ = many_revoked()
    session = house.broker.registry.sessions["ann"]
    early = Visit(house, "ann", version, keep=True)
    while not early.sock.shut:
        house.pretended.once()
    assert 1 < len(session.subscriptions) < MANY
    if version == 5:
        assert early.answer.code == 0x89
        assert 0 < waits_s(early.answer) <= 10
        assert "come back in a moment" in str(early.answer.fields.reason_string)
    else:
        assert early.answer.code == 3
    house.run()
    late = Visit(house, "ann", keep=True)
    house.run()
    assert (late.answer.code, late.answer.session_present) == (0, True)
    assert list(session.subscriptions) == ["kept"]


def test_who_begins_anew_need_not_wait_for_what_was_revoked() -> None:
    house, _ = many_revoked()
    fresh = Visit(house, "ann")
    house.run()
    assert (fresh.answer.code, fresh.answer.session_present) == (0, False)
    assert not house.broker.registry.sessions["ann"].subscriptions


@pytest.mark.parametrize("version", [5, 4])
def test_who_is_cut_again_and_again_is_told_how_long_it_is_shut_out(version: int) -> None:
    house = House(LISTENER + CUT)
    house.broker.flap.base_s = 5.0
    publisher = Person(house, "publisher")
    for _ in range(2):
        slow = Person(house, "slow")
        slow.send(encode_subscribe(1, [TopicRequest("t")]))
        house.run()
        slow.sock.capacity = len(slow.sock.taken)
        publisher.send(*[encode_publish("t", b"%d" % number) for number in range(50)])
        house.run()
        house.pass_time(3 * SWEEP_S)
        assert not slow.connection.open
    early = Visit(house, "slow", version)
    house.run()
    assert early.sock.shut
    if version == 5:
        assert early.answer.code == 0x97
        assert 4 < waits_s(early.answer) <= 5
        assert "disconnected for slowness 2 times of late" in str(early.answer.fields.reason_string)
    else:
        assert early.answer.code == 3
    house.pass_time(5.0)
    late = Visit(house, "slow", version)
    house.run()
    assert late.answer.code == 0
