"""A pass over a state: it reads the entries between two sequences, without a copy.

Theory of operation. A pass is at one entry, and moves to the next only when its consumer has room. Passes at the same
entry stand in one :class:`Place`. When that entry is unlinked, its place moves on with all of them. Where passes stand
already, the fewer join the more. So an update costs next to nothing, however many readers have stopped at its key.

A pass that comes too late for a key that was evicted, or for a delete that was forgotten, has missed it. The state
notes evictions once for all passes of a feed, and up to which sequence its deletes are forgotten. A pass looks at both
before it goes on.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from math import inf
from typing import Final, Protocol
from weakref import WeakValueDictionary

from headway.core.message import SCAN_BYTES, SCAN_MAX, Record

NO_RECORD: Final = Record("", b"", sequence=2**63, time_s=inf)
"""The record of entries without one: the sentinel, and those that are unlinked. It is younger than all others."""


class StateEntry:
    """One key's record, in the linked list of the state."""

    __slots__ = ("after", "before", "key", "place", "record")
    deleted = False

    def __init__(self, key: tuple[str, str | None], record: Record) -> None:
        self.key = key
        self.record = record
        self.before: StateEntry = self
        self.after: StateEntry = self
        self.place: Place | None = None


class Deleted(StateEntry):
    """A key that is no more, with the record that deleted it."""

    __slots__ = ()
    deleted = True


class Place:
    """The passes that are at one entry. The sentinel, where nothing is ever unlinked, does not know its places."""

    __slots__ = ("entry", "passes")

    def __init__(self, entry: StateEntry) -> None:
        self.entry = entry
        self.passes: dict[StatePass, None] = {}

    def leave_for(self, entry: StateEntry) -> None:
        """Moves all passes to another entry. The entry that they leave forgets this place."""
        there = entry.place
        if there is None:
            self.entry = entry
            if entry.record is not NO_RECORD:
                entry.place = self
            return
        more, fewer = (there, self) if len(there.passes) > len(self.passes) else (self, there)
        for reader in fewer.passes:
            reader.place = more
        more.passes.update(fewer.passes)
        more.entry, entry.place = entry, more


Accept = Callable[[Record], bool]
EVICTIONS_MAX = 4096
"""The most evictions that are noted one by one for readers of one kind."""


def everything(record: Record) -> bool:
    """Accepts all records."""
    return True


class Told(Protocol):
    """Says what readers are told of records that are not accepted (focus.py)."""

    def left(self, record: Record) -> Record | None: ...

    def begins(self, after: int) -> None:
        """Is told of a pass over the changes after this sequence."""

    def ends(self) -> None:
        """Is told of its end."""


class SequenceLog:
    """Sequences that only grow. The oldest ones are dropped, and their number is known."""

    __slots__ = ("_dropped", "_kept")

    def __init__(self) -> None:
        self._kept = array("Q")
        self._dropped = 0

    def __len__(self) -> int:
        return self._dropped + len(self._kept)

    def append(self, sequence: int) -> None:
        self._kept.append(sequence)
        if len(self._kept) > EVICTIONS_MAX:
            half = len(self._kept) // 2
            del self._kept[:half]
            self._dropped += half

    def count(self, since: int, after: int, upto: int) -> int:
        """Returns how many are between the sequences, of those that came when ``since`` were there already. All that
        were dropped count, if they may be behind ``after``."""
        if upto <= after:
            return 0
        kept, dropped = self._kept, self._dropped
        first = max(bisect_right(kept, after), since - dropped)
        gone = dropped - since if kept and after < kept[0] else 0
        return max(0, gone) + max(0, bisect_right(kept, upto) - first)


class Evictions:
    """The sequences of evicted records that the passes of one feed would have read."""

    __slots__ = ("__weakref__", "_accept", "_focus", "accepted", "told")

    def __init__(self, accept: Accept, focus: Told | None) -> None:
        self._accept = accept
        self._focus = focus
        self.accepted = SequenceLog()
        self.told = SequenceLog()
        """Records that are not accepted, and that readers are told of."""

    def note(self, record: Record) -> None:
        if self._accept(record):
            self.accepted.append(record.sequence)
        elif self._focus is not None and self._focus.left(record) is not None:
            self.told.append(record.sequence)


class PassedState(Protocol):
    """A state, as far as a pass needs it (state.py)."""

    ends: StateEntry
    """The sentinel."""
    seeking: dict[StatePass, None]
    """The passes that still search for their first entry."""
    forgotten_sequence: int
    """The sequence of the last delete that is not kept any more."""
    evictions: WeakValueDictionary[object, Evictions]

    @property
    def records(self) -> int: ...
    @property
    def record_bytes(self) -> int: ...
    def __len__(self) -> int: ...


def share_of(count: int, accepted: int, refused: int) -> int:
    """Returns how many of these are accepted, if it goes on as it did so far; rounded up."""
    return -(-count * (accepted + 1) // (accepted + refused + 1)) if refused else count


class StatePass:
    """A reader's position in the state: an iterator over records, which may pause for any time."""

    held_bytes = 0
    __slots__ = (
        "_accepted", "_counted_upto", "_evictions", "_evictions_looked", "_forgotten_looked", "_left", "_looked_bytes",
        "_looks", "_missed", "_refused", "_seen", "accept", "after", "deletes_after", "focus", "place", "state", "upto",
    )  # fmt: skip

    def __init__(
        self, state: PassedState, after: int, upto: int, accept: Accept, focus: Told | None, deletes_after: int
    ) -> None:
        self.state = state
        self.after = after
        self.upto = upto
        self.accept = accept
        self.focus = focus
        if focus is not None:
            focus.begins(deletes_after)
        self.deletes_after = deletes_after
        """Deletes up to this sequence, and what has left, are left out."""
        self._missed = 0
        self._seen = after
        """The sequence of the last record that the pass has gone by."""
        self._forgotten_looked = 0 if after else state.forgotten_sequence
        """Forgotten deletes up to this sequence are counted, or were before a pass over the whole state began."""
        kind = accept, focus
        self._evictions = state.evictions.get(kind) or Evictions(accept, focus)
        state.evictions[kind] = self._evictions
        self._evictions_looked = self._evicted
        """The numbers of evictions that are counted, or were before the pass began."""
        self._counted_upto = upto
        self._left = 0 if after else (len(state) if deletes_after >= upto else state.records)
        """The number of records up to that sequence that it has not come to, or found yet; with those that are replaced
        before it comes there, which an update does not count for each pass."""
        self._accepted = self._refused = 0
        """How many of those that it has come to it has shown, and left out."""
        self._looks = self._looked_bytes = 0
        """The records that were left out since the last step that ended, and their bytes."""
        self.place = Place(state.ends)
        self._look()
        self._begin()

    @property
    def at(self) -> StateEntry:
        """The entry that is read next."""
        return self.place.entry

    def _begin(self) -> None:
        """Begins with the first record after ``after``: at the oldest end, or by a search from the newest end."""
        if self.after:
            self.state.seeking[self] = None
        else:
            self._move_to(self.state.ends.after)

    def _seek(self) -> bool:
        """Searches some steps backwards. Returns whether the first entry is found."""
        for _ in range(SCAN_MAX):
            before = self.at.before
            if before is self.state.ends or before.record.sequence <= self.after:
                del self.state.seeking[self]
                return True
            self._left += before.record.sequence <= self._counted_upto
            self._move_to(before)
        return False

    @property
    def missed(self) -> int:
        """Returns how many records were evicted before this pass came to them; all deletes that were forgotten between
        two looks count as 1."""
        self._look()
        return self._missed

    def forgive(self) -> int:
        """Returns ``missed``, and begins to count anew."""
        missed, self._missed = self.missed, 0
        return missed

    @property
    def _evicted(self) -> tuple[int, int]:
        return len(self._evictions.accepted), len(self._evictions.told)

    def _look(self) -> None:
        """Counts what was evicted, and deletes that were forgotten, before this pass came to them."""
        seen, unshown, upto = self._seen, max(self._seen, self.deletes_after), self.upto
        forgotten = min(self.state.forgotten_sequence, upto)
        if forgotten > self._forgotten_looked:
            self._missed += forgotten > unshown
            self._forgotten_looked = forgotten
        evicted = self._evicted
        if evicted != self._evictions_looked:
            accepted, told = self._evictions_looked
            self._missed += self._evictions.accepted.count(accepted, seen, upto)
            self._missed += self._evictions.told.count(told, unshown, upto)
            self._evictions_looked = evicted

    def _shown(self, record: Record) -> Record | None:
        """Returns what the reader gets for a record; None: nothing."""
        if self.accept(record):
            return record
        return self.focus.left(record) if self.focus is not None and record.sequence > self.deletes_after else None

    def _move_to(self, entry: StateEntry) -> None:
        place, there, within = self.place, entry.place, entry.record is not NO_RECORD
        if there is None and len(place.passes) == 1 and within and self in place.passes:
            place.entry.place = None  # it stands alone, and takes its place along
            place.entry, entry.place = entry, place
            return
        place.passes.pop(self, None)
        if not place.passes:
            place.entry.place = None
        if there is None:
            there = Place(entry) if place.passes else place
            there.entry = entry
        self.place = there
        if within:  # whoever is at the sentinel is not moved on; ``extend`` finds the next entry
            entry.place = there
            there.passes[self] = None

    def __iter__(self) -> Iterator[Record | None]:
        return self

    def __next__(self) -> Record | None:
        self._look()
        if self in self.state.seeking and not self._seek():
            return None
        while self._looks < SCAN_MAX and self._looked_bytes <= SCAN_BYTES:
            here = self.place.entry
            record = here.record
            if record.sequence > self.upto:
                self._seen = max(self._seen, self.upto)
                raise StopIteration
            self._move_to(here.after)
            if record.sequence > self._seen:
                self._seen = record.sequence
            if not here.deleted or record.sequence > self.deletes_after:
                shown = self._shown(record)
                self._left -= record.sequence <= self._counted_upto
                if shown is not None:
                    self._accepted += 1
                    return shown
                self._refused += 1
                self._looked_bytes += record.size
            self._looks += 1
        self._looks = self._looked_bytes = 0
        return None

    def count_none(self) -> None:
        """Leaves its records out of ``waiting``: they are owed by a conflation, which counts them."""
        self._counted_upto = self._left = 0

    def waiting(self) -> tuple[int, int]:
        """Returns how many records up to its first end are still to be shown, at most, and their bytes, about."""
        if self.upto < 0 or not self._counted_upto or self.at_end:
            return 0, 0
        records = share_of(max(0, min(self._left, self.state.records)), self._accepted, self._refused)
        if self in self.state.seeking:  # it does not know yet how many there are
            records = max(1, records)
        return records, records * self.state.record_bytes

    def take(self, most: int) -> list[StateEntry]:
        """Returns the next entries, ``most`` of them at most, or fewer if their records have ``SCAN_BYTES``, whoever is
        accepted. None are the last, if the pass is at its end."""
        found: list[StateEntry] = []
        if self in self.state.seeking and not self._seek():
            return found
        entry, upto, size = self.at, self.upto, 0
        while len(found) < most and entry.record.sequence <= upto:
            found.append(entry)
            size += entry.record.size
            entry = entry.after
            if size > SCAN_BYTES:
                break
        self._move_to(entry)
        return found

    @property
    def at_end(self) -> bool:
        """Tells whether no more entries come up to ``upto``."""
        return self not in self.state.seeking and self.at.record.sequence > self.upto

    def extend(self, upto: int) -> None:
        """Moves the end of the pass, so that it also reads the records that came meanwhile."""
        self._look()
        if self.at is self.state.ends and self not in self.state.seeking:
            self.after = self.upto
            self._begin()
        self.upto = max(self.upto, upto)
        self._look()

    def check(self) -> None:
        """Asserts that it counts all that it will show. It visits every entry."""
        entry, found = self.at, 0
        while self not in self.state.seeking and entry.record.sequence <= min(self.upto, self._counted_upto):
            found += not entry.deleted or entry.record.sequence > self.deletes_after
            entry = entry.after
        assert self._left >= found, f"{self._left} counted, {found} there"

    def close(self) -> None:
        self._move_to(self.state.ends)
        self.state.seeking.pop(self, None)
        self.upto = -1
        if self.focus is not None:
            self.focus.ends()
            self.focus = None
