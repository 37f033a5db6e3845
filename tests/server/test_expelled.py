"""Connections whose session was taken from them: until the turn closes them, nothing is done in its name."""

from __future__ import annotations

import pytest
from bench.wires.packets import connect, encode_publish, encode_subscribe
from pamqp.commands import Basic, Queue
from tests.server.amqp_stage import Client, House, message, method
from tests.server.pretended import Socket
from tests.server.test_turn_budget import Person

from headway.core.base import Reason
from headway.server.connections.connection import Connection
from headway.server.mqtt.peer import MqttPeer
from headway.server.transport import PlainStream
from headway.wire.mqtt.packets import PubAck, SubAck, TopicRequest

CONFIG = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[[policy]]
name = "p"
topics = ["$queue/q"]
[[policy.rule]]
when = { lag_records = 3 }
then = "block_publishers"
"""


@pytest.fixture
def house() -> House:
    return House(CONFIG)


def accept(house: House) -> Socket:
    """A connection that has said nothing yet, and is read before all that come later."""
    sock = Socket()
    pool = house.broker.registry.pool_of("mqtt")
    connection = Connection(house, PlainStream(sock), "new", "mqtt", pool, house.now())  # type: ignore[arg-type]
    house.connections.add(connection, 1e9)
    connection.start(MqttPeer(house, connection, house.settings.listeners["mqtt"]))
    return sock


def clients_bytes(house: House) -> int:
    return house.broker.registry.pool_of("mqtt").clients_bytes


@pytest.mark.parametrize("filter", ["a/#", "$share/g/a"])
def test_a_client_that_was_taken_over_in_this_turn_subscribes_to_nothing(house: House, filter: str) -> None:
    new = accept(house)
    old = Person(house, "ann")
    new.incoming.append(connect("ann"))
    old.send(encode_subscribe(1, [TopicRequest(filter, 1)]), encode_publish("a", b"x", qos=1, packet_id=1))
    house.run()
    assert not old.connection.open
    assert not [item for item in old.heard() if isinstance(item, SubAck | PubAck)]
    new.incoming.append(b"")
    house.run()
    registry = house.broker.registry
    assert (len(registry.sessions), len(registry.router.feeds), clients_bytes(house)) == (0, 0, 0)


def test_a_client_that_was_disconnected_in_this_turn_declares_and_publishes_nothing(house: House) -> None:
    client, other = Client(house, "ann"), Client(house, "bob")
    other.say(Queue.Declare(queue="kept"))
    before = clients_bytes(house)
    session = house.broker.registry.sessions["ann"]
    house.broker.expel(session, Reason.ADMIN, "disconnected by an operator", house.now())
    client.sock.incoming += [
        method(1, Queue.Declare(queue="own", exclusive=True)),
        method(1, Basic.Consume(queue="own")),
        method(1, Basic.Consume(queue="kept")),
        b"".join(message(1, "kept", b"x")),
    ]
    house.pretended.once()  # it is read before the turn carries out the disconnection
    house.turn_soon()
    house.run()
    assert not client.open
    assert list(house.queues) == ["kept"]
    assert (house.stats("kept").consumers, house.stats("kept").records) == (0, 0)
    assert clients_bytes(house) < before


def test_a_client_that_comes_back_in_the_turn_in_which_it_was_paused_is_read(house: House) -> None:
    consumer = Client(house, "consumer")
    consumer.declare("q")
    consumer.say(Queue.Bind(queue="q", exchange="amq.topic", routing_key="a"), Basic.Qos(prefetch_count=1))
    consumer.say(Basic.Consume(queue="q"))
    Client(house, "publisher").put("q", *[b"x"] * 6)
    old, sock = Person(house, "ann", connect("ann", keep=True)), accept(house)
    house.pass_time(0.5)
    old.send(encode_publish("a", b"x", qos=1, packet_id=1))
    sock.incoming.append(connect("ann", keep=True))
    house.run()
    assert not old.connection.open
    (new,) = (one for one in house.connections if one.client == "ann")
    assert new.reading_paused_by == {}
    sock.incoming.append(encode_publish("a", b"y", qos=1, packet_id=2))  # it waits like anybody
    house.run()
    assert "publisher" in new.reading_paused_by
    consumer.leave()
    house.pass_time(0.5)
    assert new.reading_paused_by == {}
