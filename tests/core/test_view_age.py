"""How old the records are that a client reads: told from what it has read and when that was taken."""

from __future__ import annotations

from math import inf

import pytest
from tests.core.stage import STEP_S, STUCK, Client, Stage

from headway.core.consumer.progress import MARKS_MAX, ViewAge

KEYS = 20
RULE = """
[[policy]]
name = "p"
topics = ["#"]
[[policy.rule]]
when = { lag_age = "1s" }
then = %s
"""


def test_what_lies_between_two_marks_is_in_between() -> None:
    view = ViewAge()
    view.note(1000, 10.0)
    view.note(2000, 20.0)
    assert view.seconds(1000, 25.0, 30.0) == 20.0
    assert view.seconds(1500, 25.0, 30.0) == 15.0
    assert view.seconds(2000, 25.0, 30.0) == 5.0, "all was read: the next record is what it sees next"
    assert view.seconds(2000, inf, 30.0) == 0.0, "nothing waits"


def test_what_was_taken_before_the_first_mark_is_older_than_that() -> None:
    view = ViewAge()
    view.note(1000, 10.0)
    assert view.seconds(400, inf, 30.0) == 20.0


def test_a_cursor_that_a_policy_moved_makes_the_next_record_newer() -> None:
    view = ViewAge()
    view.note(1000, 10.0)
    view.note(1000, 18.0)
    assert view.seconds(900, inf, 20.0) == 2.0


def test_another_connection_begins_anew() -> None:
    view = ViewAge()
    view.note(5000, 10.0)
    view.note(100, 20.0)
    assert view.seconds(50, inf, 21.0) == 1.0


def test_marks_are_few_and_still_tell() -> None:
    view = ViewAge()
    for number in range(20 * MARKS_MAX):
        view.note(1000 * number, float(number))
    assert len(view._marks) <= MARKS_MAX
    for at in (0, 700, 2000):
        assert view.seconds(1000 * at, inf, 3000.0) == pytest.approx(3000.0 - at, abs=1.0)


def fed(stage: Stage, client: Client, seconds: float) -> list[tuple[float, float]]:
    """Publishes the time over some keys, a step after the other. Returns what was said and what was true: (view age,
    age of the last record that was read)."""
    publisher, pairs, number = stage.client("p"), [], 0
    sent: dict[int, float] = {}
    for _ in range(round(seconds / STEP_S)):
        for key in range(KEYS):
            sent[number] = stage.now
            publisher.publish(f"t/{key}", number)
            number += 1
        stage.run(STEP_S)
        if client.seen:
            pairs.append((stage.stats(client).view_age_ms / 1000, stage.now - sent[client.numbers[-1]]))
    return pairs


@pytest.mark.parametrize("conflate", [{}, {"conflate": "0s"}], ids=["every record", "conflated"])
def test_it_is_the_age_of_what_is_read_though_a_buffer_lies_between(conflate: dict[str, str]) -> None:
    stage = Stage()
    client = stage.consumer("c", "t/#", reads=4000, buffer=8000, options=conflate)
    pairs = fed(stage, client, 20)[30:]
    assert max(true for _, true in pairs) > 1.5, "it is behind"
    for said, true in pairs:
        assert said == pytest.approx(true, abs=0.2 + 0.25 * true)


def test_who_keeps_up_sees_what_is_new() -> None:
    stage = Stage()
    client = stage.consumer("c", "t/#")
    assert {said for said, _ in fed(stage, client, 3)} == {0.0}


def test_who_is_away_sees_nothing() -> None:
    stage = Stage()
    client = stage.consumer("c", "t/#", 1, reads=STUCK, expiry_s=60)
    fed(stage, client, 5)
    assert stage.stats(client).view_age_ms >= 3000
    client.leave()
    assert stage.stats(client).view_age_ms == 0


def test_an_outlet_is_to_be_fresh_while_a_policy_passes_records_over() -> None:
    stage = Stage(RULE % '{ action = "discard", which = "oldest", keep_records = 1 }')
    client = stage.consumer("c", "t/#", reads=4000, buffer=8000)
    assert not client.outlet.fresh
    fed(stage, client, 8)
    assert client.outlet.fresh


def test_an_outlet_is_to_be_fresh_from_the_beginning_if_a_policy_may_conflate() -> None:
    """What two kernels hold when that begins can no longer be conflated."""
    stage = Stage(RULE % '"conflate"')
    assert stage.consumer("c", "t/#", reads=4000, buffer=8000).outlet.fresh


def test_an_outlet_may_hold_what_it_likes_where_every_record_is_sent() -> None:
    stage = Stage(RULE % '"notify"')
    client = stage.consumer("c", "t/#", reads=4000, buffer=8000)
    fed(stage, client, 8)
    assert not client.outlet.fresh


def test_an_outlet_is_to_be_fresh_for_who_asked_to_be_conflated_also_after_it_came_back() -> None:
    stage = Stage()
    client = stage.client("c", expiry_s=60)
    client.subscribe("t/#", conflate="0s")
    fed(stage, client, 1)
    assert client.outlet.fresh
    client.leave()
    client.connect()
    assert not client.outlet.fresh
    fed(stage, client, 1)
    assert client.outlet.fresh
