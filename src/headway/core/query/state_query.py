"""A query of the state: the records that match, in an order, a page of them; in steps of bounded work.

In the order of the offsets (the default) records are found as the state is read, and a page of the first ends the
reading early. Any other order is kept (kept_order.py): the query waits until it is up to date, and takes its page in
one step. Where no order can be kept, or it changes faster than it can be brought up to date, the whole state is read,
and only the best of it are held: ``PAGE_MAX`` at most. What a query holds is on the tab of its client.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Generator, Iterator
from operator import itemgetter

import msgspec

from headway.core.base import Reason, Refused
from headway.core.log import QUERIES, SAVED_RECORD_BYTES, State, StateReading, Tab, share_of
from headway.core.message import KeyExtractor, Record, matcher
from headway.core.query.past import Past
from headway.core.query.present import Present
from headway.core.selector import BadOrder, BadSelector, Ordering, compile_ordering, compile_selector, cost_of

STEP_RECORDS = 128
"""The most records that one step looks at: fewer if they are large, or the selector has many terms."""
PAGE_MAX = 10_000
"""The most records of an answer that is ordered by anything but the offset, with those that are skipped."""
CHASE_MAX = 2
"""A query that has looked at this many times the keys of the state gives up to bring its order up to date."""
CHASE_RECORDS = 10_000
"""A query looks at this many more, so that a small state that changes all the time has its order, too."""
ALL_RECORDS = 2**62
"""As many as there are."""

_rank = itemgetter(0)


class StateRequest(msgspec.Struct, frozen=True):
    """A query as its client said it."""

    filter: str
    selector: str | None = None
    order_by: str = "offset"
    top: int = ALL_RECORDS
    """The most records that are wanted."""
    skip: int = 0
    select: str | None = None
    """The columns of the answer; None: it has whole records."""
    group_by: str | None = None
    at: str | None = None
    """An offset or a time: the state as it was then (past.py); None: as it is now."""


class _NoReading:
    """The reading of a query whose page is taken from a kept order."""

    given_up = ""
    closed = True
    left = taken = saved_bytes = 0

    def take(self, most: int) -> list[Record]:
        return []

    def close(self) -> None:
        """There is nothing to end."""


class StateQuery:
    """One query that is being answered, until ``close``. Raises :class:`Refused`.

    First ``prepare``; then ``as_of`` is settled, and ``steps`` yields the records."""

    def __init__(self, request: StateRequest, moment: Present | Past, tab: Tab) -> None:
        """``moment`` is the state that is asked for, ``tab`` the client's."""
        self.ordering = ordering_of(request)
        self.moment = moment
        self.state = moment.state
        self.key_of: KeyExtractor = self.state.key
        self.columns: list[str] = []
        """The names of the columns of its rows; empty: the answer has whole records."""
        self.rows_max = request.top
        self.looked_at = 0
        """The number of records looked at so far."""
        self._match = Match(self.state, request, self.ordering)
        self._step_records = max(1, STEP_RECORDS // cost_of(request.selector))
        self._top, self._skip = request.top, request.skip
        self._page: list[Record] = []
        """The answer, if it is ordered by anything but the offset."""
        self._given_up = ""
        self._tab = tab
        self._page_bytes = 0
        self._accepted = self.given = 0
        """How many of the records that it looked at match, and how many records or rows it has given."""
        self._reading: StateReading | _NoReading = _NoReading()
        name = self.state, request.filter, request.selector, request.order_by
        self._order = None if self.ordering.by_offset else moment.order(name, self._match.rank_of)
        self._settle()
        if self._order is None:
            self._read()

    def _settle(self) -> None:
        """Settles as of when the answer is true: now."""
        self.as_of = self.moment.as_of
        """The sequence as of which the answer is true."""
        self.evicted_records = self.state.evicted_records

    def _read(self) -> None:
        """Begins to read the whole state."""
        self._settle()
        self._reading = StateReading(self.state, self.as_of, self._tab, newest_first=self.ordering.by_offset < 0)

    @property
    def given_up(self) -> str:
        """The reason why the answer is not whole; empty: it is."""
        return self._given_up or self._reading.given_up

    @property
    def held_bytes(self) -> int:
        """Returns what is held for this query alone."""
        return self._page_bytes + self._reading.saved_bytes + self.moment.held_bytes

    def waiting(self) -> tuple[int, int]:
        """Returns how many records of its answer are still to come, at most, and their bytes, about."""
        reading, left = self._reading, len(self._page) - self.given
        if not self._page:
            found = share_of(reading.left, self._accepted, reading.taken - self._accepted)
            left = min(found, self._top - self.given)
        return left, left * self.state.record_bytes

    def prepare(self) -> Iterator[None]:
        """Brings the order up to date, in steps."""
        order = self._order
        if order is None:
            return
        most = CHASE_MAX * len(self.state) + CHASE_RECORDS
        while self.moment.is_kept:
            self.looked_at += order.catch_up(self.moment.as_of, STEP_RECORDS)
            if order.gone or self.looked_at > most:
                self._read()
                return
            if order.is_current(self.moment.as_of):
                self._settle()
                self._page = order.page(self._skip, self._top)
                self.hold(sum(SAVED_RECORD_BYTES + record.size for record in self._page))
                return
            yield
        self._given_up = "the state is not kept any more"

    def steps(self) -> Generator[list[Record], None, None]:
        """Does the query in steps. Each yields the records of the answer that it found, maybe none."""
        return self._by_offset() if self.ordering.by_offset else self._ordered()

    def close(self) -> None:
        """Ends the query, wherever it is. What it held is off the tab."""
        self._reading.close()
        self._tab.add(QUERIES, -self._page_bytes)
        self._page_bytes = 0

    def _by_offset(self) -> Generator[list[Record], None, None]:
        reading, to_skip, left = self._reading, self._skip, self._top
        while left > 0:
            found = self._select(reading.take(self._step_records))
            skipped = min(to_skip, len(found))
            to_skip -= skipped
            found = found[skipped : skipped + left]
            left -= len(found)
            self.given += len(found)
            yield found
            if reading.closed or self.given_up:
                return

    def _ordered(self) -> Generator[list[Record], None, None]:
        if not self._page:
            yield from self._find_page()
        if not self.given_up:
            for at in range(0, len(self._page), STEP_RECORDS):
                self.given = min(at + STEP_RECORDS, len(self._page))
                yield self._page[at : at + STEP_RECORDS]

    def _find_page(self) -> Generator[list[Record], None, None]:
        """Reads the state, and holds the best of it."""
        most, reading = self._skip + self._top, self._reading
        best: list[tuple[bytes, Record]] = []
        while most > 0 and not reading.closed:
            for record in self._select(reading.take(self._step_records)):
                rank = self.ordering.rank(record, self.key_of)
                if len(best) < most or rank < best[-1][0]:
                    insort(best, (rank, record), key=_rank)
                    self._keep(record)
                    if len(best) > most:
                        self._keep(best.pop()[1], -1)
                    if self.given_up:
                        return
            yield []
        self._page = [record for _, record in best[self._skip :]]

    def _keep(self, record: Record, count: int = 1) -> None:
        """Counts a record that joins the page; ``count`` -1: one that leaves it."""
        self.hold(count * (SAVED_RECORD_BYTES + record.size))

    def hold(self, size: int) -> None:
        """Counts bytes of the page, on the tab. If these are too many, the query is given up."""
        try:
            if size > 0:
                self._tab.check(size)
        except Refused as refused:
            self._given_up = f"there is no room for its page: {refused}"
        self._tab.add(QUERIES, size)
        self._page_bytes += size

    def _select(self, some: list[Record]) -> list[Record]:
        self.looked_at += len(some)
        found = [record for record in some if self._match.accepts(record)]
        self._accepted += len(found)
        return found


class Match:
    """The records of a state that a query wants, and their order."""

    def __init__(self, state: State, request: StateRequest, ordering: Ordering) -> None:
        self._key_of = state.key
        self._on_topic = None if state.filter == request.filter else matcher(request.filter)
        self._selects = _selection(request)
        self._ordering = ordering

    def accepts(self, record: Record) -> bool:
        if self._on_topic is not None and not self._on_topic(record.topic):
            return False
        return self._selects is None or self._selects(record, self._key_of)

    def rank_of(self, record: Record) -> bytes | None:
        """Returns the rank of a record; None if it is not wanted."""
        return self._ordering.rank(record, self._key_of) if self.accepts(record) else None


def ordering_of(request: StateRequest) -> Ordering:
    """Raises Refused."""
    try:
        ordering = compile_ordering(request.order_by)
    except BadOrder as error:
        raise Refused(Reason.PROTOCOL_ERROR, str(error)) from error
    if not ordering.by_offset and request.skip + request.top > PAGE_MAX:
        said = "say top" if request.top == ALL_RECORDS else f"skip and top are {request.skip + request.top:,} together"
        order = ascii(request.order_by[:60])
        text = f"an answer in the order {order} has a page of at most {PAGE_MAX:,} records: {said}"
        raise Refused(Reason.PROTOCOL_ERROR, text)
    return ordering


def _selection(request: StateRequest) -> Callable[[Record, KeyExtractor | None], bool] | None:
    try:
        return compile_selector(request.selector).matches if request.selector else None
    except BadSelector as error:
        raise Refused(Reason.PROTOCOL_ERROR, str(error)) from error
