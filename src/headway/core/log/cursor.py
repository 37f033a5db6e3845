"""Cursors: a subscription's next position in a lane. Every policy is one of the moves below.

Invariants:
- ``chunk.start <= position <= chunk.stop``; the position only grows.
- ``floor`` is the oldest chunk this cursor may still want: that of its oldest record not yet acknowledged, else its
  own. In the floor, and only there, it is in ``chunk.standing``, which is what keeps a chunk from being dropped.
- A detached cursor (its subscription reads state instead) stands nowhere and holds nothing; it keeps position and
  number.
- Moves other than ``advance`` start and end at record boundaries; the caller finishes a record that is half sent.
"""

from __future__ import annotations

from collections import OrderedDict

from headway.core.log.chunk import Chunk
from headway.core.log.lane import Lane
from headway.core.log.ledger import DurablePosition
from headway.core.log.null_position import NOT_DURABLE

NOTHING: OrderedDict[int, Chunk] = OrderedDict()
"""Of all who were never sent anything that is to be acknowledged. Nobody writes into it."""


class Cursor:
    __slots__ = (
        "_number",
        "chunk",
        "durable_position",
        "ended",
        "floor",
        "lane",
        "owner",
        "position",
        "unacknowledged",
    )

    def __init__(self, lane: Lane, owner: object = None) -> None:
        """A cursor at the end of the lane. ``owner``: the subscription or queue that reads by it, if there is one."""
        self.lane = lane
        self.owner = owner
        self.position = lane.end
        self.chunk: Chunk | None = lane.tail
        self.floor: Chunk | None = None
        self._number = 0
        self.ended = 0
        """Of one that another follows: the last sequence it has to do with."""
        self.durable_position: DurablePosition = NOT_DURABLE
        """Is told what is settled, where that is to outlive the process."""
        self.unacknowledged = NOTHING
        """Record number -> its chunk, for records that were sent and must be acknowledged."""
        self._lower_to(lane.tail)

    # -- where it is ------------------------------------------------------------------------------------------------

    @property
    def attached(self) -> bool:
        return self.chunk is not None

    @property
    def end_number(self) -> int:
        """The first record that is not its own to be given."""
        return self.lane.count

    @property
    def end_position(self) -> int:
        """How far it is to go."""
        return self.lane.end

    @property
    def lag_bytes(self) -> int:
        return self.lane.end - self.position

    @property
    def number(self) -> int:
        """Number of the next record (of the one half sent, if one is)."""
        chunk = self.chunk
        return self._number if chunk is None else chunk.first_number + chunk.index_at(self.position)

    @property
    def lag_records(self) -> int:
        return 0 if self.position == self.lane.end else self.lane.count - self.number

    @property
    def at_boundary(self) -> bool:
        return self.chunk is None or self.chunk.at_boundary(self.position)

    def oldest_time(self) -> float | None:
        """When the next record was published; None when there is none, or nothing is known of it."""
        chunk = self.chunk
        if chunk is None or self.position == self.lane.end:
            return None
        if self.position == chunk.stop and chunk.next is not None:
            chunk = chunk.next
        return chunk.time_of(chunk.index_at(self.position))

    def fresh_sequence(self) -> int:
        """Sequence of the next record; 0: there is none."""
        chunk = self.chunk
        if chunk is None or self.position >= self.end_position:
            return 0
        if self.position == chunk.stop and chunk.next is not None:
            chunk = chunk.next
        sequence = chunk.sequence_of(chunk.index_at(self.position))
        return 0 if self.ended and sequence > self.ended else sequence

    @property
    def head_is_held(self) -> bool:
        """The next record, where there is one, may not be given up."""
        return self.position != self.end_position and self.held_number(None) == self.number

    def held_number(self, stop: int | None) -> int:
        """Number of the next record that may not be given up; ``stop`` (None: the end) if none before that is."""
        chunk, number = self.chunk, self.number
        stop = self.end_number if stop is None else stop
        while chunk is not None and number < stop:
            held = chunk.held_from(number - chunk.first_number)
            if held < len(chunk):
                return min(chunk.first_number + held, stop)
            number = chunk.first_number + len(chunk)
            chunk = chunk.next
        return stop

    def wanted_sequence(self) -> int:
        """Sequence of the first record that is not settled; 0: there is none."""
        for number, chunk in self.unacknowledged.items():
            return chunk.sequence_of(number - chunk.first_number)
        return self.fresh_sequence()

    def wanted_sequences(self, last: int) -> list[tuple[int, int]]:
        """What is not settled, as first and last sequence of each stretch, when ``last`` is the last there is."""
        wanted = [chunk.sequence_of(number - chunk.first_number) for number, chunk in self.unacknowledged.items()]
        fresh = self.fresh_sequence()
        return [(one, one) for one in wanted] + ([(fresh, self.ended or last)] if fresh else [])

    # -- moves ------------------------------------------------------------------------------------------------------

    def advance(self, size: int) -> None:
        """``size`` bytes were taken."""
        if not self.unacknowledged:
            self.durable_position.moved()
        self._move_to(self.position + size)

    def catch_up(self) -> None:
        """Everything was taken."""
        if not self.unacknowledged:
            self.durable_position.moved()
        self.position = self.lane.end
        chunk = self.chunk
        if chunk is not self.lane.tail:
            self.chunk = self.lane.tail
            if not self.unacknowledged:
                self._lower_to(self.lane.tail)

    def _move_to(self, position: int) -> None:
        chunk = self.chunk
        assert chunk is not None
        assert self.position <= position <= self.lane.end, "a cursor never goes back, nor beyond its lane"
        self.position = position
        while chunk.next is not None and position >= chunk.stop:
            chunk = chunk.next
        if chunk is not self.chunk:
            self.chunk = chunk
            if not self.unacknowledged:
                self._lower_to(chunk)

    def step(self) -> None:
        """Leave a chunk that was read to its end while it was the tail, now that there is a next one."""
        if self.chunk is not None and self.position == self.chunk.stop:
            self._move_to(self.position)

    def skip_to(self, number: int) -> None:
        """Move on to record ``number``, never back."""
        chunk = self.chunk
        assert chunk is not None
        while chunk.next is not None and number >= chunk.next.first_number:
            chunk = chunk.next
        position = chunk.start + chunk.record_start(max(0, min(number - chunk.first_number, len(chunk))))
        if position > self.position:
            if self.durable_position.durable:  # to find the sequences takes a search
                self._settle_from(self.number, number - 1)
            self._move_to(position)

    def done(self, count: int) -> None:
        """The next records go out for good. Called before the cursor moves past them."""
        if self.durable_position.durable:  # to find the sequences takes a search
            first = self.number
            self._settle_from(first, first + count - 1)

    def _settle_from(self, first: int, last: int) -> None:
        """Records the cursor stands before will not be wanted again."""
        assert self.chunk is not None
        if self.unacknowledged or self.durable_position.first is not self:
            last = min(last, self.lane.count - 1)
            first_sequence, last_sequence = _sequence_at(self.chunk, first), _sequence_at(self.chunk, last)
            if not self.ended or last_sequence <= self.ended:
                self.durable_position.settled(self, first, first_sequence, last, last_sequence)
            elif first_sequence <= self.ended:
                self.durable_position.passed(first_sequence, self.ended)
        else:
            self.durable_position.moved()

    def stand_at(self, chunk: Chunk, index: int) -> None:
        """A place further back, for a subscription that has just begun."""
        self.position = chunk.start + chunk.record_start(index)
        self.chunk = chunk
        self._lower_to(chunk)

    def rewind_record(self) -> None:
        """The connection broke in the middle of a record: it is to be sent again, whole."""
        if self.chunk is not None and not self.at_boundary:
            self.position = self.chunk.start + self.chunk.record_start(self.chunk.index_at(self.position))

    def detach(self) -> None:
        """Stand nowhere from now on; acknowledgements still outstanding keep their chunks."""
        if self.chunk is not None:
            self.durable_position.moved()
            self._number = self.number
            self.chunk = None
            if not self.unacknowledged:
                self._lower_to(None)

    def jump_to_end(self) -> None:
        """Where a detached cursor is once everything so far was read another way."""
        if self.durable_position.durable:  # all that is unacknowledged is looked at
            sent = [chunk.sequence_of(number - chunk.first_number) for number, chunk in self.unacknowledged.items()]
            last = self.lane.last_sequence
            self.durable_position.passed(max(sent, default=0) + 1, min(last, self.ended or last))
        self.position = self.lane.end
        self._number = self.lane.count
        if self.chunk is not None:
            self.catch_up()

    def attach(self) -> None:
        """Stand in the lane again, at its end."""
        self.position = self.lane.end
        self.chunk = self.lane.tail
        if not self.unacknowledged:
            self._lower_to(self.lane.tail)

    def close(self) -> None:
        """Stand nowhere and want nothing; it is nobody's any more."""
        self.owner = None
        self.detach()
        if self.unacknowledged:
            self.unacknowledged.clear()
            self.lane.holding -= 1
        self._lower_to(None)

    # -- acknowledgements -------------------------------------------------------------------------------------------

    def sent(self, number: int, chunk: Chunk, count: int = 1) -> None:
        """So many records of a chunk, from ``number`` on, were sent and must be acknowledged. Called before the cursor
        moves past them."""
        if not self.unacknowledged:
            self.lane.holding += 1
        if self.unacknowledged is NOTHING:
            self.unacknowledged = OrderedDict()
        unacknowledged = self.unacknowledged
        for one in range(number, number + count):
            unacknowledged[one] = chunk
        if self.durable_position is not NOT_DURABLE:  # per record: this test costs less than a call that does nothing
            self.durable_position.moved()

    def acknowledge(self, number: int) -> None:
        """Record ``number`` is settled; what only it still held is free."""
        chunk = self.unacknowledged.pop(number, None)
        if chunk is None:
            return
        if self.durable_position is not NOT_DURABLE:  # per record, and to find the sequence takes a search
            sequence = chunk.sequence_of(number - chunk.first_number)
            self.durable_position.settled(self, number, sequence, number, sequence)
        if self.unacknowledged:
            self._lower_to(next(iter(self.unacknowledged.values())))
        else:
            self.lane.holding -= 1
            self.step()  # or it would keep a chunk that it has read
            self._lower_to(self.chunk)

    # -- invariants -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what always holds, whoever moved it. It goes through all that is unacknowledged."""
        chunk, floor, waiting = self.chunk, self.floor, self.unacknowledged
        assert 0 <= self.position <= self.lane.end, "nobody is ahead of its lane"
        if chunk is not None:
            assert chunk.start <= self.position <= chunk.stop, "a cursor is in its chunk"
        if floor is None:
            assert chunk is None
            assert not waiting, "what is not acknowledged keeps its chunk"
            return
        assert self in floor.standing, "a cursor stands in its floor"
        oldest = next(iter(waiting.values()), chunk)
        assert floor is oldest, "it keeps what it wants and nothing older"
        for number, one in waiting.items():
            assert 0 <= number - one.first_number < len(one), "a record is in the chunk that is kept for it"
            assert floor.start <= one.start
        assert not NOTHING

    def _lower_to(self, chunk: Chunk | None) -> None:
        floor = self.floor
        if chunk is floor:
            return
        lane = self.lane
        if chunk is not None:
            if lane.stood is not None and not chunk.standing:
                lane.stood[chunk] = None
            chunk.standing[self] = None
        self.floor = chunk
        if floor is not None:
            del floor.standing[self]
            if not floor.standing:
                if lane.stood is not None:
                    lane.stood.pop(floor, None)
                if floor is lane.first:
                    lane.trim()


def _sequence_at(chunk: Chunk, number: int) -> int:
    """Sequence of record ``number``, in this chunk or one behind it."""
    while chunk.next is not None and number >= chunk.next.first_number:
        chunk = chunk.next
    return chunk.sequence_of(number - chunk.first_number)
