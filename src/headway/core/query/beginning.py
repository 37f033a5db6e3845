"""The beginning of a query: of the kind that its request asks for."""

from __future__ import annotations

from headway.core.base import Reason, Refused
from headway.core.log import Tab
from headway.core.query.past import Past
from headway.core.query.present import Present
from headway.core.query.rows_query import AggregateQuery, RowsQuery
from headway.core.query.selection import Selection
from headway.core.query.state_query import StateQuery, StateRequest


def begin_query(request: StateRequest, moment: Present | Past, tab: Tab) -> StateQuery:
    """Begins a query of the state at this moment; ``tab`` is the client's. Raises :class:`Refused`."""
    if request.select is None:
        if request.group_by is not None:
            raise Refused(Reason.PROTOCOL_ERROR, "group_by: say select, too: the columns, such as count(*)")
        return StateQuery(request, moment, tab)
    selection = Selection(request.select, request.group_by)
    return (AggregateQuery if selection.aggregated else RowsQuery)(request, moment, tab, selection)
