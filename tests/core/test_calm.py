"""What is let go of when nobody is behind any more, and while somebody is who needs no more than the state."""

from __future__ import annotations

from math import inf

import pytest
from tests.core.stage import STUCK, Stage


def test_nobody_looks_at_who_has_caught_up() -> None:
    stage = Stage()
    publisher, slow = stage.client("publisher"), stage.consumer("slow", "t", reads=STUCK)
    publisher.publish("t", 0, 100)
    stage.run(1)
    assert len(stage.broker.registry.watched) == 1
    slow.reads = inf
    stage.run(5)
    assert slow.numbers == list(range(100))
    assert not stage.broker.registry.watched


def test_who_reads_the_state_keeps_nothing_in_the_lane() -> None:
    """Though its socket takes nothing."""
    stage = Stage()
    publisher = stage.client("publisher")
    stage.consumer("stuck", "t", reads=STUCK, options={"conflate": "100ms"})
    most = 0
    for number in range(500):
        publisher.publish("t", number, size=1000)
        stage.turn()
        most = max(most, stage.pool.memory_bytes)
        if number % 50 == 0:
            stage.run(0.2)
    assert most < 20_000


@pytest.mark.parametrize("keeps", ["keep_records = 10", 'keep_bytes = "2kB"'])
def test_the_lowest_priorities_go_while_more_waits_than_is_to_be_kept(keeps: str) -> None:
    stage = Stage(f"""
        [[policy]]
        name = "p"
        [[policy.rule]]
        when = {{ lag_records = 20 }}
        then = {{ action = "discard", which = "lowest_priority", {keeps} }}
    """)
    publisher, slow = stage.client("publisher"), stage.consumer("slow", "t", reads=STUCK)
    for number in range(60):
        publisher.publish("t", number, size=170, priority=9 if 30 <= number < 40 else 1)
    stage.run(1)
    slow.reads = inf
    stage.run(1)
    assert [number for number in slow.numbers if number >= 20] == list(range(30, 40))
