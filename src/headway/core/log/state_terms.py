"""The terms of a state, as a ``[[topic]]`` gives them, and those on which a pass reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from headway.core.message import Record

Accept = Callable[[Record], bool]


class StateTerms(NamedTuple):
    """The terms of a state that the configuration declares."""

    filter: str
    key: str = "topic"
    tombstones: bool = True
    """Records may delete their keys."""
    expire_s: float | None = None
    """Seconds after which a key that was not updated is deleted; None: never."""


class Told(Protocol):
    """Says what readers are told of records that are not accepted (focus.py)."""

    def left(self, record: Record) -> Record | None: ...

    def begins(self, after: int) -> None:
        """Is told of a pass over the changes after this sequence."""

    def ends(self) -> None:
        """Is told of its end."""
