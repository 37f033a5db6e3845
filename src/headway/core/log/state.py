"""State is the latest record per key, in recency order. Passes read it lazily.

Theory of operation. The entries are a doubly linked list, oldest change first. An update unlinks the key's entry and
appends a fresh one, so the list is always ordered by sequence. A reader of all changes since sequence *p* searches for
its first entry backwards from the newest end, a bounded number of steps at a time, and then reads oldest first.

A :class:`StatePass` reads the entries between two sequences without a copy: it is at one entry, and moves to the next
only when its consumer has room. An entry that is updated before the pass reaches it is skipped: the newer record has a
sequence behind the pass's end, and reaches the consumer by its lane or by the next pass. An entry knows the passes that
are at it, and moves them on when it is unlinked. So a snapshot of any size costs one reference per reader, and no
record is lost or doubled between the snapshot and the live records.

A delete takes its key's entry away and stands in the list itself, so that a conflated consumer gets it, too. A snapshot
leaves out the deletes before it. The last ``DELETES_MAX`` are kept, and they are the first to go where there is no
room. A pass over changes that are older than a delete which is not kept any more has missed something, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from headway.core.base import WorkSteps
from headway.core.log.pool import Pool
from headway.core.log.state_terms import Accept, Told
from headway.core.message import SCAN_MAX, KeyExtractor, Record, is_delete

POOL_SHARE = 0.25
"""The share of its pool's memory that one state may take up."""
ENTRY_BYTES = 500
"""The size of an entry without its payload and topic, measured with tracemalloc and rounded up."""
DELETES_MAX = 10_000
"""The number of deletes that a state keeps for consumers that are behind."""
FORGET_ENTRIES = 256
"""The number of entries that one step unlinks when a state is closed."""
FORGET_WORK = 128
"""The work that such a step counts for."""


class StateEntry:
    """One key's record, in the linked list of the state."""

    __slots__ = ("after", "before", "key", "passes", "record")
    deleted = False

    def __init__(self, key: tuple[str, str | None], record: Record | None) -> None:
        self.key = key
        self.record = record
        self.before: StateEntry = self
        self.after: StateEntry = self
        self.passes: list[StatePass] | None = None


class Deleted(StateEntry):
    """A key that is no more, with the record that deleted it."""

    __slots__ = ()
    deleted = True


class WholeReader(Protocol):
    """A reader of the whole state (state_reading.py)."""

    def leaves(self, entry: StateEntry) -> None:
        """Is told of an entry before it is unlinked."""

    def give_up(self, why: str) -> None: ...


class State:
    """The latest record per (topic, key) of the topics that match ``filter``."""

    def __init__(self, filter: str, key: KeyExtractor, pool: Pool, *, declared: bool = False) -> None:
        self.filter = filter
        self.key = key
        self.key_of = key.of
        self.by_topic = key.text == "topic"
        """Set when the topic itself is the key, so the payload does not matter."""
        self.pool = pool
        self.declared = declared
        """Set when the configuration declares this state, which then stays without readers, too."""
        self.tombstones = declared
        """Set when records may delete their keys (deletes.py)."""
        self.expire_s: float | None = None
        """Seconds after which a key that was not updated is deleted; None: never."""
        self.bytes = 0
        self.bytes_max = max(1, int(pool.memory_limit * POOL_SHARE))
        self.evicted_records = 0
        self.seeking: dict[StatePass, None] = {}
        """The passes that still search for their first entry."""
        self.readings: dict[WholeReader, None] = {}
        """The readings of all of it that go on (state_reading.py)."""
        self.readers = 0
        """The number of subscriptions that may read this state."""
        self.forgotten_sequence = 0
        """The sequence of the last delete that is not kept any more."""
        self._entries: dict[tuple[str, str | None], StateEntry] = {}
        self._deleted: dict[tuple[str, str | None], StateEntry] = {}
        """The deletes that are kept, the oldest first. No key is in both tables."""
        self.ends = StateEntry(("", None), None)
        """The sentinel: its ``after`` is the oldest entry, its ``before`` the newest."""

    def __len__(self) -> int:
        """Returns the number of keys."""
        return len(self._entries)

    @property
    def records(self) -> int:
        """Returns the number of records that a pass may read, with deletes."""
        return len(self._entries) + len(self._deleted)

    @property
    def oldest(self) -> StateEntry:
        return self.ends.after

    @property
    def newest(self) -> StateEntry:
        return self.ends.before

    @property
    def last_sequence(self) -> int:
        """Returns the sequence of the newest record; 0 if there is none."""
        record = self.newest.record
        return 0 if record is None else record.sequence

    def put(self, record: Record, *, deletes: bool = False) -> int:
        """Makes ``record`` the latest of its key, or with ``deletes`` the one that deletes it. Returns by how many
        bytes the state grew; this may be negative.

        Beyond ``bytes_max`` deletes are forgotten, and then the keys with the oldest changes are evicted. A record that
        is larger than ``bytes_max`` is itself evicted."""
        key = (record.topic, self.key_of(record))
        grown = _size(record)
        old = self._entries.get(key)
        if old is None and self._deleted:
            old = self._deleted.pop(key, None)
        if old is not None and old.record is not None:
            grown -= _size(old.record)
            self._unlink(old)
        entry = Deleted(key, record) if deletes else StateEntry(key, record)
        ends = self.ends
        newest = ends.before
        newest.after = entry
        entry.before = newest
        entry.after = ends
        ends.before = entry
        if deletes:
            self._entries.pop(key, None)
            self._deleted[key] = entry
        else:
            self._entries[key] = entry
        self.bytes += grown
        self.pool.add_state(grown)
        if deletes and len(self._deleted) > DELETES_MAX:
            grown -= self._evict(next(iter(self._deleted.values())))
        while (self.bytes > self.bytes_max or self.pool.states_full) and ends.after is not ends:
            grown -= self._evict(next(iter(self._deleted.values()), ends.after))
        return grown

    def change(self, record: Record) -> int:
        """Puts a record that may be a delete."""
        return self.put(record, deletes=is_delete(record, self.key_of(record)))

    def older(self, than_s: float, most: int) -> list[Record]:
        """Returns the records up to this time, the oldest first, ``most`` of them. Forgets deletes up to then."""
        found: list[Record] = []
        entry = self.oldest
        for _ in range(most):
            if entry.record is None or entry.record.time_s > than_s:
                break
            after = entry.after
            if entry.deleted:
                self._evict(entry)
            else:
                found.append(entry.record)
            entry = after
        return found

    def close(self) -> WorkSteps:
        """Closes the state, which has no readers any more. The returned steps unlink the entries, which refer to each
        other."""
        for reading in list(self.readings):
            reading.give_up("the state is not kept any more")
        self.pool.add_state(-self.bytes)
        self.bytes = 0
        return self._forget()

    def _forget(self) -> WorkSteps:
        for table in (self._entries, self._deleted):
            while table:
                for _ in range(min(FORGET_ENTRIES, len(table))):
                    self._unlink(table.popitem()[1])
                yield FORGET_WORK
        del self.ends.before, self.ends.after

    def _evict(self, entry: StateEntry) -> int:
        """Removes a key, or a delete. Each pass that was still to read its record counts it as missed."""
        assert entry.record is not None
        size = _size(entry.record)
        for reader in entry.passes or ():
            if reader not in self.seeking and reader.wants(entry):
                reader.missed += 1
        for reader in self.seeking:
            reader.missed += reader.wants(entry)
        if entry.deleted:
            self.forgotten_sequence = entry.record.sequence
            del self._deleted[entry.key]
        else:
            self.evicted_records += 1
            del self._entries[entry.key]
        self._unlink(entry)
        self.bytes -= size
        self.pool.add_state(-size)
        return size

    def get(self, topic: str, key: str | None) -> Record | None:
        """Returns the last record of a key, which may be a delete."""
        entry = self._entries.get((topic, key)) or self._deleted.get((topic, key))
        return None if entry is None else entry.record

    def _unlink(self, entry: StateEntry) -> None:
        if self.readings:
            for reading in list(self.readings):
                reading.leaves(entry)
        before, after = entry.before, entry.after
        before.after = after
        after.before = before
        if entry.passes:
            for reader in entry.passes:
                reader._move_to(after)
            entry.passes = None
        entry.record = None

    def check(self) -> None:
        """Asserts the invariants. It visits every entry."""
        size = entries = last = 0
        entry = self.ends.after
        while entry.record is not None:
            assert entry.after.before is entry
            assert entry.record.sequence > last, "the state is in order"
            assert (self._deleted if entry.deleted else self._entries)[entry.key] is entry
            size, entries, last = size + _size(entry.record), entries + 1, entry.record.sequence
            entry = entry.after
        assert entry is self.ends
        assert entries == self.records
        assert len(self._deleted) <= DELETES_MAX
        assert size == self.bytes, f"{self.bytes} bytes counted, {size} there"

    def read(self, after: int, upto: int, accept: Accept | None = None, focus: Told | None = None) -> StatePass:
        """Returns a pass over the accepted records with ``after`` < sequence <= ``upto``, with deletes. ``focus``
        says what is told of the other records, if anything is."""
        return StatePass(self, after, upto, accept, focus, after)

    def snapshot(self, upto: int, accept: Accept | None = None, focus: Told | None = None) -> StatePass:
        """Returns a pass over all accepted records up to ``upto``; deletes only if the pass is extended."""
        return StatePass(self, 0, upto, accept, focus, upto)


class StatePass:
    """A reader's position in the state: an iterator over records, which may pause for any time."""

    __slots__ = ("accept", "after", "at", "deletes_after", "focus", "missed", "state", "upto")

    def __init__(
        self, state: State, after: int, upto: int, accept: Accept | None, focus: Told | None, deletes_after: int
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
        self.missed = int(0 < after < state.forgotten_sequence)
        """The number of records that were evicted before this pass reached them. 1 for all deletes that were forgotten
        before it began."""
        self.at = state.ends
        self._begin()

    def _begin(self) -> None:
        """Begins with the first record after ``after``: at the oldest end, or by a search from the newest end."""
        if self.after:
            self.state.seeking[self] = None
        else:
            self._move_to(self.state.ends.after)

    def _seek(self) -> bool:
        """Searches some steps backwards. Returns whether the first entry is found."""
        for _ in range(SCAN_MAX):
            record = self.at.before.record
            if record is None or record.sequence <= self.after:
                del self.state.seeking[self]
                return True
            entry = self.at.before
            self._leave()
            self._move_to(entry)
        return False

    def wants(self, entry: StateEntry) -> bool:
        record = entry.record
        assert record is not None
        if not self.after < record.sequence <= self.upto or (entry.deleted and record.sequence <= self.deletes_after):
            return False
        return self._shown(record) is not None

    def _shown(self, record: Record) -> Record | None:
        """Returns what the reader gets for a record; None: nothing."""
        if self.accept is None or self.accept(record):
            return record
        return self.focus.left(record) if self.focus is not None and record.sequence > self.deletes_after else None

    def _move_to(self, entry: StateEntry) -> None:
        self.at = entry
        if entry is self.state.ends:  # the sentinel is never unlinked; ``extend`` finds the next entry
            return
        if entry.passes is None:
            entry.passes = []
        entry.passes.append(self)

    def _leave(self) -> None:
        if self.at.passes is not None:
            self.at.passes.remove(self)
            if not self.at.passes:
                self.at.passes = None

    def __iter__(self) -> Iterator[Record | None]:
        return self

    def __next__(self) -> Record | None:
        if self in self.state.seeking and not self._seek():
            return None
        for _ in range(SCAN_MAX):
            here = self.at
            record = here.record
            if record is None or record.sequence > self.upto:
                raise StopIteration
            self._leave()
            self._move_to(here.after)
            if here.deleted and record.sequence <= self.deletes_after:
                continue
            shown = self._shown(record)
            if shown is not None:
                return shown
        return None

    def take(self, most: int) -> list[StateEntry]:
        """Returns the next entries, ``most`` of them at most, whoever is accepted. None are the last, if the pass is at
        its end."""
        found: list[StateEntry] = []
        if self in self.state.seeking and not self._seek():
            return found
        entry, upto = self.at, self.upto
        self._leave()
        while len(found) < most and (record := entry.record) is not None and record.sequence <= upto:
            found.append(entry)
            entry = entry.after
        self._move_to(entry)
        return found

    @property
    def at_end(self) -> bool:
        """Tells whether no more entries come up to ``upto``."""
        record = self.at.record
        return self not in self.state.seeking and (record is None or record.sequence > self.upto)

    def extend(self, upto: int) -> None:
        """Moves the end of the pass, so that it also reads the records that came meanwhile."""
        self.missed += self.state.forgotten_sequence > self.upto
        if self.at is self.state.ends and self not in self.state.seeking:
            self.after = self.upto
            self._begin()
        self.upto = max(self.upto, upto)

    def close(self) -> None:
        self._leave()
        self.state.seeking.pop(self, None)
        self.at = self.state.ends
        self.upto = -1
        if self.focus is not None:
            self.focus.ends()
            self.focus = None


def _size(record: Record) -> int:
    return ENTRY_BYTES + record.size
