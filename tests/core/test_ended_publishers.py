"""Publishers that have ended: their counters go on, for a bounded number of them and for bounded bytes."""

from __future__ import annotations

import pytest
from tests.core.stage import STUCK, Stage

from headway.core.routing import registry as ended_publishers


def ended(stage: Stage, *names: str) -> list[str]:
    for name in names:
        client = stage.client(name)
        client.publish("t", 0, 1, qos=1)
        client.leave()
    stage.turn()
    return [session.client for session in stage.broker.registry.ended_publishers.values()]


def test_the_last_that_ended_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_publishers, "ENDED_PUBLISHERS_MAX", 3)
    assert ended(Stage(), "a", "b", "c", "d", "e") == ["c", "d", "e"]


def test_long_names_push_out_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_publishers, "ENDED_PUBLISHERS_BYTES_MAX", 86_000)
    stage = Stage()
    assert ended(stage, "a", "b" * 20_000, "c" * 20_000) == ["b" * 20_000, "c" * 20_000]
    assert stage.broker.registry.ended_publishers.bytes <= 86_000
    assert ended(stage, "d" * 60_000) == []
    assert stage.broker.registry.ended_publishers.bytes == 0


def test_what_is_lost_of_an_ended_publisher_is_counted() -> None:
    stage = Stage()
    stuck = stage.consumer("stuck", "t", reads=STUCK, buffer=0)
    client = stage.client("publisher")
    client.publish("t", 0, 5)
    stage.turn()
    client.leave()
    stuck.leave()
    [session] = stage.broker.registry.ended_publishers.values()
    assert session.lost_records.total() == 5
