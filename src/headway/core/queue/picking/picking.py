"""Picking hands out the records of a queue to members with selectors: each gets the records that match, in the order of
the queue, and what matches nobody holds up nobody.

Theory of operation. Members with equal selectors share a *picker*: how far it has looked, and what it found. A picker
looks at the records of the queue in their order, once each, and notes the places of those that match. When it comes to
the end of what was passed, it has the queue's cursor pass some more, which stand from then on (places.py). A picker
of members that came later begins with the first one that stands. Members without a selector take the next record.

- What was found is known once for the queue, and forgotten by all pickers when it waits no more.
- A requeued record is looked at again by each picker, before all others: it may be before the place where they are. No
  member gets a record before its picker has looked at all that comes before that.
- In a queue with message groups (groups.py) each record is for one member, so all pickers look, also that of members
  without a selector. What any picker finds of a group is reserved for the group's owner.
- In a shared subscription of MQTT, pickers begin with a record that is too large for one member's client but not for
  another's (Maximum Packet Size). Members with the largest limit take the next record, the others what fits. Of very
  many limits, neighbours count as the smallest of them: some members get less than their clients accept, and larger
  members the rest. Pickers end when a member joins, leaves or comes back, because its limit may be another one; and
  when everything was handed out, because records go out faster without them.
- A picker looks only while a member of it has room, and until it has found ``FOUND_ENOUGH`` for each of them. All
  queues together look at a limited number of records in a turn (``Registry.returning``); the others go on in the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice
from math import ceil

from headway.core.base import Reason, Refused
from headway.core.consumer import QueueMember, Subscription, Waiting
from headway.core.delivery import has_room
from headway.core.log import Chunk
from headway.core.queue.backlog import Backlog
from headway.core.queue.picking.groups import NO_GROUPS, Groups, Reserved, Share
from headway.core.queue.picking.picker import NO_PLACE, Offer, PacketLimit, Picker
from headway.core.queue.places import BEHIND_ALL, FoundRecord, Key, RequeuedRecord, StandingRecord
from headway.core.routing import Overdue
from headway.core.selector import BadSelector, Selector, compile_selector

# -- finds -------------------------------------------------------------------------------------------------------------
#
# Finds are the records of a queue that pickers found and that still wait. Each is known once, whoever found it.
#
# What is found of a message group goes to the group's owner, or is passed over (groups.py).


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


# -- picking -----------------------------------------------------------------------------------------------------------


SELECTORS_MAX = 64
"""The number of distinct selectors of one queue."""
PACKET_LIMITS_MAX = 16
"""The number of packet limits that a queue tells apart. Each record is looked at once for each of them."""
RESERVED_FOR = 256
"""So many members for which something is reserved come first."""
ASKED_MAX = 1024
"""So many members are asked whether they have room for what is reserved."""


class Picking:
    """The pickers of a queue; none while no member has a selector."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self.pickers: dict[Selector | PacketLimit | None, Picker] = {}
        """In the order of their turns."""
        self._of: dict[Subscription, Picker] = {}
        self.groups: Groups = NO_GROUPS
        self.grouped = False
        """Set when a message of a group has come."""
        self._packet_bytes_max: int | None = None
        """The largest packet that the client of any member accepts; None: not computed since the members changed."""
        self._limits_upto = 0
        """Picking by size goes on until the backlog has handed out so many records."""
        self._finds = Finds(backlog, self._of)

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

    def join(self, member: Subscription, others: Mapping[Subscription, None]) -> Waiting:
        """Takes a new member in. Returns what waits for it. ``others``: those that came before."""
        condition = member.request.options.selector
        if condition is None and not self.pickers:
            return self._backlog
        if not self.pickers:
            self._begin(others)
        picker = self._enter(member, None if condition is None else compile_selector(condition))
        if self.grouped:
            return Share(member, picker, self.groups)
        return picker if picker.looks else self._backlog

    def _enter(self, member: Subscription, selector: Selector | PacketLimit | None) -> Picker:
        if selector not in self.pickers:
            self.pickers[selector] = self._picker(selector)
        picker = self._of[member] = self.pickers[selector]
        if member not in member.session.aside:
            picker.ring[member] = None
        picker.members += 1
        return picker

    def _picker(self, selector: Selector | PacketLimit | None) -> Picker:
        return Picker(selector, self._backlog, self._finds.note, grouped=self.grouped)

    def _begin(self, members: Mapping[Subscription, None]) -> None:
        """Begins with these members, which have no selectors."""
        self._backlog.on_put, self._backlog.on_gone = self._note, self._finds.gone
        plain = self.pickers[None] = self._picker(None)
        plain.ring = {member: None for member in members if member not in member.session.aside}
        plain.members = len(members)
        self._of.update(dict.fromkeys(members, plain))

    def begin_groups(self, members: Mapping[Subscription, None]) -> None:
        """Keeps to groups from now on, because a message of one has come. Members have what they were given before."""
        self.groups, self.grouped = self._finds.begin_groups(), True
        if not self.pickers:
            self._begin(members)
        for picker in self.pickers.values():
            picker.look_anew(grouped=True)
        for member, picker in self._of.items():
            _count_by(member, Share(member, picker, self.groups))

    def begin_limits(self, member: Subscription, members: Mapping[Subscription, None]) -> bool:
        """Begins to pick by size, because a record is too large for this member's client. Returns False if this was
        begun before, or no other member's client accepts larger packets."""
        if self.pickers:
            return False
        if self._packet_bytes_max is None:
            self._packet_bytes_max = max(one.session.max_packet_bytes for one in members)
        if member.session.max_packet_bytes >= self._packet_bytes_max:
            return False
        limits = sorted({one.session.max_packet_bytes for one in members} - {self._packet_bytes_max})
        step = ceil(len(limits) / PACKET_LIMITS_MAX)
        known_as = {limit: limits[at - at % step] for at, limit in enumerate(limits)}
        limited = {
            one: PacketLimit(one.dialect, known_as[one.session.max_packet_bytes]) for one in members
            if one.session.max_packet_bytes in known_as
        }  # fmt: skip
        self._limits_upto = self._backlog.handed_records + len(members)
        self._begin({one: None for one in members if one not in limited})
        for one, limit in limited.items():
            _count_by(one, self._enter(one, limit))
        return True

    def end_limits(self) -> None:
        """Ends picking by size, because a member joins or leaves, or accepts other sizes than before."""
        if self._packet_bytes_max is not None:
            self._packet_bytes_max = None
            for member, picker in self._of.items():
                if picker.looks:
                    _count_by(member, self._backlog)
            self.stop()

    def all_handed_out(self) -> None:
        """Ends picking by size if a record for each member was handed out since it began, so that to begin and to end
        costs little per record."""
        if self._packet_bytes_max is not None and self._backlog.handed_records >= self._limits_upto:
            self.end_limits()

    def leave(self, member: Subscription) -> None:
        self.end_limits()
        picker = self._of.pop(member, None)
        if picker is None:
            return
        picker.ring.pop(member, None)
        picker.members -= 1
        self._go_back(self.groups.leave(member))
        if picker.selector is not None and not picker.members:
            del self.pickers[picker.selector]
            self._finds.forget(picker)
        if len(self.pickers) == 1 and not self.grouped:
            self.stop()

    def stop(self) -> None:
        self.pickers.clear()
        self._of.clear()
        self._finds.by_key.clear()
        self._backlog.on_put = self._backlog.on_gone = None
        self.groups.clear()

    def end_groups(self) -> None:
        """Takes all groups from their owners, because one member is to get everything."""
        self._go_back(self.groups.leave_all())

    def _go_back(self, key: Key) -> None:
        """Lets all pickers look again from a place on, where messages of groups were passed over."""
        for picker in self.pickers.values():
            picker.go_back(key)

    def _note(self, record: RequeuedRecord, again: bool) -> None:
        """Notes that a record was requeued. If it was passed over while it stood, it is looked at again."""
        again = again or (self.groups.passed > 0 and record.key not in self._finds.by_key)
        for picker in self.pickers.values():
            if picker.looks:
                picker.note(record.place, again=again)

    def forget_gone(self) -> None:
        """Looks which of the records that were found wait no more, because many were dropped at once."""
        self._finds.forget_gone()

    def looks_for(self, member: Subscription) -> bool:
        """Tells whether a picker looks at records for a member."""
        return member in self._of and self._of[member].looks

    def may_find(self, member: Subscription) -> bool:
        """Tells whether there are records that nobody looked at for a member that has a picker."""
        return self._of[member].may_find or self.groups.of(member).passed_some

    def nobody_wants(self, chunk: Chunk, members: list[Subscription] | None) -> bool:
        """Tells whether all pickers have looked at what stands in the chunk, and found nothing in it that still waits
        for a member. ``members``: those whose pickers count (None: all)."""
        if self._owners_of(chunk):
            return False
        if members is None:
            pickers = [picker for picker in self.pickers.values() if picker.members]
        else:
            pickers = [self._of[member] for member in members if member in self._of]
        return bool(pickers) and all(picker.looks and picker.has_refused(chunk) for picker in pickers)

    def takers(self, chunk: Chunk, members: list[Subscription]) -> list[Subscription]:
        """Returns those of these members that could get what waits in the queue's oldest chunk."""
        if owners := self._owners_of(chunk):
            return owners
        refused = {picker for picker in self.pickers.values() if picker.looks and picker.has_refused(chunk)}
        return [member for member in members if self._of.get(member) not in refused]

    def _owners_of(self, chunk: Chunk) -> list[Subscription]:
        """Returns the members for which something of the queue's oldest chunk is reserved that they want, or may have
        been passed over. What the owner of a group does not want is wanted by nobody."""
        owners, backlog, stop = [], self._backlog, chunk.first_number + len(chunk)
        for owner, mine in self.groups.reserved.items():
            reserved = (backlog.find(*key) for key in mine.wanted.by_key if chunk.first_number <= key[1] < stop)
            found = chain([backlog.standing.next(*mine.again_from)], reserved)
            if any(one is not None and one.chunk is chunk for one in found):
                owners.append(owner)
        return owners

    def check(self) -> None:
        """Asserts the invariants. It visits all that was found."""
        self._finds.check()
        for picker in self.pickers.values():
            picker.free.check()
            assert all(self._finds.by_key.get(record.key) is record for record in picker.free)
        self.groups.check()

    # -- what a member gets -----------------------------------------------------------------------------------------

    def look(self, picker: Picker, ready: list[Subscription], work: Overdue, until: int) -> None:
        """Lets a picker look for its members that are ready, until there is enough for each of them."""
        groups, first = self.groups, picker.free.first()
        if not self.grouped:
            picker.look(work, until, picker.has_enough, NO_PLACE if first is None else first.place)
            return
        firsts = [] if first is None else [first.place]
        hungry = list(ready)
        for member in ready:
            self._look_again_for(member, picker, groups, work, until)
            if (first := groups.of(member).wanted.first()) is not None:
                firsts.append(first.place)

        def enough() -> bool:
            while hungry:
                if not picker.has_enough(self.reserved_for(hungry[-1])):
                    return False
                hungry.pop()
            return True

        picker.look(work, until, enough, min(firsts, default=NO_PLACE))

    def _look_again_for(self, owner: Subscription, picker: Picker, groups: Groups, work: Overdue, until: int) -> None:
        """Looks for messages that were passed over for an owner, if it has taken what was reserved for it."""
        mine = groups.of(owner)
        if not mine.is_low:
            return
        end = max(one.looked_upto for one in self.pickers.values())
        key, before = mine.again_from, len(mine.wanted)
        self._finds.looked_again_for = owner
        while key < BEHIND_ALL and not mine.has_enough(before) and work.left > until:
            one = self._backlog.standing.next(*key)
            if one is None or one.key >= end:
                key = BEHIND_ALL
            else:
                if one.key not in self._finds.by_key:
                    picker.look_at(one, work)
                    self._find_for_others(one, work)
                key = one.key[0], one.key[1] + 1
        self._finds.looked_again_for = None
        groups.looked_again(owner, key)

    def _find_for_others(self, one: StandingRecord, work: Overdue) -> None:
        """Has those pickers find a record that passed it over before."""
        record = self._finds.by_key.get(one.key)
        if record is None:
            return
        for picker in self.pickers.values():
            if picker not in record.finders and one.key < picker.looked_upto:
                picker.look_at(one, work)

    def next_for(self, member: Subscription) -> Offer | None:
        """Returns the next record for a member; None: nothing was found for it, or its picker has to look first."""
        picker, groups = self._of[member], self.groups
        while True:
            record = picker.free.first()
            if self.grouped:
                mine = groups.of(member)
                first = mine.wanted.first()
                if first is not None and (record is None or first.place < record.place):
                    record = first
                if record is not None and record.key >= mine.again_from:
                    return None
            if record is None or not picker.has_looked_before(record):
                return None
            found = self._backlog.find(*record.key)
            if found is not None:
                return Offer(found, record.group, record.closes, first=record.group != "" and record.owner is None)
            self._finds.gone(record.key)

    def done(self, member: Subscription, offer: Offer, *, got: bool) -> None:
        """Notes that a member got what it was offered, or that this was dropped."""
        group = offer.group
        if not group or not got:
            return  # one that was dropped opens no group, and closes none
        if offer.closes:
            self._go_back(self.groups.close(group))
        elif offer.first:
            self.groups.give(group, member)

    def reserved_for(self, member: Subscription) -> int:
        """Returns how many records are reserved for a member."""
        return len(self.groups.of(member).wanted) if self.grouped else 0

    def with_reserved(self, picker: Picker, now: float) -> list[Subscription]:
        """Returns some members of a picker that have room and for which something is reserved."""
        groups, found = self.groups, list[Subscription]()
        for member in list(islice(groups.to_ask, ASKED_MAX)):
            if self._of[member] is not picker:
                continue
            del groups.to_ask[member]
            if groups.waits_for(member) and self.offers(member):
                groups.to_ask[member] = None  # others come first next time
                if len(found) < RESERVED_FOR and has_room(member, now):
                    found.append(member)
        return found

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
        if self.grouped:
            self.groups.to_ask[member] = None

    def offers(self, member: Subscription) -> bool:
        """Tells whether records are offered to a member."""
        return member in self._of[member].ring

    def set_aside(self, member: Subscription) -> None:
        self._of[member].ring.pop(member, None)

    def to_the_back(self, member: Subscription) -> None:
        ring = self._of[member].ring
        if ring.pop(member, self) is None:
            ring[member] = None


def _count_by(member: Subscription, waiting: Waiting) -> None:
    """Counts what waits for a member, and what others got, in another way from now on."""
    reader, counters = member.reader, member.counters
    if isinstance(reader, QueueMember):
        skipped, reader.waiting = reader.skipped(member), waiting
        accounted = reader.accounted
        counters.start_at(accounted.handed_records - counters.written_records - skipped.records,
                          accounted.handed_bytes - counters.handed_bytes - skipped.bytes)  # fmt: skip
