"""Faults as somebody could make them, each put into the core while a world runs. The checker has to find every one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headway.core.queue.members import Members
from headway.core.queue.picking import groups
from headway.core.queue.picking.groups import Groups, Reserved
from headway.core.queue.picking.picker import Picker
from headway.core.queue.picking.picking import Finds, Picking
from headway.core.queue.places import FoundHeap, FoundRecord
from headway.core.queue.queue import Queue

Put = Callable[[Any, str, Any], None]
"""Puts something into the place of what a class has by a name."""
Fault = Callable[[Put], None]


def nobody_is_woken(put: Put) -> None:
    """A consumer that waits alone has room again, and its queue is not looked at."""
    put(Queue, "look_again", lambda self, member: self.members.look_again(member))


def who_was_set_aside_stays_there(put: Put) -> None:
    put(Members, "look_again", lambda self, member: None)


def what_came_back_is_behind_the_picker(put: Put) -> None:
    """A record passes by a consumer that could not take it then."""
    note = Picker.note
    put(Picker, "note", lambda self, place, again: note(self, place, again=False))


def an_owner_is_reserved_what_its_own_picker_would_not_find(put: Put) -> None:
    put(Picker, "selects", lambda self, one: True)


def an_owner_does_not_wait_for_its_own_picker(put: Put) -> None:
    put(Picker, "has_looked_before", lambda self, record: True)


def what_is_beyond_the_reserve_is_forgotten(put: Put) -> None:
    """Nobody notes that it was passed over."""
    put(Groups, "passes_over", lambda self, *_, wanted: self._count >= groups.RESERVED_MAX)


def nobody_looks_again_for_an_owner(put: Put) -> None:
    put(Picking, "_look_again_for", lambda *_: None)


def pickers_do_not_go_back(put: Put) -> None:
    put(Picker, "go_back", lambda self, key: None)


def one_that_an_owner_leaves_is_lost(put: Put) -> None:
    free_again = Groups._free_again

    def lose(self: Groups, records: Iterable[FoundRecord], mine: Reserved) -> None:
        free_again(self, list(records)[1:], mine)

    put(Groups, "_free_again", lose)


def the_bytes_of_what_is_gone_still_wait(put: Put) -> None:
    put(FoundHeap, "remove", lambda self, record: self.by_key.pop(record.key, None))


def what_others_took_is_counted_twice(put: Put) -> None:
    gone = Finds.gone

    def count_twice(self: Finds, key: tuple[int, int]) -> None:
        finders = self.by_key[key].finders if key in self.by_key else []
        for finder in finders:
            finder.handed_records += 1
        gone(self, key)

    put(Finds, "gone", count_twice)


FAULTS = {
    nobody_is_woken: 11, who_was_set_aside_stays_there: 6, what_came_back_is_behind_the_picker: 14,
    an_owner_is_reserved_what_its_own_picker_would_not_find: 12, an_owner_does_not_wait_for_its_own_picker: 12,
    what_is_beyond_the_reserve_is_forgotten: 12, nobody_looks_again_for_an_owner: 2, pickers_do_not_go_back: 12,
    one_that_an_owner_leaves_is_lost: 12, the_bytes_of_what_is_gone_still_wait: 10,
    what_others_took_is_counted_twice: 10,
}  # fmt: skip
"""Each with the seed of a world that soon shows it."""
