"""The beginning of a query: of the kind that its request asks for."""

from __future__ import annotations

from headway.core.base import Reason, Refused
from headway.core.log import Tab
from headway.core.query.aggregate_query import AggregateQuery
from headway.core.query.kept_orders import KeptOrders
from headway.core.query.past import Past
from headway.core.query.selection import Selection
from headway.core.query.state_query import StateQuery, StateRequest
from headway.core.routing import Registry


def begin_query(
    request: StateRequest, registry: Registry, orders: KeptOrders, now: float, tab: Tab | None = None,
    past: Past | None = None, client: str = "",
) -> StateQuery:
    """Begins a query of this ``client``. Raises :class:`Refused`, :class:`NoState`."""
    if request.select is None:
        if request.group_by is not None:
            raise Refused(Reason.PROTOCOL_ERROR, "group_by: say select, too: the columns, such as count(*)")
        return StateQuery(request, registry, orders, now, tab, past=past, client=client)
    selection = Selection(request.select, request.group_by)
    if selection.aggregated:
        return AggregateQuery(request, selection, registry, tab, past)
    return StateQuery(request, registry, orders, now, tab, selection=selection, past=past, client=client)
