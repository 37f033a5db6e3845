"""States: the latest record per key of a topic, and the ways to read it."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from heapq import heappop, heappush
from math import inf
from typing import Final, NamedTuple, Protocol
from weakref import WeakValueDictionary

from headway.core.base import Reason, Refused, WorkSteps, format_size
from headway.core.log.lanes import QUERIES, Pool, Tab
from headway.core.message import (
    EVENT,
    OUT_OF_FOCUS,
    SCAN_BYTES,
    SCAN_MAX,
    TOLD_KEY,
    TREE_LEVELS,
    KeyExtractor,
    Properties,
    Record,
    TopicTree,
    is_deep,
    is_delete,
)

# -- retained ----------------------------------------------------------------------------------------------------------
#
# Retained records: the last one of each topic that was published with the retain flag.


RETAINED_BYTES, LEVEL_BYTES = 500, 350
"""Measured sizes in memory: of a record besides its bytes, and of a level of its topic, which is a node of the tree."""
FIRST_LOOK = 32
"""The nodes that are visited while a client subscribes, to see whether there is anything for it. A filter with
wildcards may visit every node: that walk is a backfill, whose steps count for the turn (``Fanout``)."""


class Retained:
    """All retained records. Records beyond ``topics_max`` topics, or beyond ``bytes_max`` bytes of topics, payloads and
    properties, are refused. So are topics with very many levels, because each level is a node of the tree. The memory
    of all counts to ``pool``, which has a limit of its own (``Pool.tables_limit``)."""

    def __init__(self, topics_max: int = 1_000_000, bytes_max: int = 256 * 1024 * 1024) -> None:
        self.topics_max = topics_max
        self.bytes_max = bytes_max
        self.bytes = 0
        self.pool: Pool | None = None
        self._tree: TopicTree[Record] = TopicTree()

    def __len__(self) -> int:
        return len(self._tree)

    def put(self, record: Record) -> None:
        """Stores the record. A record with an empty payload deletes the one of its topic. Raises :class:`Refused`."""
        old = self._tree.get(record.topic)
        if not record.payload:
            if old is not None:
                self._tree.delete(record.topic)
                self.bytes -= old.size
                if self.pool is not None:
                    self.pool.add_tables(-_memory(old))
            return
        if is_deep(record.topic):
            text = f"nothing is retained for a topic of more than {TREE_LEVELS} levels: {record.topic[:60]!r}..."
            raise Refused(Reason.MEMORY_LIMIT, text)
        grown, pool = record.size - (old.size if old else 0), self.pool
        more = _memory(record) - (_memory(old) if old else 0)
        full = (old is None and len(self._tree) >= self.topics_max) or self.bytes + max(0, grown) > self.bytes_max
        if full or (pool is not None and more > 0 and pool.tables_bytes + more > pool.tables_limit):
            raise Refused(Reason.MEMORY_LIMIT, f"no room to retain a record of topic {record.topic!r}")
        self._tree.set(record.topic, record)
        self.bytes += grown
        if pool is not None:
            pool.add_tables(more)

    def get(self, topic: str) -> Record | None:
        return self._tree.get(topic)

    def topics(self) -> list[str]:
        return [topic for topic, _ in self._tree.match_filter("#")]

    def matching(
        self, filter: str, upto: int, now: float, accept: Callable[[Record], bool]
    ) -> RetainedRecords | None:
        """Returns the retained records for a new subscription, lazily, as a source of its backfill; None if a first
        look shows that there are none.

        A record that is replaced before its turn has a sequence beyond ``upto``; the lane delivers it instead."""
        if all(False for _ in self._tree.scan(filter, FIRST_LOOK)):
            return None
        return RetainedRecords(self, self._tree, filter, upto, now, accept)


class RetainedRecords:
    """The retained records of a filter, found one by one."""

    held_bytes = 0

    def __init__(
        self, retained: Retained, tree: TopicTree[Record], filter: str, upto: int, now: float,
        accept: Callable[[Record], bool],
    ) -> None:  # fmt: skip
        self._retained = retained
        self._left = tree.count(filter)
        """The number of topics that it has not come to; None: nobody knows how many match."""
        self._over = False
        self._found = self._walk(tree, filter, upto, now, accept)

    def __iter__(self) -> Iterator[Record | None]:
        return self

    def __next__(self) -> Record | None:
        try:
            return next(self._found)
        except StopIteration:
            self._over = True
            raise

    def close(self) -> None:
        self._over = True
        self._found.close()

    def waiting(self) -> tuple[int, int]:
        """Where nobody knows how many there are, they count as one."""
        left = 0 if self._over else 1 if self._left is None else max(0, self._left)
        return left, left * self._retained.bytes // max(1, len(self._retained))

    def _walk(
        self, tree: TopicTree[Record], filter: str, upto: int, now: float, accept: Callable[[Record], bool]
    ) -> Generator[Record | None, None, None]:
        looks = size = 0
        for found in tree.scan(filter, SCAN_MAX):
            record = None if found is None else found[1]
            if record is not None and self._left is not None:
                self._left -= 1
            if record is None:
                yield None
            elif record.sequence <= upto and record.expires_s > now and accept(record):
                yield record
            else:
                looks += 1
                size += record.size
                if looks >= SCAN_MAX or size > SCAN_BYTES:
                    yield None
                    looks = size = 0


def _memory(record: Record) -> int:
    return RETAINED_BYTES + record.size + LEVEL_BYTES * (1 + record.topic.count("/"))


# -- state pass --------------------------------------------------------------------------------------------------------
#
# A pass over a state: it reads the entries between two sequences, without a copy.
#
# Theory of operation. A pass is at one entry, and moves to the next only when its consumer has room. Passes at the same
# entry stand in one :class:`Place`. When that entry is unlinked, its place moves on with all of them. Where passes
# stand already, the fewer join the more. So an update costs next to nothing, however many readers have stopped at its
# key.
#
# A pass that comes too late for a key that was evicted, or for a delete that was forgotten, has missed it. The state
# notes evictions once for all passes of a feed, and up to which sequence its deletes are forgotten. A pass looks at
# both before it goes on.


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
    """Says what readers are told of records that are not accepted."""

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
    """A state, as far as a pass needs it."""

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


# -- state -------------------------------------------------------------------------------------------------------------
#
# State is the latest record per key, in recency order. Passes read it lazily.
#
# Theory of operation. The entries are a doubly linked list, oldest change first. An update unlinks the key's entry and
# appends a fresh one, so the list is always ordered by sequence. A reader of all changes since sequence *p* searches
# for its first entry backwards from the newest end, a bounded number of steps at a time, and then reads oldest first.
#
# A :class:`StatePass` reads the entries between two sequences without a copy. An entry that is updated
# before the pass reaches it is skipped: the newer record has a sequence behind the pass's end, and reaches the consumer
# by its lane or by the next pass. An entry knows the place of the passes that are at it, and moves it on when it is
# unlinked. So a snapshot of any size costs one reference per reader, and no record is lost or doubled between the
# snapshot and the live records.
#
# A delete takes its key's entry away and stands in the list itself, so that a conflated consumer gets it, too. A
# snapshot leaves out the deletes before it. The last ``DELETES_MAX`` are kept, and they are the first to go where there
# is no room. A pass over changes that are older than a delete which is not kept any more has missed something, and says
# so.


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
    """How often subscribers who ask for nothing else get the latest record per key; 0: whenever their sockets have
    room; inf: never, they get every record."""


class WholeReader(Protocol):
    """A reader of the whole state."""

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
        """Set when records may delete their keys (record.py)."""
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
        """The readings of all of it that go on."""
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


# -- focus -------------------------------------------------------------------------------------------------------------
#
# Focus: what subscribers with a selector are told of keys that they lose sight of (option ``out_of_focus``).
#
# A key is in focus while its latest record matches the selector. When the next one does not, or deletes the key, the
# subscribers get a record without payload, with the event ``out_of_focus``, the key and the reason. It is worked out
# once for all subscribers of a lane, when the record is published, from the record that the state had until then.
#
# A pass over a state (conflation, ``from``) does not know what its reader has seen, so it tells of every key that
# changed and does not match; a reader may hear of a key that it never had. A key that is lost, and changes again before
# a pass comes to it, is told of once more.


LOST_MAX = 256
FOCUS_BYTES = LOST_MAX * 250
"""The memory of a focus, with ``LOST_MAX`` keys that were lost."""


class Focus:
    __slots__ = ("_floor", "_forgotten", "_lost", "_passes", "accepts", "covers", "state")

    def __init__(
        self, state: State, accepts: Callable[[Record], bool], covers: Callable[[Record], bool], since: int
    ) -> None:
        self.state = state
        """The keyed topic's state."""
        self.accepts = accepts
        """Tells whether a record is in focus."""
        self.covers = covers
        """Tells whether a record would be, whatever the selector says."""
        self._lost: dict[tuple[str, str | None], int] = {}
        """The keys that were lost last, each with the sequence."""
        self._forgotten = since
        """All losses after this sequence are in ``_lost``."""
        self._passes = 0
        """The number of passes that go on."""
        self._floor = 0
        """The lowest sequence after which one of them reads changes."""

    def begins(self, after: int) -> None:
        """Notes that a pass over the changes after this sequence begins."""
        self._floor = min(self._floor, after) if self._passes else after
        self._passes += 1

    def ends(self) -> None:
        self._passes -= 1

    def loses(self, topic: str, key: str | None, before: Record | None, sequence: int) -> bool:
        """Tells whether subscribers lose sight of a key, of which the state had the record ``before``."""
        if before is None:
            return self.state.evicted_records > 0  # it may have been in focus
        if self.accepts(before):
            self._lost.pop((topic, key), None)
            self._lost[topic, key] = sequence
            if len(self._lost) > LOST_MAX:
                self._forgotten = self._lost.pop(next(iter(self._lost)))
            return True
        if not self._passes:
            return False
        # A pass that was to tell of the loss does not come to the entry that this record replaces.
        return self._forgotten > self._floor or self._lost.get((topic, key), 0) > self._floor

    def left(self, record: Record) -> Record | None:
        """Returns what subscribers are told when a record does not match; None: nothing, it is not for them."""
        if not self.covers(record):
            return None
        key = self.state.key_of(record)
        why = "changed"
        if self.state.tombstones and is_delete(record, key):
            why = record.properties.user_value("headway-why") or "deleted"
        user: tuple[tuple[str, str], ...] = ((EVENT, OUT_OF_FOCUS),)
        user += () if key is None else ((TOLD_KEY, key),)
        return Record(
            record.topic, b"", Properties(user=(*user, ("headway-why", why))), record.qos,
            sequence=record.sequence, time_s=record.time_s, publisher=record.publisher, exchange=record.exchange,
        )  # fmt: skip


# -- state reading -----------------------------------------------------------------------------------------------------
#
# Reading of a whole state as of one sequence, in slices, while the state goes on changing.
#
# Theory of operation. A reading walks the entries, oldest change first or newest first, and stands at one entry between
# two slices. An entry that is unlinked (updated, evicted) before the reading has come to it hands its record over: it
# is *saved*, and is read in its place among the others. Records that came after the beginning are left out. So the
# records that a reading yields are exactly those of the state at ``upto``, in the order of their sequences, and the
# state is never copied: what a reading costs is the records that are replaced while it lasts. These are on the tab of
# its client.


SAVED_RECORD_BYTES = 300
"""The memory of a saved record beside its payload, topic and properties, about."""
TAKEN_BYTES = 256 * 1024
"""The bytes at which one look ends: an answer may hold what it brings for as long as its client does not read."""
SAVED_BYTES_MAX = 64 * 1024 * 1024
"""A reading that is so slow that more than this is replaced before it comes there is given up."""


class StateReading:
    ends, look_work = True, 0
    __slots__ = ("_at", "_newest_first", "_saved", "given_up", "left", "saved_bytes", "state", "tab", "taken", "upto")

    def __init__(self, state: State, upto: int, tab: Tab, *, newest_first: bool = False) -> None:
        """``tab`` is that of the client."""
        self.state = state
        self.tab = tab
        self.upto = upto
        """The state is read as of this sequence."""
        self.given_up = ""
        """The reason why this reading yields no more records although it is not at the end; empty: it does."""
        self.saved_bytes = 0
        self.left, self.taken = len(state), 0
        """The numbers of records that are still to be taken, and that were."""
        self._newest_first = newest_first
        self._at = state.newest if newest_first else state.oldest
        self._saved: list[tuple[int, Record]] = []
        """Saved records, by their places in the order."""
        state.readings[self] = None

    @property
    def closed(self) -> bool:
        return self not in self.state.readings

    def take(self, most: int) -> list[Record]:
        """Returns the next records, ``most`` of them, or fewer if these have ``TAKEN_BYTES``. At the end, or if it is
        given up, the reading is ``closed``."""
        found: list[Record] = []
        size = 0
        at, saved, down, upto = self._at, self._saved, self._newest_first, self.upto
        while len(found) < most and size < TAKEN_BYTES and not self.given_up:
            record = at.record
            over = record.sequence > upto  # from here on all came after the beginning
            if saved and (over or saved[0][0] < (-record.sequence if down else record.sequence)):
                earlier = heappop(saved)[1]
                self._hold(-SAVED_RECORD_BYTES - earlier.size)
                found.append(earlier)
                size += earlier.size
            elif over:
                self.close()
                break
            else:
                if not at.deleted:
                    found.append(record)
                    size += record.size
                at = at.before if down else at.after
        self._at = at
        self.left = max(0, self.left - len(found))
        self.taken += len(found)
        return found

    def leaves(self, entry: StateEntry) -> None:
        """Saves the record of an entry that is being unlinked, unless it was read or came after the beginning."""
        record, here = entry.record, self._at.record
        unread = record.sequence <= here.sequence if self._newest_first else record.sequence >= here.sequence
        if unread and record.sequence <= self.upto and not entry.deleted and self._at is not self.state.ends:
            self._save(record)
        if entry is self._at:
            self._at = entry.before if self._newest_first else entry.after

    def _save(self, record: Record) -> None:
        size = SAVED_RECORD_BYTES + record.size
        try:
            if self.saved_bytes + size > SAVED_BYTES_MAX:
                raise Refused(Reason.CLIENT_MEMORY, f"{format_size(SAVED_BYTES_MAX)} of it were replaced meanwhile")
            self.tab.check(size)
        except Refused as refused:
            self.give_up(f"the state changes faster than this answer is read: {refused}")
            return
        heappush(self._saved, (-record.sequence if self._newest_first else record.sequence, record))
        self._hold(size)

    def _hold(self, change: int) -> None:
        self.saved_bytes += change
        self.tab.add(QUERIES, change)

    def give_up(self, why: str) -> None:
        self.given_up = why
        self.close()

    def close(self) -> None:
        self.state.readings.pop(self, None)
        self._at = self.state.ends
        self._saved.clear()
        self.left = 0
        self._hold(-self.saved_bytes)
