"""History: the latest entries about each name. Entries per name, names, and entries in all have limits.

The name that has gone longest without a new entry makes room: it loses its oldest entry, or all of them when there are
too many names. Reading changes no order.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Generic, TypeVar

T = TypeVar("T")

PER_NAME_MAX = 32
NAMES_MAX = 10_000
ENTRIES_MAX = 20_000


class History(Generic[T]):
    def __init__(self, per_name: int = PER_NAME_MAX, names_max: int = NAMES_MAX, entries_max: int = ENTRIES_MAX
                 ) -> None:
        self._per_name = max(1, per_name)
        self._names_max = max(1, names_max)
        self._entries_max = max(1, entries_max)
        self._names: OrderedDict[str, deque[T]] = OrderedDict()
        self._held = 0

    def put(self, name: str, entry: T) -> None:
        kept = self._names.setdefault(name, deque())
        self._names.move_to_end(name)
        kept.append(entry)
        self._held += 1
        if len(kept) > self._per_name:
            kept.popleft()
            self._held -= 1
        while len(self._names) > self._names_max:
            _, dropped = self._names.popitem(last=False)
            self._held -= len(dropped)
        while self._held > self._entries_max:
            name, oldest = next(iter(self._names.items()))
            oldest.popleft()
            self._held -= 1
            if not oldest:
                del self._names[name]

    def of(self, name: str) -> tuple[T, ...]:
        """Returns the entries of one name, the newest last."""
        return tuple(self._names.get(name, ()))

    def last(self, name: str) -> T | None:
        kept = self._names.get(name)
        return kept[-1] if kept else None

    def names(self) -> Sequence[str]:
        """Returns the names that have entries, the one with the latest entry last."""
        return tuple(self._names)

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._names.values())

    def __len__(self) -> int:
        return self._held
