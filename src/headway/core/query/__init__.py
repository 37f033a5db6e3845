"""Queries of the state: the records that match, in an order, a page of them; columns of them, or aggregates; as the
state is now, or as it was."""

from headway.core.query.kept_order import ORDERS_MAX, Follower, KeptOrder, KeptOrders, OrderName
from headway.core.query.state_query import (
    AGGREGATES,
    ALL_RECORDS,
    PAGE_MAX,
    Aggregate,
    Groups,
    Match,
    NoState,
    Past,
    Present,
    Row,
    RowsQuery,
    Selection,
    StateQuery,
    StateRequest,
    begin_query,
    keyed_state,
    ordering_of,
    state_of,
    with_order,
)

__all__ = [
    "Aggregate", "AGGREGATES", "ALL_RECORDS", "begin_query", "Follower", "Groups",
    "KeptOrder", "KeptOrders", "keyed_state", "Match", "NoState", "ordering_of", "OrderName", "ORDERS_MAX", "PAGE_MAX",
    "Past", "Present", "Row", "RowsQuery", "Selection", "state_of", "StateQuery", "StateRequest", "with_order",
]
