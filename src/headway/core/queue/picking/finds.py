"""Finds are the records of a queue that pickers found and that still wait. Each is known once, whoever found it.

What is found of a message group goes to the group's owner, or is passed over (groups.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from headway.core.consumer import Subscription
from headway.core.queue.backlog import Backlog
from headway.core.queue.picking.groups import NO_GROUPS, Groups
from headway.core.queue.picking.picker import Picker
from headway.core.queue.picking.reserved import Reserved
from headway.core.queue.places import FoundRecord, Key, RequeuedRecord, StandingRecord


class Finds:
    def __init__(self, backlog: Backlog, picker_of: Mapping[Subscription, Picker]) -> None:
        self.by_key: dict[Key, FoundRecord] = {}
        self.groups: Groups = NO_GROUPS
        self.looked_again_for: Subscription | None = None
        """The owner of groups for which it is looked again."""
        self._backlog = backlog
        self._picker_of = picker_of

    def begin_groups(self) -> Groups:
        """Keeps to groups from now on. What was found before may be of one, and is to be found again."""
        self.by_key.clear()
        self.groups = Groups(self.is_wanted_by)
        return self.groups

    def note(self, picker: Picker, one: RequeuedRecord | StandingRecord, record: FoundRecord) -> None:
        """Takes in what a picker found; others may have found it before. What stands may be passed over."""
        known, groups, group = self.by_key.get(record.key), self.groups, record.group
        if known is None:
            if group:
                owner = groups.owner(group)
                wanted = owner is None or (theirs := self._picker_of[owner]) is picker or theirs.selects(one)
                if owner is not None and owner is not self.looked_again_for and isinstance(one, StandingRecord):
                    again_from = groups.of(owner).again_from
                    if groups.passes_over(owner, group, record.key, wanted=wanted):
                        if again_from != groups.of(owner).again_from:
                            self._forget_after(record.key, groups.of(owner), groups)
                        return
                groups.found(record, wanted=wanted)
            known = self.by_key[record.key] = record
        elif picker in known.finders:
            return
        known.finders.append(picker)
        if known.owner is None:
            picker.free.put(known)

    def _forget_after(self, key: Key, mine: Reserved, groups: Groups) -> None:
        """Forgets what is reserved and stands after the first record that was passed over."""
        for record in [record for record in mine.wanted if record.key > key]:
            if isinstance(self._backlog.find(*record.key), StandingRecord):
                del self.by_key[record.key]
                groups.pass_over(record)

    def is_wanted_by(self, owner: Subscription, record: FoundRecord) -> bool:
        picker = self._picker_of[owner]
        if picker in record.finders:
            return True
        found = self._backlog.find(*record.key)
        return found is not None and picker.selects(found)

    def gone(self, key: Key) -> None:
        """Notes that a record waits no more."""
        record = self.by_key.pop(key, None)
        if record is None:
            return
        finders = record.finders
        if record.owner is not None and record.wanted and (theirs := self._picker_of[record.owner]) not in finders:
            finders.append(theirs)  # it was to get it
        for finder in finders:
            finder.free.remove(record)
            finder.handed_records += 1
            finder.handed_bytes += record.size
        if record.group:
            self.groups.gone(record)

    def forget_gone(self) -> None:
        """Looks which of the records that were found wait no more, because many were dropped at once."""
        for key in [key for key in self.by_key if self._backlog.find(*key) is None]:
            self.gone(key)

    def forget(self, picker: Picker) -> None:
        """Forgets what was found by nobody but this picker, which has no members any more."""
        for record in list(self.by_key.values()):
            if picker in record.finders:
                record.finders.remove(picker)
                if not record.finders and record.owner is None:
                    del self.by_key[record.key]
                    if record.group:
                        self.groups.gone(record)

    def check(self) -> None:
        """Asserts the invariants. It visits all that was found."""
        for key, record in self.by_key.items():
            assert self._backlog.find(*key) is not None, "what was found still waits"
            assert all((key in finder.free.by_key) is (record.owner is None) for finder in record.finders)
