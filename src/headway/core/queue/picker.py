"""A picker looks through a queue for the records that the members with one selector want (picking.py)."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from headway.core.consumer import Subscription
from headway.core.delivery import record_at
from headway.core.message import group_of
from headway.core.queue.backlog import Backlog
from headway.core.queue.groups import Found
from headway.core.queue.places import Key, Place, QueueCursor, RequeuedRecord, StandingRecord, place_in_chunk
from headway.core.routing import Overdue
from headway.core.selector import Selector

if TYPE_CHECKING:
    from headway.core.log import Chunk

FOUND_ENOUGH = 64
"""A picker that has found so many looks no further."""
PASSED_AT_ONCE = 64
"""The number of records that a cursor passes at once for a picker."""
LOOKED_WORK = 32
"""The work of a look at a record."""
BYTES_A_UNIT = 4096
"""So many bytes of a record that is looked at are one unit of work more."""


class Picker:
    """The picker of the members with one selector. It is also the backlog that they have (``Waiting``)."""

    __slots__ = ("_backlog", "_facts", "_heap", "_number", "_order", "_unseen", "grouped", "handed_bytes",
                 "handed_records", "lag_bytes", "members", "ring", "selector")  # fmt: skip

    def __init__(self, selector: Selector | None, backlog: Backlog, *, grouped: bool) -> None:
        self.selector = selector
        self.grouped = grouped
        """Set if it tells the groups of records."""
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
        self._facts: dict[Key, Found] = {}
        self._unseen: list[Place] = []
        """The places of requeued records to look at, as a heap. Some may have been taken since."""
        self._order = self._number = 0
        """The place from which on it has looked at nothing that stands."""
        self.look_anew(grouped=grouped)

    @property
    def looks(self) -> bool:
        """Tells whether it looks at records. If not, its members take the next record, whatever it is."""
        return self.grouped or self.selector is not None

    def look_anew(self, *, grouped: bool) -> None:
        """Forgets what it found, and looks from the begin on."""
        self.grouped = grouped
        self._heap.clear()
        self._facts.clear()
        self.lag_bytes = self._order = self._number = 0
        self._unseen = self._backlog.requeued.places() if self.looks else []

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

    def has_refused(self, chunk: Chunk) -> bool:
        """Tells whether it has looked at all that waits in the oldest chunk of a lane, and found nothing there."""
        standing = self._backlog.standing
        order = standing.order_of(chunk)
        if self._unseen or order is None:
            return False
        first, stop = (order, chunk.first_number), (order, chunk.first_number + len(chunk))
        ahead = standing.next(self._order, self._number)
        return (ahead is None or ahead.key >= stop) and not any(first <= key < stop for key in self._facts)

    # -- looking ----------------------------------------------------------------------------------------------------

    def note(self, place: Place, *, again: bool) -> None:
        """Notes that a record was requeued. It is looked at if it was with a member (``again``), or was not yet."""
        waiting = self._backlog.requeued.by_key
        if again or place[1:] >= (self._order, self._number):
            heappush(self._unseen, place)
            if len(self._unseen) > 2 * len(waiting) + FOUND_ENOUGH:
                self._unseen = [one for one in set(self._unseen) if one[1:] in waiting]
                heapify(self._unseen)

    def look(self, work: Overdue, until: int) -> bool:
        """Looks for records in their order, until so much of this turn's work is left. Returns False if it did not get
        to those that may be the next ones."""
        backlog = self._backlog
        self.next()  # what was found and is gone does not count as enough
        standing = backlog.standing.next(self._order, self._number)
        while True:
            if not self._unseen and standing is None:
                if len(self._heap) >= FOUND_ENOUGH or backlog.sorts or not backlog.has_fresh():
                    return True
                if work.left <= until:
                    return bool(self._heap)
                backlog.leave_standing(PASSED_AT_ONCE)
                standing = backlog.standing.next(self._order, self._number)
                continue
            first = standing
            if standing is None or (self._unseen and self._unseen[0] < (0, *standing.key)):
                first = None
            place = self._unseen[0] if first is None else (0, *first.key)
            if not self._worth_a_look(place):
                return True
            if work.left <= until:
                return bool(self._heap) and self._heap[0] < place
            if first is None:
                record = backlog.requeued.by_key.get(heappop(self._unseen)[1:])
                if record is not None:
                    self._look_at(record, work)
            else:
                self._look_through(first, work, until)
                standing = backlog.standing.next(self._order, self._number)

    def _worth_a_look(self, place: Place) -> bool:
        """Tells whether too little was found, or what was found comes after this place."""
        return len(self._heap) < FOUND_ENOUGH or place < self._heap[0]

    def _look_through(self, found: StandingRecord, work: Overdue, until: int) -> None:
        """Looks at what stands in a row, from this record on, as far as nothing that was requeued comes before."""
        cursor, row, index = found
        at: int | None = index
        while at is not None and work.left > until:
            place = (0, cursor.order, row.chunk.first_number + at)
            if not self._worth_a_look(place) or (self._unseen and self._unseen[0] < place):
                return
            self._look_at(StandingRecord(cursor, row, at), work)
            self._order, self._number = cursor.order, row.chunk.first_number + at + 1
            at = row.next(at + 1)

    def _look_at(self, one: RequeuedRecord | StandingRecord, work: Overdue) -> None:
        chunk, at = place_in_chunk(one)
        size, selector = chunk.size_of(at), self.selector
        work.left -= LOOKED_WORK * (1 if selector is None else selector.cost) + size // BYTES_A_UNIT
        try:
            record = record_at(one.cursor.lane.dialect, chunk, at)
        except OSError:
            found = Found(size)  # the disk fails: whoever is to get it reports that
        else:
            if selector is not None and not selector.matches(record):
                return
            group = group_of(record.properties) if self.grouped else None
            found = Found(size) if group is None else Found(size, *group)
        self._note_found((one.rank if isinstance(one, RequeuedRecord) else 0, *one.key), found)

    def _note_found(self, place: Place, found: Found) -> None:
        if place[1:] not in self._facts:
            heappush(self._heap, place)
            self._facts[place[1:]] = found
            self.lag_bytes += found.size

    take_back = _note_found

    def selects(self, one: RequeuedRecord | StandingRecord) -> bool:
        """Tells whether it would find this record."""
        if self.selector is None:
            return True
        chunk, at = place_in_chunk(one)
        try:
            return self.selector.matches(record_at(one.cursor.lane.dialect, chunk, at))
        except OSError:
            return True

    def next(self) -> RequeuedRecord | StandingRecord | None:
        """Returns the first of what was found that still waits."""
        while self._heap:
            _, order, number = self._heap[0]
            found = self._backlog.find(order, number)
            if found is not None:
                return found
            self.done()
        return None

    def first(self) -> tuple[Place, Found]:
        """Returns the place of the first of what was found, and its facts."""
        place = self._heap[0]
        return place, self._facts[place[1:]]

    def done(self) -> None:
        """Notes that the first of what was found does not wait any more, or is reserved."""
        _, order, number = heappop(self._heap)
        size = self._facts.pop((order, number)).size
        self.lag_bytes -= size
        self.handed_records += 1
        self.handed_bytes += size
