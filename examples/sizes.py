"""What things cost in a broker's memory, on this machine: starts brokers, makes many of a kind in each, and divides the
growth of resident memory by their number.

    .venv/bin/python examples/sizes.py            # a minute; needs paho-mqtt and pika: pip install 'headway[dev]'
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import paho.mqtt.client as mqtt
import pika
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

CONFIG = """
[server]
admin = "http://127.0.0.1:0"
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
subscriptions_max = 100_000
[listeners.amqp]
url = "amqp://127.0.0.1:0"
[pool]
memory = "500MB"
disk_path = "{folder}"
[journal]
path = "{folder}/journal"
fsync = "off"
[[topic]]
filter = "keyed/#"
key = "topic"
"""
PAYLOAD = b"x" * 128
HOUR_S = 3600


class Broker:
    def __init__(self, folder: str) -> None:
        config, ready = Path(folder, "headway.toml"), Path(folder, "ready.json")
        config.write_text(CONFIG.format(folder=folder))
        command = [sys.executable, "-m", "headway", "serve", "-c", str(config), "--ready-file", str(ready)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not ready.exists():
            if self.process.poll() is not None:
                raise SystemExit("the broker did not start")
            time.sleep(0.05)
        told = json.loads(ready.read_text())
        self.ports = {name: urllib.parse.urlsplit(url).port or 0 for name, url in told["listeners"].items()}
        self._admin = told["admin"]

    def memory_bytes(self) -> int:
        with urllib.request.urlopen(f"{self._admin}/v1/broker", timeout=60) as answer:
            found: int = json.load(answer)["memory_rss_bytes"]
        return found

    def settled(self, least: float) -> int:
        """Returns the memory when it has stopped growing."""
        before, now = 0, self.memory_bytes()
        while now - before > least:
            time.sleep(1.0)
            before, now = now, self.memory_bytes()
        return now

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


class Client:
    """A client of MQTT whose loop is run by hand."""

    def __init__(self, broker: Broker, name: str, expiry_s: int = 0) -> None:
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, name, protocol=mqtt.MQTTv5)
        about = Properties(PacketTypes.CONNECT)
        about.SessionExpiryInterval = expiry_s
        self.client.max_inflight_messages_set(1000)
        self.client.connect("127.0.0.1", broker.ports["mqtt"], clean_start=True, properties=about)
        self.run(self.client.is_connected)

    def run(self, until: Callable[[], object]) -> None:
        while not until():
            self.client.loop(0.1)

    def subscribe(self, filters: list[str]) -> None:
        done: list[int] = []
        self.client.on_subscribe = lambda _client, _data, mid, _codes, _about: done.append(mid)
        for at in range(0, len(filters), 100):
            self.client.subscribe([(filter, 1) for filter in filters[at : at + 100]])
            self.run(lambda at=at: len(done) > at // 100)

    def publish(self, topics: list[str], *, retain: bool = False) -> None:
        """Each of them once, confirmed."""
        for at in range(0, len(topics), 500):
            told = [self.client.publish(topic, PAYLOAD, 1, retain) for topic in topics[at : at + 500]]
            self.run(lambda told=told: all(one.is_published() for one in told))


def sessions_away(broker: Broker, count: int) -> Any:
    for number in range(count):
        client = Client(broker, f"away-{number}", HOUR_S)
        client.subscribe([f"away/{number}"])
        client.client.disconnect()
        client.run(lambda client=client: not client.client.is_connected())


def filters(broker: Broker, count: int) -> Any:
    client = Client(broker, "reader")
    client.subscribe([f"own/{number}/+" for number in range(count)])
    return client


def groups(broker: Broker, count: int) -> Any:
    client = Client(broker, "reader")
    client.subscribe([f"$share/group-{number}/hot" for number in range(count)])
    return client


def topics(broker: Broker, count: int) -> Any:
    reader, writer = Client(broker, "reader"), Client(broker, "writer")
    reader.subscribe(["many/#"])
    writer.publish([f"many/{number}" for number in range(count)])
    return reader


def retained(broker: Broker, count: int) -> Any:
    Client(broker, "writer").publish([f"board/{number}" for number in range(count)], retain=True)


def keys(broker: Broker, count: int) -> Any:
    Client(broker, "writer").publish([f"keyed/{number}" for number in range(count)])


def waiting(broker: Broker, count: int) -> Any:
    client = Client(broker, "away", HOUR_S)
    client.subscribe(["waiting"])
    client.client.disconnect()
    client.run(lambda: not client.client.is_connected())
    Client(broker, "writer").publish(["waiting"] * count)


def queues(broker: Broker, count: int) -> Any:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.ports["amqp"], heartbeat=0))
    channel = connection.channel()
    for number in range(count):
        channel.queue_declare(f"queue-{number}", durable=True)
    return connection


class Case(NamedTuple):
    what: str
    make: Callable[[Broker, int], Any]
    count: int


CASES = [
    Case("a durable session that is away, with one subscription", sessions_away, 1_000),
    Case("a subscription with a filter of its own", filters, 10_000),
    Case("a shared subscription with a group of its own", groups, 5_000),
    Case("a topic that is published to, beside the filter that it matches", topics, 20_000),
    Case("a retained record of 128 bytes, journaled", retained, 20_000),
    Case("a key of a state, with a record of 128 bytes", keys, 20_000),
    Case("a record of 128 bytes that waits for a durable session", waiting, 20_000),
    Case("a durable queue", queues, 3_000),
]


def main() -> None:
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            broker = Broker(folder)
            try:
                before = broker.settled(1e5)
                kept = case.make(broker, case.count)
                grown = broker.settled(1e5) - before
                print(f"| {case.what} | {case.count:,} | {grown / case.count / 1000:.2f} kB |", flush=True)
                del kept
            finally:
                broker.stop()


if __name__ == "__main__":
    main()
