"""States as enums, each with a table of its legal moves."""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import StrEnum
from typing import TypeVar

State = TypeVar("State", bound=StrEnum)


class IllegalMove(RuntimeError):
    """The table of states has no such move: a bug in the program."""


def moved(legal: Mapping[State, Set[State]], old: State, new: State) -> State:
    """Returns ``new`` if the table has the move from ``old``, else raises :class:`IllegalMove`."""
    if new not in legal[old]:
        raise IllegalMove(f"from {old} to {new}")
    return new
