"""Worlds of clients that have the broker keep much for them alone, and of many that are cut at once (see worlds.py)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pika
from bench.wires.packets import connect, encode_connect, encode_publish, encode_subscribe
from pika import spec
from tests.interop.process import BrokerProcess
from tests.soak.worlds import Setting, beside, leave, mqtt, subscribe

from headway.wire.mqtt.packets import Connect, TopicRequest, WillMessage

CUT_AFTER_3_S = """
[[policy]]
name = "stuck"
topics = ["large"]
[[policy.rule]]
when = { blocked_time = "3s" }
then = "disconnect"
"""
MEGABYTE = bytes(990_000)


@contextmanager
def cut(broker: BrokerProcess, *, qos: int = 0, keep: bool = False) -> Iterator[None]:
    """1,000 clients stuck in records of a megabyte; while the canary sings all of them are cut."""
    stuck = []
    for number in range(1000):
        sock = mqtt(broker, f"stuck {number}", keep=keep, buffer=4096)
        sock.sendall(encode_subscribe(1, [TopicRequest("large", qos)]))
        assert sock.recv(100)[0] == 0x90
        stuck.append(sock)

    def publish(over: threading.Event) -> None:
        sock = mqtt(broker, "publisher")
        sock.settimeout(0.5)
        over.wait(2)
        for number in range(5):
            frame = encode_publish("large", MEGABYTE, qos=min(1, qos), packet_id=number + 1 if qos else 0)
            at = 0
            while at < len(frame) and not over.is_set():
                try:
                    at += sock.send(frame[at:])
                except TimeoutError:
                    continue

    with beside(publish):
        yield
    stuck.clear()


@contextmanager
def parts(broker: BrokerProcess) -> Iterator[None]:
    """600 clients with a megabyte each, of which all but the end has been sent; then all of them bring the rest."""
    frame = encode_publish("parts", MEGABYTE)
    clients = [mqtt(broker, f"part {number}") for number in range(600)]
    sent = [0] * len(clients)
    for sock in clients:
        sock.setblocking(False)

    def bring(over: threading.Event) -> None:
        waits_until = time.monotonic() + 5
        while not over.is_set() and min(sent) < len(frame):
            upto = len(frame) - 10_000 if time.monotonic() < waits_until else len(frame)
            for number, sock in enumerate(clients):
                try:
                    sent[number] += sock.send(frame[sent[number] : min(sent[number] + 50_000, upto)])
                except BlockingIOError:
                    continue
            over.wait(0.01)

    with beside(bring):
        yield
    clients.clear()


@contextmanager
def subscriptions(broker: BrokerProcess) -> Iterator[None]:
    """100 clients ask for 1,000 filters each: as many as there is room for are granted."""
    socks: list[socket.socket] = []

    def ask(over: threading.Event) -> None:
        for number in range(100):
            sock = socket.create_connection(("127.0.0.1", broker.ports["mqtt"]))
            sock.sendall(connect(f"subscriber {number}"))
            if sock.recv(4096)[3]:
                return  # there is no room for one more client
            subscribe(sock, [f"subscriptions/{number}/{part}" for part in range(1000)])
            socks.append(sock)
            if over.is_set():
                return

    with beside(ask):
        yield
    socks.clear()


@contextmanager
def wills(broker: BrokerProcess) -> Iterator[None]:
    """5,000 clients with a will of 64 kB: as many as there is room for are let in."""
    will = WillMessage("wills", bytes(60_000))
    yield from _many(broker, 5000, lambda number: Connect(5, f"mortal {number}", True, 0, will=will))


@contextmanager
def names(broker: BrokerProcess) -> Iterator[None]:
    """1,500 clients whose ids have 65,000 letters, and 1,500 with as many as are allowed."""
    yield from _many(broker, 3000, lambda number: Connect(
        5, f"{number} ".ljust(1024 if number % 2 else 65_000, "x"), True, 0))  # fmt: skip


def _many(broker: BrokerProcess, count: int, who: Callable[[int], Connect]) -> Iterator[None]:
    socks: list[socket.socket] = []

    def come(over: threading.Event) -> None:
        for number in range(count):
            sock = socket.create_connection(("127.0.0.1", broker.ports["mqtt"]))
            sock.sendall(encode_connect(who(number)))
            assert sock.recv(4096)[0] == 0x20
            socks.append(sock)
            if over.is_set():
                return
        while not over.is_set():
            broker.call("/metrics")
            over.wait(1)

    with beside(come):
        yield
    socks.clear()


@contextmanager
def own_queues(broker: BrokerProcess) -> Iterator[None]:
    """A client with 9,000 queues of one fanout exchange that says channel.flow all the time, and somebody who publishes
    to the exchange."""
    parameters = pika.ConnectionParameters("127.0.0.1", broker.ports["amqp"], heartbeat=0)
    with ExitStack() as stack:
        connection = pika.BlockingConnection(parameters)
        stack.callback(leave, connection)
        channel = connection.channel()
        send = channel._impl._send_method
        for number in range(9000):
            name = f"own {number}"
            send(spec.Queue.Declare(queue=name, nowait=True))
            send(spec.Queue.Bind(queue=name, exchange="amq.fanout", nowait=True))
            send(spec.Basic.Consume(queue=name, consumer_tag=name, no_ack=True, nowait=True))
        channel.queue_declare("own 0", passive=True)

        def publish(over: threading.Event) -> None:
            other = pika.BlockingConnection(parameters).channel()
            while not over.wait(0.2):
                other.basic_publish("amq.fanout", "", bytes(50))

        def flow(over: threading.Event) -> None:
            while not over.is_set():
                for number in range(100):
                    send(spec.Channel.Flow(active=bool(number % 2)))
                channel.queue_declare("own 0", passive=True)

        with beside(publish), beside(flow):
            yield


WORLDS = {
    "own queues": Setting(own_queues, "256MB", "256MB"),
    "cut": Setting(cut, "256MB", "1GB", CUT_AFTER_3_S),
    "cut, QoS 1": Setting(partial(cut, qos=1), "256MB", "1GB", CUT_AFTER_3_S),
    "cut, durable": Setting(partial(cut, qos=1, keep=True), "256MB", "1GB", CUT_AFTER_3_S, journal=True),
    "parts": Setting(parts, "256MB", "1GB"),
    "subscriptions": Setting(subscriptions, "256MB", "1GB"),
    "wills": Setting(wills, "256MB", "1GB"),
    "names": Setting(names, "256MB", "1GB"),
}
