"""A query of the state: the records that match, in an order, a page of them; in steps of bounded work.

In the order of the offsets (the default) records are found as the state is read, and a page of the first ends the
reading early. Any other order is kept (kept_order.py): the query waits until it is up to date, and takes its page in
one step. Where no order can be kept, or it changes faster than it can be brought up to date, the whole state is read,
and only the best of it are held: ``PAGE_MAX`` at most. What a query holds is on the tab of its client.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import insort
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from math import inf, isfinite, nan
from operator import itemgetter
from typing import NamedTuple

import msgspec

from headway.core.base import Reason, Refused, WorkSteps, format_size
from headway.core.consumer import Session, SubscriptionOptions
from headway.core.log import QUERIES, SAVED_RECORD_BYTES, Pool, State, StateReading, Tab, share_of
from headway.core.message import MAX_KEY_CHARS, KeyExtractor, Record, Run, covers, matcher, may_delete
from headway.core.query.kept_order import KeptOrder, KeptOrders, OrderName, RankOf
from headway.core.routing import Registry
from headway.core.selector import (
    FIELDS,
    BadField,
    BadOrder,
    BadSelector,
    Fields,
    Ordering,
    compile_ordering,
    compile_selector,
    cost_of,
    nearest_float,
    parse_terms,
    place_of,
    rank_of,
)

# -- aggregates --------------------------------------------------------------------------------------------------------
#
# Aggregates: count, sum, avg, min, max of the values of a field. Rules:
#
# - ``count(*)`` counts records, ``count`` of a field those that have it: any value but null.
# - ``sum`` and ``avg`` take numbers. Other values (true, texts, objects) are left out; of no number they are null. A
# sum
#   of whole numbers is exact; beyond 64 bits it is the nearest float, and null in JSON beyond all floats.
# - ``min`` and ``max`` take values that have an order (selector/selector.py): false, true, numbers, texts; of none they
#   are null. Texts of more than ``MAX_KEY_CHARS`` characters are left out.


INTEGER_MAX = 2**63
SMALLEST_BITS = 1074
"""The smallest float is 2 to the power of minus this."""


class Aggregate(ABC):
    """One aggregate of one group."""

    __slots__ = ()

    @abstractmethod
    def add(self, value: object) -> int:
        """Adds a value. Returns by how many bytes the aggregate grew."""

    def remove(self, value: object) -> int:
        """Takes a value out that was added. Returns by how many bytes the aggregate grew."""
        raise NotImplementedError(f"{type(self).__name__} only grows")

    @property
    @abstractmethod
    def value(self) -> object:
        """The aggregate of the values so far; None if there is none."""


class Count(Aggregate):
    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def add(self, value: object) -> int:
        self._count += value is not None
        return 0

    def remove(self, value: object) -> int:
        self._count -= value is not None
        return 0

    @property
    def value(self) -> object:
        return self._count


class Sum(Aggregate):
    """Exact, in whatever order values come and go: a float is a whole number of the smallest float there is."""

    __slots__ = ("_above", "_below", "_count", "_floats", "_parts", "_whole")

    def __init__(self) -> None:
        self._count = self._floats = self._whole = self._parts = 0
        """The numbers, the floats among them, the sum of the whole ones, the sum of the floats in smallest floats."""
        self._above = self._below = 0
        """How many are beyond all floats."""

    def add(self, value: object) -> int:
        return self._change(value, 1)

    def remove(self, value: object) -> int:
        return self._change(value, -1)

    def _change(self, value: object, sign: int) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return 0
        self._count += sign
        if isinstance(value, int):
            if -INTEGER_MAX <= value < INTEGER_MAX:
                self._whole += sign * value
                return 0
            value = nearest_float(value)
        self._floats += sign
        if isfinite(value):
            numerator, denominator = value.as_integer_ratio()
            self._parts += sign * (numerator << (SMALLEST_BITS + 1 - denominator.bit_length()))
        elif value > 0:
            self._above += sign
        else:
            self._below += sign
        return 0

    @property
    def value(self) -> object:
        if not self._count:
            return None
        if not self._floats and -INTEGER_MAX <= self._whole < INTEGER_MAX:
            return self._whole
        return self._divided(1)

    def _divided(self, by: int) -> float:
        if self._above or self._below:
            return nan if self._above and self._below else inf if self._above else -inf
        if not self._floats:
            return _quotient(self._whole, by)
        return _quotient((self._whole << SMALLEST_BITS) + self._parts, by << SMALLEST_BITS)


class Average(Sum):
    __slots__ = ()

    @property
    def value(self) -> object:
        return self._divided(self._count) if self._count else None


def _quotient(dividend: int, divisor: int) -> float:
    """Returns the float that is nearest to the quotient."""
    try:
        return dividend / divisor
    except OverflowError:
        return inf if dividend > 0 else -inf


def with_order(value: object) -> object:
    """Returns a value that has an order, and is no text that is too long; None for all others."""
    if isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= MAX_KEY_CHARS):
        return value
    return None


class Least(Aggregate):
    __slots__ = ("_place", "_value")
    down = False

    def __init__(self) -> None:
        self._value: object = None
        self._place = place_of(None)

    def add(self, value: object) -> int:
        value, before = with_order(value), len(self._place)
        place = place_of(value, down=self.down)
        if place >= self._place:
            return 0
        self._value, self._place = value, place
        return 2 * (len(place) - before)

    @property
    def value(self) -> object:
        return self._value


class Greatest(Least):
    __slots__ = ()
    down = True


AGGREGATES: Mapping[str, type[Aggregate]] = {
    "count": Count, "sum": Sum, "avg": Average, "min": Least, "max": Greatest,
}  # fmt: skip


# -- keyed -------------------------------------------------------------------------------------------------------------
#
# The state that an option of a subscriber is about.


def keyed_state(
    registry: Registry, session: Session, options: SubscriptionOptions, group: str | None, filter: str, option: str
) -> State | None:
    """Returns the first state of the configuration that has all records of a filter, by the key that the subscriber
    says, if it says one; None: no keyed topic covers the filter.

    Raises :class:`Refused` if this ``option`` is not for such a subscription."""
    if group is not None or session.expiry_s > 0:
        text = f"option {option}: not for shared subscriptions, nor for sessions that outlive their connection"
        raise Refused(Reason.PROTOCOL_ERROR, text)
    return registry.router.keyed_state(filter, options.key)


# -- past --------------------------------------------------------------------------------------------------------------
#
# A state as it was at an offset, built from recorded records.
#
# It is a state of its own, for one query, with the memory of that query's client: what is needed of it is asked of it
# as of the present one. It holds the records up to that offset that a query's filter matches, so it is as
# large as the state then; if it is larger than ``PAST_BYTES_MAX``, or than its client may have, there is no answer.
# Nothing is evicted in silence.


PAST_BYTES_MAX = 256 * 1024 * 1024


class Past:
    """The state at ``as_of``. ``now`` is the state that there is now, ``tab`` is the client's."""

    is_kept = True

    def __init__(self, now: State, as_of: int, tab: Tab, since: int = 0) -> None:
        self.state = State(now.filter, now.key, Pool("", 8 * PAST_BYTES_MAX, 0), declared=now.declared)
        self.state.tombstones = now.tombstones
        self.as_of = as_of
        self.since = since
        """Records before this offset are deleted, and the keys are missing that have not changed since. 0: none are."""
        self._tab = tab
        self._counted_bytes = 0

    def add(self, run: Run, first: int, time_s: float) -> None:
        """Adds a run whose first record has the offset ``first``. Any thread may do so, one at a time."""
        state = self.state
        change = state.change if state.tombstones and may_delete(run) else state.put
        for index in range(len(run) - 1 if state.by_topic else 0, len(run)):
            change(run.record(index, first, time_s))

    @property
    def held_bytes(self) -> int:
        return self._counted_bytes

    def count(self) -> None:
        """Counts its memory on the tab, from the loop. Raises :class:`Refused` if there is no room for it."""
        grown = self.state.bytes - self._counted_bytes
        if self.state.bytes > PAST_BYTES_MAX or self.state.evicted_records:
            text = f"at: the state as it was takes up more than {format_size(PAST_BYTES_MAX)}; ask for fewer topics"
            raise Refused(Reason.CLIENT_MEMORY, text)
        self._tab.check(grown)
        self._tab.add(QUERIES, grown)
        self._counted_bytes += grown

    def order(self, name: OrderName, rank_of: RankOf) -> KeptOrder | None:
        """Returns None: it is read once."""

    def close(self) -> WorkSteps:
        """Takes it off the tab. The returned steps free its memory."""
        self._tab.add(QUERIES, -self._counted_bytes)
        self._counted_bytes = 0
        return self.state.close()


# -- present -----------------------------------------------------------------------------------------------------------
#
# A state as it is now. A query asks it for the same as a past one.


class NoState(Exception):
    """There is no state that covers a filter."""


class Present:
    """The state of a filter for a query of this ``client``, who asks at the time ``now``. Raises :class:`NoState`."""

    since = held_bytes = 0

    def __init__(
        self, registry: Registry, filter: str, orders: KeptOrders, now: float = 0.0, client: str = ""
    ) -> None:
        self.state = state_of(registry, filter)
        self._registry = registry
        self._orders = orders
        self._now = now
        self._client = client

    @property
    def as_of(self) -> int:
        return self._registry.sequence

    @property
    def is_kept(self) -> bool:
        return self.state in self._registry.router.states

    def order(self, name: OrderName, rank_of: RankOf) -> KeptOrder | None:
        """Returns a kept order of the state; None if there is no room for it."""
        return self._orders.wanted(name, rank_of, self._now, self._client)

    def close(self) -> WorkSteps:
        return iter(())


def state_of(registry: Registry, filter: str) -> State:
    """Returns the state of the configuration that has all records of a filter. Raises :class:`NoState`."""
    for state in registry.router.states:
        if state.declared and covers(state.filter, filter):
            return state
    raise NoState(f"{filter} has no state: no keyed [[topic]] covers it")


# -- state query -------------------------------------------------------------------------------------------------------


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
    """An offset or a time: the state as it was then; None: as it is now."""


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


# -- selection ---------------------------------------------------------------------------------------------------------
#
# A selection: columns of each record (``/symbol, /bid AS price``), or aggregates of groups of records (``/carrier,
# avg(/delay) AS delay, count(*)``).
#
# A column is a field (selector/syntax.py) or an aggregate of one, and ``AS`` and its name behind it, if it is to have
# another. By itself a column has the last name of its pointer, the name of its property, or its own text.


COLUMNS_MAX = 32
SELECT_CHARS_MAX = 2048
ALL = "*"
"""The field of ``count(*)``."""

Row = dict[str, object]

_NAMED = re.compile(r"(.*\S)\s+AS\s+(\S+)", re.IGNORECASE | re.DOTALL)
_CALL = re.compile(r"(\w+)\s*\((.*)\)", re.DOTALL)


class Column(NamedTuple):
    """``aggregate`` is empty for a field itself."""

    name: str
    field: str
    aggregate: str = ""


class Selection:
    """The columns of an answer, and the fields that its records are grouped by."""

    def __init__(self, select: str, group_by: str | None = None) -> None:
        """Raises :class:`Refused`."""
        self.columns = [_column(term) for term in _terms("select", select)]
        self.group_by = _terms("group_by", group_by) if group_by is not None else []
        self.names = [column.name for column in self.columns]
        self.aggregated = bool(self.group_by) or any(column.aggregate for column in self.columns)
        for name, count in Counter(self.names).items():
            if count > 1:
                raise _refused(f"select: two columns have the name {name[:60]!a}; say AS and another name")
        for column in self.columns if self.aggregated else ():
            if not column.aggregate and column.field not in self.group_by:
                text = f"{column.field[:60]!a} is neither in group_by nor in an aggregate: {', '.join(AGGREGATES)}"
                raise _refused(f"select: {text}")
        fields("group_by", self.group_by)
        self._fields = fields("select", [column.field for column in self.columns if column.field != ALL])

    def row(self, record: Record, key_of: KeyExtractor | None) -> Row:
        """Returns the columns of a record; null where it has no such field."""
        return dict(zip(self.names, self._fields.values(record, key_of), strict=True))


def fields(option: str, names: Sequence[str]) -> Fields:
    try:
        return Fields(names)
    except BadField as error:
        raise _refused(f"{option}: {error}") from None


def _terms(option: str, text: str) -> list[str]:
    if len(text) > SELECT_CHARS_MAX:
        raise _refused(f"{option}: {len(text)} characters, {SELECT_CHARS_MAX:,} are allowed")
    terms = [term.strip() for term in text.split(",")]
    if len(terms) > COLUMNS_MAX:
        raise _refused(f"{option}: {len(terms)} terms, {COLUMNS_MAX} are allowed")
    return terms


def _column(term: str) -> Column:
    named = _NAMED.fullmatch(term)
    text, name = named.groups() if named else (term, "")
    call = _CALL.fullmatch(text)
    if call is None:
        own = text.rpartition("/")[2].replace("~1", "/").replace("~0", "~") if text.startswith("/") else text
        return Column(name or own.removeprefix("property:"), text)
    aggregate, field = call[1].lower(), call[2].strip()
    if aggregate not in AGGREGATES:
        raise _refused(f"select: {text[:60]!a}: there is {', '.join(AGGREGATES)} of one of: {FIELDS}")
    if field == ALL and aggregate != "count":
        raise _refused(f"select: {aggregate}(*): only count takes all records; say a field")
    return Column(name or f"{aggregate}({field})", field, aggregate)


def _refused(text: str) -> Refused:
    return Refused(Reason.PROTOCOL_ERROR, text)


# -- groups ------------------------------------------------------------------------------------------------------------
#
# The groups of an aggregation, by the values of the fields that it groups by.
#
# A value of a group is false, true, a number or a text; all else (missing, null, an object, an array, a text of more
# than ``MAX_KEY_CHARS`` characters) is null. 7 and 7.0 are one value, true and 1 are two.


GROUPS_MAX = 10_000
GROUPS_BYTES_MAX = 16 * 1024 * 1024
"""The memory that the groups may take up."""
GROUP_BYTES, AGGREGATE_BYTES = 400, 150
"""The memory of a group and of an aggregate in it, beside texts, about."""


Kinds = Mapping[str, type[Aggregate]]


class Groups:
    """The aggregates of each group, of these kinds."""

    def __init__(self, selection: Selection, kinds: Kinds = AGGREGATES) -> None:
        self._kinds = kinds
        self._by, self._columns = selection.group_by, selection.columns
        self._aggregates = [column for column in self._columns if column.aggregate]
        wanted = [column.field for column in self._aggregates if column.field != ALL]
        self._fields = fields("select", [*self._by, *wanted])
        self._down = [False] * len(self._by)
        self._groups: dict[bytes, tuple[list[object], list[Aggregate]]] = {}
        self.bytes = 0
        if not self._by:
            self._begin(b"", [])

    def add(self, record: Record, key_of: KeyExtractor | None) -> None:
        """Adds a record to its group. Raises :class:`Refused` if there are too many."""
        key, by, rest = self.values(record, key_of)
        group = self._groups.get(key)
        if group is None:
            group = self._begin(key, by)
        for aggregate, value in zip(group[1], rest, strict=True):
            self.bytes += aggregate.add(value)

    def values(self, record: Record, key_of: KeyExtractor | None) -> tuple[bytes, list[object], list[object]]:
        """Returns the key of a record's group, the values that it is of, and the value for each aggregate."""
        found = self._fields.values(record, key_of)
        count = len(self._by)
        by, rest = [with_order(value) for value in found[:count]], iter(found[count:])
        values = [True if column.field == ALL else next(rest) for column in self._aggregates]
        return rank_of(by, self._down), by, values

    def _begin(self, key: bytes, by: list[object]) -> tuple[list[object], list[Aggregate]]:
        self.bytes += self._size(key)
        if len(self._groups) >= GROUPS_MAX or self.bytes > GROUPS_BYTES_MAX:
            text = f"more than {GROUPS_MAX:,} groups, or {format_size(GROUPS_BYTES_MAX)} of them"
            raise Refused(Reason.PROTOCOL_ERROR, f"group_by: {text}; group by fewer values, or say where")
        group = self._groups[key] = by, [self._kinds[column.aggregate]() for column in self._aggregates]
        return group

    def _drop(self, key: bytes) -> None:
        del self._groups[key]
        self.bytes -= self._size(key)

    def _size(self, key: bytes) -> int:
        return GROUP_BYTES + 2 * len(key) + AGGREGATE_BYTES * len(self._aggregates)

    def rows(self) -> Iterator[tuple[bytes, Row]]:
        """Yields a row per group, with the bytes that order the groups."""
        for key, (by, aggregates) in self._groups.items():
            yield key, self._row(by, aggregates)

    def _row(self, by: Sequence[object], aggregates: Sequence[Aggregate]) -> Row:
        values = dict(zip(self._by, by, strict=True))
        found = iter(aggregates)
        return {
            column.name: next(found).value if column.aggregate else values[column.field] for column in self._columns
        }


# -- rows query --------------------------------------------------------------------------------------------------------
#
# Queries whose answers are rows: columns of the records that match; or aggregates, for which these go into their
# groups, and the groups are the answer.


class RowsQuery(StateQuery):
    """A query for columns of the records that match."""

    def __init__(self, request: StateRequest, moment: Present | Past, tab: Tab, selection: Selection) -> None:
        super().__init__(request, moment, tab)
        self.columns = selection.names
        self._row_of = selection.row

    def rows(self) -> Generator[list[Row], None, None]:
        """Does the query in steps, as ``steps``. Each yields what is selected of the records that it found."""
        for some in self.steps():
            yield [self._row_of(record, self.key_of) for record in some]


class AggregateQuery(RowsQuery):
    """``prepare`` reads the state, and raises :class:`Refused` if there are too many groups. The order is one of the
    columns; by default that of the values that the groups are of."""

    def __init__(self, request: StateRequest, moment: Present | Past, tab: Tab, selection: Selection) -> None:
        self._order_by, self._down = _order(request, selection)
        self._rows_top, self._rows_skip = request.top, request.skip
        self._groups = Groups(selection)
        self._rows: list[Row] = []
        wanted = msgspec.structs.replace(request, order_by="offset", top=ALL_RECORDS, skip=0)
        super().__init__(wanted, moment, tab, selection)
        self.rows_max = GROUPS_MAX

    def prepare(self) -> Iterator[None]:
        for some in self.steps():
            before = self._groups.bytes
            for record in some:
                self._groups.add(record, self.key_of)
            self.hold(self._groups.bytes - before)
            if self.given_up:
                return
            yield
        if self.given_up:
            return
        ranked: list[tuple[bytes, Row]] = []
        for key, row in self._groups.rows():
            ranked.append((rank_of([row[name] for name in self._order_by], self._down) + key, row))
            if len(ranked) % STEP_RECORDS == 0:
                yield
        self.given = 0
        ranked.sort(key=itemgetter(0))
        self._rows = [row for _, row in ranked[self._rows_skip : self._rows_skip + self._rows_top]]

    def waiting(self) -> tuple[int, int]:
        left = len(self._rows) - self.given
        return left, left * self.held_bytes // max(1, len(self._rows))

    def rows(self) -> Generator[list[Row], None, None]:
        for at in range(0, len(self._rows), STEP_RECORDS):
            self.given = min(at + STEP_RECORDS, len(self._rows))
            yield self._rows[at : at + STEP_RECORDS]


def begin_query(request: StateRequest, moment: Present | Past, tab: Tab) -> StateQuery:
    """Begins a query of the kind that its request asks for. ``moment`` is the state, ``tab`` the client's. Raises
    :class:`Refused`."""
    if request.select is None:
        if request.group_by is not None:
            raise Refused(Reason.PROTOCOL_ERROR, "group_by: say select, too: the columns, such as count(*)")
        return StateQuery(request, moment, tab)
    selection = Selection(request.select, request.group_by)
    return (AggregateQuery if selection.aggregated else RowsQuery)(request, moment, tab, selection)


def _order(request: StateRequest, selection: Selection) -> tuple[list[str], list[bool]]:
    """Raises Refused."""
    if request.order_by == StateRequest(request.filter).order_by:
        return [], []
    try:
        names, down = parse_terms(request.order_by)
    except BadOrder as error:
        raise Refused(Reason.PROTOCOL_ERROR, str(error)) from None
    for name in names:
        if name not in selection.names:
            text = f"{name[:60]!a} is no column of the groups; there is {', '.join(selection.names)}"
            raise Refused(Reason.PROTOCOL_ERROR, f"order: {text}")
    return names, down
