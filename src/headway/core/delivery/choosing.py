"""Choosing the records that a discard leaves out: by what a predicate says of each, or until few enough are left."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from headway.core.consumer import Predicate, Subscription
from headway.core.delivery.frames import marked
from headway.core.log import Chunk
from headway.core.message import matcher
from headway.core.policy import Action, Which
from headway.core.selector import compile_selector, priority_of

LOOKED_AT_WORK = 4
"""The work of looking at one record."""
CHUNK_WORK, RANGE_WORK = 16, 4
"""The work of looking at what is known of a chunk, and of leaving out some neighbours."""
PRIORITY = Predicate(("priority of",), priority_of)
UNREADABLE = 0xFF
_RUNS = [re.compile(re.escape(bytes((figure,))) + b"+") for figure in range(10)]


def predicate_of(action: Action) -> Predicate | None:
    """Returns the test of a discard that leaves out records by topic or selector; None for any other."""
    if action.which is Which.TOPICS:
        tests = [matcher(pattern) for pattern in action.topics]
        return Predicate(("topics", action.topics), lambda record: any(test(record.topic) for test in tests))
    if action.which is Which.SELECTOR:
        return Predicate(("selector", action.selector), compile_selector(action.selector).matches)
    return None


def figures_of(subscription: Subscription, chunk: Chunk, predicate: Predicate, index: int) -> bytes:
    """Returns what a predicate says of the first records of the chunk, beyond ``index``; ``UNREADABLE`` of those
    that cannot be read. Sending them will report it."""
    try:
        return marked(subscription, chunk, predicate, index)
    except OSError:
        return bytes((UNREADABLE,)) * len(chunk)


def neighbours(figures: bytes, figure: int, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yields the ranges of records of which a predicate says this figure, from ``first`` to the one before ``last``."""
    for found in _RUNS[figure].finditer(figures, first, last):
        yield found.span()


def enough(chunk: Chunk, first: int, last: int, records: float, size: float) -> int:
    """Returns how many of records ``first`` … ``last - 1`` are at least so many records and bytes; all if they are
    less."""
    count = max(0, records)
    if size > 0:
        count = max(count, bisect_left(chunk.ends, chunk.record_start(first) + size, first, last) - first + 1)
    return int(min(last - first, count))


def at_most(chunk: Chunk, first: int, last: int, records: float, size: float) -> int:
    """Returns how many of records ``first`` … ``last - 1`` are at most so many records and bytes."""
    return int(min(records, bisect_right(chunk.ends, chunk.record_start(first) + size, first, last) - first))
