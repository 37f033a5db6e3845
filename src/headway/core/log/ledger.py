"""The ledger: what the journal is to be told, collected turn by turn; the core's side of durability.

Theory of operation. A record that has to outlive the process is written once, as the run it came in, whatever lanes
it goes to. A durable subscription or queue is written as a fact (what was asked for, in the asker's words), and from
then on as a *place*: which of its records are settled. At start the same runs are put into the same lanes again, and
the cursors where they were; there is no other way back.

Rules:
- Everything has the sequence it happened at. Facts and runs ordered by it are the whole story; a fact at sequence *s*
  comes after record *s* and before the next.
- What is collected between two calls of ``take`` is one *commit* and has a number. Whoever published a kept run is told
  so only once its commit is on disk.
- A segment of the main stream begins with all the facts and places there are, so that what is older can be deleted.
- A record stays in the journal as long as it is recorded or a place needs it (``needed_sequence``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from headway.core.log.held_back import HeldBack
from headway.core.message import Run

MAIN = "main"
"""The stream for facts, and for records that are kept only until they are settled."""
RESERVE = 1 << 24
"""Sequences are set aside by so many, for not every record that has one is written."""


class CommittedPosition(NamedTuple):
    """What of a durable subscription or queue is settled: everything before ``upto``, and what ``settled`` covers.

    ``fresh`` is the first that was never sent; 0: its consumer is conflated, and what it has of the state is not known.
    ``settled`` are pairs, first and last sequence, of which all its records
    are; only what was settled since the last place."""

    number: int
    upto: int
    fresh: int
    settled: tuple[int, ...]


class KeptRun(NamedTuple):
    stream: str
    run: Run
    sequence: int
    """Of its first record."""
    publisher: str
    """The client's name, or its origin."""


class MetadataChange(NamedTuple):
    """Something that is so from ``sequence`` on: ``what`` (a word) of the thing called ``name``. ``terms`` None: it is
    no more."""

    sequence: int
    what: str
    name: object
    terms: object


class Commit(NamedTuple):
    """What is to be written together."""

    number: int
    runs: list[KeptRun]
    changes: list[MetadataChange]
    positions: list[CommittedPosition]
    retained: list[str]
    """Topics whose retained record has changed."""
    sequence: int


class Waits(Protocol):
    """A client for whom frames are held back."""

    held_back: HeldBack

    def written(self, number: int) -> None:
        """Everything up to this commit is on disk: it may be sent what waited for that."""


class Progress(Protocol):
    """A cursor, or something like one: how far somebody is with what is to be kept for it."""

    @property
    def attached(self) -> bool:
        """It stands among records, and what it has to give next is one of them."""

    @property
    def ended(self) -> int:
        """The last sequence it has to do with; 0: there is none yet."""

    def wanted_sequence(self) -> int:
        """Of the first record that is not settled; 0: there is none."""

    def fresh_sequence(self) -> int:
        """Of the first that was never sent; 0: there is none."""

    def wanted_sequences(self, last: int) -> list[tuple[int, int]]:
        """Of all that are not settled, first and last of each stretch, when ``last`` is the last there is."""


class DurablePosition:
    """A durable subscription, or a queue. Its cursors tell it what is settled."""

    __slots__ = ("_at", "_ledger", "_never", "_settled", "cursors", "filters", "number", "recorded_only")
    durable = True
    """What it is told outlives the process."""

    def __init__(self, ledger: Ledger, number: int, cursors: Sequence[Progress]) -> None:
        self.number = number
        self.cursors = list(cursors)
        """The oldest place first. Each leaves when it wants nothing any more, but for the one that still reads."""
        self.filters: Callable[[], Iterable[str]] = tuple
        """What it reads of topics, at most."""
        self.recorded_only = False
        """It reads by itself what is recorded, and wants nothing else of the journal."""
        self._ledger = ledger
        self._settled: list[int] = []
        self._never: list[tuple[int, int]] = []
        """Refused, and not before all that is wanted."""
        self._at: tuple[Progress | None, int] = (None, 0)
        """Where the last pair ends."""

    def settled(self, cursor: Progress, number: int, sequence: int, upto: int, upto_sequence: int) -> None:
        """Records ``number`` to ``upto`` of the cursor's lane are done with."""
        pairs = self._settled
        if pairs and self._at == (cursor, number - 1):
            pairs[-1] = upto_sequence
        else:
            pairs += (sequence, upto_sequence)
        self._at = (cursor, upto)
        self._ledger.moved[self] = None

    def never_had(self, first: int, last: int) -> None:
        """Records of these sequences are in the journal, and were refused."""
        self._never.append((first, last))
        self.passed(first, last)

    def passed(self, first: int, last: int) -> None:
        """What there is of these sequences is settled."""
        self._settled += (first, last)
        self._at = (None, 0)
        self._ledger.moved[self] = None

    def moved(self) -> None:
        """A cursor moved on, with nothing unsettled behind it."""
        self._ledger.moved[self] = None

    def read_recorded_only(self) -> None:
        self.recorded_only = True

    def record_in_flight(self, client: str, delivery_id: int, sequence: int, *, released: bool = False) -> None:
        """What the id of an exactly-once delivery stands for; 0: nothing that is kept."""
        self._ledger.in_flight_ids[client, delivery_id] = (self.number if sequence else 0, sequence, released)

    def hold_back(self, client: Waits, frames: bytes | bytearray) -> None:
        """To be sent when what was told so far is on disk."""
        client.held_back.add(self._ledger.number, frames)
        self._ledger.holding[client] = None

    def forget(self) -> None:
        self._ledger.forget(self)

    def committed(self, sequence: int) -> CommittedPosition:
        """Where it stands, when ``sequence`` is the last there is."""
        upto = fresh = sequence + 1
        conflating = False
        for cursor in self.cursors:
            upto = min(upto, cursor.wanted_sequence() or upto)
            fresh = min(fresh, cursor.fresh_sequence() or fresh)
            conflating |= not cursor.attached and not cursor.ended
        self._never = [pair for pair in self._never if pair[1] >= upto]
        pairs, self._settled = self._settled, []
        self._at = (None, 0)
        if conflating:
            return CommittedPosition(self.number, upto, 0, self.settled_above(sequence))
        above = [(first, last) for first, last in zip(pairs[::2], pairs[1::2], strict=True) if last >= upto]
        return CommittedPosition(self.number, upto, fresh, tuple(end for pair in above for end in pair))

    def whole_position(self, sequence: int) -> CommittedPosition:
        """As ``place``, with all that is settled. To be asked right after a commit."""
        return self.committed(sequence)._replace(settled=self.settled_above(sequence))

    @property
    def first(self) -> Progress | None:
        """The one furthest back."""
        return self.cursors[0] if self.cursors else None

    def drop(self, cursor: Progress) -> None:
        """It wants nothing any more."""
        if cursor in self.cursors:
            self.cursors.remove(cursor)

    def settled_above(self, sequence: int) -> tuple[int, ...]:
        """All that is settled, as pairs, when ``sequence`` is the last there is."""
        found: list[int] = [end for pair in self._never for end in pair]
        settled = 0
        for first, last in sorted(pair for cursor in self.cursors for pair in cursor.wanted_sequences(sequence)):
            if first > settled + 1:
                found += (settled + 1, first - 1)
            settled = max(settled, last)
        if settled < sequence:
            found += (settled + 1, sequence)
        return tuple(found)


class Ledger:
    def __init__(self) -> None:
        self.number = 1
        """Of the commit that is being collected."""
        self.moved: dict[DurablePosition, None] = {}
        self.positions: dict[int, DurablePosition] = {}
        self.full = False
        """More waits to be written than may: whoever publishes what is to be kept has to wait."""
        self.reserved = 0
        self.all_metadata: Callable[[], Iterator[MetadataChange | None]] = lambda: iter(())
        """All that is so now, in an order in which it can be made again. Between two steps things may come and go: each
        is told as it is at its step. None: a step that brought nothing."""
        self.in_flight_ids: dict[tuple[str, int], tuple[int, int, bool]] = {}
        """Exactly-once deliveries, by client and id: their place and sequence, and whether the client has them."""
        self.holding: dict[Waits, None] = {}
        """For whom frames are held back."""
        self.retained: dict[str, None] = {}
        """Topics whose retained record has changed."""
        self._runs: list[KeptRun] = []
        self._changes: list[MetadataChange] = []
        self.last_number = 0
        """Of all that was ever kept."""
        self.written_sequence = 0
        """What of all there is up to this one was to be written is on disk."""
        self._sequences: deque[tuple[int, int]] = deque()
        """Of commits that are not: their numbers, and the last sequence of each."""

    def run(self, stream: str, run: Run, sequence: int, publisher: str) -> None:
        run.journaled = True
        self._runs.append(KeptRun(stream, run, sequence, publisher))

    def change(self, sequence: int, what: str, name: object, terms: object) -> None:
        self._changes.append(MetadataChange(sequence, what, name, terms))

    def keep(self, cursors: Sequence[Progress], number: int | None = None) -> DurablePosition:
        """A place is kept from now on; ``number``: it was before."""
        position = DurablePosition(self, self.next_number(number), cursors)
        self.positions[position.number] = position
        return position

    def next_number(self, number: int | None = None) -> int:
        """A number for something that is kept; or this one, which it had before."""
        found = self.last_number + 1 if number is None else number
        self.last_number = max(self.last_number, found)
        return found

    def forget(self, position: DurablePosition) -> None:
        position.cursors = []
        self.positions.pop(position.number, None)
        self.moved.pop(position, None)

    def drop(self, reserved: int) -> None:
        """What was said so far is known; sequences up to ``reserved`` are set aside."""
        self._runs, self._changes, self.moved, self.in_flight_ids, self.retained = [], [], {}, {}, {}
        self.reserved = self.written_sequence = reserved

    @property
    def has_work(self) -> bool:
        return bool(self._runs or self._changes or self.moved or self.retained or self.in_flight_ids)

    def take(self, sequence: int) -> Commit | None:
        """What came since the last time, when ``sequence`` is the last there is; None: nothing did."""
        if sequence > self.reserved:
            self.reserved = sequence + RESERVE
            self.change(sequence, "reserved", None, self.reserved)
        in_flight_ids, self.in_flight_ids = self.in_flight_ids, {}
        for of, in_flight in in_flight_ids.items():
            self.change(sequence, "flight", of, in_flight)
        if not self.has_work:
            return None
        runs, self._runs = self._runs, []
        changes, self._changes = self._changes, []
        moved, self.moved = self.moved, {}
        retained, self.retained = list(self.retained), {}
        positions = [position.committed(sequence) for position in moved]
        commit = Commit(self.number, runs, changes, positions, retained, sequence)
        self._sequences.append((self.number, sequence))
        self.number += 1
        return commit

    def written(self, number: int) -> list[Waits]:
        """Everything up to this commit is on disk; who may be sent more now."""
        while self._sequences and self._sequences[0][0] <= number:
            self.written_sequence = self._sequences.popleft()[1]
        waited, self.holding = self.holding, {}
        for client in waited:
            client.written(number)
            if client.held_back.size:
                self.holding[client] = None
        return list(waited)

    def needed_sequence(self, sequence: int, reads: Callable[[DurablePosition], bool] | None = None) -> int:
        """Records before this one need not be kept for anybody who has a place; of all, or of those that ``reads``
        says yes to."""
        positions = [position for position in self.positions.values() if reads is None or reads(position)]
        found = [cursor.wanted_sequence() for position in positions for cursor in position.cursors]
        return min((wanted for wanted in found if wanted), default=sequence + 1)
