"""A broker over pretended sockets with two AMQP clients, and one with canned answers; some files have their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from tests.certificates import make
from tests.server.amqp_stage import Client, House
from tests.server.canned import ANSWERS, Canned


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def client(house: House) -> Client:
    """With two channels, and a queue."""
    client = Client(house, "client", channels=2)
    client.declare("q")
    return client


@pytest.fixture
def other(house: House, client: Client) -> Client:
    """After ``client``, whose queue it may use."""
    return Client(house, "other")


@pytest.fixture
def publisher(house: House) -> Client:
    return Client(house, "publisher")


@pytest.fixture
def now() -> list[float]:
    """The time; what sleeps wakes up when this is set forward."""
    return [1000.0]


@pytest.fixture
def broker() -> Iterator[Canned]:
    server = Canned(ANSWERS)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA and a server's certificate."""
    made = tmp_path_factory.mktemp("certs")
    make(made, "ca", is_ca=True)
    make(made, "server", ca="ca", hosts=("localhost",))
    return made
