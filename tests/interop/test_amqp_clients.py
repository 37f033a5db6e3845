"""Clients people use, as they are: pika with asyncio, aio-pika, kombu, Celery."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import aio_pika
import kombu
import kombu.pools
import pika
import pytest
from aio_pika.exceptions import ChannelPreconditionFailed, DeliveryError, PublishError
from pamqp.commands import Basic
from pika.adapters.asyncio_connection import AsyncioConnection
from tests.interop import amqp_celery_app
from tests.interop.amqp_broker import AmqpBroker
from tests.interop.amqp_raw import Raw
from tests.interop.waiting import PATIENCE_S, until

pytest_plugins = ("tests.interop.amqp_fixtures",)

ROOT = Path(__file__).parents[2]
KOMBU: Any = kombu


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, PATIENCE_S))


# -- pika -----------------------------------------------------------------------------------------------------------


def test_pika_with_asyncio(amqp_broker: AmqpBroker) -> None:
    """By callbacks, each made a future of."""

    async def told(call: Callable[..., Any], *args: Any, name: str = "callback", **more: Any) -> Any:
        heard: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        call(*args, **{name: heard.set_result}, **more)
        return await heard

    async def test() -> None:
        parameters = pika.URLParameters(amqp_broker.url)
        connection: Any = None

        def connect(on_open: Callable[..., Any]) -> None:
            nonlocal connection
            connection = AsyncioConnection(parameters, on_open_callback=on_open)

        await told(connect, name="on_open")
        channel = await told(connection.channel, name="on_open_callback")
        queue = (await told(channel.queue_declare, "", exclusive=True)).method.queue
        confirmed: list[Any] = []
        await told(channel.confirm_delivery, confirmed.append)
        got: asyncio.Queue[bytes] = asyncio.Queue()

        def arrived(on: Any, method: Any, _properties: Any, body: bytes) -> None:
            on.basic_ack(method.delivery_tag)
            got.put_nowait(body)

        await told(channel.basic_qos, prefetch_count=7)
        channel.basic_consume(queue, arrived)
        sent = [b"%d" % i for i in range(200)]
        for body in sent:
            channel.basic_publish("", queue, body)
        assert [await got.get() for _ in sent] == sent
        answer = await told(channel.queue_declare, queue, passive=True)
        assert (answer.method.message_count, answer.method.consumer_count) == (0, 1)
        assert {type(frame.method) for frame in confirmed} == {pika.spec.Basic.Ack}
        assert max(frame.method.delivery_tag for frame in confirmed) == 200
        closed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        connection.add_on_close_callback(lambda _connection, reason: closed.set_result(reason))
        connection.close()
        assert (await closed).reply_code == 200

    run(test())


# -- aio-pika -------------------------------------------------------------------------------------------------------


class Proxy:
    """Stands between a client and the broker, and cuts their connections when told."""

    def __init__(self, port: int) -> None:
        self.broker_port = port
        self.pipes: list[asyncio.StreamWriter] = []
        self.taken = 0

    async def open(self) -> int:
        self.server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.taken += 1
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self.broker_port)
        self.pipes += [writer, other_writer]
        await asyncio.gather(self._pump(reader, other_writer), self._pump(other_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self) -> None:
        for pipe in self.pipes:
            pipe.transport.abort()
        self.pipes.clear()


def test_aio_pika(amqp_broker: AmqpBroker, word: str) -> None:
    async def test() -> None:
        connection = await aio_pika.connect_robust(amqp_broker.url)
        async with connection:
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            await channel.set_qos(prefetch_count=5)
            exchange = await channel.declare_exchange(word, aio_pika.ExchangeType.TOPIC, auto_delete=True)
            queue = await channel.declare_queue("", exclusive=True, arguments={"x-max-length": 50})
            await queue.bind(exchange, "a.*")
            headers: dict[str, Any] = {"float": 0.25, "big": 1 << 40, "deep": {"list": [1, {"x": None}]}}
            for number in range(30):
                body = aio_pika.Message(b"%d" % number, headers=headers, correlation_id="c", priority=3)
                assert isinstance(await exchange.publish(body, "a.b"), Basic.Ack)
            got = []
            async with queue.iterator() as messages:
                async for message in messages:
                    async with message.process():
                        got.append(int(message.body))
                        assert message.headers == headers
                        assert (message.correlation_id, message.priority, message.routing_key) == ("c", 3, "a.b")
                    if len(got) == 30:
                        break
            assert got == list(range(30))
            assert queue.declaration_result.message_count == 0
            with pytest.raises(PublishError):  # mandatory it is unless told otherwise
                await exchange.publish(aio_pika.Message(b"x"), "nowhere")
            full = await channel.declare_queue(
                "", exclusive=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
            )
            await channel.default_exchange.publish(aio_pika.Message(b"1"), full.name)
            with pytest.raises(DeliveryError):
                await channel.default_exchange.publish(aio_pika.Message(b"2"), full.name)
            other = await connection.channel()
            with pytest.raises(ChannelPreconditionFailed):
                await other.declare_exchange(word, aio_pika.ExchangeType.FANOUT, auto_delete=True)
            plain = await connection.channel(publisher_confirms=False)
            async with plain.transaction():
                await plain.default_exchange.publish(aio_pika.Message(b"3"), queue.name)
            assert (await queue.get(no_ack=True)).body == b"3"

    run(test())


def test_a_robust_connection_comes_back(amqp_broker: AmqpBroker, word: str) -> None:
    """With its queue, its binding and its consumer; what it had not acknowledged comes again."""

    async def test() -> None:
        proxy = Proxy(amqp_broker.port)
        port = await proxy.open()
        url = f"amqp://guest:guest@127.0.0.1:{port}/?reconnect_interval=0.05"
        got: asyncio.Queue[aio_pika.abc.AbstractIncomingMessage] = asyncio.Queue()
        async with await aio_pika.connect_robust(url) as reader, await aio_pika.connect(amqp_broker.url) as writer:
            channel = await reader.channel()
            await channel.set_qos(prefetch_count=1)
            queue = await channel.declare_queue(word, auto_delete=False)
            await queue.bind("amq.direct", word)
            await queue.consume(got.put)
            out = await (await writer.channel()).get_exchange("amq.direct")
            for body in (b"1", b"2", b"3"):
                await out.publish(aio_pika.Message(body), word)
            await (await got.get()).ack()
            held = await got.get()
            assert (held.body, held.redelivered) == (b"2", False)
            proxy.cut()
            for expected in ((b"2", True), (b"3", False)):
                message = await got.get()
                assert (message.body, message.redelivered) == expected
                await message.ack()
            assert proxy.taken == 2
            await out.publish(aio_pika.Message(b"4"), word)
            await (await got.get()).ack()
            await queue.delete(if_unused=False)

    run(test())


# -- kombu ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confirm", [False, True])
def test_kombu(amqp_broker: AmqpBroker, word: str, confirm: bool) -> None:
    exchange = KOMBU.Exchange(word, "direct", durable=False, auto_delete=True)
    queue = KOMBU.Queue(word, exchange, "key", durable=False, exclusive=True, max_length=100, message_ttl=60.0)
    got: list[tuple[Any, Any]] = []

    def arrived(body: Any, message: Any) -> None:
        if body["number"] == 3 and not message.delivery_info["redelivered"]:
            message.requeue()
            return
        message.ack()
        got.append((body["number"], message.properties["correlation_id"]))

    options = {"confirm_publish": confirm}
    with KOMBU.Connection(amqp_broker.url, heartbeat=10, transport_options=options) as connection:
        producer = connection.Producer()
        with connection.Consumer([queue], callbacks=[arrived], prefetch_count=10):
            for number in range(20):
                producer.publish(
                    {"number": number, "text": "ä"}, "key", exchange=exchange, correlation_id=str(number),
                    declare=[queue], retry=True, compression="zlib" if number % 2 else None, headers={"a": [0.5]},
                )  # fmt: skip
            while len(got) < 20:
                connection.drain_events(timeout=PATIENCE_S)
                connection.heartbeat_check()
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=0.05)
        assert sorted(got) == sorted((number, str(number)) for number in range(20))
        simple = connection.SimpleQueue(queue)
        simple.put({"number": 99})
        message = simple.get(timeout=PATIENCE_S)
        assert message.payload == {"number": 99}
        message.ack()
        assert simple.qsize() == 0
        simple.close()


# -- Celery ---------------------------------------------------------------------------------------------------------


class Celery(NamedTuple):
    app: Any
    queue: str
    host: str
    log: Path

    def ran(self, name: str) -> int:
        """So many tasks of a kind have succeeded."""
        return len(re.findall(rf"Task {name}\[.*?\] succeeded", self.log.read_text()))

    def send(self, name: str, *args: Any) -> Any:
        return self.app.tasks[name].delay(*args)


@pytest.fixture(scope="module")
def celery(amqp_broker: AmqpBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Celery]:
    """A worker, with events, mingle and gossip as they come."""
    with celery_worker(amqp_broker, tmp_path_factory.mktemp("celery"), "tasks") as worker:
        yield worker
    KOMBU.pools.reset()


@contextmanager
def celery_worker(amqp_broker: AmqpBroker, folder: Path, name: str, *, quorum: bool = False) -> Iterator[Celery]:
    queue = f"{name}-{os.getpid()}"
    host = f"{name}-{os.getpid()}@here"
    log = folder / "log"
    environment = os.environ | {amqp_celery_app.URL: amqp_broker.url, amqp_celery_app.QUEUE: queue}
    environment |= {amqp_celery_app.QUORUM: "1"} if quorum else {}
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "tests.interop.amqp_celery_app",
        "worker",
        "--pool=solo",
        "-n",
        host,
    ]
    with log.open("wb") as out:
        worker = subprocess.Popen([*command, "-E", "-l", "INFO"], cwd=ROOT, env=environment, stdout=out, stderr=out)
    app = amqp_celery_app.make_app(amqp_broker.url, queue, quorum=quorum)
    try:
        until(lambda: worker.poll() is not None or " ready." in log.read_text(), 30.0, "the worker is ready")
        assert worker.poll() is None, log.read_text()
        yield Celery(app, queue, host, log)
        worker.send_signal(signal.SIGTERM)
        until(lambda: worker.poll() is not None, what="the worker ends")
        assert worker.returncode == 0, log.read_text()
    finally:
        if worker.poll() is None:
            worker.kill()
        worker.wait()
        with app.connection() as connection:
            for name in (queue, *(f"celery_delayed_{level}" for level in range(28) if quorum)):
                connection.default_channel.queue_delete(name)
        app.backend.result_consumer.stop()
        app.close()
    said = log.read_text()
    assert "Connection to broker lost" not in said, said
    assert "missed heartbeat" not in said, said
    assert "CRITICAL" not in said, said


def test_celery_runs_tasks(celery: Celery) -> None:
    results = [celery.send("add", number, 1) for number in range(20)]
    assert [result.get(timeout=PATIENCE_S) for result in results] == list(range(1, 21))
    broken = celery.send("broken")
    with pytest.raises(ValueError, match="as it should"):
        broken.get(timeout=PATIENCE_S)


def test_celery_retries_a_task(celery: Celery) -> None:
    assert celery.send("flaky", 2).get(timeout=PATIENCE_S) == 2


def test_celery_delays_tasks_of_quorum_queues(amqp_broker: AmqpBroker, tmp_path: Path) -> None:
    """Its native delayed delivery: 28 queues whose records expire from each into the next, up to 2^27 seconds."""
    with celery_worker(amqp_broker, tmp_path, "quorum", quorum=True) as worker:
        began = time.time()
        add, flaky = worker.app.tasks["add"], worker.app.tasks["flaky"]
        soon = add.apply_async((1, 2), countdown=1)
        later = add.apply_async((3, 4), eta=datetime.now(UTC) + timedelta(seconds=3))
        retried = flaky.delay(3, 1)
        assert soon.get(timeout=PATIENCE_S) == 3
        assert time.time() - began >= 1
        assert retried.get(timeout=PATIENCE_S) == 3
        assert later.get(timeout=PATIENCE_S) == 7
        assert time.time() - began >= 2


def test_celery_is_remote_controlled(celery: Celery) -> None:
    """By a fanout exchange, and answers on a queue with a lifetime."""
    control = celery.app.control
    assert control.ping(destination=[celery.host], timeout=PATIENCE_S) == [{celery.host: {"ok": "pong"}}]
    queues = control.inspect(destination=[celery.host], timeout=PATIENCE_S).active_queues()
    assert [one["name"] for one in queues[celery.host]] == [celery.queue]


def test_celery_says_what_happens(celery: Celery) -> None:
    """Its events come by a topic exchange."""
    seen: list[str] = []
    with celery.app.connection() as connection:
        receiver = celery.app.events.Receiver(connection, handlers={"*": lambda event: seen.append(event["type"])})
        with receiver.consumer_context(wakeup=False) as (own, _channel, _consumers):
            result = celery.send("add", 1, 2)
            while "task-succeeded" not in seen:
                own.drain_events(timeout=PATIENCE_S)
    assert [one for one in seen if one.startswith("task-")] == ["task-received", "task-started", "task-succeeded"]
    assert result.get(timeout=PATIENCE_S) == 3


def test_celery_outlives_a_stuck_sibling(amqp_broker: AmqpBroker, celery: Celery) -> None:
    """It takes its share, and neither reads nor acknowledges it; once it is gone the worker runs that, too."""
    with Raw(amqp_broker.port, receive_buffer=4096) as stuck:
        stuck.call(Basic.Qos(prefetch_count=5), Basic.QosOk)
        stuck.call(Basic.Consume(queue=celery.queue), Basic.ConsumeOk)
        results = [celery.send("length", "x" * 50_000, number) for number in range(25)]
        until(lambda: celery.ran("length") >= 20, what="all but its five are run")
        more = [celery.send("add", number, 0) for number in range(10)]
        assert [result.get(timeout=PATIENCE_S) for result in more] == list(range(10))
        assert celery.ran("length") < 25
    assert [result.get(timeout=PATIENCE_S) for result in results] == [[50_000, number] for number in range(25)]
