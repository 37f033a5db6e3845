"""Listings go a slice at a time, however many members a queue has and however many consumers a client."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest
from pamqp.commands import Basic
from tests.core.test_idle import steps
from tests.server.amqp_stage import Client, House, method

from headway.core.log.lanes.lane import Lane
from headway.core.telemetry.stats import CLOSE_SLICE
from headway.server.admin.metrics import Listings

MEMBERS = 2000


@pytest.fixture
def house() -> House:
    """With one queue, and a client that has so many consumers of it."""
    house = House()
    client = Client(house, "ann")
    client.declare("q")
    client.say(b"".join(consume(number) for number in range(MEMBERS)))
    client.put("q", *[b"x"] * 10)
    return house


def consume(number: int) -> bytes:
    return method(1, Basic.Consume(queue="q", consumer_tag=str(number)))


def each_step(work: Awaitable[dict[str, Any]]) -> tuple[list[int], dict[str, Any]]:
    """Lines of Python between two times at which the loop goes on; and the answer."""
    found, lines = work.__await__(), list[int]()
    answer: list[dict[str, Any]] = []

    def step() -> None:
        try:
            next(found)
        except StopIteration as done:
            answer.append(done.value)

    while not answer:
        lines.append(steps(step))
    return lines, answer[0]


def test_the_members_of_a_queue_are_counted_some_at_a_time(house: House) -> None:
    lines, told = each_step(Listings(house).queues())
    (row,) = told["queues"]
    assert row.consumers == MEMBERS
    assert max(lines) < 6000, lines


def test_consumers_of_one_client_share_a_look_at_their_lane(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Lane] = []
    look = Lane.held_shares
    monkeypatch.setattr(Lane, "held_shares", lambda lane: looks.append(lane) or look(lane))
    lines, told = each_step(Listings(house).consumers("ann"))
    assert told["total"] == MEMBERS
    assert len(looks) <= len(lines) + 1 <= MEMBERS / CLOSE_SLICE + 2
