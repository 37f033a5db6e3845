"""Selectors: SQL conditions on the messages that a consumer wants."""

from headway.core.selector.ordering import BadOrder, Ordering, compile_ordering
from headway.core.selector.selector import Selector, compile_selector, priority_of
from headway.core.selector.syntax import BadSelector

__all__ = [
    "BadOrder", "BadSelector", "compile_ordering", "compile_selector", "Ordering", "priority_of", "Selector",
]
