"""A broker for a module of tests with ActiveMQ's client, and connections to it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.jms_client import Jms
from tests.interop.process import BrokerProcess

LISTENERS = (
    '[listeners.openwire]\nurl = "openwire://127.0.0.1:0"\n'
    '[listeners.amqp]\nurl = "amqp://127.0.0.1:0"\n'
    '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n'
)
_numbers = count(1)


def fresh(kind: str = "queue") -> str:
    """Returns a destination that nobody has used."""
    return f"{kind}://of.test.{next(_numbers)}"


def url_of(broker: BrokerProcess, options: str = "") -> str:
    return f"tcp://127.0.0.1:{broker.ports['openwire']}{options}"


@pytest.fixture(scope="module")
def broker(start: BrokerFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder: Path = tmp_path_factory.mktemp("journal")
    process = start(f'{LISTENERS}[journal]\npath = "{folder}"\n')
    yield process
    process.stop()


@pytest.fixture
def connection(jms: Jms, broker: BrokerProcess) -> Iterator[str]:
    name = jms.connect(url_of(broker))
    yield name
    jms.do("close", name)
