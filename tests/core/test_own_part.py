"""A consumer that shares a connection has its part of what is under way, not all of it."""

from __future__ import annotations

import pytest
from tests.core.stage import STUCK, Client, Socket, Stage

from headway.core.consumer.connection.outlet import Pace
from headway.core.governance.watching import observe
from headway.core.policy.meters.sample import ANY_LUMP_BYTES

UNDER_WAY, LUMP = 60_000, 30_000


def samples(client: Client) -> dict[str, tuple[float, float]]:
    """(unacknowledged bytes, lump) of each of its consumers, by filter."""
    registry, now = client.stage.broker.registry, client.stage.now
    looks = {one.filter: observe(registry, one, now, {}) for one in client.session.subscriptions.values()}
    return {filter: (look.unacknowledged_bytes, look.lump_bytes) for filter, look in looks.items()}


def crowd(topics: dict[str, int]) -> Client:
    """A client that was sent so many records of each topic, while more wait."""
    stage = Stage()
    client = stage.client("c", reads=STUCK, buffer=10**6)
    for topic in topics:
        client.subscribe(topic)
    publisher = stage.client("publisher")
    for topic, count in topics.items():
        publisher.publish(topic, 0, count)
    stage.turn()
    client.outlet.capacity = client.outlet.taken
    for topic in topics:
        publisher.publish(topic, 0, 5)
    stage.turn()
    return client


def test_what_is_under_way_is_divided_as_the_connection_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Socket, "pace", lambda self, now: Pace(now - 1, 0.5, UNDER_WAY, LUMP))
    few, many = samples(crowd({"few": 100, "many": 500})).values()
    assert few == pytest.approx((UNDER_WAY / 6, LUMP / 6), rel=0.05)
    assert many == pytest.approx((UNDER_WAY * 5 / 6, LUMP * 5 / 6), rel=0.05)


def test_the_only_consumer_of_a_connection_has_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Socket, "pace", lambda self, now: Pace(now - 1, 0.5, UNDER_WAY, LUMP))
    assert samples(crowd({"one": 100})) == {"one": (UNDER_WAY, LUMP)}


def test_a_lump_that_nobody_knows_is_nobodys_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Socket, "pace", lambda self, now: Pace(now - 1, 0.5, UNDER_WAY, ANY_LUMP_BYTES))
    assert {lump for _, lump in samples(crowd({"few": 100, "many": 500})).values()} == {ANY_LUMP_BYTES}
