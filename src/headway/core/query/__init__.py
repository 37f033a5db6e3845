"""Queries of the state: the records that match, in an order, a page of them; columns of them, or aggregates; as the
state is now, or as it was."""

from headway.core.query.aggregates import AGGREGATES, Aggregate, with_order
from headway.core.query.groups import Groups
from headway.core.query.kept_order import Follower, KeptOrder
from headway.core.query.kept_orders import ORDERS_MAX, KeptOrders, OrderName
from headway.core.query.keyed import keyed_state
from headway.core.query.past import Past
from headway.core.query.present import NoState, Present, state_of
from headway.core.query.rows_query import RowsQuery, begin_query
from headway.core.query.selection import Row, Selection
from headway.core.query.state_query import (
    ALL_RECORDS,
    PAGE_MAX,
    Match,
    StateQuery,
    StateRequest,
    ordering_of,
)

__all__ = [
    "Aggregate", "AGGREGATES", "ALL_RECORDS", "begin_query", "Follower", "Groups",
    "KeptOrder", "KeptOrders", "keyed_state", "Match", "NoState", "ordering_of", "OrderName", "ORDERS_MAX", "PAGE_MAX",
    "Past", "Present", "Row", "RowsQuery", "Selection", "state_of", "StateQuery", "StateRequest", "with_order",
]
