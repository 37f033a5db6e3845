"""What the tests of the journal commands share: a journal that a broker left behind."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.interop.amqp_pika import Pika
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw

from headway.wire.mqtt.packets import TopicRequest

LISTENERS = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n[listeners.amqp]\nurl = "amqp://127.0.0.1:0"\n'
TOPICS = '[[topic]]\nfilter = "flights/#"\nkey = "/tailnum"\nkeep = "7d"\n[[topic]]\nfilter = "boats"\nkeep = "7d"\n'
COUNT = 5


def config_of(folder: Path, topics: str = TOPICS) -> str:
    return f'{LISTENERS}[journal]\npath = "{folder}"\nsegment = "100kB"\n{topics}'


class Left:
    """A journal, and the config of the broker that has left it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal"
        self.config = folder / "headway.toml"

    def segments(self, stream: str) -> list[Path]:
        return sorted(self.path.glob(f"{stream}/*.journal"))

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.path.rglob("*.journal"))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """A session with a subscription of which three records are unsettled, a queue with two, a retained record."""
    folder = tmp_path_factory.mktemp("left")
    left = Left(folder)
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), config_of(left.path))
    try:
        with Raw(broker.ports["mqtt"], "reader", clean_start=True, session_expiry_s=3600) as reader:
            reader.subscribed(TopicRequest("orders/#", 1))
            reader.goodbye()
        client = Pika(broker.ports["amqp"])
        client.channel.queue_declare("work", durable=True)
        client.put("work", b"x" * 1000, b"x" * 1000, delivery_mode=2)
        client.close()
        with Raw(broker.ports["mqtt"], "publisher") as publisher:
            for number in range(COUNT):
                publisher.published(f"flights/{number % 2}", b'{"tailnum": "N%d"}' % number)
            publisher.published("boats", b"\xff\xfe")
            for _ in range(3):
                publisher.published("orders/1", b"y" * 1000)
            publisher.published("state", b"z", retain=True)
        broker.stop()
    finally:
        broker.kill()
    left.config.write_text(config_of(left.path))
    return left


@pytest.fixture
def left(original: Left, tmp_path: Path) -> Left:
    """Of the test's own."""
    copy = Left(tmp_path)
    shutil.copytree(original.path, copy.path)
    copy.config.write_text(config_of(copy.path))
    return copy
