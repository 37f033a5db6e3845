"""Worlds: a broker with some trouble in it, a canary beside, and what the canary and the broker's memory were like.

A world is a context: what is in it is there while the canary sings. ``held`` runs one; run some by hand with
``python -m tests.soak.worlds [NAME ...]``.
"""

from __future__ import annotations

import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import NamedTuple

import pika
from bench.wires.packets import connect, encode_disconnect, encode_publish, encode_subscribe
from pika import spec
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until
from tests.soak.canary import Canary, Song

from headway.cli.certs import make_certificates
from headway.core.message.record import Properties
from headway.wire.mqtt.packets import TopicRequest

P99_MS_MAX = 50.0
LONGEST_MS_MAX = 250.0
RSS_BEYOND_POOL_BYTES_MAX = 150_000_000
FILTERS_PER_PACKET = 100
TLS = """
[listeners.mqtts]
url = "mqtts://127.0.0.1:0"
handshakes_max = 10_000
connect_timeout = "10m"
[listeners.mqtts.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
"""


class Told(NamedTuple):
    """What became of one world."""

    world: str
    song: Song
    rss_peak_bytes: int
    memory_limit_bytes: int
    memory_peak_bytes: int
    late: str
    """What the longest stall of the broker's loop was spent on."""

    @property
    def held(self) -> bool:
        within = self.rss_peak_bytes <= self.memory_limit_bytes + RSS_BEYOND_POOL_BYTES_MAX
        song = self.song
        return within and song.sent == song.received and song.p99_ms <= P99_MS_MAX and song.longest_ms <= LONGEST_MS_MAX

    def __str__(self) -> str:
        song, mb = self.song, 1e-6
        return (
            f"{self.world:<14} p50 {song.p50_ms:>7.1f} ms  p99 {song.p99_ms:>7.1f} ms"
            f"  longest {song.longest_ms:>7.1f} ms"
            f"  lost {song.sent - song.received}  RSS {self.rss_peak_bytes * mb:.0f} MB"
            f"  pool {self.memory_peak_bytes * mb:.0f} of {self.memory_limit_bytes * mb:.0f} MB"
            f"  {'held' if self.held else f'NOT HELD ({self.late})'}"
        )


World = Callable[[BrokerProcess], AbstractContextManager[None]]


class Setting(NamedTuple):
    world: World
    memory: str
    disk: str
    more: str = ""
    """Of the configuration."""
    journal: bool = False
    tls: bool = False
    """Whether there is a listener ``mqtts``. Its certificates are in the folder ``certs`` of the broker's."""


def held(name: str, setting: Setting, folder: Path, seconds: float) -> Told:
    """Run a world for so long once its trouble is there."""
    config = (
        f'[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n[listeners.amqp]\nurl = "amqp://127.0.0.1:0"\n'
        f'[pool]\nmemory = "{setting.memory}"\ndisk = "{setting.disk}"\ndisk_path = "{folder}"\n'
        f"[telemetry]\nenabled = false\n{setting.more}"
    )
    if setting.journal:
        config += f'[journal]\npath = "{folder}/journal"\n'
    if setting.tls:
        make_certificates(folder / "certs")
        config += TLS.format(folder=folder / "certs")
    broker = BrokerProcess(folder, config, server={"sweep": "200ms"})
    try:
        with setting.world(broker):
            canary = Canary(broker.ports["mqtt"])
            time.sleep(seconds)
            song = canary.stop()
            rss = _peak_rss(broker.pid)
        told = broker.get("/v1/broker")
        pool = told["pools"][0]
        late = told["loop"]["late_longest"]
        return Told(name, song, rss, pool["memory_limit_bytes"], pool["memory_peak_bytes"], late)
    finally:
        broker.kill()


def _peak_rss(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def mqtt(broker: BrokerProcess, name: str, *, keep: bool = False, buffer: int | None = None) -> socket.socket:
    sock = socket.socket()
    if buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    sock.connect(("127.0.0.1", broker.ports["mqtt"]))
    sock.sendall(connect(name, keep=keep))
    assert sock.recv(4096)[0] == 0x20
    return sock


def subscribe(sock: socket.socket, filters: list[str]) -> None:
    for start in range(0, len(filters), FILTERS_PER_PACKET):
        some = filters[start : start + FILTERS_PER_PACKET]
        sock.sendall(encode_subscribe(1, [TopicRequest(one, 1) for one in some]))
        left = 2 + 2 + 1 + len(some)  # SUBACK
        while left > 0:
            came = sock.recv(left)
            assert came, "the broker ended the connection"
            left -= len(came)


def is_full(broker: BrokerProcess, what: str) -> bool:
    """Of the pool's memory or disk, nine tenths."""
    pool = broker.get("/v1/broker")["pools"][0]
    return bool(pool[f"{what}_bytes"] >= 0.9 * pool[f"{what}_limit_bytes"])


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Goes on in a thread, until the end."""
    over = threading.Event()
    failed: list[Exception] = []

    def try_to() -> None:
        try:
            work(over)
        except Exception as error:  # noqa: BLE001  told when the thread has ended
            failed.append(error)

    thread = threading.Thread(target=try_to, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)
    for error in failed:
        raise AssertionError("there was no trouble to hold out against") from error


# -- the worlds -------------------------------------------------------------------------------------------------------


@contextmanager
def away(broker: BrokerProcess) -> Iterator[None]:
    """80,000 filters of clients that have gone and may come back."""
    for number in range(80):
        sock = mqtt(broker, f"away {number}", keep=True)
        subscribe(sock, [f"away/{number}/{part}" for part in range(1000)])
        sock.sendall(encode_disconnect())
        sock.close()
    publisher = mqtt(broker, "publisher")
    for number in range(80):
        publisher.sendall(
            b"".join(encode_publish(f"away/{number}/{part}", bytes(100), qos=0) for part in range(1000))
        )
    until(lambda: broker.publisher("publisher").get("published_records") == 80_000, what="all of it is published")
    yield


def leave(connection: pika.BlockingConnection) -> None:
    """Unless it was cut: at the disk limit that is how it may end."""
    with suppress(pika.exceptions.AMQPError):
        connection.close()


@contextmanager
def stuck_queues(broker: BrokerProcess) -> Iterator[None]:
    """300 queues whose consumers settle nothing, at the pool's disk limit, and somebody who publishes to them."""
    port = broker.ports["amqp"]
    parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
    with ExitStack() as stack:
        for number in range(3):
            connection = pika.BlockingConnection(parameters)
            stack.callback(leave, connection)
            channel = connection.channel()
            channel.basic_qos(prefetch_count=1)
            for part in range(100):
                name = f"stuck-{number}-{part}"
                channel.queue_declare(name)
                channel.queue_bind(name, "amq.direct", name)
                channel.basic_consume(name, lambda *_: None)

        def publish(over: threading.Event) -> None:
            connection = pika.BlockingConnection(parameters)
            channel = connection.channel()
            body = bytes(4000)
            while not over.is_set():
                for number in range(3):
                    for part in range(100):
                        channel.basic_publish("amq.direct", f"stuck-{number}-{part}", body)

        with beside(publish):
            until(lambda: is_full(broker, "disk"), what="the disk is full")
            yield


@contextmanager
def selectors(broker: BrokerProcess) -> Iterator[None]:
    """500 stuck consumers, each with a selector of its own, so with a lane of its own; all want everything."""
    stuck = []
    for number in range(500):
        sock = mqtt(broker, f"selects {number}", buffer=4096)
        sock.sendall(encode_subscribe(1, ["wide"], user=(("selector", f"n > {number}"),)))
        assert sock.recv(100)[0] == 0x90
        stuck.append(sock)
    frame = encode_publish("wide", bytes(1000), properties=Properties(user=(("n", "1000"),)))

    def publish(over: threading.Event) -> None:
        sock = mqtt(broker, "publisher")
        sock.settimeout(0.5)
        while not over.is_set():
            try:
                sock.sendall(frame * 10)
            except TimeoutError:
                continue

    with beside(publish):
        until(lambda: is_full(broker, "memory"), what="the memory is full")
        yield
    del stuck


@contextmanager
def scrape(broker: BrokerProcess) -> Iterator[None]:
    """100,000 consumers, and somebody who asks for the metrics and the consumers all the time."""
    socks = []
    for number in range(100):
        sock = mqtt(broker, f"there {number}")
        subscribe(sock, [f"there/{number}/{part}" for part in range(1000)])
        socks.append(sock)

    def ask(over: threading.Event) -> None:
        while not over.is_set():
            for path in ("/metrics", "/v1/broker", "/v1/consumers"):
                broker.call(path)

    with beside(ask):
        yield
    del socks


@contextmanager
def bindings(broker: BrokerProcess) -> Iterator[None]:
    """A queue with 5,000 consumers, another with 9,000 bindings, and somebody who binds and unbinds both."""
    parameters = pika.ConnectionParameters("127.0.0.1", broker.ports["amqp"], heartbeat=0)
    with ExitStack() as stack:
        connection = pika.BlockingConnection(parameters)
        stack.callback(leave, connection)
        channel = connection.channel()
        channel.queue_declare("watched")
        channel.queue_declare("bound")
        for part in range(5):
            many = connection.channel()
            for number in range(1000):
                consume = spec.Basic.Consume(queue="watched", consumer_tag=f"{part} {number}", no_ack=True, nowait=True)
                many._impl._send_method(consume)
            many.queue_declare("watched", passive=True)
        _bind(channel, spec.Queue.Bind, "bound", range(9000))

        def change(over: threading.Event) -> None:
            connection = pika.BlockingConnection(parameters)
            channel, number = connection.channel(), 9000
            while not over.is_set():
                for queue in ("watched", "bound"):
                    _bind(channel, spec.Queue.Bind, queue, range(number, number + 100))
                    _bind(channel, spec.Queue.Unbind, queue, range(number, number + 100))
                number += 100

        with beside(change):
            yield


def _bind(channel: pika.adapters.blocking_connection.BlockingChannel, change: type, queue: str, keys: range) -> None:
    """Says all of it without waiting for an answer to each."""
    for number in keys:
        channel._impl._send_method(change(queue=queue, exchange="amq.topic", routing_key=f"key.{number}"))
    channel.queue_declare(queue, passive=True)


NEWCOMERS = 1000
COMING_S = 3.0
KEPT = [(f"kept/{number}", bytes(100_000)) for number in range(4)]


@contextmanager
def newcomers(broker: BrokerProcess) -> Iterator[None]:
    """A thousand clients come within three seconds, and each gets 400 kB of retained records. Every third resets its
    connection half-way, every other third reads slowly. Then the next thousand come."""
    keeper = mqtt(broker, "keeper")
    for topic, body in KEPT:
        keeper.sendall(encode_publish(topic, body, qos=0, retain=True))
    until(lambda: broker.publisher("keeper").get("published_records") == len(KEPT), what="the records are retained")

    def come(over: threading.Event) -> None:
        number = 0
        while not over.is_set():
            _wave(broker, range(number, number + NEWCOMERS), over)
            number += NEWCOMERS

    with beside(come):
        yield


def _wave(broker: BrokerProcess, numbers: range, over: threading.Event) -> None:
    """Whoever has all of it, or is tired of it, goes."""
    wanted = sum(len(body) for _, body in KEPT)
    began, coming = time.monotonic(), list(reversed(numbers))
    came: dict[socket.socket, int] = {}
    with DefaultSelector() as ready:
        while (coming or came) and not over.is_set():
            due = (time.monotonic() - began) / COMING_S * NEWCOMERS
            while coming and NEWCOMERS - len(coming) < due:
                number = coming.pop()
                sock = mqtt(broker, f"newcomer {number}")
                sock.sendall(encode_subscribe(1, ["kept/#"]))
                ready.register(sock, EVENT_READ, number)
                came[sock] = 0
            for key, _ in ready.select(0.01):
                sock, slow = key.fileobj, key.data % 3 == 1
                assert isinstance(sock, socket.socket)
                came[sock] += len(sock.recv(4096 if slow else 1 << 17))
                resets = key.data % 3 == 2 and came[sock] > wanted // 2
                if resets:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if resets or came[sock] >= wanted:
                    ready.unregister(sock)
                    del came[sock]
                    sock.close()
        for sock in came:
            sock.close()


WORLDS = {
    "bindings": Setting(bindings, "64MB", "256MB"),
    "newcomers": Setting(newcomers, "64MB", "256MB"),
    "away": Setting(away, "1200MB", "1GB"),
    "stuck queues": Setting(stuck_queues, "64MB", "128MB"),
    "selectors": Setting(selectors, "64MB", "256MB"),
    "scrape": Setting(scrape, "1500MB", "256MB"),
}


def all_worlds() -> dict[str, Setting]:
    """These, and those of other modules."""
    from tests.soak import handshakes, links, memory, reloads, states, wires

    more = (memory, handshakes, reloads, states, wires, links)
    return WORLDS | {name: setting for one in more for name, setting in one.WORLDS.items()}


def main(names: list[str]) -> int:
    fine = True
    worlds = all_worlds()
    for name in names or worlds:
        with tempfile.TemporaryDirectory() as folder:
            told = held(name, worlds[name], Path(folder), 15.0)
        print(told, flush=True)
        fine = fine and told.held
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
