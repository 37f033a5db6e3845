"""Picking hands out the records of a queue to members with selectors: each gets the records that match, in the order of
the queue, and what matches nobody holds up nobody.

Theory of operation. Members with equal selectors share a *picker*: how far it has looked, and what it found. A picker
looks at the records of the queue in their order, once each, and notes the places of those that match. When it comes to
the end of what was passed, it has the queue's cursor pass some more, which stand from then on (standing.py). A picker
of members that came later begins with the first one that stands. Members without a selector take the next record, as
in any queue.

- A place that was noted may be taken by others before. So it is looked up again when a member is to get its record.
- A requeued record is looked at again by each picker, before all others: it may be before the place where they are.
- A picker looks only while a member of it has room, and until it has found ``FOUND_ENOUGH``. All queues together look
  at a limited number of records in a turn (``Registry.returning``); the others go on in the next turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from headway.core.base import Reason, Refused
from headway.core.consumer import Subscription
from headway.core.delivery import record_at
from headway.core.queue.backlog import Backlog
from headway.core.queue.places import Key, Place, QueueCursor, RequeuedRecord, StandingRecord
from headway.core.routing import Overdue
from headway.core.selector import BadSelector, Selector, compile_selector

if TYPE_CHECKING:
    from headway.core.log import Chunk

SELECTORS_MAX = 64
"""The number of distinct selectors of one queue."""
FOUND_ENOUGH = 64
"""A picker that has found so many looks no further."""
PASSED_AT_ONCE = 64
"""The number of records that a cursor passes at once for a picker."""
LOOKED_WORK = 8
"""The work of a look at a record."""
BYTES_A_UNIT = 4096
"""So many bytes of a record that is looked at are one unit of work more."""


class Picker:
    """The picker of the members with one selector. It is also the backlog that they have (``Waiting``)."""

    __slots__ = ("_backlog", "_heap", "_number", "_order", "_sizes", "_unseen", "handed_bytes", "handed_records",
                 "lag_bytes", "members", "ring", "selector")  # fmt: skip

    def __init__(self, selector: Selector | None, backlog: Backlog) -> None:
        self.selector = selector
        """None: its members take the next record, whatever it is."""
        self.ring: dict[Subscription, None] = {}
        """The members of it that records are offered to, in the order of their turns."""
        self.members = 0
        """Their number, those that are set aside included."""
        self.handed_records = 0
        self.handed_bytes = 0
        """The records and bytes that it found and that wait no more: a member of it has them, or others do."""
        self.lag_bytes = 0
        """The bytes of records that it found."""
        self._backlog = backlog
        self._heap: list[Place] = []
        """The places of records that match."""
        self._sizes: dict[Key, int] = {}
        """Their sizes."""
        self._unseen: dict[Key, None] = {} if selector is None else dict.fromkeys(backlog.requeued.by_key)
        """Requeued records to look at. Some may have been taken since."""
        self._order = self._number = 0
        """The place from which on it has looked at nothing that stands."""

    # -- what its members have to get (Waiting) ---------------------------------------------------------------------

    @property
    def reading(self) -> QueueCursor:
        return self._backlog.reading

    @property
    def lag_records(self) -> int:
        return len(self._heap)

    @property
    def has_more(self) -> bool:
        return self.next() is not None

    def oldest_time(self) -> float | None:
        found = self.next()
        if found is None:
            return None
        chunk, at = place_in_chunk(found)
        return chunk.time_of(at)

    @property
    def may_find(self) -> bool:
        """Tells whether there are records that it has not looked at."""
        backlog = self._backlog
        return bool(self._unseen) or backlog.has_fresh() or backlog.standing.next(self._order, self._number) is not None

    # -- looking ----------------------------------------------------------------------------------------------------

    def note(self, record: RequeuedRecord) -> None:
        """Notes that a record was requeued, or left its row without a member. It is looked at again."""
        waiting = self._backlog.requeued.by_key
        if record.returns or record.key >= (self._order, self._number):
            self._unseen[record.key] = None
            if len(self._unseen) > 2 * len(waiting) + FOUND_ENOUGH:
                self._unseen = {key: None for key in self._unseen if key in waiting}

    def look(self, work: Overdue) -> bool:
        """Looks for records, as far as this turn's work goes. Returns False if it did not get to those that may be the
        next ones."""
        backlog = self._backlog
        while self._unseen:
            if work.left <= 0:
                return False
            key = next(iter(self._unseen))
            del self._unseen[key]
            record = backlog.requeued.by_key.get(key)
            if record is not None:
                self._look_at(record, work)
        while len(self._heap) < FOUND_ENOUGH:
            if work.left <= 0:
                return bool(self._heap)
            found = backlog.standing.next(self._order, self._number)
            if found is not None:
                self._look_through(found, work)
            elif backlog.has_fresh() and not backlog.sorts:
                backlog.leave_standing(PASSED_AT_ONCE)
            else:
                break
        return True

    def _look_through(self, found: StandingRecord, work: Overdue) -> None:
        """Looks at what stands in a row, from this record on."""
        cursor, row, index = found
        at: int | None = index
        while at is not None and work.left > 0 and len(self._heap) < FOUND_ENOUGH:
            self._look_at(StandingRecord(cursor, row, at), work)
            self._order, self._number = cursor.order, row.chunk.first_number + at + 1
            at = row.next(at + 1)

    def _look_at(self, one: RequeuedRecord | StandingRecord, work: Overdue) -> None:
        assert self.selector is not None
        chunk, at = place_in_chunk(one)
        size = chunk.size_of(at)
        work.left -= LOOKED_WORK * self.selector.cost + size // BYTES_A_UNIT
        try:
            matches = self.selector.matches(record_at(one.cursor.lane.dialect, chunk, at))
        except OSError:
            matches = True  # the disk fails: whoever is to get it reports that
        if matches and one.key not in self._sizes:
            heappush(self._heap, (one.rank if isinstance(one, RequeuedRecord) else 0, *one.key))
            self._sizes[one.key] = size
            self.lag_bytes += size

    def next(self) -> RequeuedRecord | StandingRecord | None:
        """Returns the first of what was found that still waits."""
        while self._heap:
            _, order, number = self._heap[0]
            found = self._backlog.find(order, number)
            if found is not None:
                return found
            self.done()
        return None

    def done(self) -> None:
        """Notes that the first of what was found does not wait any more."""
        _, order, number = heappop(self._heap)
        size = self._sizes.pop((order, number))
        self.lag_bytes -= size
        self.handed_records += 1
        self.handed_bytes += size


class Picking:
    """The pickers of a queue; none while no member has a selector."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self.pickers: dict[Selector | None, Picker] = {}
        """In the order of their turns."""
        self._of: dict[Subscription, Picker] = {}

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

    def join(self, member: Subscription, others: Mapping[Subscription, None]) -> Picker | None:
        """Takes a new member in. Returns its picker; None if it has no selector. ``others``: those that came before."""
        condition = member.request.options.selector
        if condition is None and not self.pickers:
            return None
        if not self.pickers:
            self._backlog.on_put = self._note
            plain = self.pickers[None] = Picker(None, self._backlog)
            plain.ring, plain.members = dict(others), len(others)
            self._of = dict.fromkeys(others, plain)
        selector = None if condition is None else compile_selector(condition)
        if selector not in self.pickers:
            self.pickers[selector] = Picker(selector, self._backlog)
        picker = self._of[member] = self.pickers[selector]
        picker.ring[member] = None
        picker.members += 1
        return None if selector is None else picker

    def leave(self, member: Subscription) -> None:
        picker = self._of.pop(member, None)
        if picker is None:
            return
        picker.ring.pop(member, None)
        picker.members -= 1
        if picker.selector is not None and not picker.members:
            del self.pickers[picker.selector]
            if len(self.pickers) == 1:
                self.stop()

    def stop(self) -> None:
        self.pickers.clear()
        self._of.clear()
        self._backlog.on_put = None

    def _note(self, record: RequeuedRecord) -> None:
        for picker in self.pickers.values():
            if picker.selector is not None:
                picker.note(record)

    def of(self, member: Subscription) -> Picker | None:
        """Returns the picker of a member that has a selector."""
        picker = self._of.get(member)
        return None if picker is None or picker.selector is None else picker

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

    def set_aside(self, member: Subscription) -> None:
        self._of[member].ring.pop(member, None)

    def to_the_back(self, member: Subscription) -> None:
        ring = self._of[member].ring
        if ring.pop(member, self) is None:
            ring[member] = None


def place_in_chunk(one: RequeuedRecord | StandingRecord) -> tuple[Chunk, int]:
    """Returns the chunk of a record, and its index there."""
    return (one.chunk if isinstance(one, RequeuedRecord) else one.row.chunk), one.at
