"""Queries whose answers are rows: columns of the records that match; or aggregates, for which these go into their
groups, and the groups are the answer."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from operator import itemgetter

import msgspec

from headway.core.base import Reason, Refused
from headway.core.log import Tab
from headway.core.query.groups import GROUPS_MAX, Groups
from headway.core.query.past import Past
from headway.core.query.present import Present
from headway.core.query.selection import Row, Selection
from headway.core.query.state_query import ALL_RECORDS, STEP_RECORDS, StateQuery, StateRequest
from headway.core.selector import BadOrder, parse_terms, rank_of


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
