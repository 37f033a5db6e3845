"""Memory that a connection keeps for later packets, and for its channels, counts to its client, and has a limit."""

from __future__ import annotations

from struct import pack

import pytest
from pamqp.commands import Basic, Channel
from tests.server.amqp_stage import Client as Amqp
from tests.server.amqp_stage import House
from tests.server.greedy_stage import Greedy
from tests.server.test_unfinished import stomp
from tests.test_caches import kept_bytes
from tests.wire import openwire_frames as frames
from tests.wire.test_amqp_decoder import message, method, raw

from headway.core.base import Reason
from headway.server.mqtt.peer import MqttPeer
from headway.server.openwire.peer import OpenWirePeer
from headway.wire.mqtt.packets import Connect, encode_connect
from headway.wire.openwire.codes import Type


@pytest.fixture
def house() -> House:
    return House()


def aliased(alias: int, topic: str) -> bytes:
    body = pack(">H", len(topic.encode())) + topic.encode() + b"\x03\x23" + pack(">H", alias) + b"x"
    size = len(body)
    return b"\x30" + bytes((size & 127 | 128, size >> 7 & 127 | 128, size >> 14)) + body


def test_topic_aliases(house: House) -> None:
    one = Greedy(house, MqttPeer, encode_connect(Connect(5, "c", True)))
    before = one.connection.pool.clients_bytes
    wide = "x" * 60_000 + "é" + "\U0001f600"
    one.say(aliased(1, wide))
    assert one.tab["remembered"] >= 4 * 60_000, "Python needs four bytes for each character"
    one.say(aliased(1, "a" * 20_000))
    assert 20_000 <= one.tab["remembered"] < 25_000, "another topic in its place"
    one.connection.pool.client_share = 0.1
    for alias in range(1, 65):
        one.say(aliased(alias, wide))
    assert not one.connection.open
    assert house.ends.counts == {Reason.CLIENT_MEMORY: 1}
    assert one.connection.pool.clients_bytes <= before


def test_routing_keys_and_properties_of_amqp(house: House) -> None:
    client = Amqp(house)
    tab = client.peer.session.tab  # type: ignore[union-attr]
    for at in range(300):
        client.sock.incoming.append(message(b"x", key=f"key.{at}", headers={f"h{n}": at for n in range(30)}))
        house.run()
    assert tab.amounts["remembered"] >= 300 * 500
    assert tab.amounts["remembered_properties"] >= 40 * 3000
    client.say(Channel.Close(0, "", 0, 0))
    assert "remembered_properties" not in tab.amounts


def test_channels_of_amqp(house: House) -> None:
    client = Amqp(house)
    tab = client.peer.session.tab  # type: ignore[union-attr]
    for number in range(2, 102):
        client.say(Channel.Open(), channel=number)
    assert tab.amounts["channels"] >= 101 * 1000
    for number in range(2, 102):
        client.say(Channel.Close(0, "", 0, 0), channel=number)
    assert tab.amounts["channels"] < 2000


def test_channels_of_amqp_that_had_consumers(house: House) -> None:
    """Tables do not shrink: a channel after the other has many consumers, and keeps one."""
    client = Amqp(house, channels=4)
    client.declare("work")
    tab = client.peer.session.tab  # type: ignore[union-attr]
    tags = [f"t{number}" for number in range(700)]

    def fill(channel: int) -> None:
        client.say(*(Basic.Consume(queue="work", consumer_tag=tag) for tag in tags), channel=channel)
        client.say(*(Basic.Cancel(consumer_tag=tag) for tag in tags[1:]), channel=channel)
        client.heard.clear()
        client.bytes, client._asked = b"", 0

    fill(1)
    before = tab.bytes
    kept = kept_bytes(lambda number: fill(number + 2), 3)
    assert kept <= tab.bytes - before
    for number in range(1, 5):
        client.say(Channel.Close(0, "", 0, 0), channel=number)
    assert "channels" not in tab.amounts


def test_channels_of_amqp_whose_end_a_client_does_not_confirm(house: House) -> None:
    client = Amqp(house)
    tab = client.peer.session.tab  # type: ignore[union-attr]
    faulty = [method(Channel.Open(), number) + method(Basic.Ack(9), number) for number in range(2043)]

    def fill(number: int) -> None:
        client.sock.incoming.append(faulty[number + 2])
        house.run()
        client.sock.taken.clear()

    fill(2040)
    before = tab.bytes
    assert kept_bytes(fill, 2000) <= tab.bytes - before + 60_000
    client.run()
    assert client.say(Channel.CloseOk(), Channel.Open(), channel=500) == ["500 Channel.OpenOk"]


def test_headers_of_messages_of_amqp_that_have_not_come_whole(house: House) -> None:
    client = Amqp(house, channels=20)
    before = client.connection.pool.clients_bytes
    header = pack(">HHQH", 60, 0, 1, 0x2000) + pack(">I", 4000) + b"\x01x" + b"S" + pack(">I", 3993) + bytes(3993)
    for number in range(1, 21):
        client.sock.incoming.append(
            method(Basic.Publish(exchange="amq.topic", routing_key="a"), number) + raw(2, number, header)
        )
        house.run()
    assert client.connection.pool.clients_bytes >= before + 20 * 4000


def test_heads_of_stomp(house: House) -> None:
    one = stomp(house)
    for at in range(20):
        one.say(b"SEND\ndestination:/topic/t\nnumber:%d\n\nx\0" % at)
    assert one.tab["remembered"] >= 20 * 300
    assert one.tab["remembered_properties"] >= 20 * 300


@pytest.mark.parametrize(("connection", "made"), [("ID:c", True), ("orders", False)])
def test_names_of_temporary_queues_are_no_way_around_declare(connection: str, made: bool) -> None:
    """Clients choose the ids of their connections, below which the names are; libraries begin them with ID:."""
    house = House('[[permission]]\npublish = ["open"]\n')
    info = frames.frame(3, frames.connection_id(connection), *map(frames.text, ("me", "", "")), *[b"\0"] * 7)
    one = Greedy(house, OpenWirePeer, frames.wire_format() + info)
    one.say(frames.frame(Type.DESTINATION_INFO, frames.connection_id(connection),
                         b"\1\x66" + frames.text(f"{connection}:1"), b"\0", pack(">q", 0), b"\0"))  # fmt: skip
    assert (f"{connection}:1" in house.queues) is made
