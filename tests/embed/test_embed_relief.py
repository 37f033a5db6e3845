"""Clients of every protocol that acknowledge, with a full window, over real sockets: what a policy discards behind that
is free. Measured by the pool's own figures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.wires.packets import encode_connect, encode_subscribe
from pamqp import commands
from tests.embed.stage import config, play
from tests.interop.waiting import holds
from tests.server.amqp_frames import START_OK
from tests.server.amqp_stage import OPENINGS, method
from tests.server.test_amqp1_greedy import sender, transfer
from tests.wire import openwire_frames

from headway.core.log import CHUNK_BYTES
from headway.embed import Broker
from headway.wire.amqp1.performatives import Attach, Begin, Flow, Open, Source, Target
from headway.wire.amqp1.replies import write
from headway.wire.mqtt.packets import Connect, TopicRequest
from headway.wire.openwire.codes import Type

SIZE, COUNT, WINDOW = 40_000, 400, 2
POLICY = [{
    "name": "pending", "topics": ["#", "$queue/+"],
    "rule": [{"when": {"lag_bytes": "1MB"}, "then": {"action": "discard", "which": "oldest", "keep_records": 5}}],
}]  # fmt: skip
LISTENERS = {"mqtt": "mqtt", "amqp": "amqp", "amqp1": "amqp", "stomp": "stomp", "openwire": "openwire"}


def mqtt() -> bytes:
    connect = encode_connect(Connect(5, "stuck", True, receive_max=WINDOW))
    return connect + encode_subscribe(1, [TopicRequest("t", 1)])


def amqp() -> bytes:
    said = [
        commands.Queue.Declare(0, "q"), commands.Queue.Bind(0, "q", "amq.topic", "t"), commands.Basic.Qos(0, WINDOW),
        commands.Basic.Consume(0, "q"),
    ]  # fmt: skip
    opening = [START_OK, commands.Connection.TuneOk(10, 131_072, 0), commands.Connection.Open()]
    return (OPENINGS["0-9-1"] + b"".join(method(0, one) for one in opening) + method(1, commands.Channel.Open())
            + b"".join(method(1, one) for one in said))  # fmt: skip


def amqp1() -> bytes:
    """Its topics are settled as they are sent. So it reads a queue, and fills that, too."""
    attach = Attach("r", 0, True, 0, source=Source("queue://q"), target=Target())
    return (b"AMQP\0\1\0\0" + write(0, Open("stuck", None, 65_536, 255)) + write(0, Begin(None, 0, 1 << 30, 1 << 30, 9))
            + write(0, attach) + write(0, Flow(0, 1 << 30, 0, 1 << 30, 0, 0, WINDOW))
            + sender(1, "queue://q"))  # fmt: skip


def stomp() -> bytes:
    subscribe = f"SUBSCRIBE\nid:0\ndestination:/topic/t\nack:client-individual\nprefetch-count:{WINDOW}\n\n\0"
    return b"CONNECT\naccept-version:1.2\nhost:x\n\n\0" + subscribe.encode()


def openwire() -> bytes:
    """What it has of a topic is counted, not kept. So it reads a queue, and fills that, too."""
    queue = openwire_frames.queue("q")
    consumer = openwire_frames.consumer_info(openwire_frames.consumer_id(), queue, prefetch=WINDOW)
    return openwire_frames.wire_format() + openwire_frames.connection_info("stuck") + consumer


def queued(number: int) -> bytes:
    return openwire_frames.message(Type.BYTES_MESSAGE, openwire_frames.queue("q"), bytes(SIZE), sequence=number)


@pytest.mark.parametrize("opening", [mqtt, amqp, amqp1, stomp, openwire])
def test_what_is_discarded_behind_a_full_window_is_free(tmp_path: Path, opening: Callable[[], bytes]) -> None:
    async def story() -> None:
        scheme = LISTENERS[opening.__name__]
        listeners = {"one": {"url": f"{scheme}://127.0.0.1:0"}}
        async with Broker(config(tmp_path, policy=POLICY, listeners=listeners)) as broker:
            registry = broker.running.engine.broker.registry
            pool = registry.pools[""]
            reader, writer = await asyncio.open_connection("127.0.0.1", int(broker.urls["one"].rpartition(":")[2]))
            writer.write(opening())
            reading = asyncio.create_task(read(reader))

            def consumers() -> list[int]:
                """The deliveries that each of its consumers has not acknowledged."""
                return [one.window.used for session in registry.sessions.values()
                        for one in session.subscriptions.values() if session.protocol != "program"]  # fmt: skip

            await holds(consumers)
            for number in range(COUNT):
                if opening in (amqp1, openwire):
                    writer.write(queued(number) if opening is openwire else transfer(1, number, bytes(SIZE)))
                    await writer.drain()
                else:
                    await broker.publish("t", bytes(SIZE))
            await holds(lambda: registry.sequence >= COUNT)
            await holds(lambda: consumers() == [WINDOW])
            await holds(lambda: pool.memory_bytes + pool.disk_bytes < 1_000_000 + 2 * CHUNK_BYTES, 10)
            writer.close()
            await reading

    play(story())


async def read(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 20):
        pass
