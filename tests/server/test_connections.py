"""The table of connections: who is looked at when, and that nobody is looked at for nothing."""

from __future__ import annotations

from math import inf

import pytest

from headway.server.connections.connection import Connection
from headway.server.connections.connections import LOOKS_MAX, Connections


class Silent:
    """A client that says nothing, as the table sees it."""

    def __init__(self, listener: str = "a") -> None:
        self.listener = listener
        self.heard_s = 0.0
        self.address = "127.0.0.1:1"


def table(count: int, due_s: float) -> tuple[Connections, list[Connection]]:
    found, made = Connections(), [Silent() for _ in range(count)]
    for one in made:
        found.add(one, due_s)  # type: ignore[arg-type]
    return found, made  # type: ignore[return-value]


@pytest.mark.parametrize("idle", [1000, 10_000])
def test_who_idles_is_not_looked_at(idle: int) -> None:
    there, _ = table(idle, 90.0)
    busy = Silent()
    there.add(busy, 1.0)  # type: ignore[arg-type]
    looked: list[Connection] = []
    for now in range(1, 80):
        there.look(now, lambda one, now: looked.append(one) or now + 10.0)
    assert looked == [busy] * 8


def test_those_whose_time_has_come_at_once_are_looked_at_some_at_a_time() -> None:
    there, made = table(LOOKS_MAX * 2 + 1, 5.0)
    looked: list[Connection] = []
    rounds = []
    while there.next_s <= 5.0:
        there.look(5.0, lambda one, _: looked.append(one) or inf)
        rounds.append(len(looked))
    assert rounds == [LOOKS_MAX, 2 * LOOKS_MAX, 2 * LOOKS_MAX + 1]
    assert looked == made


def test_what_was_said_last_counts() -> None:
    there, (one,) = table(1, 5.0)
    looked: list[float] = []
    there.look_at(one, 9.0)
    for now in (6.0, 9.0, 10.0):
        there.look(now, lambda _, now: looked.append(now) or inf)
    assert looked == [9.0]
    there.look_at(one, 11.0)
    there.remove(one)
    there.look(12.0, lambda _, now: looked.append(now) or inf)
    assert (looked, len(there), there.by_listener["a"]) == ([9.0], 0, 0)


def test_a_time_that_is_put_off_again_and_again_has_one_place() -> None:
    there, (one,) = table(1, 5.0)
    for due in range(10_000):
        there.look_at(one, 5.0 + due)
    assert len(there._heap) < 100
