"""State: the latest record per key, in recency order, and lazy passes over it.

Theory of operation. Entries hang in a doubly linked list, oldest change first; an update unlinks the key's entry and
appends a fresh one, so the list is always ordered by sequence. What changed since sequence *p* is found from the newest
end backwards, so many steps at a time, and read oldest first.

A :class:`StatePass` reads entries between two sequences without copying them: it stands on one entry, and takes the
next only when its consumer has room. An entry that is updated before the pass comes to it is skipped, because the
newer record has a sequence behind the pass's end and reaches the consumer by its lane (or by the next pass). An entry
knows the passes that stand on it and sends them on when it is unlinked. So a snapshot of any size costs one reference
per reader, and nothing is lost or doubled between snapshot and live records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headway.core.base import WorkSteps
from headway.core.log.pool import Pool
from headway.core.message import SCAN_MAX, KeyExtractor, Record

POOL_SHARE = 0.25
"""How much of its pool's memory one state may take up."""
ENTRY_BYTES = 500
"""What an entry costs beside its payload and topic: measured with tracemalloc, rounded up."""
FORGET_ENTRIES = 256
FORGET_WORK = 128
"""What it takes to forget so many."""


class StateEntry:
    __slots__ = ("after", "before", "key", "passes", "record")

    def __init__(self, key: tuple[str, str | None], record: Record | None) -> None:
        self.key = key
        self.record = record
        self.before: StateEntry = self
        self.after: StateEntry = self
        self.passes: list[StatePass] | None = None


class State:
    """The latest record per (topic, key) of the topics that match ``filter``."""

    def __init__(self, filter: str, key: KeyExtractor, pool: Pool, *, declared: bool = False) -> None:
        self.filter = filter
        self.key = key
        self.key_of = key.of
        self.by_topic = key.text == "topic"
        """One record per topic is kept, whatever its payload says."""
        self.pool = pool
        self.declared = declared
        """By the configuration: kept whether anybody reads it or not."""
        self.bytes = 0
        self.bytes_max = max(1, int(pool.memory_limit * POOL_SHARE))
        self.evicted_records = 0
        self.seeking: dict[StatePass, None] = {}
        """Those that have not found where they begin."""
        self.readers = 0
        """Subscriptions that may ask for it."""
        self._entries: dict[tuple[str, str | None], StateEntry] = {}
        self._ends = StateEntry(("", None), None)
        """The sentinel: its ``after`` is the oldest entry, its ``before`` the newest."""

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, record: Record) -> int:
        """Make ``record`` the latest of its key. Returns by how many bytes the state grew (may be negative).

        Beyond ``bytes_max`` the keys that have gone longest without a change are given up, a record that is larger than
        all of that among them."""
        key = (record.topic, self.key_of(record))
        grown = _size(record)
        old = self._entries.get(key)
        if old is not None and old.record is not None:
            grown -= _size(old.record)
            self._unlink(old)
        entry = StateEntry(key, record)
        ends = self._ends
        newest = ends.before
        newest.after = entry
        entry.before = newest
        entry.after = ends
        ends.before = entry
        self._entries[key] = entry
        self.bytes += grown
        self.pool.add_state(grown)
        while (self.bytes > self.bytes_max or self.pool.states_full) and ends.after is not ends:
            grown -= self._evict(ends.after)
        return grown

    def close(self) -> WorkSteps:
        """Nobody asks for it any more. What is left to do is to let go of the entries, which know each other."""
        self.pool.add_state(-self.bytes)
        self.bytes = 0
        return self._forget()

    def _forget(self) -> WorkSteps:
        while self._entries:
            for _ in range(min(FORGET_ENTRIES, len(self._entries))):
                self._unlink(self._entries.popitem()[1])
            yield FORGET_WORK
        del self._ends.before, self._ends.after

    def _evict(self, entry: StateEntry) -> int:
        """Forget a key. A pass that was about to read it has missed a record, and knows so."""
        assert entry.record is not None
        size = _size(entry.record)
        for reader in entry.passes or ():
            if reader not in self.seeking and reader.wants(entry.record):
                reader.missed += 1
        for reader in self.seeking:
            reader.missed += reader.wants(entry.record)
        del self._entries[entry.key]
        self._unlink(entry)
        self.bytes -= size
        self.pool.add_state(-size)
        self.evicted_records += 1
        return size

    def get(self, topic: str, key: str | None) -> Record | None:
        entry = self._entries.get((topic, key))
        return None if entry is None else entry.record

    def _unlink(self, entry: StateEntry) -> None:
        before, after = entry.before, entry.after
        before.after = after
        after.before = before
        if entry.passes:
            for reader in entry.passes:
                reader._stand(after)
            entry.passes = None
        entry.record = None

    def check(self) -> None:
        """Assert what always holds. It goes through all entries."""
        size = entries = last = 0
        entry = self._ends.after
        while entry.record is not None:
            assert entry.after.before is entry
            assert entry.record.sequence > last, "the state is in order"
            assert self._entries[entry.key] is entry
            size, entries, last = size + _size(entry.record), entries + 1, entry.record.sequence
            entry = entry.after
        assert entry is self._ends
        assert entries == len(self._entries)
        assert size == self.bytes, f"{self.bytes} bytes counted, {size} there"

    def read(self, after: int, upto: int, accept: Callable[[Record], bool] | None = None) -> StatePass:
        """A pass over the records with ``after`` < sequence <= ``upto`` that are accepted."""
        return StatePass(self, after, upto, accept)


class StatePass:
    """A reader's place in the state: an iterator of records that may be left standing for as long as one likes."""

    __slots__ = ("accept", "after", "at", "missed", "state", "upto")

    def __init__(self, state: State, after: int, upto: int, accept: Callable[[Record], bool] | None) -> None:
        self.state = state
        self.after = after
        self.upto = upto
        self.accept = accept
        self.missed = 0
        """Records that were given up before this pass came to them."""
        self.at = state._ends
        self._begin()

    def _begin(self) -> None:
        """From what came first after ``after``: at the oldest end, or somewhere in front of the newest."""
        if self.after:
            self.state.seeking[self] = None
        else:
            self._stand(self.state._ends.after)

    def _seek(self) -> bool:
        """Some steps back. Whether the place is found."""
        for _ in range(SCAN_MAX):
            record = self.at.before.record
            if record is None or record.sequence <= self.after:
                del self.state.seeking[self]
                return True
            entry = self.at.before
            self._leave()
            self._stand(entry)
        return False

    def wants(self, record: Record) -> bool:
        within = self.after < record.sequence <= self.upto
        return within and (self.accept is None or self.accept(record))

    def _stand(self, entry: StateEntry) -> None:
        self.at = entry
        if entry is self.state._ends:  # nothing to be sent on from; ``extend`` finds the way back
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
            record = self.at.record
            if record is None or record.sequence > self.upto:
                raise StopIteration
            entry = self.at.after
            self._leave()
            self._stand(entry)
            if self.accept is None or self.accept(record):
                return record
        return None

    def extend(self, upto: int) -> None:
        """Go on to a later end: what came meanwhile is conflated into the same pass."""
        if self.at is self.state._ends and self not in self.state.seeking:
            self.after = self.upto
            self._begin()
        self.upto = max(self.upto, upto)

    def close(self) -> None:
        self._leave()
        self.state.seeking.pop(self, None)
        self.at = self.state._ends
        self.upto = -1


def _size(record: Record) -> int:
    return ENTRY_BYTES + record.size
