"""Picking hands out the records of a queue to members with selectors: each gets the records that match, in the order of
the queue, and what matches nobody holds up nobody.

Theory of operation. Members with equal selectors share a *picker*: how far it has looked, and what it found. A picker
looks at the records of the queue in their order, once each, and notes the places of those that match. When it comes to
the end of what was passed, it has the queue's cursor pass some more, which stand from then on (standing.py). A picker
of members that came later begins with the first one that stands. Members without a selector take the next record, as
in any queue.

- A place that was noted may be taken by others before. So it is looked up again when a member is to get its record.
- A requeued record is looked at again by each picker, before all others: it may be before the place where they are.
- In a queue with message groups (groups.py) each record is for one member, so all pickers look, also that of members
  without a selector. What a picker finds for another member than the one whose turn it is, is reserved for that one.
- A picker looks only while a member of it has room, and until it has found ``FOUND_ENOUGH``. All queues together look
  at a limited number of records in a turn (``Registry.returning``); the others go on in the next turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from headway.core.base import Reason, Refused
from headway.core.consumer import QueueMember, Subscription, Waiting
from headway.core.log import Chunk
from headway.core.queue.backlog import Backlog
from headway.core.queue.groups import Found, Groups, Share
from headway.core.queue.picker import Picker
from headway.core.queue.places import Place, RequeuedRecord, StandingRecord
from headway.core.selector import BadSelector, Selector, compile_selector

SELECTORS_MAX = 64
"""The number of distinct selectors of one queue."""
RESERVED_FOR = 256
"""So many members for which something is reserved are asked first."""


class Offer(NamedTuple):
    """A record that a member is to get."""

    found: RequeuedRecord | StandingRecord
    place: Place
    facts: Found
    first: bool = False
    """Set if it is the first of its group that the member gets."""
    reserved: bool = False
    """Set if it was reserved for the member."""


class Picking:
    """The pickers of a queue; none while no member has a selector."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self.pickers: dict[Selector | None, Picker] = {}
        """In the order of their turns."""
        self._of: dict[Subscription, Picker] = {}
        self.groups: Groups | None = None
        """None: no message of a group has come."""
        self._offered = 0
        """The number of records that left the backlog because they were offered to a member."""

    def __bool__(self) -> bool:
        return bool(self.pickers)

    def admit(self, condition: str | None) -> None:
        """Raises :class:`Refused` if the condition is none, or the queue has no room for another one."""
        if condition is None:
            return
        try:
            selector = compile_selector(condition)
        except BadSelector as error:
            raise Refused(Reason.PROTOCOL_ERROR, str(error)) from None
        if selector not in self.pickers and len(self.pickers) > SELECTORS_MAX:
            text = f"the consumers of the queue have {SELECTORS_MAX} distinct selectors already, and may have no more"
            raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, text)

    def join(self, member: Subscription, others: Mapping[Subscription, None]) -> Waiting | None:
        """Takes a new member in. Returns what waits for it; None: all that waits. ``others``: those that came before.
        """
        condition = member.request.options.selector
        if condition is None and not self.pickers:
            return None
        if not self.pickers:
            self._begin(others)
        selector = None if condition is None else compile_selector(condition)
        if selector not in self.pickers:
            self.pickers[selector] = Picker(selector, self._backlog, grouped=self.groups is not None)
        picker = self._of[member] = self.pickers[selector]
        picker.ring[member] = None
        picker.members += 1
        if self.groups is not None:
            return Share(member, picker, self.groups)
        return None if selector is None else picker

    def _begin(self, members: Mapping[Subscription, None]) -> None:
        """Begins with these members, which have no selectors."""
        self._backlog.on_put = self._note
        plain = self.pickers[None] = Picker(None, self._backlog, grouped=self.groups is not None)
        plain.ring = {member: None for member in members if member not in member.session.aside}
        plain.members = len(members)
        self._of = dict.fromkeys(members, plain)

    def begin_groups(self, members: Mapping[Subscription, None]) -> None:
        """Keeps to groups from now on, because a message of one has come. Members have what they were given before."""
        self.groups = Groups(self._backlog.find)
        if not self.pickers:
            self._begin(members)
        for picker in self.pickers.values():
            picker.look_anew(grouped=True)
        for member, picker in self._of.items():
            if isinstance(member.reader, QueueMember):
                share, counters = Share(member, picker, self.groups), member.counters
                skipped, member.reader.waiting = member.reader.skipped(member), share
                counters.start_at(share.handed_records - counters.written_records - skipped.records,
                                  share.handed_bytes - counters.handed_bytes - skipped.bytes)  # fmt: skip

    def leave(self, member: Subscription) -> None:
        picker = self._of.pop(member, None)
        if picker is None:
            return
        picker.ring.pop(member, None)
        picker.members -= 1
        if self.groups is not None:
            self.groups.leave(member)
        if picker.selector is not None and not picker.members:
            del self.pickers[picker.selector]
        if len(self.pickers) == 1 and self.groups is None:
            self.stop()

    def stop(self) -> None:
        self.pickers.clear()
        self._of.clear()
        self._backlog.on_put = None
        if self.groups is not None:
            self.groups.clear()

    def _note(self, record: RequeuedRecord, again: bool) -> None:
        place = record.place
        for picker in self.pickers.values():
            if picker.looks:
                picker.note(place, again=again)

    def of(self, member: Subscription) -> Picker | None:
        """Returns the picker of a member, if that looks at records."""
        picker = self._of.get(member)
        return picker if picker is not None and picker.looks else None

    def nobody_wants(self, chunk: Chunk, members: list[Subscription] | None) -> bool:
        """Tells whether all pickers have looked at what stands in the chunk, and found nothing in it that still waits
        for a member. ``members``: those whose pickers count (None: all)."""
        if self.groups is not None and self.groups.owners_of(chunk):
            return False
        if members is None:
            pickers = [picker for picker in self.pickers.values() if picker.members]
        else:
            pickers = [self._of[member] for member in members if member in self._of]
        return bool(pickers) and all(picker.looks and picker.has_refused(chunk) for picker in pickers)

    def takers(self, chunk: Chunk, members: list[Subscription]) -> list[Subscription]:
        """Returns those of these members that could get what waits in the queue's oldest chunk."""
        if self.groups is not None and (owners := self.groups.owners_of(chunk)):
            return owners
        refused = {picker for picker in self.pickers.values() if picker.looks and picker.has_refused(chunk)}
        return [member for member in members if self._of.get(member) not in refused]

    # -- what a member gets -----------------------------------------------------------------------------------------

    def next_for(self, member: Subscription) -> Offer | None:
        """Returns the next record for a member; None: nothing was found for it. Reserves what is for others."""
        picker, groups = self._of[member], self.groups
        mine = None if groups is None else self._reserved(member, groups)
        while (found := picker.next()) is not None:
            place, facts = picker.first()
            if mine is not None and mine.place < place:
                return mine
            owner = None if groups is None or facts.group is None else groups.owner(facts.group)
            if owner is None or owner is member or groups is None:
                return Offer(found, place, facts, first=owner is None and facts.group is not None)
            if not groups.has_room(self._backlog.handed_records - self._offered):
                break
            theirs = self._of[owner]
            groups.reserve(owner, place, facts, picker, wanted=theirs is picker or theirs.selects(found))
            picker.done()
        return mine

    def _reserved(self, member: Subscription, groups: Groups) -> Offer | None:
        first = groups.first(member)
        return None if first is None else Offer(*first, reserved=True)

    def done(self, member: Subscription, offer: Offer, *, got: bool) -> None:
        """Notes that a member got what it was offered, or that this was dropped."""
        groups, group = self.groups, offer.facts.group
        self._offered += 1
        if groups is None:
            self._of[member].done()
            return
        if offer.reserved:
            groups.taken(member)
        else:
            self._of[member].done()
        if group is not None and offer.facts.closes:
            groups.close(group)
        elif group is not None and offer.first and got:
            groups.give(group, member)

    def with_reserved(self, picker: Picker) -> list[Subscription]:
        """Returns some members of a picker for which something is reserved."""
        if self.groups is None:
            return []
        some = islice(self.groups.reserved, RESERVED_FOR)
        return [member for member in some if member in picker.ring]

    # -- turns ------------------------------------------------------------------------------------------------------

    def in_turn(self) -> list[Picker]:
        """Returns all pickers, those whose turn is longest ago first."""
        return list(self.pickers.values())

    def had_its_turn(self, picker: Picker) -> None:
        if self.pickers.pop(picker.selector, None) is not None:
            self.pickers[picker.selector] = picker

    def offer_again(self, member: Subscription) -> None:
        """Offers records to a member that was set aside."""
        self._of[member].ring[member] = None

    def offers(self, member: Subscription) -> bool:
        """Tells whether records are offered to a member."""
        return member in self._of[member].ring

    def set_aside(self, member: Subscription) -> None:
        self._of[member].ring.pop(member, None)

    def to_the_back(self, member: Subscription) -> None:
        ring = self._of[member].ring
        if ring.pop(member, self) is None:
            ring[member] = None
