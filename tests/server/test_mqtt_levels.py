"""Levels of MQTT's protocol: bridges say so in theirs, and a refusal has a shape that its client can read."""

from __future__ import annotations

from struct import pack

import pytest
from bench.wires.packets import encode_publish
from tests.server.amqp_stage import House
from tests.server.pretended import Socket

from headway.server.mqtt.peer import MqttPeer

MQTT = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n'
ACCEPTED, REFUSED = b"\x20\x02\0\0", b"\x20\x02\0\1"
SUBSCRIBE = b"\x82\x06\0\1\0\1#\2"
REFUSED_LEVELS = [
    *((b"MQTT", level) for level in (0, 1, 2, 3, 0x80, 0x83, 0x86, 0xFF)),
    *((b"MQIsdp", level) for level in (3, 4, 5, 0x83)),
    (b"MQTTX", 5),
]


def text(raw: bytes) -> bytes:
    return pack(">H", len(raw)) + raw


def connect(name: bytes, level: int, properties: bytes = b"", client: bytes = b"c") -> bytes:
    body = text(name) + bytes((level, 2)) + pack(">H", 60) + properties + text(client)
    return bytes((0x10, len(body))) + body


def join(house: House, hello: bytes) -> Socket:
    sock = Socket()
    house.accept(sock, "mqtt", MqttPeer)
    say(house, sock, hello)
    return sock


def say(house: House, sock: Socket, data: bytes) -> None:
    sock.incoming.append(data)
    house.run()


def answers(*sent: bytes) -> bytes:
    house = House(MQTT)
    sock = join(house, sent[0])
    for data in sent[1:]:
        say(house, sock, data)
    return bytes(sock.taken)


@pytest.mark.parametrize(("name", "level"), REFUSED_LEVELS)
def test_refusal_of_a_level_that_3_1_1_cannot_tell_apart_has_the_shape_of_3_1_1(name: bytes, level: int) -> None:
    """mosquitto takes return code 1 for the hint to try again without the bit of a bridge."""
    assert answers(connect(name, level)) == REFUSED


def test_refusal_of_a_later_level_has_the_shape_of_5() -> None:
    said = answers(connect(b"MQTT", 6, b"\0"))
    assert (said[0], said[2], said[3]) == (0x20, 0, 0x84)
    assert b"protocol level 6" in said


@pytest.mark.parametrize("level", [4, 0x84])
def test_bridge_gets_nothing_back_and_no_other_client_is_spared(level: int) -> None:
    said = answers(connect(b"MQTT", level), SUBSCRIBE, encode_publish("t", b"mine"))
    assert said.startswith(ACCEPTED)
    assert (b"mine" in said) is (level == 4)


@pytest.mark.parametrize("level", [4, 0x84])
def test_bridge_is_told_of_live_records_whether_they_are_retained(level: int) -> None:
    house = House(MQTT)
    bridge, other = join(house, connect(b"MQTT", level)), join(house, connect(b"MQTT", 4, client=b"d"))
    say(house, bridge, SUBSCRIBE)
    bridge.taken.clear()
    say(house, other, b"\x31\x04\0\1tx")
    assert bytes(bridge.taken) == bytes((0x31 if level == 0x84 else 0x30,)) + b"\x04\0\1tx"
