"""A broker with a policy for each thing that can be done about a slow consumer, and floods that make consumers slow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw

from headway.core.message.record import Properties

POLICIES = {
    "blocked": ('blocked_time = "300ms"', '"disconnect"', ""),
    "lag": ("lag_records = 100", '"disconnect"', ""),
    "late": ('ack_age = "300ms"', '"disconnect"', ""),
    "dry": ('blocked_time = "200ms"', '"disconnect"', "enforce = false"),
    "notify": ('blocked_time = "200ms"', '"notify"', ""),
    "conflate": ("lag_records = 100", '"conflate"', ""),
    "oldest": ("lag_records = 100", '{ action = "discard", which = "oldest", keep_records = 50 }', ""),
    "newest": ("lag_records = 100", '{ action = "discard", which = "newest", keep_records = 50 }', ""),
    "key": ("lag_records = 100", '{ action = "discard", which = "older_per_key" }', ""),
    "selected": ("lag_records = 100", '{ action = "discard", which = "selector", selector = "value < 4000" }', ""),
    "topics": ("lag_records = 100", '{ action = "discard", which = "topics", topics = ["topics/+/odd"] }', ""),
    "lowest": ("lag_records = 100", '{ action = "discard", which = "lowest_priority" }', ""),
    "fifty": ("lag_records = 3900", '{ action = "discard", which = "lowest_priority", keep_records = 50 }', ""),
    "urgent": ("lag_records = 3900", '{ action = "discard", which = "selector", selector = "priority < 8" }', ""),
    "odd": ("lag_records = 3900", '{ action = "discard", which = "topics", topics = ["odd/+/odd"] }', ""),
    "block": ('lag_bytes = "200KB"', '"block_publishers"', 'until = { lag_bytes = "<20KB" }'),
    "close": ("lag_records = 100", '"close_consumer"', ""),
    "ask": ("lag_records = 100", '{ action = "close_consumer", within = "100ms" }', ""),
    "delete": ("lag_records = 100", '"delete_subscription"', ""),
}
CONFIG = """
[flap]
base = "1s"
max = "2s"
[[topic]]
filter = "conflate/#"
key = "/key"
[[topic]]
filter = "key/#"
key = "/key"
""" + "".join(
    f'[[policy]]\nname = "{name}"\ntopics = ["{name}/#"]\n[[policy.rule]]\nwhen = {{ {when} }}\nthen = {then}\n{more}\n'
    for name, (when, then, more) in POLICIES.items()
)
SMALL = {"receive_buffer": 4096}


@pytest.fixture(scope="module")
def governed(start: BrokerFactory) -> Iterator[BrokerProcess]:
    broker = start(CONFIG, server={"send_buffer": "16KiB"})
    yield broker
    broker.stop()


def flood(writer: Raw, topic: str, count: int, size: int = 1000, first: int = 0) -> list[bytes]:
    """Numbered records, all of them with the broker when this returns."""
    payloads = [b"%06d" % i + b"." * (size - 6) for i in range(first, first + count)]
    writer.publish_all(topic, payloads)
    writer.published("flood/end")
    return payloads


def rows(writer: Raw, topic: str, count: int, *, priority: Callable[[int], int] | None = None) -> list[dict[str, Any]]:
    """Records of ten keys."""
    bodies = [{"key": f"k{i % 10}", "value": i, "fill": "." * 200} for i in range(count)]
    for i, body in enumerate(bodies):
        more = Properties(user=(("priority", str(priority(i))),)) if priority else Properties()
        writer.publish(f"{topic}/{'odd' if i % 2 else 'even'}", json.dumps(body).encode(), properties=more)
    writer.published("flood/end")
    return bodies
