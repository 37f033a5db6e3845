"""How the broker runs Python's collector: what was looked through once is not looked through again."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from tests.server.pretended import Loop

from headway.server.loop import LOOK_S, PORTION, Collector


class Thing:
    """Something that the collector looks through."""

    def __init__(self) -> None:
        self.other: Thing | None = None


@pytest.fixture
def loop() -> Iterator[Loop]:
    pretended = Loop()
    before = gc.get_threshold()
    collector = Collector(pretended)  # type: ignore[arg-type]
    collector.start()
    yield pretended
    collector.stop()
    assert gc.get_threshold() == before


def pass_time(loop: Loop) -> None:
    for timer in loop.due(loop.now + LOOK_S):
        timer.call()


def looked_through(things: list[Thing]) -> int:
    """How many of them the next full collection would have to look at."""
    wanted = set(map(id, things))
    return sum(id(one) in wanted for one in gc.get_objects())


def test_what_stays_is_set_aside(loop: Loop) -> None:
    things = [Thing() for _ in range(2 * PORTION)]
    pass_time(loop)
    assert looked_through(things) == 0


def test_a_few_are_not_worth_it(loop: Loop) -> None:
    things = [Thing() for _ in range(PORTION // 10)]
    pass_time(loop)
    assert looked_through(things) == len(things)


def test_python_does_not_look_through_all_by_itself(loop: Loop) -> None:
    generations: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        generations.append(about["generation"])

    gc.callbacks.append(note)
    try:
        things = [Thing() for _ in range(20 * PORTION)]
    finally:
        gc.callbacks.remove(note)
    assert things
    assert set(generations) <= {0, 1}


def test_a_cycle_is_found_before_it_would_be_set_aside(loop: Loop) -> None:
    things = [Thing() for _ in range(2 * PORTION)]
    one = Thing()
    one.other = one
    seen = weakref.ref(one)
    del one
    pass_time(loop)
    assert things
    assert seen() is None


def test_what_was_set_aside_goes_with_its_last_reference(loop: Loop) -> None:
    things = [Thing() for _ in range(2 * PORTION)]
    pass_time(loop)
    seen = weakref.ref(things[0])
    del things
    assert seen() is None
