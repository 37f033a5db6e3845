"""A group of very many members, or of very many records: nobody who joins or leaves it does the work of all."""

from __future__ import annotations

from tests.core.stage import STUCK, Stage
from tests.core.test_idle import steps

from headway.core.queue.queue import queue_of

WINDOW = 100
MANY = 1000


def held_by(members: int) -> Stage:
    """A group whose members hold as many records as they may."""
    stage = Stage(memory="64MB")
    publisher = stage.client("publisher")
    for number in range(members):
        stage.client(f"m{number}", window=WINDOW, acks=False).subscribe("$share/g/jobs", 1)
    publisher.publish("jobs", 0, members * WINDOW, qos=1)
    stage.turn()
    assert sum(len(stage.clients[f"m{number}"].session.channel.in_flight) for number in range(members)) == (
        members * WINDOW
    )
    return stage


def lines_of_the_last_that_leaves(members: int) -> int:
    stage = held_by(members)
    for number in range(1, members):
        stage.clients[f"m{number}"].leave()
        stage.clients["m0"].outlet.state.window_closed = True
    lines = steps(stage.clients["m0"].leave)
    while stage.broker.has_work:
        stage.broker.flush(stage.now)
    publisher = stage.clients["publisher"].session
    assert publisher.lost_records == {"subscription_ended": members * WINDOW}, "each is counted once"
    assert stage.broker.registry.totals.gap_records == {"subscription_ended": members * WINDOW}
    stage.check()
    return lines


def test_the_last_that_leaves_does_not_count_what_all_have_given_back() -> None:
    lines_of_the_last_that_leaves(2)
    assert lines_of_the_last_that_leaves(40) <= lines_of_the_last_that_leaves(20) + 1500


def test_who_joins_does_not_look_at_all_whose_sessions_have_ended() -> None:
    stage = Stage(memory="64MB")
    heavy = stage.client("heavy")
    for number in range(MANY):
        heavy.subscribe(f"t/{number}", 1)
    there = stage.client("there", reads=STUCK).subscribe("$share/g/jobs", 1)
    members = [stage.client(f"m{number}") for number in range(MANY)]
    for member in members:
        member.subscribe("$share/g/jobs", 1)
    heavy.leave()
    for member in members:
        member.leave()
    queue = queue_of(there.reader.queue)
    assert len(queue.members) > MANY // 2, "their turn to end is to come"
    first, second = (stage.client(name) for name in ("first", "second"))
    first.subscribe("$share/g/jobs", 1)
    first.leave()
    assert steps(lambda: second.subscribe("$share/g/jobs", 1)) < MANY
    assert len(queue.members) > MANY // 2
