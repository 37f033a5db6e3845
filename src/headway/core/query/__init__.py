"""Queries of the state: the records that match, in an order, a page of them; columns of them, or aggregates."""

from headway.core.query.beginning import begin_query
from headway.core.query.kept_orders import KeptOrders
from headway.core.query.selection import Row, Selection
from headway.core.query.state_query import PAGE_MAX, NoState, StateQuery, StateRequest

__all__ = [
    "begin_query", "KeptOrders", "NoState", "PAGE_MAX", "Row", "Selection", "StateQuery", "StateRequest",
]
