"""The checker finds what it is there to find."""

from __future__ import annotations

import pytest
from tests.crash.checker import Checker
from tests.crash.event import (
    Asked,
    Closed,
    Committed,
    Confirmed,
    Counted,
    Cut,
    Delivered,
    Emptied,
    Event,
    Killed,
    RolledBack,
    Sent,
    Settled,
)

A, B, C = (f"p:{number}" for number in (1, 2, 3))


def sent(record: str, conn: int = 1, **more: bool) -> Sent:
    return Sent(record, ("q",), conn, **more)


def given(record: str, conn: int = 2, *, box: str = "q", again: bool = False, alone: bool = True) -> Delivered:
    return Delivered(box, record, conn, again, alone, True)


def done(record: str, conn: int = 2, **more: bool) -> Settled:
    return Settled("q", record, conn, **more)


RIGHT: dict[str, list[Event]] = {
    "settled": [sent(A), Confirmed(A), given(A), done(A)],
    "not confirmed": [sent(A)],
    "transient": [sent(A, durable=False), Confirmed(A), Killed(1)],
    "again for an uncertain settlement": [
        sent(A), Confirmed(A), given(A), done(A), Closed(2), Killed(1), given(A, 3, again=True), done(A, 3),
    ],
    "rejected": [sent(A), Confirmed(A), given(A), Settled("q", A, 2, "dead"), given(A, 3, box="dead"),
                 Settled("dead", A, 3)],
    "counted": [sent(A), Confirmed(A), sent(B), Killed(1), Counted("q", 1), given(A, 3), done(A, 3)],
    "outrun on the next connection": [sent(A), sent(B, 3), given(B), given(A), done(A), done(B)],
    "taken from who was cut off, and learned it late": [
        sent(A), sent(B), Confirmed(B), given(A), given(B, 3, alone=False), given(A, 3, alone=False), Cut(2), Closed(2),
        done(A, 3), done(B, 3),
    ],
    "delivered to who was cut off, and read late": [
        sent(A), Confirmed(A), given(A, again=True, alone=False), given(A, 3, alone=False), Cut(3), Closed(3), done(A),
    ],
    "late, from who was cut off": [
        sent(A), sent(B), Confirmed(B), given(A), Cut(2), Closed(2), given(B, 3), given(A, 3, again=True), done(A, 3),
        done(B, 3),
    ],
    "rolled back": [sent(A), Confirmed(A), given(A), done(A, put_off=True), sent(B, 2, put_off=True), RolledBack(2),
                    done(A)],
}  # fmt: skip
WRONG: dict[str, tuple[list[Event], str]] = {
    "lost": ([sent(A), Confirmed(A), Killed(1)], "lost"),
    "lost after it was delivered": ([sent(A), Confirmed(A), given(A), Closed(2), Killed(1)], "lost"),
    "lost once it was dead": ([sent(A), Confirmed(A), given(A), Settled("q", A, 2, "dead")], "dead has lost"),
    "lost what was committed": ([sent(A, put_off=True), Asked(1), Committed(1)], "lost"),
    "again": (
        [sent(A), Confirmed(A), given(A), done(A), sent(B, 2), Confirmed(B), Closed(2), Killed(1),
         given(A, 3, again=True), done(A, 3), given(B, 3), done(B, 3)],
        "certainly settled",
    ),
    "again after a commit": (
        [sent(A), Confirmed(A), given(A), done(A, put_off=True), Asked(2), Committed(2), Closed(2), Killed(1),
         given(A, 3, again=True), done(A, 3)],
        "certainly settled",
    ),
    "again after a purge": (
        [sent(A), Confirmed(A), Emptied("q", 1), sent(B), Confirmed(B), given(A), done(A), given(B), done(B)],
        "certainly settled",
    ),
    "to two at once": ([sent(A), Confirmed(A), given(A), given(A, 3, again=True), done(A, 3)], "has it"),
    "to two at once, and neither was cut off": (
        [sent(A), Confirmed(A), given(A, again=True), given(A, 3), Cut(4), done(A)], "connection 2 has it",
    ),
    "to two at once, and the first was cut off, which read it before": (
        [sent(A), Confirmed(A), given(A, again=True), given(A, 3), Cut(2), done(A)], "connection 2 has it",
    ),
    "as new twice": ([sent(A), Confirmed(A), given(A), Closed(2), given(A, 3), done(A, 3)], "as new"),
    "to two at once, and a third was cut off": (
        [sent(A), Confirmed(A), given(A), Cut(4), given(A, 3), done(A, 3)], "connection 2 has it",
    ),
    "out of order": ([sent(A), sent(B), given(B, alone=False), given(A, alone=False)], "behind p:2"),
    "out of order, and confirmed before": (
        [sent(A), Confirmed(A), sent(B, 3), given(B), given(A), done(A), done(B)], "behind p:2",
    ),
    "backlog out of order": ([sent(A), sent(B), given(B, again=True), given(A, again=True)], "behind p:2"),
    "out of order after a kill": (
        [sent(A), sent(B), Confirmed(A), Confirmed(B), given(A), Cut(2), Closed(2), Killed(1), given(B, 3),
         given(A, 3, again=True), done(A, 3), done(B, 3)],
        "behind p:2",
    ),
    "not committed": ([sent(A, put_off=True), Killed(1), given(A)], "not committed"),
    "rolled back": ([sent(A, put_off=True), RolledBack(1), given(A)], "not committed"),
    "made up": ([given(A)], "nobody published"),
    "elsewhere": ([sent(A), given(A, box="other")], "which was for q"),
    "transient": ([sent(A, durable=False), Killed(1), given(A)], "transient"),
    "broken": ([sent(A), Delivered("q", A, 2, False, True, False)], "another body"),
    "too few": ([sent(A), Confirmed(A), Killed(1), Counted("q", 0), given(A), done(A)], "must have from 1 to 1"),
    "too many": ([sent(A), Killed(1), Counted("q", 2), given(A), done(A)], "must have from 0 to 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    checker = Checker()
    checker.check(RIGHT[name])
    assert not checker.wrong


def test_what_another_client_of_a_group_may_have_had_comes_back_unmarked() -> None:
    had = [sent(A), sent(B), given(B, alone=False), given(A, alone=False)]
    for events, wrong in ((had, True), ([*had[:3], Closed(4), had[3]], False), ([Closed(4), *had], True)):
        checker = Checker(groups=frozenset("q"))
        checker.check(events)
        assert any("behind p:2" in text for text in checker.wrong) is wrong
    checker = Checker(groups=frozenset("q"))
    checker.check([sent(A), Confirmed(A), given(A), Closed(2), given(A, 3), done(A, 3)])
    assert not checker.wrong


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    events, text = WRONG[name]
    checker = Checker()
    checker.check(events)
    assert any(text in wrong for wrong in checker.wrong), checker.wrong
