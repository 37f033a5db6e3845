"""Forms of records over MQTT 5, AMQP and server-sent events: the same for all three."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pika.exceptions import NackError
from tests.interop.amqp_pika import Pika
from tests.interop.amqp_pika import properties as pika_properties
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho, paho, properties
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.test_interop_events import Stream
from tests.interop.view_stories import TOPIC
from tests.interop.waiting import until

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


def test_deltas_over_three_protocols(start: BrokerFactory) -> None:
    broker = start(LISTENER + AMQP + TOPIC)
    pad, patch = {"dest": "LAX" * 40}, {"tailnum": "N1", "delay": 2}
    with (
        paho(broker.ports["mqtt"], "publisher") as publisher, paho(broker.ports["mqtt"], "watcher", 5) as watcher,
        closing(Pika(broker.ports["amqp"])) as channel, closing(Stream(broker, delta="true")) as stream,
    ):  # fmt: skip
        stream.until("snapshot_end")
        follow(watcher, channel, delta="true")
        publisher.publish("flights/a", json.dumps({"tailnum": "N1", "delay": 1} | pad), 1)
        publisher.publish("flights/a", json.dumps({"tailnum": "N1", "delay": 2} | pad), 1)
        last = json.dumps({"tailnum": "N1", "delay": 3} | pad)
        channel.put("flights.a", last, exchange="amq.topic", headers={"n": 5})
        first, second, third = stream.take(3)
        assert [first.name, second.name, third.name] == ["", "delta", "delta"]
        assert (second.data["key"], json.loads(second.data["payload"])) == ("N1", patch)
        first, second, third = watcher.wait(3)
        assert "headway-event" not in user_of(first)
        assert user_of(second) == {"headway-event": "delta", "headway-key": "N1"}
        assert (json.loads(second.payload), json.loads(third.payload)) == (patch, patch | {"delay": 3})
        first, second, third = channel.wait(3)
        assert "headway-event" not in first.headers
        assert third.headers == {"headway-event": "delta", "headway-key": "N1", "n": 5}
        assert (json.loads(second.body), json.loads(third.body)) == (patch, patch | {"delay": 3})
        with channel.refused(406):
            channel.consume(channel.queue(), arguments={"x-headway-delta": "true"})


def merge(client: Paho, **change: object) -> str:
    """Publishes a patch at QoS 1. Returns the name of the reason code."""
    codes: dict[int, str] = {}
    client.client.on_publish = lambda _c, _d, number, code, _p: codes.__setitem__(number, str(code))
    told = properties("PUBLISH", UserProperty=[("merge", "true")])
    number = client.client.publish("flights/a", json.dumps(change), 1, properties=told).mid
    return until(lambda: codes.get(number), what="PUBACK") or ""


def test_patches_are_merged_or_refused_and_a_restart_changes_nothing(start: BrokerFactory, tmp_path: Path) -> None:
    config = LISTENER + AMQP + TOPIC + f'keep = "1d"\n[journal]\npath = "{tmp_path / "journal"}"\n'
    broker = start(config)
    with (
        paho(broker.ports["mqtt"], "publisher") as publisher, paho(broker.ports["mqtt"], "watcher") as watcher,
        closing(Pika(broker.ports["amqp"])) as channel,
    ):  # fmt: skip
        follow(watcher, channel)
        publisher.publish("flights/a", b'{"tailnum":"N1","delay":1,"dest":"LAX"}', 1)
        assert merge(publisher, tailnum="N1", delay=2) == "Success"
        assert merge(publisher, tailnum="N9", delay=2) == "Implementation specific error"
        assert merge(publisher, delay=2) == "Payload format invalid"
        channel.put("flights.a", b'{"tailnum":"N1","gate":7}', exchange="amq.topic", headers={"merge": True, "n": 5})
        with pytest.raises(NackError):
            channel.put("flights.a", b'{"tailnum":"N8"}', exchange="amq.topic", headers={"merge": True})
        *_, last = watcher.wait(3)
        assert last.payload == b'{"tailnum":"N1","delay":2,"dest":"LAX","gate":7}'
        *_, same = channel.wait(3)
        assert (same.body, same.headers) == (last.payload, {"n": 5})
        with channel.refused(406):
            told = pika_properties(headers={"merge": True})
            channel.channel.basic_publish("amq.topic", "flights.a", b'{"tailnum":"N8"}', told)
            channel.channel.basic_qos(prefetch_count=1)
    broker.kill()
    broker = start(config)
    with paho(broker.ports["mqtt"], "publisher") as publisher, paho(broker.ports["mqtt"], "watcher") as watcher:
        watcher.subscribe("flights/#")
        assert merge(publisher, tailnum="N1", dest=None) == "Success"
        assert [one.payload for one in watcher.wait(1)] == [b'{"tailnum":"N1","delay":2,"gate":7}']
