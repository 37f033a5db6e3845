"""Durability: the records and the positions of a log that the journal is to keep."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Final, NamedTuple, NoReturn, Protocol

from headway.core.message import Run

# -- entries -----------------------------------------------------------------------------------------------------------
#
# Entries: what the journal is to keep of the changes of one turn.


class CommittedPosition(NamedTuple):
    """The position of a durable subscription or queue, as the journal has it.

    All of its records before sequence ``upto`` are settled. ``settled`` holds more of them: pairs of first and last
    sequence, of the ranges that were settled since the last committed position. ``unsent`` is the sequence of the first
    record that was never sent; 0 means that the consumer was conflated and its part of the state is unknown."""

    number: int
    upto: int
    unsent: int
    settled: tuple[int, ...]


class JournaledRun(NamedTuple):
    stream: str
    run: Run
    sequence: int
    """The sequence of the run's first record."""
    publisher: str
    """The client's name, or its origin."""


class MetadataChange(NamedTuple):
    """A change of the metadata at ``sequence``: an object of kind ``what`` with this ``name`` now has these ``terms``.
    ``terms`` None means that the object was deleted."""

    sequence: int
    what: str
    name: object
    terms: object


class Commit(NamedTuple):
    """Entries that are written and synced together."""

    number: int
    runs: list[JournaledRun]
    changes: list[MetadataChange]
    positions: list[CommittedPosition]
    retained: list[str]
    """Topics whose retained record has changed."""
    sequence: int
    """The last sequence at the time of the commit."""


# -- held back ---------------------------------------------------------------------------------------------------------
#
# Frames that are held back until a commit is on disk; they are sent in order.


HELD_BACK_BYTES = 64 * 1024
"""A client with more held back than this gets no new deliveries that would have to wait."""


class HeldBack:
    """Frames of one connection, each with the commit that has to be on disk first."""

    __slots__ = ("_frames", "size")

    def __init__(self) -> None:
        self._frames: deque[tuple[int, bytes | bytearray]] = deque()
        self.size = 0
        """The sum of all frames, in bytes."""

    def add(self, number: int, frames: bytes | bytearray) -> None:
        self._frames.append((number, frames))
        self.size += len(frames)

    def upto(self, number: int) -> bytes:
        """Removes and returns the frames that waited for a commit up to this one."""
        found = []
        while self._frames and self._frames[0][0] <= number:
            found.append(self._frames.popleft()[1])
        self.size -= sum(map(len, found))
        return b"".join(found)

    def clear(self) -> None:
        self._frames.clear()
        self.size = 0


class CommitWaiter(Protocol):
    """A client with frames that wait for a commit."""

    held_back: HeldBack

    def written(self, number: int) -> None:
        """Sends the frames that waited for a commit up to this one, which is now on disk."""


# -- progress ----------------------------------------------------------------------------------------------------------
#
# Progress: how far a reader of durable records is, as the position knows it that is journaled for it.


class Progress(Protocol):
    """The progress of one reader of durable records: a cursor, a poll, or out-of-order progress."""

    @property
    def attached(self) -> bool:
        """Tells whether the next delivery is a record of a lane, and not of a state."""

    @property
    def ended(self) -> int:
        """The last sequence that is this reader's; 0 means that it has no end yet."""

    def unsettled_sequence(self) -> int:
        """Returns the sequence of the first record that is not settled; 0 if there is none."""

    def unsent_sequence(self) -> int:
        """Returns the sequence of the first record that was never sent; 0 if there is none."""

    def unsettled_ranges(self, last: int) -> list[tuple[int, int]]:
        """Returns all ranges of unsettled records, as pairs of first and last sequence. ``last`` is the newest sequence
        of the broker."""


# -- ledger ------------------------------------------------------------------------------------------------------------
#
# The ledger collects the entries for the journal, one turn at a time. It is the core's side of durability.
#
# Theory of operation. A record that has to outlive the process is written once, as a part of the run it came in,
# however many lanes the run goes to. A durable subscription or queue is written once as a metadata change, which holds
# its terms. From then on it is written as a *committed position*, which tells which of its records are settled. At the
# start the broker appends the same runs to the same lanes and moves the cursors to their positions. This is the only
# way back.
#
# Rules:
# - Every entry has a sequence. A metadata change at sequence *s* comes after record *s* and before the next record. The
#   changes and runs in this order are the complete history.
# - The entries between two calls of ``take`` are one *commit*, and each commit has a number. The publisher of a
# journaled
#   run gets its confirm when the commit is on disk, not earlier.
# - A segment of the main stream begins with all metadata and all positions, so that older segments can be deleted.
# - A record stays in the journal as long as it is recorded or a durable position needs it (``needed_sequence``).


MAIN = "main"
"""The stream for metadata changes, and for records that the journal keeps until they are settled."""
RESERVE = 1 << 16
"""The number of sequences that are reserved ahead. Some records have a sequence, of which consumers are told, and are
never written; so the journal alone cannot tell which sequences were used. After a crash the broker skips those that are
reserved. They are more than a broker takes in while one commit is written. While more come, more are reserved."""
RESERVE_MAX = 1 << 24
RESERVE_HURRY_S = 1.0
"""If half of a reservation lasted for less than this, the next one is twice as large: each costs a commit."""
RESERVE_REST_S = 10.0
"""If a larger reservation lasts for longer than this, it is given back."""


class DurablePosition:
    """The position of a durable subscription or queue, in memory. Its cursors report each settled record to it."""

    __slots__ = ("_at", "_ledger", "_refused", "_settled", "cursors", "filters", "number", "recorded_only")
    durable = True
    """Set if its reports are journaled."""

    def __init__(self, ledger: Ledger, number: int, cursors: Sequence[Progress]) -> None:
        self.number = number
        self.cursors = list(cursors)
        """All cursors of the subscription or queue, the one furthest back first. The last one still reads; each of the
        others is dropped when all of its records are settled."""
        self.filters: Callable[[], Iterable[str]] = tuple
        """Returns topic filters that cover all of its records."""
        self.recorded_only = False
        """Set for a poll, which reads recorded topics and needs no other records in the journal."""
        self._ledger = ledger
        self._settled: list[int] = []
        """Ranges that were settled since the last commit: first, last, first, last …"""
        self._refused: list[tuple[int, int]] = []
        """Ranges that the queue refused, behind the first unsettled record."""
        self._at: tuple[Progress | None, int] = (None, 0)
        """The cursor and record number at which the last range of ``_settled`` ends."""

    def settled(self, cursor: Progress, number: int, sequence: int, upto: int, upto_sequence: int) -> None:
        """Notes that records ``number`` to ``upto`` of the cursor's lane are settled."""
        pairs = self._settled
        if pairs and self._at == (cursor, number - 1):
            pairs[-1] = upto_sequence
        else:
            pairs += (sequence, upto_sequence)
        self._at = (cursor, upto)
        self._ledger.moved_positions[self] = None

    def refused(self, first: int, last: int, accepted: int) -> None:
        """Notes that the queue refused these records, which the journal has. ``accepted`` is the last sequence that the
        queue accepted. What it refused since is one range, so a queue that stays full needs no more room."""
        self.restore_refused(first, last, accepted)
        self.settled_range(first, last)

    def restore_refused(self, first: int, last: int, accepted: int) -> None:
        """The same of records of which the journal knows that."""
        if self._refused and self._refused[-1][0] > accepted:
            self._refused[-1] = self._refused[-1][0], last
        else:
            self._refused.append((first, last))

    def settled_range(self, first: int, last: int) -> None:
        """Notes that all of its records in this range of sequences are settled."""
        self._settled += (first, last)
        self._at = (None, 0)
        self._ledger.moved_positions[self] = None

    def moved(self) -> None:
        """Notes that a cursor moved on and left no unsettled record behind."""
        self._ledger.moved_positions[self] = None

    def read_recorded_only(self) -> None:
        self.recorded_only = True

    def record_in_flight(self, client: str, delivery_id: int, sequence: int, *, released: bool = False) -> None:
        """Notes which record has this delivery id of an exactly-once delivery. Sequence 0 means that the id has no
        durable record any more."""
        self._ledger.in_flight_ids[client, delivery_id] = (self.number if sequence else 0, sequence, released)

    def hold_back(self, client: CommitWaiter, frames: bytes | bytearray) -> None:
        """Holds frames back until the current commit is on disk."""
        client.held_back.add(self._ledger.number, frames)
        self._ledger.waiting_clients[client] = None

    def forget(self) -> None:
        self._ledger.forget(self)

    def committed(self, sequence: int) -> CommittedPosition:
        """Returns the position for the next commit. ``sequence`` is the newest of the broker."""
        upto = unsent = sequence + 1
        conflating = False
        for cursor in self.cursors:
            upto = min(upto, cursor.unsettled_sequence() or upto)
            unsent = min(unsent, cursor.unsent_sequence() or unsent)
            conflating |= not cursor.attached and not cursor.ended
        self._refused = [pair for pair in self._refused if pair[1] >= upto]
        pairs, self._settled = self._settled, []
        self._at = (None, 0)
        if conflating:
            return CommittedPosition(self.number, upto, 0, self.settled_above(sequence))
        above = [(first, last) for first, last in zip(pairs[::2], pairs[1::2], strict=True) if last >= upto]
        return CommittedPosition(self.number, upto, unsent, tuple(end for pair in above for end in pair))

    def complete_position(self, sequence: int) -> CommittedPosition:
        """Returns the position with all settled ranges, not only the recent ones. Called right after a commit."""
        return self.committed(sequence)._replace(settled=self.settled_above(sequence))

    @property
    def first(self) -> Progress | None:
        """The cursor furthest back."""
        return self.cursors[0] if self.cursors else None

    def drop(self, cursor: Progress) -> None:
        """Removes a cursor all of whose records are settled."""
        if cursor in self.cursors:
            self.cursors.remove(cursor)

    def settled_above(self, sequence: int) -> tuple[int, ...]:
        """Returns all settled ranges up to ``sequence``, the newest of the broker: first, last, first, last …"""
        found: list[int] = [end for pair in self._refused for end in pair]
        settled = 0
        for first, last in sorted(pair for cursor in self.cursors for pair in cursor.unsettled_ranges(sequence)):
            if first > settled + 1:
                found += (settled + 1, first - 1)
            settled = max(settled, last)
        if settled < sequence:
            found += (settled + 1, sequence)
        return tuple(found)


class Ledger:
    """Collects entries for the journal, and knows which commits are on disk."""

    journals = True

    def __init__(self) -> None:
        self.number = 1
        """The number of the commit that is being collected."""
        self.moved_positions: dict[DurablePosition, None] = {}
        """The positions that the next commit holds."""
        self.positions: dict[int, DurablePosition] = {}
        """All durable positions by number."""
        self.full = False
        """Set when too much waits to be written. Publishers of durable records then have to wait."""
        self.reserved = 0
        """The last reserved sequence. After a crash the broker goes on behind it."""
        self._reserve, self._reserved_s = RESERVE, -inf
        self.all_metadata: Callable[[], Iterator[MetadataChange | None]] = lambda: iter(())
        """Yields all metadata as changes, in an order in which they can be applied. Objects may come and go between two
        steps; each is yielded as it is at its step. None is a step without a change."""
        self.in_flight_ids: dict[tuple[str, int], tuple[int, int, bool]] = {}
        """Exactly-once deliveries that changed, by client and delivery id: the number of the durable position, the
        record's sequence, and whether the client has received it."""
        self.waiting_clients: dict[CommitWaiter, None] = {}
        """The clients with frames that wait for a commit."""
        self.retained: dict[str, None] = {}
        """Topics whose retained record has changed."""
        self._runs: list[JournaledRun] = []
        self._changes: list[MetadataChange] = []
        self.last_number = 0
        """The largest number that a durable position ever had."""
        self.written_sequence = 0
        """All entries up to this sequence are on disk."""
        self._sequences: deque[tuple[int, int]] = deque()
        """The commits that are not on disk yet: the number and last sequence of each."""

    def run(self, stream: str, run: Run, sequence: int, publisher: str) -> None:
        run.journaled = True
        self._runs.append(JournaledRun(stream, run, sequence, publisher))

    def change(self, sequence: int, what: str, name: object, terms: object) -> None:
        self._changes.append(MetadataChange(sequence, what, name, terms))

    def retained_changed(self, topic: str) -> None:
        """Notes that the retained record of a topic has changed."""
        self.retained[topic] = None

    def add_position(self, cursors: Sequence[Progress], number: int = 0) -> DurablePosition:
        """Adds a durable position. ``number`` is the number it had before a restart; 0: it is new."""
        position = DurablePosition(self, self.next_number(number), cursors)
        self.positions[position.number] = position
        return position

    def next_number(self, number: int = 0) -> int:
        """Returns a fresh number for a durable object, or the number that it had before a restart."""
        found = number or self.last_number + 1
        self.last_number = max(self.last_number, found)
        return found

    def forget(self, position: DurablePosition) -> None:
        position.cursors = []
        self.positions.pop(position.number, None)
        self.moved_positions.pop(position, None)

    def start_from(self, reserved: int) -> None:
        """Discards all that recovery reported, for the journal has it. Sequences up to ``reserved`` are reserved."""
        self._runs, self._changes, self.moved_positions, self.in_flight_ids, self.retained = [], [], {}, {}, {}
        self.reserved = self.written_sequence = reserved

    @property
    def has_work(self) -> bool:
        return bool(self._runs or self._changes or self.moved_positions or self.retained or self.in_flight_ids)

    def _reserve_ahead(self, sequence: int, now: float) -> None:
        """Reserves more sequences when half of them are used, and fewer when many of them are not."""
        left, lasted_s = self.reserved - sequence, now - self._reserved_s
        if left < self._reserve // 2:
            self._reserve = min(self._reserve * 2, RESERVE_MAX) if lasted_s < RESERVE_HURRY_S else self._reserve
        elif left > RESERVE and lasted_s > RESERVE_REST_S:
            self._reserve = RESERVE
        else:
            return
        self._changes.append(self._reserved(sequence, now))

    def _reserved(self, sequence: int, now: float) -> MetadataChange:
        self.reserved, self._reserved_s = sequence + self._reserve, now
        return MetadataChange(sequence, "reserved", None, self.reserved)

    def begin(self, now: float) -> MetadataChange:
        """Reserves sequences after ``start_from``. Returns what has to be on disk before one of them is used."""
        return self._reserved(self.reserved, now)

    def end(self, sequence: int, now: float) -> None:
        """Gives back all reserved sequences at a stop, when no record gets one any more."""
        self._reserve = 0
        self._changes.append(self._reserved(sequence, now))

    def untaken(self) -> Sequence[JournaledRun]:
        """Returns the runs of which no commit was made yet."""
        return self._runs

    def take(self, sequence: int, now: float) -> Commit | None:
        """Returns the next commit, or None if there are no entries. ``sequence`` is the newest of the broker."""
        self._reserve_ahead(sequence, now)
        in_flight_ids, self.in_flight_ids = self.in_flight_ids, {}
        for delivery, in_flight in in_flight_ids.items():
            self.change(sequence, "flight", delivery, in_flight)
        if not self.has_work:
            return None
        runs, self._runs = self._runs, []
        changes, self._changes = self._changes, []
        moved, self.moved_positions = self.moved_positions, {}
        retained, self.retained = list(self.retained), {}
        positions = [position.committed(sequence) for position in moved]
        commit = Commit(self.number, runs, changes, positions, retained, sequence)
        self._sequences.append((self.number, sequence))
        self.number += 1
        return commit

    def written(self, number: int) -> list[CommitWaiter]:
        """Sends the frames that waited for a commit up to this one, which is now on disk. Returns their clients."""
        while self._sequences and self._sequences[0][0] <= number:
            self.written_sequence = self._sequences.popleft()[1]
        waited, self.waiting_clients = self.waiting_clients, {}
        for client in waited:
            client.written(number)
            if client.held_back.size:
                self.waiting_clients[client] = None
        return list(waited)

    def needed_sequence(self, sequence: int) -> int:
        """Returns the first sequence that a durable position needs."""
        found = [cursor.unsettled_sequence() for position in self.positions.values() for cursor in position.cursors]
        return min((unsettled for unsettled in found if unsettled), default=sequence + 1)


class NoLedger(Ledger):
    """The ledger of a broker without a journal. It collects nothing."""

    journals = False

    def change(self, sequence: int, what: str, name: object, terms: object) -> None:
        pass

    def retained_changed(self, topic: str) -> None:
        pass


# -- null position -----------------------------------------------------------------------------------------------------
#
# The null position is the durable position of subscriptions and queues that do not outlive the process.


class NullPosition(DurablePosition):
    """The position of every subscription and queue that is not durable. It ignores all reports. Operations of durable
    positions only (holding frames back, a commit) raise an error."""

    __slots__ = ()
    durable = False
    number = 0

    def __init__(self) -> None:
        pass

    def settled(self, cursor: Progress, number: int, sequence: int, upto: int, upto_sequence: int) -> None:
        pass

    def refused(self, first: int, last: int, accepted: int) -> None:
        pass

    def settled_range(self, first: int, last: int) -> None:
        pass

    def moved(self) -> None:
        pass

    def drop(self, cursor: Progress) -> None:
        pass

    def record_in_flight(self, client: str, delivery_id: int, sequence: int, *, released: bool = False) -> None:
        pass

    def read_recorded_only(self) -> None:
        pass

    def hold_back(self, client: CommitWaiter, frames: bytes | bytearray) -> NoReturn:
        raise AssertionError("frames are held back for a position that is never written")


NOT_DURABLE: Final = NullPosition()
"""The only null position."""


# -- out of order ------------------------------------------------------------------------------------------------------
#
# Out-of-order progress: a durable subscription's records that are in no lane of its own.
#
# These are the deliveries of the subscription that it replaced, and the records that it reads from recorded topics.
# Some are with the client and unsettled; others are still to be sent. For the journal this is one more cursor of the
# durable position.


class OutOfOrderProgress:
    """The records with sequences up to ``ended``."""

    __slots__ = ("_following", "durable_position", "ended", "unacknowledged")
    attached = True

    def __init__(self, position: DurablePosition, ended: int, following: int = 0) -> None:
        self.durable_position = position
        self.ended = ended
        self.unacknowledged: dict[int, None] = {}
        """The sequences of records that were sent and are not settled."""
        self._following = following
        """The sequence of the next record to be sent; 0 if there is none."""

    def sent(self, sequence: int) -> None:
        """Notes that this record was sent and must be settled."""
        self.unacknowledged[sequence] = None

    def acknowledge(self, sequence: int) -> None:
        if sequence in self.unacknowledged:
            del self.unacknowledged[sequence]
            self.durable_position.settled_range(sequence, sequence)
            self._leave_if_over()

    def acknowledge_run(self, sequences: Iterable[int]) -> None:
        for sequence in sequences:
            self.acknowledge(sequence)

    def advance_past(self, sequence: int) -> None:
        """Moves on behind this record. It is settled, unless it was sent and must be acknowledged."""
        self._following = sequence + 1
        if sequence in self.unacknowledged:
            self.durable_position.moved()
        else:
            self.durable_position.settled_range(sequence, sequence)

    def finish(self) -> None:
        """Notes that all records were sent."""
        self._following = 0
        self.durable_position.moved()
        self._leave_if_over()

    def unsent_sequence(self) -> int:
        return self._following if self._following <= self.ended else 0

    def unsettled_sequence(self) -> int:
        return min(self.unacknowledged, default=0) or self.unsent_sequence()

    def unsettled_ranges(self, last: int) -> list[tuple[int, int]]:
        """Returns all ranges of unsettled records, like a cursor."""
        fresh = self.unsent_sequence()
        return [(one, one) for one in self.unacknowledged] + ([(fresh, self.ended)] if fresh else [])

    @property
    def over(self) -> bool:
        """Tells whether all records are sent and settled."""
        return not self.unacknowledged and not self.unsent_sequence()

    def _leave_if_over(self) -> None:
        if self.over:
            self.durable_position.drop(self)


class NoProgress(OutOfOrderProgress):
    """The progress of records that no position has to know, and that are in no lane. It ignores all reports."""

    __slots__ = ()

    def sent(self, sequence: int) -> None:
        pass

    def acknowledge(self, sequence: int) -> None:
        pass

    def advance_past(self, sequence: int) -> None:
        pass

    def finish(self) -> None:
        pass


NO_PROGRESS: Final = NoProgress(NOT_DURABLE, 0)
