"""The trace of a record goes through the broker unchanged: ``traceparent`` and ``tracestate`` (W3C Trace Context), from
any protocol to any other and to recorded records, so that a span of the consumer belongs to its publisher's trace."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection
from tests.interop.amqp_pika import Pika
from tests.interop.amqp_pika import properties as amqp_properties
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho, paho, properties
from tests.interop.process import BrokerProcess
from tests.interop.stomps import Client
from tests.interop.test_interop_events import Stream
from tests.interop.test_interop_writers import arrow, publish, stage
from tests.interop.waiting import PATIENCE_S, until

TRACE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "vendor=a:b;c,other@x=1",
}
TOPIC = "traced/a"
CONFIG = """
[listeners.auto]
url = "auto://127.0.0.1:0"
[journal]
path = "{folder}"
[[topic]]
filter = "traced/#"
key = "topic"
keep = "1d"
"""


@pytest.fixture(scope="module")
def traced(start: BrokerFactory, tmp_path_factory: pytest.TempPathFactory) -> BrokerProcess:
    return start(CONFIG.format(folder=tmp_path_factory.mktemp("journal")))


def by_mqtt(broker: BrokerProcess) -> None:
    about = properties("PUBLISH")
    about.UserProperty = list(TRACE.items())
    with paho(broker.port, "publisher") as client:
        client.publish(TOPIC, b"x", 1, properties=about)


def by_amqp(broker: BrokerProcess) -> None:
    client = Pika(broker.port)
    client.out.basic_publish("amq.topic", TOPIC.replace("/", "."), b"x", amqp_properties(headers=TRACE))
    client.close()


def by_amqp1(broker: BrokerProcess) -> None:
    client = BlockingConnection(f"amqp://127.0.0.1:{broker.port}", timeout=PATIENCE_S)
    client.create_sender(f"topic://{TOPIC.replace('/', '.')}").send(Message(b"x", properties=TRACE))
    client.close()


def by_stomp(broker: BrokerProcess) -> None:
    client = Client(broker.port)
    client.send(f"/topic/{TOPIC.replace('/', '.')}", "x", **TRACE)
    client.leave()


def by_http(broker: BrokerProcess) -> None:
    part = stage(broker, "w", arrow([(TOPIC, None, {"user": list(TRACE.items())}, b"x")]))
    publish(broker, "w", 1, part)


Publisher = Callable[[BrokerProcess], None]


def carried(found: Any) -> dict[str, str]:
    """``found``: headers, or pairs of names and values."""
    return {name: value for name, value in dict(found or {}).items() if name in TRACE}


class Everybody:
    """A consumer of each protocol, all of the same topic."""

    def __init__(self, broker: BrokerProcess, stack: ExitStack) -> None:
        self.broker = broker
        self.mqtt: Paho = stack.enter_context(paho(broker.port, "reader"))
        self.mqtt.subscribe(TOPIC, 1)
        self.pika = Pika(broker.port)
        stack.callback(self.pika.close)
        self.queue = self.pika.bound("amq.topic", TOPIC.replace("/", "."))
        self.amqp1 = BlockingConnection(f"amqp://127.0.0.1:{broker.port}", timeout=PATIENCE_S)
        stack.callback(self.amqp1.close)
        self.receiver = self.amqp1.create_receiver(f"topic://{TOPIC.replace('/', '.')}")
        self.stomp = Client(broker.port)
        stack.callback(self.stomp.leave)
        self.stomp.subscribe(f"/topic/{TOPIC.replace('/', '.')}")
        self.events = stack.enter_context(closing(Stream(broker, TOPIC)))
        self.events.until("snapshot_end")

    def traces(self) -> Iterator[tuple[str, dict[str, str]]]:
        """What each of them gets with the next record."""
        (of_mqtt,) = self.mqtt.wait(1)
        yield "mqtt", carried(of_mqtt.properties.UserProperty)
        yield "amqp", carried(until(lambda: self.pika.get(self.queue, auto_ack=True)).headers)
        yield "amqp1", carried(self.receiver.receive(PATIENCE_S).properties)
        self.stomp.bodies(1)
        yield "stomp", carried(self.stomp.heard.messages[0][0])
        (event,) = self.events.take(1)
        yield "events", carried(event.data["properties"]["user"])
        status, lines = self.broker.call("/v1/topics/traced%2F%23/records?format=json")
        assert status == 200
        yield "records", carried(json.loads(lines.splitlines()[-1])["properties"]["user"])


@pytest.mark.parametrize("publisher", [by_mqtt, by_amqp, by_amqp1, by_stomp, by_http], ids=lambda one: one.__name__)
def test_a_trace_goes_from_any_protocol_to_all(traced: BrokerProcess, publisher: Publisher) -> None:
    with ExitStack() as stack:
        everybody = Everybody(traced, stack)
        publisher(traced)
        assert dict(everybody.traces()) == dict.fromkeys(
            ("mqtt", "amqp", "amqp1", "stomp", "events", "records"), TRACE
        )  # fmt: skip
