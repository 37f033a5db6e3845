"""Segments of facts alone are removed between others that stay; and whatever happens meanwhile, nothing else is."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from tests.store.journal.fake_files import FakeFiles, PowerLoss

from headway.store.journal.journal import Journal
from headway.store.journal.recovery import verify
from headway.store.journal.segments.batch import Entry
from headway.store.journal.stream import Stream

FOLDER = Path("/journal")
RUN, FACT, MARK = 1, 2, 6
PLAN = ["runs", "facts", "facts", "runs", "facts", "runs", "facts", "facts", "facts"]
"""What each segment has; the last is the current one."""
STAY = ["runs", "runs", "runs", "facts"]
"""For the last but one is said again by the current one."""


def built(files: FakeFiles) -> tuple[Journal, set[int]]:
    """With the sequences its segments begin with."""
    journal, sequence, marks = Journal(files, FOLDER), 0, set()
    journal.open(["main"])
    for number, what in enumerate(PLAN):
        sequence += 1
        marks.add(sequence)
        journal.commit({"main": [Entry(MARK, sequence, 1, (b"",))]}, number, roll=["main"])
        for step in range(3):
            entry = Entry(FACT, sequence, 0, (f"{number} {step}".encode(),))
            if what == "runs":
                sequence += 1
                entry = Entry(RUN, sequence, 1, (f"{number} {step}".encode(),))
            journal.commit({"main": [entry]}, number)
    return journal, marks


def free(stream: Stream, marks: set[int]) -> int:
    idle = {mark for mark, what in zip(sorted(marks), PLAN, strict=False) if what == "facts"}
    return stream.free_between(idle, marks)


def there(stream: Stream) -> list[str]:
    """What its segments have."""
    segments: list[set[int]] = []
    for _, batch in stream.scan():
        for stored in batch:
            if stored.kind == MARK:
                segments.append(set())
            segments[-1].add(stored.kind)
    return ["runs" if RUN in kinds else "facts" for kinds in segments]


def runs(stream: Stream) -> list[int]:
    return [stored.sequence for _, batch in stream.scan({RUN}) for stored in batch]


def test_those_that_the_next_one_says_again() -> None:
    files = FakeFiles()
    journal, marks = built(files)
    stream = journal.stream("main")
    before = runs(stream)
    assert free(stream, marks) > 0
    assert free(stream, marks) == 0
    assert there(stream) == STAY
    assert [stored.sequence for _, batch in stream.read(1, 100) for stored in batch if stored.kind == RUN] == before
    journal.close()
    assert verify(FOLDER / "main", files).good
    again = Journal(files, FOLDER)
    assert again.open(["main"]) == []
    assert (there(again.stream("main")), runs(again.stream("main"))) == (STAY, before)


def test_none_but_between_snapshots_that_are_whole() -> None:
    journal, marks = built(FakeFiles())
    stream, ordered = journal.stream("main"), sorted(marks)
    stream.free_between(set(ordered[1:3]), marks - {ordered[2]})
    assert there(stream) == PLAN
    stream.free_between(set(ordered[:3]), marks - {ordered[3]})
    assert there(stream) == ["runs", "facts", *PLAN[3:]]
    stream.free_between(marks, marks)
    assert there(stream) == ["runs", "facts"], "the oldest and the current one"


def test_what_is_lost_is_lost_all_the_same() -> None:
    files = FakeFiles()
    journal, marks = built(files)
    free(journal.stream("main"), marks)
    victim = [path for path in files.seen if path.parent.name == "main" and path.suffix == ".journal"][1]
    journal.close()
    files.remove(victim)
    assert not verify(FOLDER / "main", files).good


@pytest.mark.parametrize("power", [True, False])
def test_whatever_happens_meanwhile(power: bool) -> None:
    at = survived = 0
    while True:
        files = FakeFiles()
        journal, marks = built(files)
        stream, left = journal.stream("main"), at

        def hook(operation: str, path: Path) -> None:
            nonlocal left
            left -= operation not in ("read", "open")
            if left < 0:
                raise PowerLoss if power else OSError(errno.EIO, "failing")

        before = runs(stream)
        files.hook = hook
        try:
            free(stream, marks)
        except (PowerLoss, OSError):
            survived += 1
        else:
            break
        files.hook = None
        if not power:
            free(stream, marks)
            assert there(stream) == STAY
        for seed in range(10):
            after = files.crash(random.Random(seed))
            assert verify(FOLDER / "main", after).good
            again = Journal(after, FOLDER)
            again.open(["main"])
            assert runs(again.stream("main")) == before
            free(again.stream("main"), marks)
            assert there(again.stream("main")) == STAY
            again.close()
        at += 1
    assert survived > 8
