"""Fixtures of the tests with clients of AMQP 1.0, whose modules name this one in ``pytest_plugins``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from proton.utils import BlockingConnection
from tests.interop.process import BrokerProcess
from tests.passwords import cheap_hash

CONFIG = f"""
[listeners.amqp]
url = "amqp://127.0.0.1:0"
allow_anonymous = true
[listeners.closed]
url = "amqp://127.0.0.1:0"
allow_anonymous = false
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
allow_anonymous = true
[listeners.auto]
url = "auto://127.0.0.1:0"
allow_anonymous = true
[auth.users]
guest = "{cheap_hash("guest")}"
[[topic]]
filter = "prices/#"
key = "/id"
"""
TIMEOUT_S = 10.0
Dial = Callable[..., BlockingConnection]


@pytest.fixture(scope="module")
def amqp1_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Tests share it, so each takes names of its own (``own_word``)."""
    process = BrokerProcess(tmp_path_factory.mktemp("amqp1"), CONFIG)
    process.login = "guest:guest"
    yield process
    process.stop()


@pytest.fixture
def own_word(name: str) -> str:
    """A word that nobody else uses."""
    return f"{name}-{uuid4().hex[:8]}"


@pytest.fixture
def dial(amqp1_broker: BrokerProcess) -> Iterator[Dial]:
    """Opens connections that live until the test is over."""
    opened: list[BlockingConnection] = []

    def connect_one(listener: str = "amqp", **more: Any) -> BlockingConnection:
        url = more.pop("url", f"amqp://127.0.0.1:{amqp1_broker.ports[listener]}")
        opened.append(BlockingConnection(url, timeout=TIMEOUT_S, **more))
        return opened[-1]

    yield connect_one
    for client in opened:
        if client.conn is not None:
            client.close()
