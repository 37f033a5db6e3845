"""Very many writers whose batches are done: what asks for those that are not does not look at all of them."""

from __future__ import annotations

from math import inf

from tests.core.stage import Stage
from tests.core.test_idle import steps

from headway.core.clients.publishers import Writers
from headway.core.permission import NOBODY


def with_writers(count: int) -> Writers:
    stage = Stage()
    writers = stage.broker.writers
    for number in range(count):
        writers.begin(f"w{number}", 1, ("part",), stage.now, NOBODY)
        writers.done(f"w{number}", stage.now)
    return writers


def test_what_the_journal_may_remove_is_asked_of_unfinished_batches_alone() -> None:
    lines = [steps(with_writers(count).needed_sequence) for count in (10, 1000)]
    assert lines[1] <= lines[0] + 5


def test_the_oldest_unfinished_batch_counts() -> None:
    writers = with_writers(3)
    assert writers.needed_sequence() == inf
    writers._registry.sequence = 7
    writers.begin("w1", 2, ("part",), 0.0, NOBODY)
    writers._registry.sequence = 9
    writers.begin("w2", 2, ("part",), 0.0, NOBODY)
    assert writers.needed_sequence() == 8
    assert set(writers.unfinished()) == {"w1", "w2"}
    writers.done("w1", 1.0)
    assert writers.needed_sequence() == 10
    writers.forget("w2")
    assert writers.needed_sequence() == inf
    assert set(writers.names()) == {"w0", "w1"}
