"""Subscriptions that leave out their own client's messages, over JMS, AMQP 1.0 and STOMP: the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
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


def kept(client: BlockingConnection, name: str, *options: Filter) -> Any:
    return client.create_receiver(f"topic://{name}", name="sub", options=[DurableSubscription(), *options])


def test_a_durable_subscription_of_amqp1(broker: BrokerProcess, name: str) -> None:
    """What comes while the client is away is kept, and what it sends when it is back is left out as before. Without the
    filter it is another subscription, which begins anew (JMS 2.0)."""
    one, other = proton(broker, name), proton(broker, f"{name}-other")
    kept(one, name, no_local())
    others = other.create_sender(f"topic://{name}")
    one.create_sender(f"topic://{name}").send(Message("own"))
    one.close()
    others.send(Message("away"))
    one = proton(broker, name)
    one.create_sender(f"topic://{name}").send(Message("own, before it subscribes"))
    deaf = kept(one, name, no_local())
    others.send(Message("back"))
    assert [deaf.receive().body, deaf.receive().body] == ["away", "back"]
    deaf.link.detach()
    one.close()
    one = proton(broker, name)
    hears = kept(one, name)
    one.create_sender(f"topic://{name}").send(Message("own"))
    assert hears.receive().body == "own"
    one.close()
    other.close()


def test_it_is_left_out_after_a_crash_too(start: BrokerFactory, tmp_path: Path, name: str) -> None:
    """What the journal has for another subscription does not come back to this one."""
    config = f'[listeners.amqp]\nurl = "amqp://127.0.0.1:0"\n[journal]\npath = "{tmp_path / "journal"}"\n'
    broker = start(config)
    one, other = proton(broker, name), proton(broker, f"{name}-other")
    kept(one, name, no_local())
    kept(other, name)
    for sent in range(4):
        client = (one, other)[sent % 2]
        client.create_sender(f"topic://{name}", name=f"{sent}").send(Message(sent, durable=True))
    broker.kill()
    broker = start(config)
    one, other = proton(broker, name), proton(broker, f"{name}-other")
    one.create_sender(f"topic://{name}").send(Message(4, durable=True))
    deaf, hears = kept(one, name, no_local()), kept(other, name)
    assert [deaf.receive().body for _ in range(2)] == [1, 3]
    assert [hears.receive().body for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(Timeout):
        deaf.receive(timeout=0.1)
    one.close()
    other.close()
    broker.stop()


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
@pytest.mark.parametrize("how", [
    {"ack": "auto"}, {"ack": "client"}, {"ack": "client-individual"},
    {"ack": "client", "activemq.subscriptionName": "deaf"},
], ids=["auto", "client", "individual", "durable"])  # fmt: skip
def test_stomp(broker: BrokerProcess, name: str, header: str, how: dict[str, str]) -> None:
    one, other = Client(broker.ports["stomp"] or 0, headers={"client-id": name}), Client(broker.ports["stomp"] or 0)
    one.subscribe(f"/topic/{name}", **{header: "true"}, **how)
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
