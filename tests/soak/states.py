"""Worlds with keyed topics: thousands of readers that have stopped in a state which is full, and keys that expire."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count

import pika
from bench.wires.packets import encode_publish
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until
from tests.soak.worlds import Setting, beside, mqtt

TOPIC = '[[topic]]\nfilter = "state/#"\n'
CLIENTS, CONSUMERS = 100, 20
A_SECOND, AT_ONCE = 2000, 20
PAYLOAD = b"x" * 200


def publish_keys(sock: socket.socket, numbers: Iterator[int], records: int) -> None:
    """Publishes so many records, each of a key of its own."""
    for start in range(0, records, AT_ONCE):
        some = range(start, min(start + AT_ONCE, records))
        sock.sendall(b"".join(encode_publish(f"state/{next(numbers)}", PAYLOAD) for _ in some))


@contextmanager
def fresh_keys(broker: BrokerProcess, numbers: Iterator[int]) -> Iterator[None]:
    """New keys all the time, as many a second as a feed has."""

    def publish(over: threading.Event) -> None:
        with closing(mqtt(broker, "fresh keys")) as sock:
            while not over.wait(AT_ONCE / A_SECOND):
                publish_keys(sock, numbers, AT_ONCE)

    with beside(publish):
        yield


@contextmanager
def stopped(broker: BrokerProcess) -> Iterator[None]:
    """2,000 consumers over AMQP get a snapshot that they do not read, and each new key evicts the oldest one."""
    numbers = count()
    with ExitStack() as stack:
        with closing(mqtt(broker, "first keys")) as sock:
            publish_keys(sock, numbers, 40_000)
        until(lambda: broker.get("/v1/state/state%2F%23?top=0")["evicted_keys"] > 0, what="a state at its limit")
        for _ in range(CLIENTS):
            connection = pika.BlockingConnection(
                pika.ConnectionParameters("127.0.0.1", broker.ports["amqp"], heartbeat=0)
            )
            stack.callback(connection._impl._transport.abort)
            channel = connection.channel()
            for _ in range(CONSUMERS):
                channel.basic_consume(
                    "amq.topic", lambda *_: None, auto_ack=True,
                    arguments={"x-headway-topics": "state.#", "x-headway-snapshot": "true"},
                )  # fmt: skip
        stack.enter_context(fresh_keys(broker, numbers))
        yield


@contextmanager
def expiring(broker: BrokerProcess) -> Iterator[None]:
    """As many keys expire in a second as come."""
    with fresh_keys(broker, count()):
        yield


WORLDS = {
    "stopped in a state": Setting(stopped, "64MB", "256MB", TOPIC),
    "keys that expire": Setting(expiring, "64MB", "256MB", TOPIC + 'expire = "1s"\n'),
}
