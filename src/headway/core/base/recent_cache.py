"""A cache with a limit in bytes.

``functools.lru_cache`` counts entries, and clients choose how large an entry is: a header of a thousand properties, a
selector of a thousand names. So a cache that clients can fill is one of two:

- an ``lru_cache`` that is asked only for keys of a few hundred bytes, where larger ones are rare;
- a :class:`RecentCache`, which counts bytes.

``tests/test_caches.py`` lists all caches, each with its limit.

Theory of operation. There are two generations. New values go into the young one, which is the dictionary itself. When
it has half of the limit, it becomes the old one, and what was in the old one is forgotten. A value that is found in the
old one is young again. So what is used stays; a hit in the young one is a look-up in C, less than with ``lru_cache``,
and no list of uses has to be kept in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")
_NOTHING: Any = object()
SHARE = 4
"""A value that takes more than this part of the limit is not kept: it would push out too many others."""


class RecentCache(dict[K, V]):
    """``cache[key]`` is ``make(key)``, made anew unless it was asked for lately. ``size_of`` returns the bytes that a
    key and its value take up."""

    __slots__ = ("_make", "_old", "_size_of", "bytes_max", "young_bytes")

    def __init__(self, make: Callable[[K], V], bytes_max: int, size_of: Callable[[K, V], int]) -> None:
        super().__init__()
        self._make = make
        self._size_of = size_of
        self._old: dict[K, V] = {}
        self.bytes_max = bytes_max
        self.young_bytes = 0

    def __missing__(self, key: K) -> V:
        kept = self._old.pop(key, _NOTHING)  # in one step, for threads share caches
        value = self._make(key) if kept is _NOTHING else kept
        size = self._size_of(key, value)
        if size * SHARE <= self.bytes_max:
            if (self.young_bytes + size) * 2 > self.bytes_max:
                self._old = dict(self)
                self.clear()
            self[key] = value
            self.young_bytes += size
        return value

    def clear(self) -> None:
        """Forgets the young generation."""
        super().clear()
        self.young_bytes = 0

    def forget(self) -> None:
        """Forgets everything."""
        self.clear()
        self._old.clear()
