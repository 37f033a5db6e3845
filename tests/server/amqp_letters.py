"""What the tests of dead letters share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pamqp.commands import Basic
from tests.server.amqp_stage import WALL_S, Client, Content, House

DLX, DLK, TTL = "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-message-ttl"
FIRST = ("x-first-death-reason", "x-first-death-queue", "x-first-death-exchange")


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def client(house: House) -> Client:
    """With a queue for the dead."""
    client = Client(house, "client")
    client.declare("dead")
    return client


def to(key: str, **more: Any) -> dict[str, Any]:
    """Arguments of a queue whose letters go to another."""
    return {DLX: "", DLK: key, **{name.replace("_", "-"): value for name, value in more.items()}}


def reject(client: Client, queue: str) -> None:
    client.say(Basic.Get(queue=queue))
    client.say(Basic.Reject(client.last(Content).method.delivery_tag, requeue=False))


def letter(client: Client, queue: str = "dead") -> Content:
    found = client.take(queue)
    assert found is not None
    return found


def at(seconds: float) -> datetime:
    """By the calendar."""
    return datetime.fromtimestamp(WALL_S + seconds, UTC)


def headers_of(found: Content) -> list[dict[str, Any]]:
    deaths = found.headers["x-death"]
    assert isinstance(deaths, list)
    return deaths


def told(found: Content) -> list[tuple[str, str, int]]:
    """Its deaths, the latest first."""
    return [(death["queue"], death["reason"], death["count"]) for death in headers_of(found)]
