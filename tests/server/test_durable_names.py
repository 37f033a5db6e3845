"""Durable subscriptions whose names are joined by dots: two clients' may be one name, and are never one queue."""

from __future__ import annotations

import pytest
from tests.server import test_amqp1_greedy as amqp1
from tests.server.amqp_stage import House
from tests.server.greedy_stage import Greedy
from tests.wire import openwire_frames as frames

from headway.core.base import Reason
from headway.core.consumer import QueueTerms
from headway.server.openwire.peer import OpenWirePeer
from headway.server.stomp.peer import StompPeer
from headway.wire.amqp1.performatives import Attach, Detach, Source, Target
from headway.wire.amqp1.replies import write

REFUSED = b"is the durable subscription of another client"


@pytest.fixture
def house() -> House:
    return House()


class Stomp:
    def __init__(self, house: House, client: str) -> None:
        connect = f"CONNECT\naccept-version:1.2\nhost:x\nclient-id:{client}\n\n\0"
        self.one = Greedy(house, StompPeer, connect.encode())

    def subscribe(self, name: str, topic: str = "t") -> bytes:
        head = f"SUBSCRIBE\nid:0\nreceipt:r\ndestination:/topic/{topic}\nack:client\n"
        return self.one.say(f"{head}activemq.subscriptionName:{name}\n\n\0".encode())

    def end(self, name: str) -> bytes:
        return self.one.say(f"UNSUBSCRIBE\nid:0\nreceipt:r\nactivemq.subscriptionName:{name}\n\n\0".encode())


class Jms:
    def __init__(self, house: House, client: str) -> None:
        self.one = Greedy(house, OpenWirePeer, frames.wire_format() + frames.connection_info(client))

    def subscribe(self, name: str, topic: str = "t") -> bytes:
        return self.one.say(frames.consumer_info(frames.consumer_id(), frames.topic(topic), subscription=name))

    def end(self, name: str) -> bytes:
        fields = (frames.connection_id(), *map(frames.text, (name, self.one.connection.client)))
        return self.one.say(frames.frame(9, *fields))


class Amqp1:
    def __init__(self, house: House, client: str) -> None:
        self.one = amqp1.client(house, client)

    def subscribe(self, name: str, topic: str = "t") -> bytes:
        source = Source(f"topic://{topic}", durable=2, expiry_policy="never")
        return self.one.say(write(0, Attach(name, 0, True, 0, source=source, target=Target())))

    def end(self, name: str) -> bytes:
        """As a client that does not know the subscription any more: it attaches to the name alone, and closes that."""
        said = self.one.say(write(0, Attach(name, 1, True, 0, source=None, target=Target())))
        return said if REFUSED in said else said + self.one.say(write(0, Detach(1, True)))


PROTOCOLS = [Stomp, Jms, Amqp1]


@pytest.mark.parametrize("other", PROTOCOLS)
@pytest.mark.parametrize("first", PROTOCOLS)
def test_another_client_s_subscription_is_not_taken(house: House, first: type[Stomp], other: type[Stomp]) -> None:
    mine = first(house, "a")
    assert REFUSED not in mine.subscribe("b.c")
    mine.one.connection.close_gracefully(Reason.NORMAL, "")
    house.run()
    stomp = Stomp(house, "writer")
    for number in range(5):
        stomp.one.say(b"SEND\ndestination:/topic/t\npersistent:true\n\n%d\0" % number)
    assert house.stats("durable.a.b.c").records == 5
    for topic in ("t", "u"):
        assert REFUSED in other(house, "a.b").subscribe("c", topic)
    assert REFUSED in other(house, "a.b").end("c")
    assert house.stats("durable.a.b.c").records == 5


@pytest.mark.parametrize("other", PROTOCOLS)
@pytest.mark.parametrize("first", PROTOCOLS)
def test_one_client_has_it_over_each_protocol(house: House, first: type[Stomp], other: type[Stomp]) -> None:
    """What was made before a queue knew whose it is is anybody's who has the name."""
    mine = first(house, "a.b")
    mine.subscribe("c")
    queue = house.broker.registry.router.queues["durable.a.b.c"]
    assert queue.terms.subscriber == "a.b"
    mine.one.connection.close_gracefully(Reason.NORMAL, "")
    house.run()
    assert REFUSED not in other(house, "a.b").subscribe("c")
    assert house.broker.registry.router.queues["durable.a.b.c"] is queue
    queue.terms = QueueTerms(durable=True)
    assert REFUSED not in first(house, "a").subscribe("b.c")
