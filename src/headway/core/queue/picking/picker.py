"""A picker looks through a queue for the records that the members with one selector want (picking.py)."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from headway.core.consumer import Subscription
from headway.core.delivery import record_at
from headway.core.message import Dialect, Record, group_of
from headway.core.queue.backlog import Backlog
from headway.core.queue.places import (
    BEFORE_ALL,
    BEHIND_ALL,
    FoundHeap,
    FoundRecord,
    Key,
    Place,
    QueueCursor,
    RequeuedRecord,
    StandingRecord,
)
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
BODY_BYTES_A_UNIT, LEAD_BYTES_A_UNIT = 1024, 16
"""So many bytes of the body of a record that is looked at are one unit of work more, and so many of what stands before
the body: topic and properties become objects, of the body only the fields that the selector names."""
NO_PLACE: Place = (-(2**62), *BEFORE_ALL)
"""The place before which there is nothing, whatever its rank."""

OnFound = Callable[["Picker", RequeuedRecord | StandingRecord, FoundRecord], None]
"""Is told what a picker found."""


class PacketLimit(NamedTuple):
    """Selects the records that fit into the largest packet that an MQTT client accepts."""

    dialect: Dialect
    packet_bytes_max: int
    cost: int = 1

    def matches(self, record: Record) -> bool:
        return len(self.dialect.encode_record(record, 1, now=record.time_s)) <= self.packet_bytes_max


class Offer(NamedTuple):
    """A record that a member is to get."""

    found: RequeuedRecord | StandingRecord
    group: str
    closes: bool
    first: bool
    """Set if it is the first of its group that the member gets."""


class Picker:
    """The picker of the members with one selector. It is also the backlog that they have (``Waiting``)."""

    __slots__ = ("_backlog", "_on_found", "_unseen", "free", "grouped", "handed_bytes", "handed_records",
                 "looked_upto", "members", "ring", "selector")  # fmt: skip

    def __init__(self, selector: Selector | PacketLimit | None, backlog: Backlog, on_found: OnFound, *,
                 grouped: bool) -> None:
        self.selector = selector
        self.grouped = grouped
        """Set if it tells the groups of records."""
        self.ring: dict[Subscription, None] = {}
        """The members of it that records are offered to, in the order of their turns."""
        self.members = 0
        """Their number, those that are set aside included."""
        self.free = FoundHeap()
        """The records that it found and that each of its members may get."""
        self.handed_records = 0
        self.handed_bytes = 0
        """The records and bytes that it found and that wait no more: a member of it has them, or others do."""
        self._backlog = backlog
        self._on_found = on_found
        self._unseen: list[Place] = []
        """The places of requeued records to look at, as a heap. Some may have been taken since."""
        self.looked_upto = BEFORE_ALL
        """The place from which on it has looked at nothing that stands."""
        self.look_anew(grouped=grouped)

    @property
    def looks(self) -> bool:
        """Tells whether it looks at records. If not, its members take the next record, whatever it is."""
        return self.grouped or self.selector is not None

    def look_anew(self, *, grouped: bool) -> None:
        """Forgets what it found, and looks from the begin on."""
        self.grouped = grouped
        self.free.clear()
        self.looked_upto = BEFORE_ALL
        self._unseen = self._backlog.requeued.places() if self.looks else []

    def go_back(self, key: Key) -> None:
        """Looks again at what stands, from this place on."""
        self.looked_upto = min(self.looked_upto, key)

    # -- what its members have to get (Waiting) ---------------------------------------------------------------------

    @property
    def reading(self) -> QueueCursor:
        return self._backlog.reading

    @property
    def lag_records(self) -> int:
        return len(self.free)

    @property
    def lag_bytes(self) -> int:
        return self.free.size

    @property
    def has_more(self) -> bool:
        return bool(self.free)

    def oldest_time(self) -> float:
        return self.oldest_of(self.free)

    def oldest_of(self, heap: FoundHeap) -> float:
        """Returns the time when the first of some found records was published; ``inf`` if none of them waits."""
        first = heap.first()
        found = None if first is None else self._backlog.find(*first.key)
        return inf if found is None else found.chunk.time_of(found.at)

    @property
    def may_find(self) -> bool:
        """Tells whether there are records that it has not looked at."""
        return bool(self._unseen) or self._backlog.has_fresh() or self._ahead() < BEHIND_ALL

    def has_refused(self, chunk: Chunk) -> bool:
        """Tells whether it has looked at all that waits in the oldest chunk of a lane, and found nothing there."""
        order = self._backlog.standing.order_of(chunk)
        if self._unseen or order is None:
            return False
        first, stop = (order, chunk.first_number), (order, chunk.first_number + len(chunk))
        return self._ahead() >= stop and not any(first <= key < stop for key in self.free.by_key)

    # -- looking ----------------------------------------------------------------------------------------------------

    def note(self, place: Place, *, again: bool) -> None:
        """Notes that a record was requeued. It is looked at if it was with a member (``again``), or was not yet."""
        waiting = self._backlog.requeued.by_key
        if again or place[1:] >= self.looked_upto:
            heappush(self._unseen, place)
            if len(self._unseen) > 2 * len(waiting) + FOUND_ENOUGH:
                self._unseen = [one for one in set(self._unseen) if one[1:] in waiting]
                heapify(self._unseen)

    def has_looked_before(self, record: FoundRecord) -> bool:
        """Tells whether it has looked at all that comes before a record."""
        if self._unseen and self._unseen[0] < record.place:
            return False
        return record.key <= self.looked_upto or (0, *self._ahead()) >= record.place

    def _ahead(self) -> Key:
        """Returns the first place that stands and that it has not looked at."""
        one = self._backlog.standing.next(*self.looked_upto)
        return BEHIND_ALL if one is None else one.key

    def has_enough(self, reserved: int = 0) -> bool:
        """Tells whether it found enough for a member for which so many are reserved."""
        return len(self.free) + reserved >= FOUND_ENOUGH

    def look(self, work: Overdue, until: int, enough: Callable[[], bool], before: Place) -> None:
        """Looks for records in their order, until it has found enough and has looked at all that comes before a place,
        or so much of this turn's work is left."""
        backlog = self._backlog
        standing = backlog.standing.next(*self.looked_upto)
        while work.left > until:
            if not self._unseen and standing is None:
                if enough() or backlog.sorts or not backlog.has_fresh():
                    return
                backlog.leave_standing(PASSED_AT_ONCE)
                standing = backlog.standing.next(*self.looked_upto)
                continue
            if standing is not None and not (self._unseen and self._unseen[0] < standing.place):
                self._look_through(standing, work, until, enough, before)
                after = backlog.standing.next(*self.looked_upto)
                if after is not None and after.key == standing.key:
                    return
                standing = after
                continue
            place = self._unseen[0]
            record = backlog.requeued.by_key.get(place[1:])
            if record is not None and enough() and place > before:
                return
            heappop(self._unseen)
            if record is not None:
                self.look_at(record, work)

    def _look_through(
        self, found: StandingRecord, work: Overdue, until: int, enough: Callable[[], bool], before: Place
    ) -> None:
        """Looks at what stands in a row, from this record on, as far as nothing that was requeued comes before."""
        cursor, row, index = found
        at: int | None = index
        while at is not None and work.left > until:
            place = (0, cursor.order, row.chunk.first_number + at)
            if (enough() and place > before) or (self._unseen and self._unseen[0] < place):
                return
            self.looked_upto = cursor.order, row.chunk.first_number + at + 1
            self.look_at(StandingRecord(cursor, row, at), work)
            at = row.next(at + 1)

    def look_at(self, one: RequeuedRecord | StandingRecord, work: Overdue) -> None:
        """Looks at a record, and tells if it wants it."""
        size, selector, group, closes = one.chunk.size_of(one.at), self.selector, "", False
        work.left -= LOOKED_WORK * (1 if selector is None else selector.cost) + size // BODY_BYTES_A_UNIT
        try:
            record = record_at(one.cursor.lane.dialect, one.chunk, one.at)
        except OSError:
            pass  # the disk fails: whoever is to get it reports that
        else:
            work.left -= (size - len(record.payload)) // LEAD_BYTES_A_UNIT
            if selector is not None and not selector.matches(record):
                return
            if self.grouped:
                group, closes = group_of(record.properties)
        self._on_found(self, one, FoundRecord(one.place, size, group, closes))

    def selects(self, one: RequeuedRecord | StandingRecord) -> bool:
        """Tells whether it would find this record."""
        if self.selector is None:
            return True
        try:
            return self.selector.matches(record_at(one.cursor.lane.dialect, one.chunk, one.at))
        except OSError:
            return True
