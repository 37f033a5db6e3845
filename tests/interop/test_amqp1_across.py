"""Messages across protocols: what AMQP 1.0 sends arrives by AMQP 0-9-1 and MQTT, and the other way round, with
properties and typed headers kept. Transactions, too. With proton, pika and paho."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from proton import Described, Message, Terminus, symbol
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, SenderOption
from proton.utils import BlockingConnection, BlockingSender, SendException
from tests.interop.amqp1_fixtures import Dial
from tests.interop.amqp_pika import Pika
from tests.interop.amqp_pika import properties as pika_properties
from tests.interop.pahos import paho, properties
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until

pytest_plugins = ("tests.interop.amqp1_fixtures",)

TYPED = {"text": "é", "number": 5, "big": 2**40, "flag": True}
"""No real number: pika writes none, and reads none as what it is."""


@pytest.fixture
def client(dial: Dial) -> BlockingConnection:
    return dial()


@pytest.fixture
def pika(amqp1_broker: BrokerProcess) -> Iterator[Pika]:
    opened = Pika(amqp1_broker.ports["amqp"] or 0)
    yield opened
    opened.close()


def test_to_amqp_0_9_1(client: BlockingConnection, pika: Pika, own_word: str) -> None:
    pika.queue(own_word, exclusive=False, durable=True)
    client.create_sender(own_word).send(Message(
        b"body", id=uuid.UUID(int=5), correlation_id="c", content_type="text/plain", content_encoding="gzip",
        subject="kind", creation_time=86_400.0, priority=6, durable=True, ttl=60, reply_to="replies", properties=TYPED,
        group_id="g",
    ))  # fmt: skip
    method, about, body = until(lambda: _got(pika, own_word))
    assert body == b"body"
    assert {name: about.headers[name] for name in TYPED} == TYPED
    assert about.headers["JMSXGroupID"] == "g"
    assert (about.message_id, about.correlation_id, about.type) == (str(uuid.UUID(int=5)), "c", "kind")
    assert (about.content_type, about.content_encoding, about.priority) == ("text/plain", "gzip", 6)
    assert (about.delivery_mode, about.expiration, about.reply_to, about.timestamp) == (2, "60000", "replies", 86_400)
    assert method.routing_key == own_word


def _got(pika: Pika, queue: str) -> Any:
    got = pika.channel.basic_get(queue, auto_ack=True)
    return got if got[0] is not None else None


@pytest.mark.parametrize("body", ["text", b"bytes", {"a": 1}], ids=["text", "bytes", "map"])
def test_from_amqp_1_0_through_a_queue_of_others_to_amqp_1_0(
    client: BlockingConnection, pika: Pika, own_word: str, body: Any
) -> None:
    """A queue bound by AMQP 0-9-1, where AMQP 1.0 publishes to the exchange, and reads."""
    pika.queue(own_word, exclusive=False, durable=True)
    pika.channel.queue_bind(own_word, "amq.direct", own_word)
    client.create_sender(f"/exchanges/amq.direct/{own_word}").send(Message(body, properties={"id": uuid.UUID(int=3)}))
    got = client.create_receiver(f"/queues/{own_word}").receive()
    assert (got.body, got.properties) == (body, {"id": uuid.UUID(int=3)})


def test_from_amqp_0_9_1(client: BlockingConnection, pika: Pika, own_word: str) -> None:
    of_queue, of_topic = client.create_receiver(own_word), client.create_receiver(f"topic://{own_word}.b")
    about = pika_properties(
        headers=TYPED, message_id="m", correlation_id="c", type="kind", content_type="text/plain", delivery_mode=2,
        priority=6, expiration="60000", timestamp=86_400, reply_to="replies", app_id="app",
    )  # fmt: skip
    pika.out.basic_publish("", own_word, b"body", about)
    pika.out.basic_publish("amq.topic", f"{own_word}.b", b"body", about)
    for receiver in (of_queue, of_topic):
        got = receiver.receive()
        assert bytes(got.body) == b"body"
        assert got.properties == {**TYPED, "app-id": "app"}
        assert (got.id, got.correlation_id, got.subject, got.content_type) == ("m", "c", "kind", "text/plain")
        assert (got.durable, got.priority, got.ttl, got.creation_time) == (True, 6, 60.0, 86_400.0)
        assert got.reply_to == "replies"


def test_mqtt_both_ways(amqp1_broker: BrokerProcess, client: BlockingConnection, own_word: str) -> None:
    port = amqp1_broker.ports["mqtt"] or 0
    with paho(port, own_word) as other:
        receiver = client.create_receiver(f"{own_word}/+")
        about = properties("PUBLISH", ContentType="text/plain", CorrelationData=b"c", ResponseTopic="re/ply")
        about.UserProperty = ("name", "value")
        other.client.publish(f"{own_word}/b", b"body", qos=1, properties=about)
        got = receiver.receive()
        assert (bytes(got.body), got.properties, got.content_type) == (b"body", {"name": "value"}, "text/plain")
        assert (got.correlation_id, got.reply_to) == ("c", "topic://re/ply")
        assert got.annotations[symbol("x-opt-headway-topic")] == f"{own_word}/b"
        other.subscribe(f"{own_word}/#", qos=1)
        said = {"correlation_id": "c", "reply_to": "topic://re.ply", "content_type": "text/x"}
        sent = Message("text", properties={**TYPED, "real": 1.5}, **said)
        client.create_sender(f"topic://{own_word}.c").send(sent)
        (message,) = other.wait(1)
    assert (message.payload, message.topic) == (b"text", f"{own_word}/c")
    user = dict(message.properties.UserProperty)
    assert {name: user[name] for name in (*TYPED, "real")} == {
        "text": "é", "number": "5", "big": str(2**40), "flag": "true", "real": "1.5",
    }  # fmt: skip
    assert (message.properties.CorrelationData, message.properties.ResponseTopic) == (b"c", "re/ply")
    assert message.properties.ContentType == "text/x"


# -- transactions ------------------------------------------------------------------------------------------------------


class Transacted(MessagingHandler, TransactionHandler):
    """Sends five messages and takes one in each of two transactions: the first fails, the second is committed."""

    def __init__(self, url: str, source: str, to: str) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.url, self.source, self.to = url, source, to
        self.outcomes: list[str] = []
        self.transaction: Any = None

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.conn = event.container.connect(self.url)
        self.sender = event.container.create_sender(self.conn, self.to)
        self.receiver = event.container.create_receiver(self.conn, self.source)
        event.container.declare_transaction(self.conn, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        for number in range(5):
            self.transaction.send(self.sender, Message(f"{len(self.outcomes)}-{number}"))
        self.receiver.flow(1)

    def on_message(self, event: Any) -> None:
        self.transaction.accept(event.delivery)
        if self.outcomes:
            self.transaction.commit()
        else:
            self.transaction.abort()

    def on_transaction_committed(self, event: Any) -> None:
        self.outcomes.append("committed")
        self.conn.close()

    def on_transaction_aborted(self, event: Any) -> None:
        self.outcomes.append("aborted")
        event.container.declare_transaction(self.conn, handler=self)


def test_transactions(amqp1_broker: BrokerProcess, client: BlockingConnection, own_word: str) -> None:
    source, to = f"{own_word}-in", f"{own_word}-out"
    sender = client.create_sender(source)
    for number in range(3):
        sender.send(Message(number))
    handler = Transacted(f"amqp://127.0.0.1:{amqp1_broker.ports['amqp']}", source, to)
    Container(handler).run()
    assert handler.outcomes == ["aborted", "committed"]
    receiver = client.create_receiver(to, credit=20)
    assert [receiver.receive().body for _ in range(5)] == [f"1-{number}" for number in range(5)]
    left = client.create_receiver(source, credit=20)
    assert sorted([left.receive().body for _ in range(2)]) in ([0, 2], [1, 2])




class ToTheCoordinator(SenderOption):
    def apply(self, sender: Any) -> None:
        sender.target.type = Terminus.COORDINATOR


def test_the_end_of_a_coordinator_link_ends_only_its_own_transactions(client: BlockingConnection) -> None:
    """A library has one for each of its sessions."""

    def said(link: BlockingSender, what: str, *values: Any) -> Any:
        return link.send(Message(body=Described(symbol(f"amqp:{what}:list"), list(values)))).remote.data

    one, other = (client.create_sender(None, name=name, options=ToTheCoordinator()) for name in ("one", "other"))
    [kept] = said(one, "declare", None)
    [left] = said(other, "declare", None)
    other.close()
    said(one, "discharge", kept, False)
    with pytest.raises(SendException):
        said(one, "discharge", left, False)
