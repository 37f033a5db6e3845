"""Brokers for the tests: one with the ordinary config for all, and own ones where the config matters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import proton._reactor
import pytest
from tests.interop.jms_client import Jms, java
from tests.interop.process import BrokerProcess

from headway.cli.certs import make_certificates

BrokerFactory = Callable[..., BrokerProcess]

# Proton makes what it needs for TLS at each connection, with TLS or without, which takes 90 ms. One will do for all.
proton._reactor.SSLConfig = cache(proton._reactor.SSLConfig)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The ordinary broker. Tests share it, so each takes topics and client ids of its own (``name``). It ends with its
    module: to start one takes less than it takes to stand by while the other tests run."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker"))
    yield process
    process.stop()


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerFactory]:
    """Starts brokers that live until the module's tests are over."""
    started: list[BrokerProcess] = []

    def start_one(config: str = "", **more: Any) -> BrokerProcess:
        process = BrokerProcess(tmp_path_factory.mktemp("broker"), config, **more)
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()


@pytest.fixture(scope="session")
def jms() -> Jms:
    """ActiveMQ's client. A fixture that modules import would be one for each of them."""
    return java()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA and a server's certificate, as `headway certs` makes them."""
    folder = tmp_path_factory.mktemp("certs")
    make_certificates(folder)
    return folder


_numbers = count(1)


@pytest.fixture
def name() -> str:
    """A word nobody else uses, for topics and client ids."""
    return f"t{next(_numbers)}"
