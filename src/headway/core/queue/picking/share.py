"""A share is what waits for one member of a queue with message groups."""

from __future__ import annotations

from typing import Protocol

from headway.core.consumer import Subscription, Waiting
from headway.core.log import Cursor
from headway.core.queue.picking.groups import Groups
from headway.core.queue.places import FoundHeap


class FreeFinder(Waiting, Protocol):
    """A picker, as its members know it in a queue with groups: what it found that belongs to nobody."""

    def oldest_of(self, heap: FoundHeap) -> float:
        """Returns the time when the first of some found records was published; ``inf`` if none of them waits."""


class Share:
    """The records that wait for one member of a queue with groups (``Waiting``): those reserved for it, and those that
    its picker found and that belong to nobody."""

    __slots__ = ("_finder", "_groups", "_member")

    def __init__(self, member: Subscription, finder: FreeFinder, groups: Groups) -> None:
        self._member = member
        self._finder = finder
        self._groups = groups

    @property
    def _own(self) -> FoundHeap:
        return self._groups.of(self._member).wanted

    @property
    def handed_records(self) -> int:
        return self._finder.handed_records

    @property
    def handed_bytes(self) -> int:
        return self._finder.handed_bytes

    @property
    def reading(self) -> Cursor:
        return self._finder.reading

    @property
    def lag_records(self) -> int:
        return self._finder.lag_records + len(self._own)

    @property
    def lag_bytes(self) -> int:
        return self._finder.lag_bytes + self._own.size

    @property
    def has_more(self) -> bool:
        return bool(self._own) or self._finder.has_more

    def oldest_time(self) -> float:
        return min(self._finder.oldest_time(), self._finder.oldest_of(self._own))
