"""Names: what a config may call by name, of one kind (meters, actions): what is built in, and what is offered.

What is offered is not there yet: whoever knows how to get it hands in a function, which is called when the name is
first asked for. So this room need not know where plug-ins come from.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from headway.core.base import ConfigError

T = TypeVar("T")


class Names(dict[str, T]):
    """Those that are there, by name."""

    def __init__(self, what: str, built_in: Mapping[str, T], beside: Sequence[str] = ()) -> None:
        """``what`` they are, and words that may stand in their place, for messages."""
        super().__init__(built_in)
        self.what = what
        self._beside = beside
        self._offered: dict[str, Callable[[], T]] = {}

    def offer(self, name: str, load: Callable[[], T]) -> None:
        """There is one of this name to be had. What is there already stays, so nobody replaces what is built in."""
        self._offered[name] = load

    def withdraw(self) -> None:
        """What was offered and never asked for is not to be had any more."""
        self._offered.clear()

    def find(self, name: object) -> T:
        """The one of this name. Raises ConfigError, with the names there are; or what ``load`` raises."""
        if isinstance(name, str):
            if name not in self and name in self._offered:
                self[name] = self._offered[name]()
            if name in self:
                return self[name]
        raise unknown(self.what, name, list(dict.fromkeys([*self, *self._offered, *self._beside])))


def unknown(what: str, word: object, known: Sequence[str]) -> ConfigError:
    """``unknown meter 'lag_rekords' (did you mean lag_records?)``."""
    near = difflib.get_close_matches(str(word), known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
    return ConfigError(f"unknown {what} {str(word)[:60]!r} ({hint})")
