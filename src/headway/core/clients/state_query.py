"""A query of the state: the records that match, in an order, a page of them; in steps of bounded work.

In the order of the offsets (the default) records are found as the state is read, and a page of the first ends the
reading early. In any other order the whole state is read, and only the best of it are kept: ``PAGE_MAX`` at most, so a
query of a million keys holds no more than its page. What it holds is on the tab of its client.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Generator
from typing import Any

import msgspec

from headway.core.base import Reason, Refused
from headway.core.log import QUERIES, SAVED_RECORD_BYTES, State, StateReading, Tab
from headway.core.message import KeyExtractor, Record, covers, matcher
from headway.core.routing import Registry
from headway.core.selector import BadOrder, BadSelector, Ordering, compile_ordering, compile_selector

STEP_RECORDS = 128
"""The most records that one step looks at; it ends sooner if they are large."""
PAGE_MAX = 10_000
"""The most records of an answer that is ordered by anything but the offset, with those that are skipped."""


class StateRequest(msgspec.Struct, frozen=True):
    """A query as its client said it."""

    filter: str
    selector: str | None = None
    order_by: str = "offset"
    top: int | None = None
    """The most records that are wanted; None: all."""
    skip: int = 0


class NoState(Exception):
    """There is no state that covers a filter."""


class StateQuery:
    """One query that is being answered, until ``close``. Raises :class:`Refused`, :class:`NoState`."""

    def __init__(self, request: StateRequest, registry: Registry, tab: Tab | None = None) -> None:
        """``tab``: that of the client; None: one of its own."""
        self.ordering = _ordering(request)
        self._selects = _selection(request)
        states = [state for state in registry.router.states if state.declared and covers(state.filter, request.filter)]
        if not states:
            raise NoState(f"{request.filter} has no state: no keyed [[topic]] covers it")
        self.state: State = states[0]
        self.key_of: KeyExtractor = self.state.key
        self.as_of = registry.sequence
        """The sequence as of which the answer is true."""
        self.evicted_records = self.state.evicted_records
        self.looked_at = 0
        """The number of records looked at so far."""
        self._on_topic = None if self.state.filter == request.filter else matcher(request.filter)
        self._top, self._skip = request.top, request.skip
        self._tab = Tab(self.state.pool) if tab is None else tab
        self._reading = StateReading(self.state, self.as_of, self._tab, newest_first=self.ordering.by_offset < 0)
        self._page_bytes = 0
        """The bytes of the page of an answer that is ordered by anything but the offset."""

    @property
    def given_up(self) -> str:
        """The reason why the answer is not whole; empty: it is."""
        return self._reading.given_up

    def steps(self) -> Generator[list[Record], None, None]:
        """Does the query in steps. Each yields the records of the answer that it found, maybe none."""
        return self._by_offset() if self.ordering.by_offset else self._ordered()

    def close(self) -> None:
        """Ends the query, wherever it is. What it held is off the tab."""
        self._reading.close()
        self._tab.add(QUERIES, -self._page_bytes)
        self._page_bytes = 0

    def _by_offset(self) -> Generator[list[Record], None, None]:
        to_skip, left = self._skip, self._top
        while left is None or left > 0:
            some = self._reading.take(STEP_RECORDS)
            found = self._select(some)
            skipped = min(to_skip, len(found))
            to_skip -= skipped
            found = found[skipped:] if left is None else found[skipped : skipped + left]
            if left is not None:
                left -= len(found)
            yield found
            if self._reading.closed:
                return

    def _ordered(self) -> Generator[list[Record], None, None]:
        assert self._top is not None
        most = self._skip + self._top
        best: list[tuple[tuple[Any, ...], Record]] = []
        more = most > 0
        while more:
            some = self._reading.take(STEP_RECORDS)
            more = not self._reading.closed
            for record in self._select(some):
                rank = self.ordering.rank(record, self.key_of)
                if len(best) < most or rank < best[-1][0]:
                    insort(best, (rank, record), key=_rank)
                    self._keep(record)
                    if len(best) > most:
                        self._keep(best.pop()[1], -1)
                    if self.given_up:
                        return
            yield []
        if self.given_up:
            return
        for at in range(self._skip, len(best), STEP_RECORDS):
            yield [record for _, record in best[at : min(at + STEP_RECORDS, len(best))]]

    def _keep(self, record: Record, count: int = 1) -> None:
        """Counts a record that joins the page; ``count`` -1: one that leaves it."""
        size = count * (SAVED_RECORD_BYTES + record.size)
        try:
            if size > 0:
                self._tab.check(size)
        except Refused as refused:
            self._reading.give_up(f"there is no room for its page: {refused}")
        self._tab.add(QUERIES, size)
        self._page_bytes += size

    def _select(self, some: list[Record]) -> list[Record]:
        self.looked_at += len(some)
        on_topic, selects = self._on_topic, self._selects
        if on_topic is not None:
            some = [record for record in some if on_topic(record.topic)]
        return some if selects is None else [record for record in some if selects(record, self.key_of)]


def _rank(entry: tuple[tuple[Any, ...], Record]) -> tuple[Any, ...]:
    return entry[0]


def _ordering(request: StateRequest) -> Ordering:
    try:
        ordering = compile_ordering(request.order_by)
    except BadOrder as error:
        raise Refused(Reason.PROTOCOL_ERROR, str(error)) from error
    if not ordering.by_offset and (request.top is None or request.skip + request.top > PAGE_MAX):
        said = "say top" if request.top is None else f"skip and top are {request.skip + request.top:,} together"
        order = ascii(request.order_by[:60])
        text = f"an answer in the order {order} has a page of at most {PAGE_MAX:,} records: {said}"
        raise Refused(Reason.PROTOCOL_ERROR, text)
    return ordering


def _selection(request: StateRequest) -> Callable[[Record, KeyExtractor | None], bool] | None:
    try:
        return compile_selector(request.selector).matches if request.selector else None
    except BadSelector as error:
        raise Refused(Reason.PROTOCOL_ERROR, str(error)) from error
