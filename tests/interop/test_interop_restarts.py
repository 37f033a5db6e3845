"""A rolling restart: the broker is asked to stop again and again while clients publish, and each of them comes back by
itself, as paho does and as a program around pika has to. Nothing that was confirmed is lost."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pika
import pytest
from bench.peers.peer import free_ports
from paho.mqtt.enums import CallbackAPIVersion
from pika.exceptions import AMQPError
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import properties
from tests.interop.waiting import PATIENCE_S, until

RESTARTS = 3
STEP = 60
"""Records that each publisher has confirmed between two restarts, at least."""
CONFIG = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:{mqtt}"
[listeners.amqp]
url = "amqp://127.0.0.1:{amqp}"
[journal]
path = "{folder}/journal"
"""


class Paho:
    """Publishes with QoS 1, and has what was not confirmed sent again when it is back."""

    def __init__(self, port: int, client_id: str) -> None:
        self.confirmed: set[int] = set()
        self.got: list[int] = []
        self._bodies: dict[int, int] = {}
        self._lock = threading.Lock()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id, protocol=mqtt.MQTTv5)
        self.client.reconnect_delay_set(1, 1)
        self.client.on_publish = self._published
        self.client.on_message = lambda _client, _data, message: self.got.append(int(message.payload))
        self.connect = properties("CONNECT", SessionExpiryInterval=3600)
        self.client.connect("127.0.0.1", port, clean_start=False, properties=self.connect)
        self.client.loop_start()
        until(self.client.is_connected)

    def publish(self, number: int) -> None:
        with self._lock:
            told = self.client.publish("orders/a", f"{number}", 1)
            self._bodies[told.mid] = number

    def _published(self, _client: Any, _data: Any, mid: int, code: Any, _properties: Any) -> None:
        with self._lock:
            if not code.is_failure:
                self.confirmed.add(self._bodies[mid])

    def end(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


class Pika(threading.Thread):
    """Publishes with confirms, and opens another connection when one ends. What was not confirmed is sent again."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self.confirmed: set[int] = set()
        self.going = True

    def run(self) -> None:
        nobody = threading.Event()
        while self.going:
            with suppress(AMQPError, OSError):
                self._publish()
            nobody.wait(0.05)  # between two tries

    def _publish(self) -> None:
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self._port)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("work", durable=True)
            while self.going:
                number = len(self.confirmed)
                channel.basic_publish("", "work", f"{number}".encode(), pika.BasicProperties(delivery_mode=2))
                self.confirmed.add(number)


@pytest.fixture
def ports() -> dict[str, int]:
    return dict(zip(("mqtt", "amqp"), free_ports(2), strict=True))


@pytest.fixture
def config(ports: dict[str, int], tmp_path: Path) -> str:
    return CONFIG.format(folder=tmp_path, **ports)


def test_clients_that_come_back_lose_nothing_that_was_confirmed(
    start: BrokerFactory, ports: dict[str, int], config: str
) -> None:
    broker = start(config)
    reader = Paho(ports["mqtt"], "reader")
    reader.client.subscribe("orders/#", 1)
    publisher, worker = Paho(ports["mqtt"], "publisher"), Pika(ports["amqp"])
    worker.start()
    sent = 0
    try:
        for restart in range(RESTARTS + 1):
            before = len(publisher.confirmed), len(worker.confirmed)

            def more(before: tuple[int, int] = before) -> bool:
                nonlocal sent
                if sent - len(publisher.confirmed) < 20:
                    publisher.publish(sent)
                    sent += 1
                return min(len(publisher.confirmed) - before[0], len(worker.confirmed) - before[1]) > STEP

            until(more, PATIENCE_S)
            if restart < RESTARTS:
                broker.stop()
                broker = start(config)
        worker.going = False
        worker.join(PATIENCE_S)
        until(lambda: len(publisher.confirmed) == sent, PATIENCE_S)
        until(lambda: set(reader.got) >= publisher.confirmed, PATIENCE_S)
    finally:
        worker.going = False
        publisher.end()
        reader.end()
    assert set(reader.got) == set(range(sent))
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", ports["amqp"])) as connection:
        channel = connection.channel()
        waiting = channel.queue_declare("work", passive=True).method.message_count
        jobs = {int(channel.basic_get("work", auto_ack=True)[2]) for _ in range(waiting)}
    assert jobs >= worker.confirmed
    assert jobs <= set(range(len(worker.confirmed) + 1)), "the last one may have come without its confirm"
    broker.stop()
