"""Selectors: SQL conditions on the messages that a consumer wants. Fields of records, and orders by them."""

from headway.core.selector.building import TYPED, bytes_of, compile_selector, compile_work, cost_of, typed
from headway.core.selector.fields import FIELDS, BadField, Fields
from headway.core.selector.ordering import (
    LAST_RANK,
    BadOrder,
    Ordering,
    compile_ordering,
    nearest_float,
    parse_terms,
    place_of,
    rank_of,
)
from headway.core.selector.selector import Decoded, Selector, priority_of
from headway.core.selector.syntax import MAX_SELECTOR_CHARS, BadSelector

__all__ = [
    "BadField", "BadOrder", "BadSelector", "bytes_of", "compile_ordering", "compile_selector", "compile_work",
    "cost_of", "Decoded", "Fields", "FIELDS", "LAST_RANK", "MAX_SELECTOR_CHARS", "Ordering", "nearest_float",
    "parse_terms", "place_of", "priority_of", "rank_of", "Selector", "typed", "TYPED",
]
