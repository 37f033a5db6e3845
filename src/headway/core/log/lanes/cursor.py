"""A cursor is a subscription's next position in a lane. Every policy is one of the moves below.

Invariants:
- ``chunk.start <= position <= chunk.stop``; the position only grows.
- ``floor`` is the oldest chunk from which on the cursor needs the lane: the chunk of its oldest unacknowledged record,
  or else the chunk of its position. The cursor is in ``floor.cursors_here``, which keeps the floor from being dropped.
- Unacknowledged records may be *set aside*: each then keeps its own chunk (``Chunk.kept_by``), and the floor is the
  chunk of the position. So a client that does not acknowledge holds nothing of what a policy has skipped, or of what
  others have settled. It is done when whole chunks would be freed, and once per record, so it costs less than to send
  the record did. Copies of the records would be smaller than their chunks. But deliveries, requeued records and the
  journal know a record by its chunk, and a chunk that is on disk would have to be read first.
- Unacknowledged records that were sent together are a row (``_owed_rows``), which is split where one of them is settled
  out of order. Those that have an entry each (``_owed``) are older.
- A detached cursor holds no bytes, because its subscription reads state instead. It is in an empty chunk of its own,
  at its position and number.
- Moves other than ``advance`` start and end at record boundaries; the caller finishes a record that is half sent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Sequence
from itertools import groupby
from math import inf
from operator import attrgetter

from msgspec import Struct

from headway.core.base import consecutive
from headway.core.log.durable import NOT_DURABLE, DurablePosition
from headway.core.log.lanes.chunk import CHUNK_BYTES, Chunk
from headway.core.log.lanes.lane import Lane


class OwedRow(Struct, eq=False):
    """Neighbours that were sent together and must be acknowledged."""

    first: int
    stop: int
    """The numbers of the first one, and of the record behind the last."""
    chunk: Chunk


_FIRST = attrgetter("first")
NONE_UNACKNOWLEDGED: OrderedDict[int, Chunk] = OrderedDict()
NO_ROWS: deque[OwedRow] = deque()
"""Shared by all cursors without unacknowledged records. They are never written to."""
NONE_ASIDE: dict[int, Chunk] = {}
SETTLED_BYTES = 4 * CHUNK_BYTES
"""A cursor that holds no more than this behind its position sets nothing aside just because it moves on."""


class Cursor:
    __slots__ = (
        "_in_rows",
        "_owed",
        "_owed_rows",
        "aside",
        "attached",
        "chunk",
        "durable_position",
        "ended",
        "floor",
        "lane",
        "owner",
        "position",
    )

    def __init__(self, lane: Lane, owner: object = None) -> None:
        """Creates a cursor at the end of the lane. ``owner`` is the subscription or queue that reads by it, if any."""
        lane.receive()
        self.lane = lane
        self.owner = owner
        self.position = lane.end
        self.chunk = lane.tail
        self.attached = True
        """Set if its chunk is the lane's."""
        self.floor: Chunk | None = None
        self.ended = 0
        """The last sequence that this cursor reads, when another cursor follows it; else 0."""
        self.durable_position: DurablePosition = NOT_DURABLE
        """The durable position of the cursor's owner, to which the cursor reports settled records."""
        self._owed = NONE_UNACKNOWLEDGED
        self._owed_rows = NO_ROWS
        self._in_rows = 0
        """The records in them."""
        self.aside = NONE_ASIDE
        """Record number -> chunk, of the unacknowledged records that were set aside, which are older."""
        self._lower_to(lane.tail)

    @property
    def unacknowledged(self) -> OrderedDict[int, Chunk]:
        """Record number -> chunk, of records that were sent and must be acknowledged, except those in ``aside``. Gives
        each an entry of its own."""
        rows = self._owed_rows
        if rows:
            owed = self._owed = OrderedDict() if self._owed is NONE_UNACKNOWLEDGED else self._owed
            self._in_rows = 0
            while rows:
                row = rows.popleft()
                for one in range(row.first, row.stop):
                    owed[one] = row.chunk
        return self._owed

    @property
    def awaits_acks(self) -> bool:
        """Tells whether ``unacknowledged`` has any."""
        return bool(self._owed or self._owed_rows)

    # -- where it is ------------------------------------------------------------------------------------------------

    @property
    def end_number(self) -> int:
        """The number of the first record that this cursor does not read."""
        return self.lane.count

    @property
    def end_position(self) -> int:
        """The lane position up to which this cursor reads."""
        return self.lane.end

    @property
    def lag_bytes(self) -> int:
        return self.lane.end - self.position

    @property
    def number(self) -> int:
        """The number of the next record, or of the one that is half sent."""
        return self.chunk.first_number + self.chunk.index_at(self.position)

    @property
    def lag_records(self) -> int:
        return 0 if self.position == self.lane.end else self.lane.count - self.number

    @property
    def at_boundary(self) -> bool:
        return self.chunk.at_boundary(self.position)

    @property
    def offline(self) -> bool:
        """Tells whether it reads from disk."""
        return not self.chunk.resident

    def oldest_time(self) -> float:
        """Returns the time when the next record was published; ``inf`` if there is none or the cursor is detached."""
        if not self.attached or self.position == self.lane.end:
            return inf
        chunk, index = self._next_record()
        return chunk.time_of(index)

    def unsent_sequence(self) -> int:
        """Returns the sequence of the next record, which may be on its way into the lane; 0 if there is none."""
        if not self.attached:
            return 0
        if self.position < self.end_position:
            chunk, index = self._next_record()
            sequence = chunk.sequence_of(index)
        else:
            sequence = 0 if self.lane.coming is None else self.lane.coming.first
        return 0 if self.ended and sequence > self.ended else sequence

    def _next_record(self) -> tuple[Chunk, int]:
        """Returns the chunk of the next record, which there must be, and the record's index there."""
        chunk = self.chunk
        if self.position == chunk.stop and chunk.next is not None:
            chunk = chunk.next
        return chunk, chunk.index_at(self.position)

    @property
    def head_is_held(self) -> bool:
        """Tells whether there is a next record that may not be given up."""
        return self.position != self.end_position and self.held_number(self.end_number) == self.number

    def held_number(self, stop: int) -> int:
        """Returns the number of the next record that may not be given up, or ``stop`` if there is none before it."""
        chunk: Chunk | None = self.chunk
        number = self.number
        while chunk is not None and number < stop:
            held = chunk.held_from(number - chunk.first_number)
            if held < len(chunk):
                return min(chunk.first_number + held, stop)
            number = chunk.first_number + len(chunk)
            chunk = chunk.next
        return stop

    def unsettled_sequence(self) -> int:
        """Returns the sequence of the first record that is not settled; 0 if there is none."""
        for number, chunk in (self.aside or self._owed).items():
            return chunk.sequence_of(number - chunk.first_number)
        for row in self._owed_rows:
            return row.chunk.sequence_of(row.first - row.chunk.first_number)
        return self.unsent_sequence()

    def unsettled_ranges(self, last: int) -> list[tuple[int, int]]:
        """Returns the ranges of unsettled records, as pairs of first and last sequence, up to ``last``."""
        sent = self._sent_sequences()
        unsent = self.unsent_sequence()
        return [(one, one) for one in sent] + ([(unsent, self.ended or last)] if unsent else [])

    def _sent_sequences(self) -> list[int]:
        """Returns the sequences of all unacknowledged records, in order."""
        both = self.aside, self.unacknowledged
        return [chunk.sequence_of(number - chunk.first_number) for sent in both for number, chunk in sent.items()]

    # -- moves ------------------------------------------------------------------------------------------------------

    def advance(self, size: int) -> None:
        """Moves on by ``size`` bytes, which the outlet took."""
        if self.durable_position is not NOT_DURABLE and not self.awaits_acks:  # once per send
            self.durable_position.moved()
        self._move_to(self.position + size)

    def catch_up(self) -> None:
        """Moves to the end of the lane, because the outlet took everything. A detached cursor is in the lane again."""
        if self.durable_position is not NOT_DURABLE and not self.awaits_acks:  # once per send
            self.durable_position.moved()
        self.position = self.lane.end
        if self.chunk is not self.lane.tail:
            self.attached = True
            self._enter(self.lane.tail)

    def _move_to(self, position: int) -> None:
        chunk = self.chunk
        assert self.position <= position <= self.lane.end, "a cursor never goes back, nor beyond its lane"
        self.position = position
        while chunk.next is not None and position >= chunk.stop:
            chunk = chunk.next
        if chunk is not self.chunk:
            self._enter(chunk)

    def _enter(self, chunk: Chunk) -> None:
        self.chunk = chunk
        if not self.awaits_acks:
            self._lower_to(chunk)
        if self.floor is not chunk and self.floor is not None and self._mostly_settled(self.floor):
            self.set_aside()

    def _mostly_settled(self, floor: Chunk, rows: int = 0) -> bool:
        """Tells whether it holds several chunks behind its position, and most of that is settled. ``rows`` are chunks
        that it needs besides those of unacknowledged records."""
        size, records = self.chunk.start - floor.start, self.chunk.first_number - floor.first_number
        return size > max(SETTLED_BYTES, rows * SETTLED_BYTES // 2) and 2 * self._owed_count < records

    def hold_little(self) -> None:
        """Sets aside what it holds behind its position if most of that is settled. A move does so by itself."""
        if self.floor is not None and self.floor is not self.chunk and self._mostly_settled(self.floor):
            self.set_aside()

    def set_aside(self) -> None:
        """Lets each unacknowledged record keep only its own chunk, so that the lane drops all else behind the position.
        """
        if self.awaits_acks:
            if self.aside:
                self.lane.cursors_awaiting_acks -= 1
            else:
                self.aside = {}
            for chunk, some in groupby(self.unacknowledged.values()):
                chunk.keep(self, len(list(some)))
            self.aside.update(self.unacknowledged)
            self.unacknowledged.clear()
        self._lower_to(self.chunk if self.attached else None)

    def step(self) -> None:
        """Leaves a chunk that was read to its end while it was the tail, now that there is a next one."""
        if self.position == self.chunk.stop:
            self._move_to(self.position)

    def skip_to(self, number: int) -> None:
        """Moves on to record ``number``, never back."""
        chunk = _chunk_with(self.chunk, number)
        position = chunk.start + chunk.record_start(max(0, min(number - chunk.first_number, len(chunk))))
        if position > self.position:
            if self.durable_position.durable:  # to find the sequences takes a search
                self._settle_from(self.number, number - 1)
            self._move_to(position)
            if self.floor is not None and self.chunk not in (self.floor, self.floor.next):
                self.set_aside()

    def done(self, count: int) -> None:
        """Settles the next ``count`` records, which need no acknowledgement. Called before the cursor moves past them.
        """
        if self.durable_position.durable:  # a search finds the sequences
            first = self.number
            self._settle_from(first, first + count - 1)

    def _settle_from(self, first: int, last: int) -> None:
        """Reports records ``first`` to ``last``, from the next one on, as settled."""
        if self.leaves or self.durable_position.first is not self:
            last = min(last, self.lane.count - 1)
            first_sequence, last_sequence = _sequence_at(self.chunk, first), _sequence_at(self.chunk, last)
            if not self.ended or last_sequence <= self.ended:
                self.durable_position.settled(self, first, first_sequence, last, last_sequence)
            elif first_sequence <= self.ended:
                self.durable_position.settled_range(first_sequence, self.ended)
        else:
            self.durable_position.moved()

    def start_at(self, chunk: Chunk, index: int) -> None:
        """Moves back to this record, for a subscription that has just begun."""
        self.position = chunk.start + chunk.record_start(index)
        self.chunk = chunk
        self.attached = True
        self._lower_to(chunk)

    def rewind_record(self) -> None:
        """Moves back to the start of a half-sent record, after the connection broke, so that it is sent again whole."""
        if not self.at_boundary:
            self.position = self.chunk.start + self.chunk.record_start(self.chunk.index_at(self.position))

    def detach(self) -> None:
        """Takes the cursor out of the lane. Unacknowledged records still keep their chunks."""
        if self.attached:
            self.durable_position.moved()
            self.attached = False
            self.chunk = Chunk(self.position, self.number)
            self.set_aside()

    def jump_to_end(self) -> None:
        """Moves to the end of the lane, after all records so far were read from state."""
        if self.durable_position.durable:  # this visits all unacknowledged records
            last = self.lane.last_sequence
            sent = max(self._sent_sequences(), default=0)
            self.durable_position.settled_range(sent + 1, min(last, self.ended or last))
        if self.attached:
            self.catch_up()
            self.set_aside()
        else:
            self.position = self.chunk.start = self.lane.end
            self.chunk.first_number = self.lane.count

    def close(self) -> None:
        """Takes the cursor out of the lane for good, with all that it holds."""
        self.owner = None
        if self.awaits_acks:
            self._owed, self._owed_rows, self._in_rows = NONE_UNACKNOWLEDGED, NO_ROWS, 0
            self.lane.cursors_awaiting_acks -= 1
        if self.aside:
            for chunk in set(self.aside.values()):
                self.lane.let_go(chunk, self)
            self.aside = NONE_ASIDE
            self.lane.cursors_awaiting_acks -= 1
        self.detach()
        self._lower_to(None)

    # -- acknowledgements -------------------------------------------------------------------------------------------

    def sent(self, number: int, chunk: Chunk, count: int = 1) -> None:
        """Notes that ``count`` records of a chunk, from ``number`` on, were sent and must be acknowledged.

        Called before the cursor moves past them."""
        if not self.awaits_acks:
            self.lane.cursors_awaiting_acks += 1
        if count > 1 or self._owed_rows:
            if self._owed_rows is NO_ROWS:
                self._owed_rows = deque()
            self._owed_rows.append(OwedRow(number, number + count, chunk))
            self._in_rows += count
        else:
            if self._owed is NONE_UNACKNOWLEDGED:
                self._owed = OrderedDict()
            self._owed[number] = chunk
        if self.durable_position is not NOT_DURABLE:  # per record: this test costs less than a call that does nothing
            self.durable_position.moved()

    def acknowledge(self, number: int) -> None:
        """Settles record ``number``, and frees the chunks that only this record still held."""
        chunk = self._owed.pop(number, None)
        if chunk is None:
            self.acknowledge_range(number, number + 1)
            return
        if self.durable_position is not NOT_DURABLE:  # per record, and to find the sequence takes a search
            self._settled_one(number, chunk)
        self._acknowledged()

    def acknowledge_range(self, number: int, stop: int) -> None:
        """Settles the records from ``number`` on, as ``acknowledge`` does each."""
        rows = self._owed_rows
        while number < stop:
            place = 0
            if not rows or rows[0].first != number:  # most clients settle in order
                place = bisect_right(rows, number, key=_FIRST) - 1
            if place < 0 or number >= rows[place].stop:
                if number in self._owed:
                    self.acknowledge(number)
                else:
                    self._acknowledge_other(number)
                number += 1
                continue
            row = rows[place]
            chunk, upto = row.chunk, min(row.stop, stop)
            if number > row.first:
                if upto < row.stop:
                    rows.insert(place + 1, OwedRow(upto, row.stop, chunk))
                row.stop = number
            elif upto < row.stop:
                row.first = upto
            else:
                del rows[place]
            if self.durable_position is not NOT_DURABLE:
                ends = number, upto - 1
                sequence, last_sequence = (chunk.sequence_of(one - chunk.first_number) for one in ends)
                self.durable_position.settled(self, number, sequence, upto - 1, last_sequence)
            self._in_rows -= upto - number
            if not place:  # else what it holds is the same
                self._acknowledged()
            number = upto

    def _settled_one(self, number: int, chunk: Chunk) -> None:
        sequence = chunk.sequence_of(number - chunk.first_number)
        self.durable_position.settled(self, number, sequence, number, sequence)

    def acknowledge_run(self, numbers: Sequence[int]) -> None:
        """Settles records, as ``acknowledge`` does each."""
        owed = self._owed
        if self.durable_position is NOT_DURABLE and owed and all(map(owed.__contains__, numbers)):
            for number in numbers:
                del owed[number]
            self._acknowledged()
            return
        at = 0
        while at < len(numbers):
            count = consecutive(numbers, at, len(numbers) - at)
            self.acknowledge_range(numbers[at], numbers[at] + count)
            at += count

    def _acknowledged(self) -> None:
        """Frees the chunks that only settled records still held. There were unsettled ones."""
        if self.awaits_acks:
            self._lower_to(next(iter(self._owed.values()), None) or self._owed_rows[0].chunk)
        else:
            self.lane.cursors_awaiting_acks -= 1
            self.step()  # otherwise the cursor would hold a chunk that it has read
            self._lower_to(self.chunk if self.attached else None)

    def _acknowledge_other(self, number: int) -> None:
        """Settles a record that is in no row and not in ``_owed``, if it has such a one."""
        chunk = self.aside.pop(number, None)
        if chunk is None:
            return
        if self.durable_position is not NOT_DURABLE:
            self._settled_one(number, chunk)
        if not self.aside:
            self.aside = NONE_ASIDE
            self.lane.cursors_awaiting_acks -= 1
        self.lane.let_go(chunk, self, 1)
        if not self.leaves:
            self.step()

    def owes(self, number: int) -> bool:
        """Tells whether a record that was sent is not settled."""
        if number in self._owed or number in self.aside:
            return True
        place = bisect_right(self._owed_rows, number, key=_FIRST) - 1
        return place >= 0 and number < self._owed_rows[place].stop

    @property
    def owed_records(self) -> int:
        """The number of these."""
        return self._owed_count + len(self.aside)

    @property
    def _owed_count(self) -> int:
        return len(self._owed) + self._in_rows

    @property
    def leaves(self) -> int:
        """Returns how many kinds of records before its position are not settled: 0 if all are."""
        return self.awaits_acks + bool(self.aside)

    # -- invariants -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Asserts the invariants. It visits every unacknowledged record."""
        chunk, floor, waiting = self.chunk, self.floor, dict(self._owed)
        assert self._in_rows == sum(row.stop - row.first for row in self._owed_rows)
        for row in self._owed_rows:
            assert row.first < row.stop, "a row has records"
            waiting |= dict.fromkeys(range(row.first, row.stop), row.chunk)
        assert 0 <= self.position <= self.lane.end, "no cursor is ahead of its lane"
        assert chunk.start <= self.position <= chunk.stop, "a cursor is in its chunk"
        assert self.attached or not chunk.size
        if floor is None:
            assert not self.attached
            assert not waiting, "an unacknowledged record holds its chunk"
        else:
            assert self in floor.cursors_here, "a cursor is in the table of its floor"
            assert floor is self._oldest(), "the floor is the oldest chunk that the cursor needs"
            for number, one in waiting.items():
                assert 0 <= number - one.first_number < len(one), "a record is in the chunk that is held for it"
                assert floor.start <= one.start
        for number, one in self.aside.items():
            assert 0 <= number - one.first_number < len(one), "a record is in the chunk that is kept for it"
        sent = [*self.aside, *waiting]
        assert sent == sorted(set(sent)), "what was set aside is older"
        assert not NONE_UNACKNOWLEDGED
        assert not NO_ROWS
        assert not NONE_ASIDE

    def aside_by_chunk(self) -> dict[Chunk, int]:
        """Counts what it has set aside, by chunk."""
        found: dict[Chunk, int] = {}
        for chunk in self.aside.values():
            found[chunk] = found.get(chunk, 0) + 1
        return found

    def _oldest(self) -> Chunk | None:
        """Returns the oldest chunk of the lane that it needs; None: it needs none."""
        for chunk in self._owed.values():
            return chunk
        if self._owed_rows:
            return self._owed_rows[0].chunk
        return self.chunk if self.attached else None

    def _lower_to(self, chunk: Chunk | None) -> None:
        floor = self.floor
        if chunk is floor:
            return
        lane = self.lane
        if chunk is not None:
            if not chunk.cursors_here and chunk is not lane.tail:
                lane.chunks_with_cursors[chunk] = None
            chunk.cursors_here[self] = None
        self.floor = chunk
        if floor is not None:
            del floor.cursors_here[self]
            if not floor.cursors_here:
                lane.chunks_with_cursors.pop(floor, None)
                if floor is lane.first:
                    lane.trim()


def _sequence_at(chunk: Chunk, number: int) -> int:
    """Returns the sequence of record ``number``, in this chunk or one behind it."""
    chunk = _chunk_with(chunk, number)
    return chunk.sequence_of(number - chunk.first_number)


def _chunk_with(chunk: Chunk, number: int) -> Chunk:
    """Returns the chunk that has record ``number``, or the last one: this chunk or one behind it."""
    while chunk.next is not None and number >= chunk.next.first_number:
        chunk = chunk.next
    return chunk
