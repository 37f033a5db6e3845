"""Selectors: SQL conditions on the messages that a consumer wants. Fields of records, and orders by them."""

from headway.core.selector.selector import (
    LAST_RANK,
    TYPED,
    BadOrder,
    Decoded,
    Ordering,
    Selector,
    bytes_of,
    compile_ordering,
    compile_selector,
    compile_work,
    cost_of,
    nearest_float,
    parse_terms,
    place_of,
    priority_of,
    rank_of,
    typed,
)
from headway.core.selector.syntax import FIELDS, MAX_SELECTOR_CHARS, BadField, BadSelector, Fields

__all__ = [
    "BadField", "BadOrder", "BadSelector", "bytes_of", "compile_ordering", "compile_selector", "compile_work",
    "cost_of", "Decoded", "Fields", "FIELDS", "LAST_RANK", "MAX_SELECTOR_CHARS", "Ordering", "nearest_float",
    "parse_terms", "place_of", "priority_of", "rank_of", "Selector", "typed", "TYPED",
]
