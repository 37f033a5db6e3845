"""Message groups of a queue: all messages of a group go to one consumer, while it lives, in the order of the queue.

- A group belongs to the consumer that is given a message of it first. It belongs to nobody again when that consumer
  leaves, or when a message that closes the group is given to it.
- A message that is found for another consumer than its group's owner is *reserved*: its place is noted for the owner.
  ``RESERVED_MAX`` of them are noted in a queue. Beyond that nobody gets messages that come later, until the owners take
  some of theirs, or leave. One that the owner's selector does not want waits until the owner leaves, as in ActiveMQ.
- A reserved message may be gone: purged, expired, or fetched by another consumer. It is forgotten when its owner's turn
  comes to it, or when there is no room for more and many may be gone.
- A queue knows ``GROUPS_MAX`` groups. Further ones are known by a number from 0 to ``BUCKETS - 1``, by their names: so
  some of them have one owner, and no message closes them, because it would close the others too.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol
from zlib import crc32

from headway.core.consumer import Subscription, Waiting
from headway.core.log import Chunk, Cursor
from headway.core.queue.places import Key, Place, RequeuedRecord, StandingRecord, place_in_chunk

GROUPS_MAX = 10_000
BUCKETS = 256
RESERVED_MAX = 2_000
GONE_PART = 32
"""If more than this part of ``RESERVED_MAX`` may be gone, it is worth a look."""

GroupName = str | int
Find = Callable[[int, int], RequeuedRecord | StandingRecord | None]
"""Returns the record at a place, if it still waits."""


class Found(NamedTuple):
    """Facts of a record that a picker found."""

    size: int
    group: str | None = None
    closes: bool = False


class Finder(Waiting, Protocol):
    """A picker, as groups know it."""

    def next(self) -> RequeuedRecord | StandingRecord | None:
        """Returns the first record that it found and that still waits."""

    def first(self) -> tuple[Place, Found]:
        """Returns that record's place and facts."""

    def take_back(self, place: Place, found: Found) -> None:
        """Takes back a record that it found, and that was reserved for a member which has left."""


class Reserved:
    """The places that are reserved for one owner, each with its facts and the pickers that found it."""

    __slots__ = ("facts", "heap", "size", "unwanted")

    def __init__(self) -> None:
        self.heap: list[Place] = []
        self.facts: dict[Key, tuple[Found, list[Finder]]] = {}
        self.size = 0
        """Their bytes."""
        self.unwanted: dict[Key, tuple[Place, Found, list[Finder]]] = {}
        """Those that the owner's selector does not want."""

    def put(self, place: Place, found: Found, finder: Finder) -> bool:
        key = place[1:]
        if key in self.facts:
            finders = self.facts[key][1]
            if finder not in finders:
                finders.append(finder)
            return False
        heappush(self.heap, place)
        self.facts[key] = found, [finder]
        self.size += found.size
        return True

    def put_unwanted(self, place: Place, found: Found, finder: Finder) -> bool:
        known = place[1:] in self.unwanted
        finders = self.unwanted.setdefault(place[1:], (place, found, []))[2]
        if finder not in finders:
            finders.append(finder)
        return not known

    def pop(self) -> None:
        _, order, number = heappop(self.heap)
        found, _ = self.facts.pop((order, number))
        self.size -= found.size

    def first(self) -> tuple[Place, Found]:
        place = self.heap[0]
        return place, self.facts[place[1:]][0]

    def __len__(self) -> int:
        return len(self.heap) + len(self.unwanted)

    def release(self, group: str | None = None) -> int:
        """Gives the messages of a group (None: of all groups) back to the pickers that found them. Returns how many."""
        before, kept = len(self), list[Place]()
        for place in self.heap:
            found, finders = self.facts[place[1:]]
            if group is not None and found.group != group:
                kept.append(place)
                continue
            del self.facts[place[1:]]
            self.size -= found.size
            for finder in finders:
                finder.take_back(place, found)
        for key, (place, found, finders) in list(self.unwanted.items()):
            if group is None or found.group == group:
                del self.unwanted[key]
                for finder in finders:
                    finder.take_back(place, found)
        heapify(kept)
        self.heap = kept
        return before - len(self)

    def forget_gone(self, find: Find) -> int:
        """Forgets those that wait no more. Returns how many."""
        before = len(self)
        gone = {place for place in self.heap if find(*place[1:]) is None}
        for place in gone:
            self.size -= self.facts.pop(place[1:])[0].size
        self.heap = [place for place in self.heap if place not in gone]
        heapify(self.heap)
        self.unwanted = {key: one for key, one in self.unwanted.items() if find(*key) is not None}
        return before - len(self)


class Groups:
    """The groups of a queue: the owner of each, and what is reserved for the owners."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._owners: dict[GroupName, Subscription] = {}
        self._of: dict[Subscription, set[GroupName]] = {}
        self.reserved: dict[Subscription, Reserved] = {}
        """For each owner, if something is reserved for it."""
        self._count = self._left = 0

    def owner(self, group: str) -> Subscription | None:
        return self._owners.get(group) or self._owners.get(_bucket(group))

    def give(self, group: str, member: Subscription) -> None:
        """Gives a group without an owner to a member."""
        name: GroupName = group if len(self._owners) < GROUPS_MAX else _bucket(group)
        self._owners[name] = member
        self._of.setdefault(member, set()).add(name)

    def close(self, group: str) -> None:
        owner = self._owners.pop(group, None)
        if owner is None:
            return
        self._of[owner].discard(group)
        mine = self.reserved.get(owner)
        if mine is not None:  # it belongs to nobody, so neither do its messages
            self._count -= mine.release(group)
            if not mine:
                del self.reserved[owner]

    def leave(self, member: Subscription) -> None:
        """Takes all groups from a member that leaves, and what was reserved for it."""
        for name in self._of.pop(member, ()):
            del self._owners[name]
        mine = self.reserved.pop(member, None)
        if mine is not None:
            self._count -= mine.release()

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
            self._count += mine.put_unwanted(place, found, finder)

    def taken(self, owner: Subscription) -> None:
        """Notes that the first of what is reserved for a member does not wait any more."""
        mine = self.reserved[owner]
        mine.pop()
        self._count -= 1
        if not mine:
            del self.reserved[owner]

    def has_room(self, left: int) -> bool:
        """Tells whether more can be reserved. ``left`` records left the queue otherwise than to owners, since it began:
        if there is no room, and many left since the last look, forgets all that is gone."""
        if self.full and left - self._left > RESERVED_MAX // GONE_PART:
            self._left = left
            for owner, mine in list(self.reserved.items()):
                self._count -= mine.forget_gone(self._find)
                if not mine:
                    del self.reserved[owner]
        return not self.full

    def owners_of(self, chunk: Chunk) -> list[Subscription]:
        """Returns the members for which something of the queue's oldest chunk is reserved."""
        first, stop = chunk.first_number, chunk.first_number + len(chunk)
        return [owner for owner, mine in self.reserved.items() if any(first <= one < stop for _, one in mine.facts)]

    def first(self, owner: Subscription) -> tuple[RequeuedRecord | StandingRecord, Place, Found] | None:
        """Returns the first of what is reserved for a member and still waits: the record, its place and its facts."""
        mine = self.reserved.get(owner)
        while mine is not None and mine.heap:
            place, facts = mine.first()
            if (found := self._find(*place[1:])) is not None:
                return found, place, facts
            self.taken(owner)
        return None


class Share:
    """The records that wait for one member of a queue with groups (``Waiting``): those reserved for it, and those that
    its picker found and that are not reserved yet."""

    __slots__ = ("_finder", "_groups", "_member")

    def __init__(self, member: Subscription, finder: Finder, groups: Groups) -> None:
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
        return self._groups.first(self._member) is not None or self._finder.has_more

    def oldest_time(self) -> float | None:
        """Returns the time of the first record that waits for the member. What its picker found first may wait for
        another one, who owns the group: that says nothing about this member."""
        found = self._finder.next()
        first = None if found is None else self._finder.first()
        if first is not None and (group := first[1].group) is not None:
            owner = self._groups.owner(group)
            first = first if owner is None or owner is self._member else None
        reserved = self._groups.first(self._member)
        if reserved is not None and (first is None or reserved[1] < first[0]):
            found = reserved[0]
        elif first is None:
            return None
        assert found is not None
        chunk, at = place_in_chunk(found)
        return chunk.time_of(at)


NOTHING_RESERVED = Reserved()
"""Shared by all members for which nothing is reserved. It is never written to."""


def _bucket(group: str) -> int:
    return crc32(group.encode()) % BUCKETS
