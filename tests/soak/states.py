"""Worlds with keyed topics: thousands of readers that have stopped in a state which is full, keys that expire, displays
that all come at once for a snapshot, and one client that comes for a million keys."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import count, cycle
from selectors import EVENT_READ, DefaultSelector
from urllib.parse import urlsplit

import pika
from bench.wires.packets import encode_publish, encode_subscribe
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until
from tests.soak.worlds import Setting, beside, mqtt

TOPIC = '[[topic]]\nfilter = "state/#"\n'
CLIENTS, CONSUMERS = 100, 20
A_SECOND, AT_ONCE = 2000, 20
PAYLOAD = b"x" * 200
DISPLAYS, KEYS, READ_S = 300, 20_000, 6.0
MANY_KEYS, MANY_AT_ONCE = 1_000_000, 1000


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


@contextmanager
def displays(broker: BrokerProcess) -> Iterator[None]:
    """300 clients come at once, each for a snapshot of 20,000 keys; every third wants one key of a hundred. When they
    have read for six seconds, the next 300 come."""
    with closing(mqtt(broker, "first keys")) as sock:
        publish_keys(sock, count(), KEYS)
    until(lambda: broker.get("/v1/state/state%2F%23?top=0")["keys"] == KEYS, what="all keys are there")

    def come(over: threading.Event) -> None:
        wave = 0
        while not over.is_set():
            with ExitStack() as stack, DefaultSelector() as ready:
                for number in range(DISPLAYS):
                    sock = stack.enter_context(closing(mqtt(broker, f"display {wave} {number}")))
                    selector = () if number % 3 else (("selector", "topic LIKE '%00'"),)
                    sock.sendall(encode_subscribe(1, ["state/#"], user=(("snapshot", "true"), *selector)))
                    ready.register(sock, EVENT_READ)
                end = time.monotonic() + READ_S
                while time.monotonic() < end and not over.is_set():
                    for key, _ in ready.select(0.01):
                        key.fileobj.recv(1 << 17)  # type: ignore[union-attr]
            wave += 1

    with beside(come):
        yield


@contextmanager
def million(broker: BrokerProcess) -> Iterator[None]:
    """One client has a snapshot of a million keys sent to it as fast as it can read, again and again, while others
    change. In turn over MQTT, as a query over HTTP, and as server-sent events."""
    numbers = iter(range(MANY_KEYS))
    with closing(mqtt(broker, "first keys")) as sock:
        for start in range(0, MANY_KEYS, MANY_AT_ONCE):
            some = range(start, start + MANY_AT_ONCE)
            sock.sendall(b"".join(encode_publish(f"state/{next(numbers)}", PAYLOAD) for _ in some))
    until(lambda: broker.get("/v1/state/state%2F%23?top=0")["keys"] == MANY_KEYS, 600.0, "all keys are there")

    def come(over: threading.Event) -> None:
        for number in count():
            for way in (read_mqtt, read_query, read_events):
                way(broker, number, over)
                if over.is_set():
                    return

    with fresh_keys(broker, cycle(range(MANY_KEYS))), beside(come):
        yield


WHOLE = b"headway-records"
"""What only an end mark has."""


def read_mqtt(broker: BrokerProcess, number: int, over: threading.Event) -> None:
    """Reads a snapshot up to its end mark."""
    with closing(mqtt(broker, f"reader {number}")) as sock:
        sock.sendall(encode_subscribe(1, ["state/#"], user=(("snapshot", "true"), ("marks", "true"))))
        read_up_to(sock, WHOLE, over)


def read_query(broker: BrokerProcess, number: int, over: threading.Event) -> None:
    read_http(broker, "?format=jsonl", "*/*", b"\r\n0\r\n\r\n", over)


def read_events(broker: BrokerProcess, number: int, over: threading.Event) -> None:
    read_http(broker, "", "text/event-stream", b"event: snapshot_end", over)


def read_http(broker: BrokerProcess, query: str, accept: str, end: bytes, over: threading.Event) -> None:
    where = urlsplit(broker.admin)
    with closing(socket.create_connection((str(where.hostname), int(where.port or 0)))) as sock:
        sock.sendall(
            f"GET /v1/state/state%2F%23{query} HTTP/1.1\r\nHost: {where.netloc}\r\nAccept: {accept}\r\n\r\n".encode()
        )
        read_up_to(sock, end, over)


def read_up_to(sock: socket.socket, end: bytes, over: threading.Event) -> None:
    """Reads until these bytes come, or the world is over."""
    sock.settimeout(1.0)
    tail = b""
    while not over.is_set() and end not in tail:
        with suppress(TimeoutError):
            part = sock.recv(1 << 18)
            assert part, f"the broker closed the connection before the end: {tail[-300:]!r}"
            tail = tail[-len(end) :] + part


WORLDS = {
    "a million keys": Setting(million, "4GB", "1GB", TOPIC),
    "stopped in a state": Setting(stopped, "64MB", "256MB", TOPIC),
    "displays": Setting(displays, "64MB", "256MB", TOPIC),
    "keys that expire": Setting(expiring, "64MB", "256MB", TOPIC + 'expire = "1s"\n'),
}
