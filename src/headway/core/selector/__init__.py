"""Selectors: SQL conditions on the messages that a consumer wants."""

from headway.core.selector.selector import Selector, compile_selector, priority_of
from headway.core.selector.syntax import BadSelector

__all__ = [
    "BadSelector", "compile_selector", "priority_of", "Selector",
]
