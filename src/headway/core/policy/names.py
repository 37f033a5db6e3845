"""Names: what a config may call by name, of one kind (meters, actions): what is built in, and what is found elsewhere.

Where that is this room does not know: somebody who does hands in a function (``elsewhere``), which is called when a
name is asked for that is not here, and says what there is and how each is loaded. What was loaded stays.
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
        self.elsewhere: Callable[[], Mapping[str, Callable[[], T]]] = dict

    def find(self, name: object) -> T:
        """The one of this name. Raises ConfigError, with the names there are; or what loading it raises."""
        if not isinstance(name, str) or name not in self:
            elsewhere = self.elsewhere()
            if not isinstance(name, str) or name not in elsewhere:
                raise unknown(self.what, name, list(dict.fromkeys([*self, *elsewhere, *self._beside])))
            self[name] = elsewhere[name]()
        return self[name]


def unknown(what: str, word: object, known: Sequence[str]) -> ConfigError:
    """``unknown meter 'lag_rekords' (did you mean lag_records?)``."""
    near = difflib.get_close_matches(str(word), known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
    return ConfigError(f"unknown {what} {str(word)[:60]!r} ({hint})")
