"""What is over is gone at once: nothing of it is in a cycle that only the garbage collector would find.

With a hundred thousand subscriptions a full collection holds up the loop for more than a second; so the broker does
without (server/loop.py), and whatever ends has to leave nothing that knows itself.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from bench.wires.packets import encode_disconnect, encode_publish, encode_subscribe, encode_unsubscribe
from pamqp.commands import Basic, Channel, Confirm, Queue, Tx
from tests.server.amqp_stage import Client, House
from tests.server.test_turn_budget import Person

from headway.core.base.errors import Reason
from headway.core.consumer.feed import Feed
from headway.core.consumer.subscription import Subscription
from headway.core.log.lanes.cursor import Cursor
from headway.core.queue.queue import Queue as CoreQueue
from headway.server.amqp.channel import AmqpChannel
from headway.server.amqp.peer import AmqpPeer
from headway.server.connections.connection import Connection
from headway.server.mqtt.peer import MqttPeer
from headway.wire.mqtt.packets import TopicRequest

pytestmark = pytest.mark.usefixtures("few_objects")
SHORT_LIVED = (Subscription, Feed, Cursor, CoreQueue, Connection, MqttPeer, AmqpPeer, AmqpChannel)

Scene = Callable[[House], None]


def mqtt(house: House, *packets: bytes, name: str = "ann", capacity: float | None = None) -> Person:
    person = Person(house, name)
    if capacity is not None:
        person.sock.capacity = len(person.sock.taken) + capacity
    person.send(*packets)
    house.run()
    return person


def gone(person: Person, house: House) -> None:
    person.sock.incoming.append(b"")
    house.run()


def subscribed(*filters: str, qos: int = 0, **options: str) -> bytes:
    return encode_subscribe(1, [TopicRequest(one, qos) for one in filters], user=tuple(options.items()))


# -- MQTT --------------------------------------------------------------------------------------------------------------


def goodbye(house: House) -> None:
    mqtt(house, subscribed("a", "b/+", "c/#", qos=2), encode_publish("a", b"x"), encode_disconnect())


def no_goodbye(house: House) -> None:
    gone(mqtt(house, subscribed("a", qos=1), encode_publish("a", b"x", qos=1, packet_id=1)), house)


def unsubscribed(house: House) -> None:
    mqtt(house, subscribed("a", qos=1), encode_publish("a", b"x"), encode_unsubscribe(2, ["a"]), encode_disconnect())


def group(house: House) -> None:
    filters = "$share/g/a", "$share/h/a/#"
    one, two = mqtt(house, subscribed(*filters, qos=1)), mqtt(house, subscribed(*filters, qos=1), name="bob")
    mqtt(house, *(encode_publish("a", b"x") for _ in range(5)), encode_disconnect(), name="publisher")
    gone(one, house)
    gone(two, house)


def optional(house: House) -> None:
    options = {"selector": "n > 1", "lease": "50s", "snapshot": "true"}
    one = mqtt(house, subscribed("a", **options), subscribed("b", conflate="50ms"), subscribed("c", lease="1s"))
    mqtt(house, *(encode_publish(topic, b"x") for topic in "abc" * 5), encode_disconnect(), name="publisher")
    house.pass_time(2.0)
    gone(one, house)


def replaced(house: House) -> None:
    one = mqtt(house, subscribed("a", qos=1), capacity=100)
    mqtt(house, *(encode_publish("a", bytes(50)) for _ in range(50)), encode_disconnect(), name="publisher")
    one.send(subscribed("a", qos=2))
    house.run()
    gone(one, house)


def taken_over(house: House) -> None:
    mqtt(house, subscribed("a"))
    gone(mqtt(house, subscribed("b")), house)


def stuck(house: House) -> None:
    one = mqtt(house, subscribed("a", "b", qos=1), capacity=100)
    mqtt(house, *(encode_publish("a", bytes(5000)) for _ in range(50)), encode_disconnect(), name="publisher")
    house.pass_time(50.0)
    gone(one, house)


def at_fault(house: House) -> None:
    mqtt(house, subscribed("a"), b"\xf3\x00")
    mqtt(house, b"\x30\x05\x00\x03a", name="half").sock.incoming.append(b"")
    house.run()


def in_the_middle(house: House) -> None:
    """Of a SUBSCRIBE that takes several turns."""
    one = Person(house, "ann")
    one.send(subscribed(*(f"f/{number}" for number in range(500))))
    house.pretended.once()
    one.connection.close(Reason.CLIENT_GONE)
    house.run()


# -- AMQP --------------------------------------------------------------------------------------------------------------


def consumed(house: House) -> None:
    one = Client(house, "ann")
    one.declare("work")
    one.say(Basic.Consume(queue="work", consumer_tag="c"), Confirm.Select())
    one.put("work", b"1", b"2", b"3")
    one.say(Basic.Ack(1), Basic.Reject(2, requeue=True))
    one.say(Queue.Delete(queue="work"))
    one.leave()


def exclusive(house: House) -> None:
    one = Client(house, "ann", channels=2)
    one.declare("mine", exclusive=True, arguments={"x-max-priority": 3, "x-message-ttl": 5000, "x-expires": 100_000})
    one.say(Queue.Bind(queue="mine", exchange="amq.topic", routing_key="a.#"))
    one.put("a.b", b"1", b"2", exchange="amq.topic")
    one.say(Basic.Get(queue="mine"), Basic.Consume(queue="mine", consumer_tag="c"))
    one.say(Channel.Close(200, "bye", 0, 0))
    one.leave()


def transaction(house: House) -> None:
    one = Client(house, "ann")
    one.declare("work")
    one.say(Tx.Select())
    one.put("work", b"1")
    one.say(Tx.Commit())
    one.put("work", b"2")
    one.say(Channel.Open(), channel=2)
    one.say(Queue.Delete(queue="work"), channel=2)
    one.leave()


def channel_at_fault(house: House) -> None:
    """Its connection ends before the client has said that it knows."""
    one = Client(house, "ann")
    one.declare("work", exclusive=True)
    one.say(Basic.Consume(queue="work", consumer_tag="c"))
    one.put("work", b"1")
    one.say(Basic.Ack(77))
    one.leave()


def in_the_handshake(house: House) -> None:
    Client(house, "ann", begin=False).leave()
    one = Client(house, "bob", begin=False)
    one.send(b"HTTP/1.1")
    one.leave()


def out_of_use(house: House) -> None:
    one = Client(house, "ann")
    one.declare("old", {"x-expires": 1000})
    one.put("old", b"1")
    house.pass_time(5.0)
    one.leave()


SCENES = [
    goodbye, no_goodbye, unsubscribed, group, optional, replaced, taken_over, stuck, at_fault, in_the_middle,
    consumed, exclusive, transaction, channel_at_fault, in_the_handshake, out_of_use,
]  # fmt: skip


@pytest.fixture
def uncollected() -> Iterator[None]:
    """What is in a cycle stays until it is looked for, and is kept then."""
    gc.collect()
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def named(found: list[object]) -> Counter[str]:
    return Counter(type(one).__name__ for one in found if str(type(one).__module__).startswith("headway."))


def alive() -> Counter[str]:
    return named([one for one in gc.get_objects() if isinstance(one, SHORT_LIVED)])


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_nothing_is_left_of_what_is_over(scene: Scene) -> None:
    house = House('[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n')
    gc.collect()
    before = alive()
    scene(house)
    house.pass_time(1.0)
    house.pulse.look()  # it knows who took longest
    assert alive() - before == {}
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    assert named(gc.garbage) == {}
