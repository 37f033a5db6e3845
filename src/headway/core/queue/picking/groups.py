"""Message groups of a queue: all messages of a group go to one consumer, while it lives, in the order of the queue.

- A group belongs to the consumer that is given a message of it first. It belongs to nobody again when that consumer
  leaves, or when a message that closes the group is given to it.
- A message that is found when its group belongs to a consumer is *reserved* for that owner, whichever picker found it.
  So is what was found before, when the group gets an owner. One that the owner's selector does not want waits until the
  owner leaves, as in ActiveMQ; where memory is short it gives way, as what nobody selects.
- ``RESERVED_MAX`` messages are reserved in a queue, and always ``RESERVED_EACH`` for each owner. Further ones are
  *passed over*: they stand where they are, and nobody knows them. When an owner has taken what was reserved for it,
  pickers look again from the first one that was passed over for it. When it leaves, or a group of it is closed, they go
  back to there. So a slow owner holds up only its own groups. Requeued messages, which take up as much by themselves,
  are not passed over.
- A queue knows ``GROUPS_MAX`` groups. Further ones are known by a number from 0 to ``BUCKETS - 1``, by their names: so
  some of them have one owner, and no message closes them, because it would close the others too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol
from zlib import crc32

from headway.core.consumer import Subscription, Waiting
from headway.core.log import Cursor
from headway.core.queue.places import BEFORE_ALL, BEHIND_ALL, FoundHeap, FoundRecord, Key

# -- reserved ----------------------------------------------------------------------------------------------------------
#
# Reserved messages: those of an owner's message groups that wait for it alone.


RESERVED_EACH = 16
"""So many messages are reserved for an owner in any case."""
GroupName = str | int
"""The name of a group, or the number that it shares with others."""


class Reserved:
    """The messages that are reserved for one owner, and the places where more of them may stand."""

    __slots__ = ("again_from", "by_group", "left_out", "passed", "wanted")

    def __init__(self) -> None:
        self.wanted = FoundHeap()
        """Those that it is to get."""
        self.by_group: dict[str, dict[Key, FoundRecord]] = {}
        """All of them."""
        self.again_from = BEHIND_ALL
        """The place from which on it is to be looked again for messages that were passed over."""
        self.passed: dict[GroupName, Key] = {}
        """The groups of which such messages were passed over, with the last place."""
        self.left_out: dict[GroupName, Key] = {}
        """The groups of which messages were passed over that it does not want, with the first place."""

    @property
    def passed_some(self) -> bool:
        """Tells whether messages that it wants were passed over."""
        return self.again_from < BEHIND_ALL

    @property
    def has_few(self) -> bool:
        """Tells whether there is room for another one in any case."""
        return len(self.wanted) < RESERVED_EACH

    @property
    def is_low(self) -> bool:
        """Tells whether it is time to look again for more, so that the owner is never without any."""
        first = self.wanted.first()
        short = first is None or len(self.wanted) <= max(1, RESERVED_EACH // 2) or first.key >= self.again_from
        return short and self.passed_some

    def has_enough(self, before: int) -> bool:
        """Tells whether enough was reserved since there were so many."""
        return len(self.wanted) >= before + RESERVED_EACH


NOTHING_RESERVED = Reserved()
"""Shared by all members for which nothing is reserved. It is never written to."""


# -- groups ------------------------------------------------------------------------------------------------------------


GROUPS_MAX = 10_000
BUCKETS = 256
RESERVED_MAX = 2_000

WantedBy = Callable[[Subscription, FoundRecord], bool]
"""Tells whether a member's selector wants a record."""


class Groups:
    """The groups of a queue: the owner of each, and what is reserved for the owners."""

    def __init__(self, wanted_by: WantedBy) -> None:
        self._wanted_by = wanted_by
        self._owners: dict[GroupName, Subscription] = {}
        self._of: dict[Subscription, set[GroupName]] = {}
        self._free: dict[str, dict[Key, FoundRecord]] = {}
        """The records that were found of groups without an owner."""
        self.reserved: dict[Subscription, Reserved] = {}
        """For each owner, if something is reserved for it or was passed over."""
        self.to_ask: dict[Subscription, None] = {}
        """The owners for which something is reserved and that may have room. Others may be among them."""
        self.passed = 0
        """The number of groups of which messages were passed over."""
        self._count = 0

    def owner(self, group: str) -> Subscription | None:
        return self._owners.get(group) or self._owners.get(_bucket(group))

    def give(self, group: str, member: Subscription) -> None:
        """Gives a group without an owner to a member, and what was found of it."""
        name: GroupName = group if len(self._owners) < GROUPS_MAX else _bucket(group)
        self._owners[name] = member
        self._of.setdefault(member, set()).add(name)
        names = [group] if name == group else [one for one in self._free if self.owner(one) is member]
        for one in names:
            for record in self._free.pop(one, {}).values():
                for finder in record.finders:
                    finder.free.remove(record)
                self._reserve(record, member, wanted=self._wanted_by(member, record))

    def close(self, group: str) -> Key:
        """Ends a group. Returns the place from which on pickers are to look again."""
        owner = self._owners.pop(group, None)
        if owner is None:
            return BEHIND_ALL
        self._of[owner].discard(group)
        mine = self.of(owner)
        self._free_again(mine.by_group.pop(group, {}).values(), mine)
        self.passed -= (group in mine.passed) + (group in mine.left_out)
        more = mine.passed.pop(group, BEFORE_ALL) >= mine.again_from
        left_out = mine.left_out.pop(group, BEHIND_ALL)
        self._forget_if_empty(owner, mine)
        return min(mine.again_from, left_out) if more else left_out

    def leave(self, member: Subscription) -> Key:
        """Takes all groups from a member that leaves, and what was reserved for it. Returns as ``close`` does."""
        for name in self._of.pop(member, ()):
            del self._owners[name]
        mine = self.reserved.pop(member, NOTHING_RESERVED)
        self.to_ask.pop(member, None)
        for records in mine.by_group.values():
            self._free_again(records.values(), mine)
        self.passed -= len(mine.passed) + len(mine.left_out)
        return min([mine.again_from, *mine.left_out.values()])

    def leave_all(self) -> Key:
        """Takes all groups from all members. Returns as ``close`` does."""
        return min([self.leave(member) for member in list(self._of)], default=BEHIND_ALL)

    def clear(self) -> None:
        for table in (self._owners, self._of, self._free, self.reserved, self.to_ask):
            table.clear()
        self._count = self.passed = 0

    def _free_again(self, records: Iterable[FoundRecord], mine: Reserved) -> None:
        for record in records:
            self._count -= 1
            mine.wanted.remove(record)
            record.owner = None
            if (owner := self.owner(record.group)) is not None:  # the number of the group has one
                self._reserve(record, owner, wanted=self._wanted_by(owner, record))
                continue
            for finder in record.finders:
                finder.free.put(record)
            self._note_free(record)

    # -- what was found ---------------------------------------------------------------------------------------------

    def found(self, record: FoundRecord, *, wanted: bool) -> None:
        """Takes in a record of a group that was found. ``wanted``: its group's owner, if there is one, wants it."""
        owner = self.owner(record.group)
        if owner is None:
            self._note_free(record)
        else:
            self._reserve(record, owner, wanted=wanted)

    def passes_over(self, owner: Subscription, group: str, key: Key, *, wanted: bool) -> bool:
        """Tells whether a record that stands at this place is passed over, because enough is reserved, or because one
        that comes before it was."""
        mine = self.of(owner)
        has_room = self._count < RESERVED_MAX or (wanted and mine.has_few)
        if has_room and not (wanted and key >= mine.again_from):
            return False
        mine = self.reserved.setdefault(owner, Reserved())
        if wanted:
            self._note_passed(mine, group, key)
            mine.again_from = min(key, mine.again_from)
            self.to_ask[owner] = None
        else:
            name = self._name(group)
            self.passed += name not in mine.left_out
            mine.left_out[name] = min(mine.left_out.get(name, key), key)
        return True

    def pass_over(self, record: FoundRecord) -> None:
        """Passes over what was reserved, and stands after what is passed over now."""
        assert record.owner is not None
        self._note_passed(self.reserved[record.owner], record.group, record.key)
        self.gone(record)

    def _note_passed(self, mine: Reserved, group: str, key: Key) -> None:
        name = self._name(group)
        self.passed += name not in mine.passed
        mine.passed[name] = max(mine.passed.get(name, key), key)

    def _name(self, group: str) -> GroupName:
        """Returns the name by which a group that has an owner is known."""
        return group if group in self._owners else _bucket(group)

    def _note_free(self, record: FoundRecord) -> None:
        self._free.setdefault(record.group, {})[record.key] = record

    def _reserve(self, record: FoundRecord, owner: Subscription, *, wanted: bool) -> None:
        mine = self.reserved.setdefault(owner, Reserved())
        mine.by_group.setdefault(record.group, {})[record.key] = record
        record.owner, record.wanted = owner, wanted
        self._count += 1
        if wanted:
            mine.wanted.put(record)
            self.to_ask[owner] = None

    def gone(self, record: FoundRecord) -> None:
        """Notes that a record of a group waits no more."""
        owner = record.owner
        if owner is None:
            _remove(record, self._free)
            return
        mine = self.reserved[owner]
        _remove(record, mine.by_group)
        mine.wanted.remove(record)
        self._count -= 1
        self._forget_if_empty(owner, mine)

    def _forget_if_empty(self, owner: Subscription, mine: Reserved) -> None:
        if not mine.by_group and not mine.passed_some and not mine.left_out:
            self.reserved.pop(owner, None)

    # -- what an owner is to get ------------------------------------------------------------------------------------

    def of(self, owner: Subscription) -> Reserved:
        return self.reserved.get(owner) or NOTHING_RESERVED

    def waits_for(self, owner: Subscription) -> bool:
        """Tells whether something waits, or may wait, for an owner."""
        mine = self.of(owner)
        return bool(mine.wanted) or mine.passed_some

    def looked_again(self, owner: Subscription, upto: Key) -> None:
        """Notes how far it was looked again for an owner."""
        mine = self.reserved[owner]
        mine.again_from = upto
        if not mine.passed_some:
            self.passed -= len(mine.passed)
            mine.passed.clear()
            self._forget_if_empty(owner, mine)

    def __iter__(self) -> Iterator[FoundRecord]:
        """Yields all that is reserved."""
        for mine in self.reserved.values():
            for records in mine.by_group.values():
                yield from records.values()

    def check(self) -> None:
        """Asserts the invariants. It visits all that was found."""
        assert self._count == sum(1 for _ in self)
        assert self.passed == sum(len(mine.passed) + len(mine.left_out) for mine in self.reserved.values())
        for owner, mine in self.reserved.items():
            mine.wanted.check()
            records = [record for some in mine.by_group.values() for record in some.values()]
            assert all(record.owner is owner for record in records)
            assert set(mine.wanted) == {record for record in records if record.wanted}
            assert all(self.owner(group) is owner for group in mine.by_group)
        assert all(self.owner(group) is None for group in self._free)


NO_GROUPS: Final = Groups(lambda owner, record: True)
"""Those of all queues without groups. Nothing is put into it."""


def _remove(record: FoundRecord, by_group: dict[str, dict[Key, FoundRecord]]) -> None:
    of_group = by_group[record.group]
    del of_group[record.key]
    if not of_group:
        del by_group[record.group]


def _bucket(group: str) -> int:
    return crc32(group.encode()) % BUCKETS


# -- share -------------------------------------------------------------------------------------------------------------
#
# A share is what waits for one member of a queue with message groups.


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
