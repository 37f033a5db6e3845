"""Selectors of consumers of queues and of durable subscriptions, and message groups, by clients that others wrote:
ActiveMQ's for JMS, stomp.py, proton and pika, at one broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Message
from proton.reactor import Container, DurableSubscription, Selector
from proton.utils import BlockingConnection
from tests.interop.amqp_pika import Pika, properties
from tests.interop.conftest import BrokerFactory
from tests.interop.jms_client import CLIENT, Jms, JmsError, needs_jms
from tests.interop.openwire_fixtures import LISTENERS, url_of
from tests.interop.process import BrokerProcess
from tests.interop.stomps import Client
from tests.interop.waiting import until

pytest_plugins = ("tests.interop.openwire_fixtures",)

NONE_COMES_MS = 200


@pytest.fixture(scope="module")
def broker(start: BrokerFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    config = f'{LISTENERS}[listeners.stomp]\nurl = "stomp://127.0.0.1:0"\n'
    process = start(f'{config}[journal]\npath = "{tmp_path_factory.mktemp("journal")}"\n')
    yield process
    process.stop()


@pytest.fixture
def pika(broker: BrokerProcess, name: str) -> Iterator[Pika]:
    """With the test's queue, for whatever the other clients do."""
    opened = Pika(broker.ports["amqp"] or 0)
    opened.queue(name, exclusive=False, durable=True)
    yield opened
    opened.close()


def put(pika: Pika, queue: str, *colours: str) -> None:
    for number, colour in enumerate(colours):
        pika.put(queue, f"{colour} {number}", headers={"colour": colour, "n": number}, content_type="text/plain")


@needs_jms
def test_jms_consumers_of_a_queue(jms: Jms, connection: str, pika: Pika, name: str) -> None:
    session = jms.session(connection, CLIENT)
    blue = jms.consumer(session, f"queue://{name}", "colour = 'blue'")
    put(pika, name, "red", "blue", "red", "blue")
    assert [jms.got(blue).body for _ in range(2)] == ["blue 1", "blue 3"]
    assert jms.receive(blue, NONE_COMES_MS) is None
    browser = jms.do("browse", session, f"queue://{name}", "colour = 'red'").split("\n")
    assert browser == ["red 0", "red 2"]
    late = jms.consumer(session, f"queue://{name}", "n < 2")
    got = jms.got(late)
    assert (got.body, got.redelivered) == ("red 0", False)
    jms.do("close", blue)
    rest = jms.consumer(session, f"queue://{name}")
    wanted = [jms.got(rest).body for _ in range(2)]
    assert wanted in (["red 2", "blue 3"], ["blue 1", "red 2"]), "blue 1 is for either, and they are ready at once"


@needs_jms
def test_a_durable_subscription_with_a_selector_is_made_anew_with_another(jms: Jms, broker: BrokerProcess) -> None:
    mine = jms.connect(url_of(broker), client_id="picky")
    session = jms.session(mine)
    topic = "topic://picky.topic"
    durable = jms.durable(session, topic, "d", "colour = 'blue'")
    producer = jms.producer(session, topic)

    def send(*colours: str) -> None:
        for colour in colours:
            jms.send(producer, session, colour, properties={"colour": f"string:{colour}"})

    send("red", "blue")
    assert jms.got(durable).body == "blue"
    assert jms.receive(durable, NONE_COMES_MS) is None
    jms.do("close", durable)
    send("blue", "red")
    durable = jms.durable(session, topic, "d", "colour = 'blue'")
    assert jms.got(durable).body == "blue", "kept while it was away"
    jms.do("close", durable)
    send("blue", "red")
    durable = jms.durable(session, topic, "d", "colour = 'red'")
    assert jms.receive(durable, NONE_COMES_MS) is None, "what waited for the other selector is gone"
    send("blue", "red")
    assert jms.got(durable).body == "red"
    with pytest.raises(JmsError, match="in use"):
        jms.durable(jms.session(mine), topic, "d", "colour = 'blue'")
    jms.do("close", durable)
    jms.do("unsubscribe", session, "d")
    jms.do("close", mine)


def test_stomp(broker: BrokerProcess, pika: Pika, name: str) -> None:
    put(pika, name, "red", "blue", "red", "blue")
    client = Client(broker.ports["stomp"] or 0)
    client.subscribe(f"/queue/{name}", ack="client-individual", selector="colour = 'blue'")
    assert client.bodies(2) == ["blue 1", "blue 3"]
    other = Client(broker.ports["stomp"] or 0)
    other.subscribe(f"/queue/{name}", selector="n >= 2")
    assert other.bodies(1) == ["red 2"]
    client.refuse(0)
    client.leave()
    third = Client(broker.ports["stomp"] or 0)
    third.subscribe(f"/queue/{name}", selector="colour = 'blue' AND n < 2")
    assert third.bodies(1) == ["blue 1"], "given back, and then selected by another"
    other.leave()
    third.leave()


def test_a_durable_subscription_of_stomp(broker: BrokerProcess, name: str) -> None:
    def join() -> Client:
        return Client(broker.ports["stomp"] or 0, headers={"client-id": name})

    named = {"activemq.subscriptionName": "s"}
    first = join()
    first.subscribe(f"/topic/{name}", ack="client-individual", selector="colour = 'blue'", **named)
    first.leave()
    sender = Client(broker.ports["stomp"] or 0)
    for colour in ("red", "blue"):
        sender.send(f"/topic/{name}", colour, colour=colour)
    again = join()
    again.subscribe(f"/topic/{name}", ack="client-individual", selector="colour = 'blue'", **named)
    assert again.bodies(1) == ["blue"]
    again.leave()
    changed = join()
    changed.subscribe(f"/topic/{name}", selector="colour = 'red'", **named)
    for colour in ("blue", "red"):
        sender.send(f"/topic/{name}", f"later {colour}", colour=colour)
    assert changed.bodies(1) == ["later red"]
    changed.leave()
    sender.leave()


def test_amqp_1_0(broker: BrokerProcess, pika: Pika, name: str) -> None:
    put(pika, name, "red", "blue", "red", "blue")
    def dial() -> BlockingConnection:
        container = Container()
        container.container_id = name
        return BlockingConnection(f"amqp://127.0.0.1:{broker.ports['amqp']}", timeout=30, container=container)

    client = dial()
    blue = client.create_receiver(f"queue://{name}", options=Selector("colour = 'blue'"), credit=10)
    for body in (b"blue 1", b"blue 3"):
        message = blue.receive()  # its body is a view of it
        assert bytes(message.body) == body
    green = client.create_receiver(f"queue://{name}", options=Selector("colour = 'green'"), credit=0, name="green")
    green.link.drain(5)
    client.wait(lambda: not green.link.draining(), msg="the credit is used up, for nothing matches")
    durable = [DurableSubscription(), Selector("colour = 'red'")]
    client.create_receiver(f"topic://{name}", name="d", options=durable).detach()
    sender = client.create_sender(f"topic://{name}")
    for colour in ("blue", "red"):
        sender.send(Message(colour, properties={"colour": colour}))
    client.close()
    client = dial()
    again = client.create_receiver(f"topic://{name}", name="d", options=durable)
    assert again.receive().body == "red"
    again.detach()
    client.close()
    client = dial()
    changed = client.create_receiver(f"topic://{name}", name="d", options=[durable[0], Selector("colour = 'blue'")])
    client.create_sender(f"topic://{name}").send(Message("new", properties={"colour": "blue"}))
    assert changed.receive().body == "new", "another selector, another subscription"
    client.close()


def test_amqp_0_9_1(broker: BrokerProcess, pika: Pika, name: str) -> None:
    got: list[tuple[str, bytes]] = []

    def hear(tag: str, selector: str) -> None:
        def note(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            got.append((tag, body))

        pika.channel.basic_consume(
            name, note, auto_ack=True, consumer_tag=tag, arguments={"x-headway-selector": selector}
        )

    hear("blue", "colour = 'blue'")
    hear("late", "colour = 'red' AND n > 1")
    put(pika, name, "red", "blue", "red", "blue")

    def three() -> bool:
        pika.connection.process_data_events(0.05)
        return len(got) >= 3

    until(three)
    assert sorted(got) == [("blue", b"blue 1"), ("blue", b"blue 3"), ("late", b"red 2")]
    assert pika.channel.basic_get(name, auto_ack=True)[2] == b"red 0"


@needs_jms
def test_jms_message_groups(jms: Jms, connection: str, name: str) -> None:
    session = jms.session(connection)
    queue = f"queue://{name}"
    consumers = [jms.consumer(session, queue) for _ in range(2)]
    producer = jms.producer(session, queue)

    def send(body: str, sequence: int) -> None:
        jms.send(producer, session, body, properties={"JMSXGroupID": "string:a", "JMSXGroupSeq": f"int:{sequence}"})

    send("1", 1)
    owner = next(one for one in consumers * 10 if jms.receive(one, 100) is not None)
    assert jms.do("property", owner, "JMSXGroupFirstForConsumer") == "true"
    other = next(one for one in consumers if one != owner)
    for number in range(2, 6):
        send(str(number), number)
    assert [jms.got(owner).body for _ in range(4)] == ["2", "3", "4", "5"]
    assert jms.do("property", owner, "JMSXGroupFirstForConsumer") == "false"
    assert jms.do("property", owner, "JMSXGroupID") == "a"
    assert jms.receive(other, NONE_COMES_MS) is None
    jms.do("close", owner)
    send("6", 6)
    assert jms.got(other).body == "6"
    assert jms.do("property", other, "JMSXGroupFirstForConsumer") == "true"
    send("7", -1)
    assert jms.got(other).body == "7"
    send("8", 1)
    assert jms.got(other).body == "8"
    assert jms.do("property", other, "JMSXGroupFirstForConsumer") == "true", "7 closed the group"


def test_message_groups_of_stomp_and_amqp_1_0(broker: BrokerProcess, pika: Pika, name: str) -> None:
    clients = [Client(broker.ports["stomp"] or 0) for _ in range(2)]
    for client in clients:
        client.subscribe(f"/queue/{name}", ack="client-individual")
    for number in range(20):
        clients[0].send(f"/queue/{name}", f"{number}", JMSXGroupID=f"g{number % 4}")
    link = BlockingConnection(f"amqp://127.0.0.1:{broker.ports['amqp']}", timeout=30)
    sender = link.create_sender(f"queue://{name}")
    for number in range(20, 40):
        sender.send(Message(f"{number}", group_id=f"g{number % 4}", properties={"n": number}))
    until(lambda: sum(len(client.heard.messages) for client in clients) >= 40)
    for client in clients:
        numbers = [int(body) for _, body in client.heard.messages]
        assert numbers == sorted(numbers)
        assert len({number % 4 for number in numbers}) == 2, "two groups each"
        first = [headers for headers, _ in client.heard.messages if "JMSXGroupFirstForConsumer" in headers]
        assert {headers["JMSXGroupFirstForConsumer"] for headers in first} == {"true"}
        assert len(first) == 2
    assert len({body for client in clients for _, body in client.heard.messages}) == 40
    link.close()
    for client in clients:
        client.leave()


# -- virtual topics, and wildcards -------------------------------------------------------------------------------------


@needs_jms
def test_virtual_topics_of_jms_and_stomp(jms: Jms, connection: str, broker: BrokerProcess, name: str) -> None:
    topic = f"VirtualTopic.{name}"
    session = jms.session(connection)
    first = [jms.consumer(session, f"queue://Consumer.A.{topic}") for _ in range(2)]
    other = Client(broker.ports["stomp"] or 0)
    other.subscribe(f"/queue/Consumer.B.{topic}")
    wide = jms.consumer(session, "queue://Consumer.C.VirtualTopic.>")
    plain = jms.consumer(session, f"topic://{topic}")
    producer = jms.producer(session, f"topic://{topic}")
    for number in range(6):
        jms.send(producer, session, str(number))
    shared = [jms.drain(one, 3) for one in first]
    assert sorted(shared[0] + shared[1]) == [*map(str, range(6))], "the consumers of A share"
    assert other.bodies(6) == [*map(str, range(6))]
    assert jms.drain(plain, 6) == [*map(str, range(6))], "it is a topic as well"
    assert jms.drain(wide, 6) == [*map(str, range(6))]
    jms.do("close", first[0])
    jms.do("close", first[1])
    other.send(f"/topic/{topic}", "kept", persistent="true", content_type="text/plain")
    assert jms.got(jms.consumer(session, f"queue://Consumer.A.{topic}")).body == "kept"
    other.leave()


@needs_jms
def test_a_consumer_with_wildcards_gets_queues_that_are_made_later(
    jms: Jms, connection: str, broker: BrokerProcess, name: str
) -> None:
    session = jms.session(connection)
    consumer = jms.consumer(session, f"queue://{name}.*")
    producer = jms.producer(session)
    for queue in ("x", "y"):
        jms.send(producer, session, queue, f"queue://{name}.{queue}")
        assert jms.got(consumer).body == queue
    jms.send(producer, session, "deeper", f"queue://{name}.x.y")
    client = Client(broker.ports["stomp"] or 0)
    client.send(f"/queue/{name}.z", "of stomp", content_type="text/plain")
    assert jms.got(consumer).body == "of stomp"
    assert jms.receive(consumer, NONE_COMES_MS) is None
    client.leave()
    jms.do("close", consumer)
    jms.send(producer, session, "after", f"queue://{name}.late")
    assert jms.got(jms.consumer(session, f"queue://{name}.late")).body == "after"


def test_what_was_selected_stays_settled_over_a_restart(start: BrokerFactory, tmp_path_factory: Any) -> None:
    config = f'{LISTENERS}[journal]\npath = "{tmp_path_factory.mktemp("journal")}"\n'
    broker = start(config)
    client = Pika(broker.ports["amqp"] or 0)
    client.queue("kept", exclusive=False, durable=True)
    for number in range(600):
        client.out.basic_publish("", "kept", b"%d" % number, properties(
            delivery_mode=2, headers={"n": number % 3, "JMSXGroupID": "g" if number == 400 else ""},
        ))  # fmt: skip
    got: list[tuple[int, int]] = []

    def note(channel: Any, method: Any, about: Any, body: bytes) -> None:
        got.append((int(body), method.delivery_tag))

    client.channel.basic_qos(prefetch_count=50)
    client.channel.basic_consume("kept", note, arguments={"x-headway-selector": "n = 1"})
    until(lambda: client.connection.process_data_events(0.05) or len(got) >= 50)
    assert [number for number, _ in got[:50]] == [*range(1, 150, 3)]
    client.channel.basic_ack(got[24][1], multiple=True)
    until(lambda: client.connection.process_data_events(0.05) or len(got) >= 75)
    client.close()
    broker.stop()
    again = start(config)
    other = Pika(again.ports["amqp"] or 0)
    found = [number for number in range(600) if number % 3 != 1 or number > 73]
    bodies = []
    while (one := other.get("kept", auto_ack=True)) is not None:
        bodies.append(int(one.body))
    assert bodies == found
    other.close()
    again.stop()


@needs_jms
def test_a_client_that_asks_for_each_message_waits_until_all_were_looked_at(
    jms: Jms, connection: str, pika: Pika, name: str
) -> None:
    for _ in range(3000):
        pika.channel.basic_publish("", name, "x", properties(headers={"colour": "red"}))
    pika.put(name, "last", headers={"colour": "blue"}, content_type="text/plain")
    until(lambda: pika.count(name)[0] == 3001)
    session = jms.session(connection)
    consumer = jms.consumer(session, f"queue://{name}?consumer.prefetchSize=0", "colour = 'blue'")
    got = jms.receive(consumer, 1)
    assert got is not None
    assert got.body == "last"
    assert jms.receive(consumer, 1) is None
