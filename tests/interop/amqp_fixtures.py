"""Fixtures of the AMQP tests, whose modules name this one in ``pytest_plugins``."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from tests.interop.amqp_broker import AmqpBroker, start_broker
from tests.interop.amqp_pika import Pika, PikaFactory
from tests.interop.amqp_slow import Named
from tests.interop.process import BrokerProcess
from tests.interop.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def amqp_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpBroker]:
    """Tests share it, so each takes names of its own (``word``)."""
    broker = start_broker(tmp_path_factory.mktemp("amqp"))
    yield broker
    if broker.process is not None:
        broker.process.stop()


@pytest.fixture(autouse=True)
def deadline(request: pytest.FixtureRequest) -> Iterator[None]:
    """pika waits for an answer as long as it takes; a test does not."""
    if "amqp_broker" not in request.fixturenames:
        yield
        return

    def over(*_: Any) -> None:
        raise AssertionError(f"after {2 * PATIENCE_S:g} s: the client still waits for an answer")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, 2 * PATIENCE_S)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def headway(amqp_broker: AmqpBroker) -> BrokerProcess:
    """For tests of what only Headway has."""
    if amqp_broker.process is None:
        pytest.skip("about Headway only")
    return amqp_broker.process


@pytest.fixture
def word(name: str) -> str:
    """A word nobody else uses, also not on a broker that outlives the tests."""
    return f"{name}-{uuid4().hex[:8]}"


@pytest.fixture
def connect(amqp_broker: AmqpBroker) -> Iterator[PikaFactory]:
    """Opens pika connections that live until the test is over."""
    opened: list[Pika] = []

    def connect_one(**more: Any) -> Pika:
        opened.append(Pika(amqp_broker.port, **more))
        return opened[-1]

    yield connect_one
    for client in opened:
        client.close()


@pytest.fixture
def client(connect: PikaFactory) -> Pika:
    return connect()


@pytest.fixture
def feeder(headway: BrokerProcess, name: str) -> Iterator[Named]:
    """Publishes."""
    with Named(headway.port, f"{name}-feeder") as raw:
        yield raw


@pytest.fixture
def named(connect: PikaFactory, name: str) -> Pika:
    """A pika client that says what it is called."""
    return connect(client_properties={"connection_name": name})
