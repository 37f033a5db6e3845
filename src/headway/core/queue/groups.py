"""Message groups of a queue: all messages of a group go to one consumer, while it lives, in the order of the queue.

- A group belongs to the consumer that is given a message of it first. It belongs to nobody again when that consumer
  leaves, or when a message that closes the group is given to it.
- A message that is found for another consumer than its group's owner is *reserved*: its place is noted for the owner.
  ``RESERVED_MAX`` of them are noted in a queue. Beyond that nobody gets messages that come later, until the owners take
  some of theirs, or leave. One that the owner's selector does not want waits until the owner leaves, as in ActiveMQ.
- A queue knows ``GROUPS_MAX`` groups. Further ones are known by a number from 0 to ``BUCKETS - 1``, by their names: so
  some of them have one owner, and are closed together. A message never goes to another consumer because of that.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple, Protocol
from zlib import crc32

from headway.core.consumer import Subscription, Waiting
from headway.core.log import Cursor
from headway.core.queue.places import Key, Place

GROUPS_MAX = 10_000
BUCKETS = 256
RESERVED_MAX = 2_000

GroupName = str | int


class Found(NamedTuple):
    """Facts of a record that a picker found."""

    size: int
    group: str | None = None
    closes: bool = False


class Finder(Waiting, Protocol):
    """A picker, as groups know it."""

    def take_back(self, place: Place, found: Found) -> None:
        """Takes back a record that it found, and that was reserved for a member which has left."""


class Reserved:
    """The places that are reserved for one owner, each with its facts and the picker that found it."""

    __slots__ = ("facts", "heap", "size", "unwanted")

    def __init__(self) -> None:
        self.heap: list[Place] = []
        self.facts: dict[Key, tuple[Found, Finder]] = {}
        self.size = 0
        """Their bytes."""
        self.unwanted: list[tuple[Place, Found, Finder]] = []
        """Those that the owner's selector does not want."""

    def put(self, place: Place, found: Found, finder: Finder) -> bool:
        key = place[1:]
        if key in self.facts:
            return False
        heappush(self.heap, place)
        self.facts[key] = found, finder
        self.size += found.size
        return True

    def pop(self) -> None:
        _, order, number = heappop(self.heap)
        found, _ = self.facts.pop((order, number))
        self.size -= found.size

    def first(self) -> tuple[Place, Found]:
        place = self.heap[0]
        return place, self.facts[place[1:]][0]

    def give_back(self) -> None:
        """Gives everything back to the pickers that found it."""
        for place in self.heap:
            found, finder = self.facts[place[1:]]
            finder.take_back(place, found)
        for place, found, finder in self.unwanted:
            finder.take_back(place, found)


class Groups:
    """The groups of a queue: the owner of each, and what is reserved for the owners."""

    def __init__(self) -> None:
        self._owners: dict[GroupName, Subscription] = {}
        self._of: dict[Subscription, set[GroupName]] = {}
        self.reserved: dict[Subscription, Reserved] = {}
        """For each owner, if something is reserved for it."""
        self._count = 0

    def owner(self, group: str) -> Subscription | None:
        return self._owners.get(group) or self._owners.get(_bucket(group))

    def give(self, group: str, member: Subscription) -> None:
        """Gives a group without an owner to a member."""
        name: GroupName = group if len(self._owners) < GROUPS_MAX else _bucket(group)
        self._owners[name] = member
        self._of.setdefault(member, set()).add(name)

    def close(self, group: str) -> None:
        name: GroupName = group if group in self._owners else _bucket(group)
        owner = self._owners.pop(name, None)
        if owner is not None:
            self._of[owner].discard(name)

    def leave(self, member: Subscription) -> None:
        """Takes all groups from a member that leaves, and what was reserved for it."""
        for name in self._of.pop(member, ()):
            del self._owners[name]
        mine = self.reserved.pop(member, None)
        if mine is not None:
            self._count -= len(mine.heap) + len(mine.unwanted)
            mine.give_back()

    def clear(self) -> None:
        for table in (self._owners, self._of, self.reserved):
            table.clear()
        self._count = 0

    # -- reserved ---------------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Tells whether no more can be reserved."""
        return self._count >= RESERVED_MAX

    def reserve(self, owner: Subscription, place: Place, found: Found, finder: Finder, *, wanted: bool) -> None:
        """Notes a record for the owner of its group. Not ``wanted``: the owner's selector does not want it."""
        mine = self.reserved.setdefault(owner, Reserved())
        if wanted:
            self._count += mine.put(place, found, finder)
        else:
            mine.unwanted.append((place, found, finder))
            self._count += 1

    def taken(self, owner: Subscription) -> None:
        """Notes that the first of what is reserved for a member does not wait any more."""
        mine = self.reserved[owner]
        mine.pop()
        self._count -= 1
        if not mine.heap and not mine.unwanted:
            del self.reserved[owner]

    def first(self, owner: Subscription) -> tuple[Place, Found] | None:
        """Returns the first of what is reserved for a member."""
        mine = self.reserved.get(owner)
        return mine.first() if mine is not None and mine.heap else None


class Share:
    """The records that wait for one member of a queue with groups (``Waiting``): those reserved for it, and those that
    its picker found and that are not reserved yet."""

    __slots__ = ("_finder", "_groups", "_member")

    def __init__(self, member: Subscription, finder: Waiting, groups: Groups) -> None:
        self._member = member
        self._finder = finder
        self._groups = groups

    @property
    def _own(self) -> Reserved:
        return self._groups.reserved.get(self._member) or NOTHING_RESERVED

    @property
    def handed_records(self) -> int:
        return self._finder.handed_records - len(self._own.heap)

    @property
    def handed_bytes(self) -> int:
        return self._finder.handed_bytes - self._own.size

    @property
    def reading(self) -> Cursor:
        return self._finder.reading

    @property
    def lag_records(self) -> int:
        return self._finder.lag_records + len(self._own.heap)

    @property
    def lag_bytes(self) -> int:
        return self._finder.lag_bytes + self._own.size

    @property
    def has_more(self) -> bool:
        return bool(self._own.heap) or self._finder.has_more

    def oldest_time(self) -> float | None:
        return self._finder.oldest_time()


NOTHING_RESERVED = Reserved()
"""Shared by all members for which nothing is reserved. It is never written to."""


def _bucket(group: str) -> int:
    return crc32(group.encode()) % BUCKETS
