"""Consumers of topics over AMQP, with pika and aio-pika, beside MQTT subscribers of the same topics."""

from __future__ import annotations

import asyncio
import threading

import aio_pika
import pytest
from tests.interop.amqp_broker import AmqpBroker
from tests.interop.amqp_pika import Delivery, Pika, PikaFactory
from tests.interop.pahos import paho
from tests.interop.process import BrokerProcess
from tests.interop.waiting import PATIENCE_S

pytest_plugins = ("tests.interop.amqp_fixtures",)

TOPICS = "amq.topic"
ROUNDS = 200


def arguments(key: str, **options: str) -> dict[str, str]:
    return {"x-headway-topics": key, **{f"x-headway-{name}": text for name, text in options.items()}}


def read(client: Pika, key: str, **options: str) -> str:
    return client.consume(TOPICS, auto_ack=True, arguments=arguments(key, **options))


def test_pika_reads_what_mqtt_clients_publish_and_the_other_way_round(
    amqp_broker: AmqpBroker, headway: BrokerProcess, client: Pika, word: str
) -> None:
    assert amqp_broker.mqtt_port is not None
    read(client, f"{word}.#")
    with paho(amqp_broker.mqtt_port, word, 5) as both:
        both.subscribe(f"{word}/#", qos=1)
        both.publish(f"{word}/x/1", b"from mqtt", qos=1)
        client.put(f"{word}.x.2", b"from amqp", exchange=TOPICS)
        assert [(one.key, one.body) for one in client.wait(2)] == [
            (f"{word}.x.1", b"from mqtt"), (f"{word}.x.2", b"from amqp"),
        ]  # fmt: skip
        assert sorted(message.payload for message in both.wait(2)) == [b"from amqp", b"from mqtt"]


def test_nothing_is_lost_or_doubled_between_a_snapshot_and_live_records(
    headway: BrokerProcess, connect: PikaFactory, word: str
) -> None:
    """Readers come again and again while two hundred updates a round are published: each ends up with the truth, and
    sees the numbers of each key only rise."""
    publisher, keeper = connect(), connect()
    read(keeper, f"{word}.#", snapshot="true")  # whoever wants a state first begins it
    over = threading.Event()
    last: dict[str, int] = {}

    def publish() -> None:
        number = 0
        while not over.is_set():
            number += 1
            key = f"{word}.{number % 7}"
            publisher.put(key, str(number), exchange=TOPICS)
            last[key] = number

    thread = threading.Thread(target=publish)
    thread.start()
    images: list[tuple[Pika, dict[str, list[int]]]] = []
    try:
        for _ in range(20):
            reader = connect()
            read(reader, f"{word}.#", snapshot="true")
            images.append((reader, {}))
            take(reader.wait(10), images[-1][1])
    finally:
        over.set()
        thread.join(PATIENCE_S)
    for reader, image in images:
        while {key: numbers[-1] for key, numbers in image.items()} != last:
            take(reader.wait(1), image)
        for numbers in image.values():
            assert numbers == list(range(numbers[0], numbers[-1] + 1, 7)), "lost or doubled"


def take(deliveries: list[Delivery], image: dict[str, list[int]]) -> None:
    for one in deliveries:
        image.setdefault(one.key, []).append(int(one.body))


def test_aio_pika_reads_topics_conflated(
    headway: BrokerProcess, amqp_broker: AmqpBroker, client: Pika, word: str
) -> None:
    async def read_conflated() -> list[tuple[str | None, bytes]]:
        connection = await aio_pika.connect(port=amqp_broker.port)
        async with connection:
            channel = await connection.channel()
            queue = await channel.get_queue(TOPICS)  # it asks whether the queue is there
            got: asyncio.Queue[tuple[str | None, bytes]] = asyncio.Queue()

            async def arrived(message: aio_pika.abc.AbstractIncomingMessage) -> None:
                await got.put((message.routing_key, message.body))

            await queue.consume(arrived, no_ack=True, arguments=arguments(f"{word}.*", conflate="300ms"))
            client.put(f"{word}.a", *(b"%d" % number for number in range(ROUNDS)), exchange=TOPICS)
            found = [await got.get()]
            while found[-1][1] != b"%d" % (ROUNDS - 1):
                found.append(await got.get())
            return found

    found = asyncio.run(asyncio.wait_for(read_conflated(), PATIENCE_S))
    assert len(found) < ROUNDS / 2
    numbers = [int(body) for _, body in found]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("option", ["conflate", "snapshot", "lease"])
def test_a_consumer_of_a_queue_is_told_where_it_can_have_the_option(
    headway: BrokerProcess, client: Pika, option: str
) -> None:
    queue = client.queue()
    with client.refused(406):
        client.consume(
            queue, auto_ack=True, arguments={f"x-headway-{option}": "1s" if option != "snapshot" else "true"}
        )
