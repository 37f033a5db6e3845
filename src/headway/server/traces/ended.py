"""An ended trace, as the loop hands it to the thread: nothing in it changes any more."""

from __future__ import annotations

from typing import NamedTuple

from headway.core.policy import DecisionKind, Verdict, VerdictBook
from headway.core.receipts import Fate, Trace


class Ended(NamedTuple):
    trace: Trace
    verdicts: tuple[Verdict | None, ...]
    """For each fate of the trace, the last verdict on its consumer while the record was under way."""
    wall_offset_s: float
    """Time since 1970 less the time of the broker's clock."""


def ended(trace: Trace, book: VerdictBook, wall_offset_s: float) -> Ended:
    return Ended(trace, tuple(_verdict(fate, trace, book) for fate in trace.fates), wall_offset_s)


def _verdict(fate: Fate, trace: Trace, book: VerdictBook) -> Verdict | None:
    last = book.last(fate.client) if fate.client else None
    if last is None or last.time_s < trace.opened_s:
        return None
    for verdict in reversed(book.of(fate.client)):
        if verdict.time_s < trace.opened_s:
            return None
        decided = verdict.kind is DecisionKind.FIRE and verdict.enforced
        if decided and verdict.filter == fate.name and verdict.time_s <= fate.at_s:
            return verdict
    return None
