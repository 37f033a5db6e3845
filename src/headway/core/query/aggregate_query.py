"""A query for aggregates: all records that match go into their groups, and the groups are the answer."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from operator import itemgetter

import msgspec

from headway.core.base import Reason, Refused
from headway.core.log import Tab
from headway.core.query.groups import GROUPS_MAX, Groups
from headway.core.query.past import Past
from headway.core.query.selection import Row, Selection
from headway.core.query.state_query import STEP_RECORDS, StateQuery, StateRequest
from headway.core.routing import Registry
from headway.core.selector import BadOrder, parse_terms, rank_of


class AggregateQuery(StateQuery):
    """``prepare`` reads the state, and raises :class:`Refused` if there are too many groups. The order is one of the
    columns; by default that of the values that the groups are of."""

    def __init__(self, request: StateRequest, selection: Selection, registry: Registry, tab: Tab | None = None,
                 past: Past | None = None) -> None:
        self._order_by, self._down = _order(request, selection)
        self._rows_top, self._rows_skip = request.top, request.skip
        self._groups = Groups(selection)
        self._rows: list[Row] = []
        wanted = msgspec.structs.replace(request, order_by="offset", top=None, skip=0)
        super().__init__(wanted, registry, tab=tab, selection=selection, past=past)

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
        ranked.sort(key=itemgetter(0))
        stop = None if self._rows_top is None else self._rows_skip + self._rows_top
        self._rows = [row for _, row in ranked[self._rows_skip : stop]]

    @property
    def rows_max(self) -> int | None:
        return GROUPS_MAX

    def rows(self) -> Generator[list[Row], None, None]:
        for at in range(0, len(self._rows), STEP_RECORDS):
            yield self._rows[at : at + STEP_RECORDS]


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
