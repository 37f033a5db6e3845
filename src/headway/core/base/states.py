"""States: what something is one of at a time, and the table of its legal moves."""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import StrEnum
from typing import TypeVar

State = TypeVar("State", bound=StrEnum)


class IllegalMove(RuntimeError):
    """From this state nothing gets to that one: the program is wrong."""


def moved(legal: Mapping[State, Set[State]], old: State, new: State) -> State:
    """``new``, if ``old`` may become that. Raises :class:`IllegalMove`."""
    if new not in legal[old]:
        raise IllegalMove(f"from {old} to {new}")
    return new
