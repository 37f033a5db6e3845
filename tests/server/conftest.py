"""A broker over pretended sockets and two AMQP clients of it; files that need others have their own by these names."""

from __future__ import annotations

import pytest
from tests.server.amqp_stage import Client, House


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
