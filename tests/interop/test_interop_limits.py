"""Limits of MQTT's own: what a client cannot know it is not cut for, and what it asks for it is held to."""

from __future__ import annotations

import paho.mqtt.client as mqtt
import pytest
from bench.wires.packets import encode_ack, encode_connect, encode_publish, encode_subscribe, encode_unsubscribe
from paho.mqtt.enums import CallbackAPIVersion
from tests.interop.process import BrokerProcess
from tests.interop.raw import PubComp, PubRec, Raw
from tests.interop.waiting import until

from headway.wire.mqtt.packets import ConnAck, Connect, TopicRequest

MANY = 2000
SHARES = ["$share/p/", "$share//x", "$share/p", "$share/", "$share/a+/x", "$share/#/x"]


def test_any_number_of_exactly_once_publishes_is_under_way(broker: BrokerProcess, name: str) -> None:
    """MQTT 3.1.1 has no Receive Maximum. Their releases come behind them."""
    numbers = range(1, MANY + 1)
    with Raw(broker.port).subscribed(TopicRequest(name, 1)) as reader, Raw(broker.port, name, 4) as writer:
        writer.send(b"".join(encode_publish(name, b"%d" % n, version=4, qos=2, packet_id=n) for n in numbers))
        assert [writer.expect(PubRec).packet_id for _ in numbers] == list(numbers)
        writer.send(b"".join(encode_publish(name, b"", version=4, qos=2, packet_id=n, dup=True) for n in numbers))
        writer.send(b"".join(encode_ack(6, n) for n in numbers))
        assert [writer.expect(PubComp).packet_id for _ in numbers] == list(numbers)
        found = []
        while len(found) < MANY:
            message = reader.message()
            reader.ack(message)
            found.append(int(message.payload))
        assert found == list(numbers)
        assert reader.so_far() == []


def test_paho_with_as_many_under_way_as_it_likes(broker: BrokerProcess, name: str) -> None:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, name, protocol=mqtt.MQTTv311)
    client.max_inflight_messages_set(0)
    done: list[int] = []
    ended: list[object] = []
    client.on_publish = lambda _c, _d, number, _code, _p: done.append(number)
    client.on_disconnect = lambda _c, _d, _flags, code, _p: ended.append(code)
    for _ in range(3000):
        client.publish(name, b"x", 2)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    until(lambda: len(done) == 3000 or ended, what="all are complete")
    assert not ended
    client.disconnect()
    client.loop_stop()


@pytest.mark.parametrize("most", [*range(1, 12), 15, 20, 25, 30, 40, 60, 100])
@pytest.mark.parametrize("client", ["", "named"])
def test_connack_is_no_longer_than_the_client_takes(broker: BrokerProcess, name: str, most: int, client: str) -> None:
    """What it must know has to fit, or it is told that it does not."""
    own = client and f"{name}-{most}"
    with Raw(broker.port, own, connect=False) as raw:
        raw.send(encode_connect(Connect(5, own, True, max_packet_bytes=most, request_response_info=True)))
        until(lambda: raw.read(0.01) or raw.ended)
        assert raw.read_bytes <= most
        if most < 5:
            raw.wait_end()
            assert raw.inbox == []
            return
        connack = raw.expect(ConnAck)
        if connack.code:
            assert connack.code == 0x95
            raw.wait_end()
            assert not own, "nothing of it is indispensable"
        else:
            fields = connack.fields
            assert own or fields.assigned_client_id
            assert fields.receive_max in (1024, None)


def test_who_was_not_told_a_receive_maximum_is_not_held_to_it(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port, name, max_packet_bytes=5) as raw:
        assert raw.connack.fields.receive_max is None
        raw.send(b"".join(encode_publish(name, b"", qos=2, packet_id=n) for n in range(1, 2000)))
        for _ in range(1, 2000):
            raw.expect(PubRec)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("encode", [encode_subscribe, encode_unsubscribe])
def test_a_filter_has_a_character(broker: BrokerProcess, version: int, encode: object) -> None:
    with Raw(broker.port, "", version) as raw:
        raw.send(encode(1, ["ok", ""], version=version))  # type: ignore[operator]
        raw.wait_end()
        if version == 5:
            assert raw.inbox[-1].code == 0x81


@pytest.mark.parametrize("filter", SHARES)
@pytest.mark.parametrize("encode", [encode_subscribe, encode_unsubscribe])
def test_a_share_that_is_none_is_malformed(broker: BrokerProcess, filter: str, encode: object) -> None:
    with Raw(broker.port) as raw:
        raw.send(encode(1, [filter]))  # type: ignore[operator]
        assert raw.wait_disconnect().code == 0x81


@pytest.mark.parametrize("filter", SHARES)
def test_3_1_1_knows_no_shares(broker: BrokerProcess, filter: str) -> None:
    with Raw(broker.port, "", 4) as raw:
        assert raw.subscribe(filter).codes == (0x80,)
        assert raw.subscribe("fine").codes == (0,)


@pytest.mark.parametrize("version", [4, 5])
def test_any_number_of_levels(broker: BrokerProcess, name: str, version: int) -> None:
    topic = f"{name}/" + "/".join("abc" * 3000)
    filters = [topic, f"{name}/+/" + "/".join(["+"] * 8999), f"{name}/" + "/".join("abc" * 100) + "/#"]
    with Raw(broker.port, "", version).subscribed(*filters) as raw:
        raw.published(topic, b"x")
        assert raw.payloads(3) == [b"x"] * 3
        raw.unsubscribe(*filters)
        raw.published(topic, b"y")
        assert raw.so_far() == []


def test_what_breaks_the_protocol_before_it_is_greeted_is_refused(broker: BrokerProcess, name: str) -> None:
    """Not told to disconnect: there is no connection before CONNACK."""
    with Raw(broker.port, name, connect=False) as raw:
        raw.send(encode_connect(Connect(5, name, True, session_expiry_s=60)) + b"\xff\xff")
        assert raw.expect(ConnAck).code in (0, 0x81, 0x82)
        raw.wait_end()
