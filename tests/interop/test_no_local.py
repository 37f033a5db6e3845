"""Subscriptions that leave out their own client's messages, over JMS, AMQP 1.0 and STOMP: the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from proton import Data, Described, Message, Timeout, symbol
from proton.reactor import Container, DurableSubscription, Filter
from proton.utils import BlockingConnection, LinkDetached
from tests.interop.conftest import BrokerFactory
from tests.interop.jms_client import Jms
from tests.interop.openwire_fixtures import LISTENERS, url_of
from tests.interop.process import BrokerProcess
from tests.interop.stomps import Client

pytest_plugins = ("tests.interop.openwire_fixtures",)

WHY = "noLocal is for subscriptions of one"
TIMEOUT_S = 10.0


@pytest.fixture(scope="module")
def broker(start: BrokerFactory) -> Iterator[BrokerProcess]:
    process = start(f'{LISTENERS}[listeners.stomp]\nurl = "stomp://127.0.0.1:0"\n')
    yield process
    process.stop()


@pytest.fixture
def name() -> str:
    return f"no.local.{uuid4().hex[:8]}"


def no_local() -> Filter:
    """As Qpid's clients for JMS write it."""
    what = "apache.org:no-local-filter:list"
    return Filter({symbol("no-local"): Described(symbol(what), [])})


class Shared(DurableSubscription):
    """A durable subscription that many links may share."""

    def apply(self, link: Any) -> None:
        super().apply(link)
        link.source.capabilities.put_array(False, Data.SYMBOL)
        link.source.capabilities.enter()
        link.source.capabilities.put_symbol(symbol("shared"))
        link.source.capabilities.exit()


def proton(broker: BrokerProcess, container_id: str) -> BlockingConnection:
    container = Container()
    container.container_id = container_id
    return BlockingConnection(f"amqp://127.0.0.1:{broker.ports['amqp']}", timeout=TIMEOUT_S, container=container)


def known_filters(receiver: Any) -> str:
    filters = receiver.link.remote_source.filter
    filters.rewind()
    return str(filters.get_object()) if filters.next() else ""


def test_jms(jms: Jms, broker: BrokerProcess, name: str) -> None:
    session = jms.session(jms.connect(url_of(broker), client_id=name))
    plain = jms.durable(session, f"topic://{name}", "all")
    deaf = [
        jms.durable(session, f"topic://{name}", "deaf", no_local=True),
        jms.consumer(session, f"topic://{name}", no_local=True),
    ]
    jms.send(jms.producer(session), session, "own", f"topic://{name}")
    other = jms.session(jms.connect(url_of(broker)))
    jms.send(jms.producer(other), other, "other", f"topic://{name}")
    assert [jms.got(consumer).body for consumer in deaf] == ["other", "other"]
    assert [jms.got(plain).body, jms.got(plain).body] == ["own", "other"]


def test_durable_subscriptions_of_amqp1(broker: BrokerProcess, name: str) -> None:
    """What comes while the client is away is kept. When it is back it leaves out what it sends then, on a connection
    that has another number, and without the filter it gets all."""
    other = proton(broker, f"{name}-other")
    others = other.create_sender(f"topic://{name}")

    def sub(client: BlockingConnection, *options: Filter) -> Any:
        return client.create_receiver(f"topic://{name}", name="sub", options=[DurableSubscription(), *options])

    for sent in ("before", "back"):
        one = proton(broker, name)
        deaf = sub(one, no_local())
        one.create_sender(f"topic://{name}").send(Message("own"))
        others.send(Message(sent))
        if sent == "back":
            assert deaf.receive().body == "away"
            deaf.accept()
        assert deaf.receive().body == sent
        deaf.accept()
        one.close()
        others.send(Message("away"))
    one = proton(broker, name)
    hears = sub(one)
    one.create_sender(f"topic://{name}").send(Message("own"))
    assert [hears.receive().body, hears.receive().body] == ["away", "own"]
    one.close()
    other.close()


def test_amqp1(broker: BrokerProcess, name: str) -> None:
    one, other = proton(broker, name), proton(broker, f"{name}-other")
    with pytest.raises(LinkDetached, match=WHY):
        one.create_receiver(f"topic://{name}", name="sub", options=[Shared(), no_local()])
    deaf = one.create_receiver(f"topic://{name}", options=no_local())
    assert "no-local" in known_filters(deaf)
    one.create_sender(f"topic://{name}").send(Message("own"))
    other.create_sender(f"topic://{name}").send(Message("other"))
    assert deaf.receive().body == "other"
    queue = one.create_receiver(f"queue://{name}", options=no_local())
    assert "no-local" not in known_filters(queue), "queues do not heed it, and say so"
    one.create_sender(f"queue://{name}").send(Message("own"))
    assert queue.receive().body == "own"
    with pytest.raises(Timeout):
        deaf.receive(timeout=0.1)
    one.close()
    other.close()


def test_amqp1_of_an_exchange(broker: BrokerProcess, name: str) -> None:
    one, other = proton(broker, name), proton(broker, f"{name}-other")
    deaf = one.create_receiver("exchange://amq.fanout", options=no_local())
    for client in (one, other):
        client.create_sender("exchange://amq.fanout").send(Message(client is other))
    assert deaf.receive().body is True
    one.close()
    other.close()


@pytest.mark.parametrize("header", ["no-local", "activemq.noLocal"])
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_stomp(broker: BrokerProcess, name: str, header: str, ack: str) -> None:
    one, other = Client(broker.ports["stomp"] or 0), Client(broker.ports["stomp"] or 0)
    one.subscribe(f"/topic/{name}", ack=ack, **{header: "true"})
    one.send(f"/topic/{name}", "own")
    other.send(f"/topic/{name}", "other")
    assert one.bodies(1) == ["other"]
    one.leave()
    other.leave()


def test_a_durable_subscription_of_stomp(broker: BrokerProcess, name: str) -> None:
    one = Client(broker.ports["stomp"] or 0, headers={"client-id": name})
    other = Client(broker.ports["stomp"] or 0)
    words = {"activemq.subscriptionName": "deaf", "activemq.noLocal": "true"}
    one.subscribe(f"/topic/{name}", ack="client", **words)
    one.send(f"/topic/{name}", "own")
    other.send(f"/topic/{name}", "other")
    assert one.bodies(1) == ["other"]
    one.leave()
    other.leave()


def test_a_shared_subscription_of_stomp(broker: BrokerProcess, name: str) -> None:
    one = Client(broker.ports["stomp"] or 0, headers={"client-id": name})
    words = {"durable": "true", "activemq.noLocal": "true"}
    one.conn.subscribe(f"/topic/{name}", id="s", ack="client", headers=words)
    assert WHY in one.error()[1]


def test_ends_of_their_clients_leave_nothing(broker: BrokerProcess, name: str) -> None:
    """Two clients share no lane, for each leaves out other messages."""
    clients = [Client(broker.ports["stomp"] or 0) for _ in range(2)]
    for client in clients:
        client.subscribe(f"/topic/{name}", ack="client", no_local="true")
    for number, client in enumerate(clients):
        client.send(f"/topic/{name}", f"{number}")
    assert [client.bodies(1) for client in clients] == [["1"], ["0"]]
    clients[0].leave()
    again = Client(broker.ports["stomp"] or 0)
    again.send(f"/topic/{name}", "again")
    assert clients[1].bodies(2) == ["0", "again"]
    again.leave()
    clients[1].leave()
