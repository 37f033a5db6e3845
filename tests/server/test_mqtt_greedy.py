"""Acknowledgements of MQTT that come in no order are work, and a turn has only so much of it for one client."""

from __future__ import annotations

import pytest
from bench.wires.packets import connect, encode_publish, encode_subscribe
from tests.server.amqp_stage import House
from tests.server.greedy_stage import Greedy

from headway.server.mqtt.peer import MqttPeer
from headway.wire.mqtt.packets import TopicRequest

RECORDS = 12_000


def acks(kind: bytes, ids: range) -> bytes:
    return b"".join(kind + one.to_bytes(2, "big") for one in ids)


@pytest.mark.parametrize(("qos", "answer"), [(1, b"\x40\x02"), (2, b"\x50\x02")])
def test_what_is_acknowledged_out_of_order_takes_several_turns(qos: int, answer: bytes) -> None:
    house = House('[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n')
    reader = Greedy(house, MqttPeer, connect("reader"))
    reader.say(encode_subscribe(1, [TopicRequest("t", qos)]))
    session = reader.connection.peer_side.session
    assert session is not None
    session.channel.limit = RECORDS
    writer = Greedy(house, MqttPeer, connect("writer"))
    for first in range(1, RECORDS + 1, 500):
        ids = range(first, first + 500)
        writer.say(b"".join(encode_publish("t", b"x", qos=qos, packet_id=one) for one in ids))
        if qos == 2:
            writer.say(acks(b"\x62\x02", ids))
    assert session.channel.used == RECORDS

    in_order = reader.turns(acks(answer, range(1, 3001)))
    odd = reader.turns(acks(answer, range(3001, 11_001, 2)))
    again = reader.turns(acks(answer, range(3001, 11_001, 2)))
    assert in_order <= 3
    assert min(odd, again) > in_order
    session.channel.check()
    assert session.channel.used == (RECORDS - 3000 - 4000 if qos == 1 else RECORDS)
