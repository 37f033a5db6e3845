"""Finds what a run puts out of focus, for the lanes that tell it (log/focus.py)."""

from __future__ import annotations

from headway.core.consumer import Feed
from headway.core.log import State
from headway.core.message import Record, Run
from headway.core.routing.parts import part_of

Befores = dict[State, list[tuple[str | None, Record | None]]]
"""For each record of a run, its key in each state, and the record that the state has of this key before it."""


def records_before(focused: list[Feed], run: Run, first: int, now: float) -> Befores:
    """Looks up the records before those of a run, which is not in the states yet."""
    found: Befores = {}
    for feed in focused:
        if feed.focus is None or feed.focus.state in found:
            continue
        state, latest = feed.focus.state, dict[str | None, Record]()
        before = found[state] = []
        for index, key in enumerate(state.key.of_run(run)):
            before.append((key, latest.get(key) or state.get(run.topic, key)))
            latest[key] = run.record(index, first, now)
    return found


def focused_parts(feed: Feed, run: Run, first: int, before: Befores, now: float) -> list[tuple[Run, int]]:
    """Returns the records that the feed's selector accepts, and what is told of keys that it has accepted until then,
    each with the index of its record."""
    selector, focus = feed.selector, feed.focus
    assert selector is not None
    assert focus is not None
    selected, parts = set(selector.select(run)), list[tuple[Run, int]]()
    for index, (key, old) in enumerate(before[focus.state]):
        if index in selected:
            parts.append((part_of(run, index, index + 1), index))
        elif focus.loses(run.topic, key, old, first + index):
            told = focus.left(run.record(index, first, now))
            assert told is not None, "the route is that of the filter"
            part = told.run()
            part.publisher, part.confirmed = run.publisher, run.confirmed
            parts.append((part, index))
    return parts
