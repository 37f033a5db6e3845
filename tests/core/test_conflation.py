"""What a conflated consumer is owed: counted down as records turn out to be left out, and counted once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.core.stage import STEP_S, STUCK, Stage

from headway.core.base.errors import Reason
from headway.core.consumer.progress import Counters
from headway.core.consumer.reader import Conflation


@pytest.mark.parametrize(
    ("on_their_way", "owed_bytes", "skipped_bytes"), [(3, 750, 250), (1, 250, 750), (0, 0, 1000)]
)
def test_what_is_left_out_is_owed_no_longer(on_their_way: int, owed_bytes: int, skipped_bytes: int) -> None:
    """Offered less sent less skipped is what waits: bytes that are skipped and still owed would count twice."""
    conflation, gaps = Conflation(), []
    conflation.owed_records, conflation.owed_bytes = 4, 1000
    subscription = SimpleNamespace(counters=Counters(0, 0), note_gap=lambda *gap: gaps.append(gap))
    conflation.own_up(subscription, on_their_way)
    assert (conflation.owed_records, conflation.owed_bytes) == (on_their_way, owed_bytes)
    assert subscription.counters.skipped_bytes == skipped_bytes
    assert [(gap[0], gap[-1]) for gap in gaps] == [(4 - on_their_way, Reason.CONFLATED)]


def test_the_lag_of_who_is_conflated_without_a_break_is_as_old_as_what_it_still_gets() -> None:
    """It never catches up, and what it reads is never old: it gets the latest of each key again and again."""
    stage = Stage()
    client = stage.consumer("c", "t/#", reads=4000, buffer=500, options={"conflate": "0s"})
    publisher = stage.client("p")
    ages: list[float] = []
    published: dict[int, float] = {}
    for number, _ in enumerate(stage.steps(40)):
        for key in range(20):
            published[20 * number + key] = stage.now
            publisher.publish(f"t/{key}", 20 * number + key)
        if client.seen and number > 50:
            ages.append(stage.stats(client).lag_age_ms / 1000)
            assert ages[-1] <= stage.now - published[client.numbers[-1]] + STEP_S, "it has read that already"
    assert stage.stats(client).state == "conflating"
    assert max(ages) < 3, "a pass over all keys takes less than a second"
    client.reads = STUCK
    for number, _ in enumerate(stage.steps(10)):
        publisher.publish("t/0", number)
    assert stage.stats(client).lag_age_ms >= 10_000, "now it waits, though newer records take the place of old ones"


def test_the_lag_of_who_is_conflated_begins_with_the_first_record_after_a_rest() -> None:
    stage = Stage()
    client, publisher = stage.consumer("c", "t", options={"conflate": "0s"}), stage.client("p")
    publisher.publish("t", 0)
    stage.run(60)
    client.reads, client.outlet.capacity = STUCK, 0
    for number in (1, 2):  # the first is written, and waits for the socket
        publisher.publish("t", number)
        stage.turn()
    stage.run(2)
    told = stage.stats(client)
    assert told.lag_records
    assert 1000 <= told.lag_age_ms <= 3000
    assert told.view_age_ms <= 3000
