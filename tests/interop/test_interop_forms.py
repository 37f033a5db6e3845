"""Forms of records over MQTT 5, AMQP and server-sent events: the same for all three."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest
from tests.interop.amqp_pika import Pika
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho, paho, properties
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.test_interop_events import Stream
from tests.interop.view_stories import TOPIC

AMQP = '[listeners.amqp]\nurl = "amqp://127.0.0.1:0"\n'


@pytest.fixture(scope="module")
def keyed(start: BrokerFactory) -> BrokerProcess:
    return start(LISTENER + AMQP + TOPIC)


def follow(client: Paho, channel: Pika, **options: str) -> None:
    """Subscribes over MQTT and AMQP."""
    client.subscribe("flights/#", properties=properties("SUBSCRIBE", UserProperty=list(options.items())))
    told = {f"x-headway-{name}": value for name, value in options.items()}
    channel.consume("amq.topic", auto_ack=True, arguments={"x-headway-topics": "flights.#", **told})


def user_of(message: Any) -> dict[str, str]:
    return dict(getattr(message.properties, "UserProperty", []))


def test_a_projection_over_three_protocols(keyed: BrokerProcess) -> None:
    with (
        paho(keyed.ports["mqtt"], "publisher") as publisher, paho(keyed.ports["mqtt"], "watcher", 5) as watcher,
        closing(Pika(keyed.ports["amqp"])) as channel, closing(Stream(keyed, select="/delay")) as stream,
    ):  # fmt: skip
        stream.until("snapshot_end")
        follow(watcher, channel, select="/delay")
        publisher.publish("flights/a", json.dumps({"tailnum": "N1", "delay": 5, "dest": "LAX"}), 1)
        channel.put("flights.b", json.dumps({"tailnum": "N2", "dest": "LAX"}), exchange="amq.topic")
        events = stream.take(2)
        assert [(one.data["key"], json.loads(one.data["payload"])) for one in events] == [
            ("N1", {"delay": 5}), ("N2", {"delay": None}),
        ]  # fmt: skip
        assert [(user_of(one)["headway-key"], json.loads(one.payload)) for one in watcher.wait(2)] == [
            ("N1", {"delay": 5}), ("N2", {"delay": None}),
        ]  # fmt: skip
        assert [(one.headers["headway-key"], json.loads(one.body)) for one in channel.wait(2)] == [
            ("N1", {"delay": 5}), ("N2", {"delay": None}),
        ]  # fmt: skip
