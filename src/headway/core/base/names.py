"""The names of meters or actions that a config may use: the built-in and the plugged-in ones.

The core does not know how plug-ins are found. The server sets a function (``elsewhere``), which is called for a name
that is not built in. It returns the names that there are and how each is loaded. What was loaded stays.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from headway.core.base.errors import ConfigError

T = TypeVar("T")


class Names(dict[str, T]):
    """The built-in and the loaded ones by name."""

    def __init__(self, what: str, built_in: Mapping[str, T], beside: Sequence[str] = ()) -> None:
        """``what`` is their word in messages. ``beside`` are other words that a config may have instead of a name."""
        super().__init__(built_in)
        self.what = what
        self._beside = beside
        self.made: dict[str, T] = {}
        """Those that were made of what a config says. They are found by their names, and not listed."""
        self.elsewhere: Callable[[], Mapping[str, Callable[[], T]]] = dict

    def __missing__(self, name: str) -> T:
        return self.made[name]

    def known(self) -> list[str]:
        """Returns all names that there are."""
        return list(dict.fromkeys([*self, *self.elsewhere()]))

    def knows(self, name: object) -> bool:
        return name in self or name in self.elsewhere()

    def find(self, name: object, others: Callable[[], Sequence[str]] = tuple) -> T:
        """Returns the one of this name. Raises ConfigError with the names that there are, or what loading it raises.
        ``others`` gives names that could be meant, too. It is not called if the name is built in, because a look
        among the installed plug-ins reads many files."""
        if not isinstance(name, str) or name not in self:
            elsewhere = self.elsewhere()
            if not isinstance(name, str) or name not in elsewhere:
                raise unknown(self.what, name, list(dict.fromkeys([*self, *elsewhere, *others(), *self._beside])))
            self[name] = elsewhere[name]()
        return self[name]


def unknown(what: str, word: object, known: Sequence[str]) -> ConfigError:
    """Returns an error such as ``unknown meter 'lag_rekords' (did you mean lag_records?)``."""
    near = difflib.get_close_matches(str(word), known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
    return ConfigError(f"unknown {what} {str(word)[:60]!r} ({hint})")
