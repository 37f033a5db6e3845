"""Parts of runs: of one that has deletes, and of one for a lane that does not have records as they were published: it
tells what is out of focus (log/focus.py), or has a shape (forms/shape.py).

A run with deletes on a keyed topic is published in parts, of which those with deletes are marked.

A delete's subscribers are told with the user properties ``headway-event: delete`` and, where there is no payload to
find it in, ``headway-key``. The marks are written once, before the run goes into the journal and the lanes. So whoever
reads the record later, from wherever, reads it as a delete.

AMQP properties that came from an AMQP publisher are passed on as they came, without the marks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from headway.core.consumer import Feed, Session
from headway.core.forms import merge_slice
from headway.core.log import Focus, State
from headway.core.message import (
    DELETE,
    EVENT,
    TOLD_KEY,
    KeyExtractor,
    Record,
    Run,
    may_delete,
    says_delete,
    says_merge,
)
from headway.core.routing.matching.router import Route
from headway.core.selector import Decoded

RECORDS_A_UNIT = 128
"""So many more records in one lane are as much work as one more lane."""
SELECTED_A_UNIT = 4
"""So many records that a selector looks at are as much work as one more lane."""
DECODED_A_UNIT = 4096
"""So many bytes of records that a selector looks at are as much work as one more lane: it may decode all of them."""
PAIRS_A_UNIT = 4
"""So many user properties of a record that is put into a state are as much work as one more lane: their size is found
out each time."""
SLICE_WORK = 1024
WIDE_RECORDS_MAX = 256
"""So many records go to very many lanes at a time: others who publish there wait for them."""
SLICES_PER_POOL = 32
Befores = dict[State, list[tuple[str | None, Record | None]]]
"""For each record of a run, its key in each state, and the record that the state has of this key before it."""


def part_of(run: Run, start: int, stop: int) -> Run:
    """Returns records ``start`` … ``stop - 1`` of a run as a run."""
    if start == 0 and stop == len(run):
        return run
    begin = run.ends[start - 1] if start else 0
    piece = Run(
        run.topic, run.data[begin : run.ends[stop - 1]],
        [end - begin for end in run.ends[start:stop]], [body - begin for body in run.bodies[start:stop]],
        run.form, run.qos, run.retain, run.properties, run.expires_s,
    )  # fmt: skip
    piece.publisher, piece.journaled, piece.confirmed = run.publisher, run.journaled, run.confirmed
    piece.exchange, piece.headers = run.exchange, run.headers
    if run.own is not None:
        piece.properties = run.own.of(start)
        piece.own = run.own.part(start, stop) if stop - start > 1 else None
    return piece


def marked_parts(run: Run, key: KeyExtractor) -> Iterator[tuple[Run, int]]:
    """Yields a run in parts, each with the index of its first record. Deletes are marked, and apart from the others."""
    if run.properties.user_value(EVENT) == DELETE:  # it was marked before
        yield run, 0
        return
    flagged, found = says_delete(run.properties), key.find(run.topic, run.properties, b"")
    if not flagged and found is None:  # records without payload and key are ordinary ones
        yield run, 0
        return
    empty = [body == end for body, end in zip(run.bodies, run.ends, strict=True)]
    start = 0
    for at in range(1, len(run) + 1):
        if at < len(run) and empty[at] == empty[start]:
            continue
        part = part_of(run, start, at)
        if flagged or empty[start]:
            part = _marked(part, found if empty[start] else None)
        yield part, start
        start = at


def _marked(run: Run, key: str | None) -> Run:
    """Returns the run with the marks of a delete. It has to be encoded anew, so it has no wire form."""
    marks = ((EVENT, DELETE),) if key is None else ((EVENT, DELETE), (TOLD_KEY, key))
    properties = msgspec.structs.replace(run.properties, user=run.properties.user + marks)
    marked = Run(run.topic, run.data, run.ends, run.bodies, None, run.qos, run.retain, properties, run.expires_s,
                 run.exchange, run.headers)  # fmt: skip
    marked.publisher, marked.journaled, marked.confirmed = run.publisher, run.journaled, run.confirmed
    marked.origin, marked.receipt = run.origin, run.receipt
    return marked


def _looks_back_at(feed: Feed) -> State | None:
    """Returns the state whose records before those of a run a feed needs; None: it needs none."""
    if feed.focus is not None:
        return feed.focus.state
    return None if feed.deltas is None else feed.deltas.state


def records_before(feeds: list[Feed], run: Run, first: int, now: float) -> Befores:
    """Looks up the records before those of a run, which is not in the states yet."""
    found: Befores = {}
    for feed in feeds:
        state, latest = _looks_back_at(feed), dict[str | None, Record]()
        if state is None or state in found:
            continue
        before = found[state] = []
        for index, key in enumerate(state.key.of_run(run)):
            before.append((key, latest.get(key) or state.get(run.topic, key)))
            latest[key] = run.record(index, first, now)
    return found


def worked_out_parts(
    feed: Feed, run: Run, first: int, before: Befores, decoded: Decoded, now: float
) -> list[tuple[Run, int]]:
    """Returns what a feed with a focus or a shape gets of a run, each with the index of its record."""
    if feed.focus is not None:
        parts = _focused_parts(feed, feed.focus, run, first, before, decoded, now)
    else:
        wanted = range(len(run)) if feed.selector is None else feed.selector.select(run, decoded)
        parts = [(part_of(run, index, index + 1), index) for index in wanted]
    shape = feed.shape
    if shape is None:
        return parts
    known = [] if shape.deltas is None else before[shape.deltas.state]
    return [
        (shape.part(part, first + index, known[index][1] if known else None, now), index) for part, index in parts
    ]


def _focused_parts(
    feed: Feed, focus: Focus, run: Run, first: int, before: Befores, decoded: Decoded, now: float
) -> list[tuple[Run, int]]:
    """Returns the records that the feed's selector accepts, and what is told of keys that it has accepted until then,
    each with the index of its record."""
    selector = feed.selector
    assert selector is not None
    selected, parts = set(selector.select(run, decoded)), list[tuple[Run, int]]()
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


def merges_of(run: Run, route: Route) -> State | None:
    """Returns the state whose records the records of a run are merged onto; None: they are no patches."""
    return route.merges if route.merges is not None and says_merge(run.properties) else None


def slice_of(run: Run, route: Route, session: Session, start: int = 0) -> int:
    """Returns how many records of the run, from record ``start`` on, are a slice."""
    count = len(run.ends)
    merges = merges_of(run, route)
    if count == 1 or (len(route.feeds) < 2 and not route.selecting and not route.states and merges is None):
        return count
    most = count if merges is None else merge_slice(merges, run)
    slice_bytes = session.pool.memory_limit // SLICES_PER_POOL
    if len(run.data) * len(route.feeds) > slice_bytes:  # the first may be by far the largest
        begin = run.ends[start - 1] if start else 0
        most = min(most, bisect_right(run.ends, begin + slice_bytes // len(route.feeds), start) - start)
    work = 0
    if route.wide:  # it is divided by lanes, and is less work for each record the more records it has
        most = min(most, WIDE_RECORDS_MAX)
    else:
        work = count * (len(route.feeds) // RECORDS_A_UNIT) + selecting_work(run, route.selecting)
    if route.keyed is not None and may_delete(run):  # each record may be a part of its own
        work += count * len(route.feeds)
    work += count * len(route.worked_out)
    work += count * put_work(run) * sum(not state.by_topic for state in route.states)
    if work > SLICE_WORK:
        most = min(most, count * SLICE_WORK // work)
    return max(1, most)


def work_of(run: Run, route: Route, taken: int) -> int:
    """Returns the work of publishing a run that ``taken`` lanes and states took. What is spread counts for itself."""
    if route.wide:
        return 1
    count, work = len(run.ends), 1 + taken
    if route.selecting:
        work += selecting_work(run, route.selecting)
    return work + taken * (count // RECORDS_A_UNIT)


def put_work(run: Run) -> int:
    """Returns the work of putting one record of a run into a state."""
    return 1 + len(run.properties.user) // PAIRS_A_UNIT


def selecting_work(run: Run, cost: int) -> int:
    """Returns the work of selectors of this cost. The begin of a run costs each as much as one record."""
    records = len(run.ends) + 1 + SELECTED_A_UNIT * (len(run.data) // DECODED_A_UNIT)
    return cost * records // SELECTED_A_UNIT
