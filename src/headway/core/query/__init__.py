"""Queries of the state: the records that match, in an order, a page of them."""

from headway.core.query.kept_orders import KeptOrders
from headway.core.query.state_query import NoState, StateQuery, StateRequest

__all__ = [
    "KeptOrders", "NoState", "StateQuery", "StateRequest",
]
