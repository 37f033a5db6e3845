"""State is the latest record per key, in recency order. Passes read it lazily.

Theory of operation. The entries are a doubly linked list, oldest change first. An update unlinks the key's entry and
appends a fresh one, so the list is always ordered by sequence. A reader of all changes since sequence *p* searches for
its first entry backwards from the newest end, a bounded number of steps at a time, and then reads oldest first.

A :class:`StatePass` reads the entries between two sequences without a copy (state_pass.py). An entry that is updated
before the pass reaches it is skipped: the newer record has a sequence behind the pass's end, and reaches the consumer
by its lane or by the next pass. An entry knows the place of the passes that are at it, and moves it on when it is
unlinked. So a snapshot of any size costs one reference per reader, and no record is lost or doubled between the
snapshot and the live records.

A delete takes its key's entry away and stands in the list itself, so that a conflated consumer gets it, too. A snapshot
leaves out the deletes before it. The last ``DELETES_MAX`` are kept, and they are the first to go where there is no
room. A pass over changes that are older than a delete which is not kept any more has missed something, and says so.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

from headway.core.base import WorkSteps
from headway.core.log.lanes import Pool
from headway.core.log.states.state_pass import (
    NO_RECORD,
    Accept,
    Deleted,
    Evictions,
    StateEntry,
    StatePass,
    Told,
    everything,
)
from headway.core.message import KeyExtractor, Record, is_delete

POOL_SHARE = 0.25
"""The share of its pool's memory that one state may take up."""
ENTRY_BYTES = 500
"""The size of an entry without its payload and topic, measured with tracemalloc and rounded up."""
DELETES_MAX = 10_000
"""The number of deletes that a state of the configuration keeps for consumers that are behind."""
FORGET_ENTRIES = 256
"""The number of entries that one step unlinks when a state is closed."""
FORGET_WORK = 128
"""The work that such a step counts for."""


class StateTerms(NamedTuple):
    """The terms of a state that the configuration declares."""

    filter: str
    key: str = "topic"
    tombstones: bool = True
    """Records may delete their keys."""
    expire_s: float = inf
    """Seconds after which a key that was not updated is deleted; inf: never."""
    orders: tuple[str, ...] = ()
    """The orders that are kept whether somebody asks for them or not."""
    conflate_s: float = inf
    """How often subscribers who ask for nothing else get the latest record per key (clients/starts.py); 0: whenever
    their sockets have room; inf: never, they get every record."""


class WholeReader(Protocol):
    """A reader of the whole state (state_reading.py)."""

    ends: bool
    """Set if it is over when it has read all; else it goes on."""
    look_work: int
    """The work of a look at a record that has changed; 0: it does not look at these."""

    def leaves(self, entry: StateEntry) -> None:
        """Is told of an entry before it is unlinked."""

    def give_up(self, why: str) -> None: ...


class State:
    """The latest record per (topic, key) of the topics that match ``filter``."""

    def __init__(
        self, filter: str, key: KeyExtractor, pool: Pool, *, since_sequence: int = 0, declared: bool = False
    ) -> None:
        self.filter = filter
        self.since_sequence = since_sequence
        """The state has the latest of each key of the records after this one."""
        self.key = key
        self.key_of = key.of
        self.by_topic = key.text == "topic"
        """Set when the topic itself is the key, so the payload does not matter."""
        self.pool = pool
        self.declared = declared
        """Set when the configuration declares this state, which then stays without readers, too."""
        self.tombstones = declared
        """Set when records may delete their keys (deletes.py)."""
        self.expire_s = inf
        """Seconds after which a key that was not updated is deleted; inf: never."""
        self.orders: tuple[str, ...] = ()
        """The orders that are kept whether somebody asks for them or not."""
        self.conflate_s = inf
        """How often subscribers who ask for nothing else get the latest record per key; inf: never."""
        self.bytes = 0
        self.bytes_max = max(1, int(pool.memory_limit * POOL_SHARE))
        self.evicted_records = 0
        self.evictions: WeakValueDictionary[object, Evictions] = WeakValueDictionary()
        """The last evictions, for each kind of pass that goes on."""
        self.seeking: dict[StatePass, None] = {}
        """The passes that still search for their first entry."""
        self.readings: dict[WholeReader, None] = {}
        """The readings of all of it that go on (state_reading.py)."""
        self.deletes_max = DELETES_MAX
        """The number of deletes that are kept for consumers that are behind."""
        self.readers = 0
        """The number of subscriptions that may read this state."""
        self.forgotten_sequence = 0
        """The sequence of the last delete that is not kept any more."""
        self._entries: dict[tuple[str, str | None], StateEntry] = {}
        self._deleted: dict[tuple[str, str | None], StateEntry] = {}
        """The deletes that are kept, the oldest first. No key is in both tables."""
        self.ends = StateEntry(("", None), NO_RECORD)
        """The sentinel: its ``after`` is the oldest entry, its ``before`` the newest."""

    @property
    def terms(self) -> StateTerms:
        return StateTerms(self.filter, self.key.text, self.tombstones, self.expire_s, self.orders, self.conflate_s)

    def agree(self, terms: StateTerms) -> None:
        """Takes over terms for the same filter and key."""
        self.tombstones, self.expire_s, self.orders = terms.tombstones, terms.expire_s, terms.orders
        self.conflate_s = terms.conflate_s

    @property
    def queries(self) -> int:
        """Returns the number of readings that will be over."""
        return sum(reading.ends for reading in self.readings)

    def __len__(self) -> int:
        """Returns the number of keys."""
        return len(self._entries)

    @property
    def records(self) -> int:
        """Returns the number of records that a pass may read, with deletes."""
        return len(self._entries) + len(self._deleted)

    @property
    def record_bytes(self) -> int:
        """Returns the mean size of a record, without what its entry takes up."""
        return max(0, self.bytes // self.records - ENTRY_BYTES) if self.records else 0

    @property
    def oldest(self) -> StateEntry:
        return self.ends.after

    @property
    def newest(self) -> StateEntry:
        return self.ends.before

    @property
    def last_sequence(self) -> int:
        """Returns the sequence of the newest record; 0 if there is none."""
        return self.newest.record.sequence if self.records else 0

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
        if old is not None:
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
        if deletes and len(self._deleted) > self.deletes_max:
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
            if entry.record.time_s > than_s:
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
        """Removes the key with the oldest change, or the oldest delete. Passes look for themselves what they miss."""
        size = _size(entry.record)
        if entry.deleted:
            self.forgotten_sequence = entry.record.sequence
            del self._deleted[entry.key]
        else:
            for evictions in self.evictions.values() if self.evictions else ():
                evictions.note(entry.record)
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

    def current(self, topic: str, key: str | None) -> Record | None:
        """Returns the record that a key has now; None if it has none, or was deleted."""
        entry = self._entries.get((topic, key))
        return None if entry is None else entry.record

    def _unlink(self, entry: StateEntry) -> None:
        if self.readings:
            for reading in list(self.readings):
                reading.leaves(entry)
        before, after = entry.before, entry.after
        before.after = after
        after.before = before
        if entry.place is not None:
            entry.place.leave_for(after)
            entry.place = None
        entry.record = NO_RECORD

    def check(self) -> None:
        """Asserts the invariants. It visits every entry."""
        size = entries = last = 0
        entry = self.ends.after
        while entry is not self.ends:
            assert entry.after.before is entry
            assert entry.record.sequence > last, "the state is in order"
            assert (self._deleted if entry.deleted else self._entries)[entry.key] is entry
            size, entries, last = size + _size(entry.record), entries + 1, entry.record.sequence
            entry = entry.after
        assert entries == self.records
        assert len(self._deleted) <= self.deletes_max
        assert size == self.bytes, f"{self.bytes} bytes counted, {size} there"

    def read(self, after: int, upto: int, accept: Accept = everything, focus: Told | None = None) -> StatePass:
        """Returns a pass over the accepted records with ``after`` < sequence <= ``upto``, with deletes. ``focus``
        says what is told of the other records, if anything is."""
        return StatePass(self, after, upto, accept, focus, after)

    def snapshot(self, upto: int, accept: Accept = everything, focus: Told | None = None) -> StatePass:
        """Returns a pass over all accepted records up to ``upto``; deletes only if the pass is extended."""
        return StatePass(self, 0, upto, accept, focus, upto)


def _size(record: Record) -> int:
    return ENTRY_BYTES + record.size
