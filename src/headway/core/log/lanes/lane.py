"""A lane is the encoded stream of one (topic filter, selector, dialect): chunks in one address space.

A position is a byte count since the lane began, and only grows. A number counts records in the same way. Appending
never looks at a cursor. The chunks are a singly linked list. A cursor holds its chunk, so it moves on without a search.

A chunk that has left the list, and that is still kept for records that cursors have set aside, is *apart*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate, chain
from math import inf, isclose
from typing import TYPE_CHECKING

from headway.core.log.lanes.chunk import CHUNK_BYTES, NO_BYTES, NO_RECEIPTS, Chunk, OpenReceipts, SpillHandle
from headway.core.log.lanes.pool import GRACE_S, Pool
from headway.core.message import Dialect, EncodedRun, Run, group_of

if TYPE_CHECKING:
    from headway.core.log.lanes.cursor import Cursor

SPILL_BYTES_MIN = 1024
SPILL_BYTES_ENOUGH = 8 * 1024
"""A tail is written to disk when it has ``SPILL_BYTES_ENOUGH``, or when it has ``SPILL_BYTES_MIN`` and twice the size
of its index, which stays in memory. Smaller tails may stay: even in very many lanes they need less memory than the
lanes themselves (pool.py)."""
QUIET_S = 10.0
"""A lane that got nothing for so long begins anew with its next record. What came before is no usual rate."""


class Coming(ABC):
    """A run on its way into very many lanes, which takes several turns."""

    first: int
    """The sequence of its first record."""

    @abstractmethod
    def reach(self, lane: Lane) -> None:
        """Appends it to a lane that does not have it yet, at once."""

    @abstractmethod
    def leave(self, lane: Lane) -> None:
        """Passes a lane by that closes."""


class Lane:
    """One encoded stream. ``end`` and ``count`` are the position and number of the next record."""

    __slots__ = (
        "apart",
        "apart_to_spill",
        "appended_s",
        "bare",
        "chunks_with_cursors",
        "coming",
        "count",
        "cursors_awaiting_acks",
        "dialect",
        "dropped_sequence",
        "end",
        "first",
        "flows_since_s",
        "full",
        "grouped",
        "hollow",
        "index_bytes",
        "largest",
        "last_sequence",
        "pool",
        "receipts",
        "report_above_bytes",
        "resident_bytes",
        "spilled_bytes",
        "spilling_bytes",
        "tail",
        "to_spill",
    )  # fmt: skip

    def __init__(self, dialect: Dialect, pool: Pool, last_sequence: int = 0) -> None:
        self.dialect = dialect
        self.bare = dialect.bare
        """Records of this lane go into an envelope for each consumer."""
        self.pool = pool
        self.end = 0
        self.count = 0
        self.last_sequence = last_sequence
        self.resident_bytes = 0
        self.spilling_bytes = 0
        """The part of ``resident_bytes`` that a worker is writing at this moment."""
        self.spilled_bytes = 0
        """Bytes on the pool's disk. Bytes that only the journal has do not count."""
        self.index_bytes = 0
        """The indexes of chunks whose bytes are not in memory."""
        self.full = False
        """Set when the lane takes up more than its share and the last try to spill it wrote nothing."""
        self.report_above_bytes = 0
        """The lane reports its size to the pool when ``resident_bytes`` is above this."""
        self.grouped = False
        """Set once a record of a message group has come. It is looked for where queues read."""
        self.dropped_sequence = last_sequence
        """The lane still holds all its records after this sequence."""
        self.largest = 0
        """The size of the largest record so far."""
        self.appended_s = self.flows_since_s = -inf
        """The times of the last append, and since when records have come without a pause of ``QUIET_S``."""
        self.cursors_awaiting_acks = 0
        """The number of cursors that leave records behind them, which may have to be sent again."""
        self.chunks_with_cursors: dict[Chunk, None] = {}
        """The chunks that are the floor of a cursor, but for the tail."""
        self.apart: dict[Chunk, None] = {}
        """The chunks that are no longer in the list, and are kept for records that cursors have set aside."""
        self.apart_to_spill: dict[Chunk, None] = {}
        """Those of them that are in memory, that no worker is writing, and that are worth writing."""
        self.hollow: dict[Chunk, None] = {}
        """The chunks of the list without bytes, which nobody will read."""
        self.receipts: OpenReceipts = NO_RECEIPTS
        """The receipts that are open on records of this lane."""
        self.coming: Coming | None = None
        """The run that the lane gets next, and has not yet."""
        self.first = self.tail = self.to_spill = Chunk(0, 0)
        """``to_spill``: all chunks in front of it are on disk, or being written."""

    @property
    def unspilled_bytes(self) -> int:
        """Bytes in memory that no worker is writing."""
        return self.resident_bytes - self.spilling_bytes

    @property
    def nothing_to_write(self) -> bool:
        """Tells whether all chunks but the tail are on disk or being written, and the tail is too small."""
        return self.to_spill is self.tail and not worth_writing(self.tail) and not self.apart_to_spill

    @property
    def memory_bytes(self) -> int:
        return self.resident_bytes + self.index_bytes

    @property
    def over_share(self) -> bool:
        """Tells whether the lane takes up more memory than one client may."""
        return self.memory_bytes > self.pool.share_bytes

    def closed(self, now: float) -> bool:
        """Tells whether the lane takes no more records.

        This is so when bytes that cannot leave use up its own share or its pool's memory, and a cursor has not taken
        promised records for longer than the grace period. (Records that were not promised are given up instead.)"""
        self.full = self.full and self.over_share
        pool = self.pool
        tight = pool.tight and (pool.must_evict or self in pool.closed)
        return (self.full or tight) and self.stays(now)

    def stays(self, now: float) -> bool:
        """Tells whether the oldest records were promised, and should have been taken by now."""
        return not self._oldest.free and self.stuck(now)

    def stuck(self, now: float) -> bool:
        """Tells whether the oldest record is older than the grace period, so its readers should have taken it."""
        return len(self._oldest) > 0 and self._oldest.time_of(0) <= now - GRACE_S

    @property
    def _oldest(self) -> Chunk:
        return next(iter(self.apart), self.first)

    # -- writing ----------------------------------------------------------------------------------------------------

    def receive(self) -> None:
        """Takes a run that is on its way here at once, because somebody is to begin or to stop behind it, or asks what
        there is."""
        if self.coming is not None:
            self.coming.reach(self)

    def append(self, run: Run, frames: EncodedRun, sequence: int, now: float) -> None:
        """Appends a run, in chunks of whole records and about 64 KiB."""
        assert sequence > self.tail.last_sequence, "sequences only grow"
        if now - self.appended_s >= QUIET_S:
            self.flows_since_s = now
        self.appended_s = now
        if run.properties.user and self.bare and not self.grouped:
            self.grouped = bool(group_of(run.properties)[0])
        ends = frames.ends
        total = len(ends)
        size = ends[-1]
        done = 0
        while done < total:
            tail = self.tail
            begin = ends[done - 1] if done else 0
            room = CHUNK_BYTES - tail.size
            if size - begin <= room:
                upto = total
            else:
                upto = bisect_right(ends, begin + room, done)
                if upto == done:  # not even one fits: an oversize record gets a chunk of its own
                    if tail.size:
                        self._seal()
                        continue
                    upto = done + 1
            tail.append(run, frames, done, upto, sequence + done, now)
            if tail.largest > self.largest:
                self.largest = tail.largest
            self.count += upto - done
            self.end = tail.start + tail.size
            done = upto
        self.last_sequence = sequence + total - 1
        self.resident_bytes += size
        pool = self.pool
        pool.appended_bytes += size
        pool.add_memory(size)
        if self.resident_bytes > self.report_above_bytes:
            pool.resident.put(self)

    def _seal(self) -> None:
        if self.tail.cursors_here:
            self.chunks_with_cursors[self.tail] = None
        fresh = Chunk(self.end, self.count)
        self.tail.next = fresh
        self.tail = fresh

    # -- letting go -------------------------------------------------------------------------------------------------

    def trim(self) -> None:
        """Drops the chunks that no cursor needs any more."""
        while not self.first.cursors_here and self.first.next is not None:
            self._leave_first()
        if not self.first.cursors_here:  # no cursor is in the lane: all read state
            if self.tail.kept_by:
                self._seal()
                self._leave_first()
            self._empty_tail()

    def _leave_first(self) -> None:
        """Takes the first chunk out of the list, and drops it unless it is kept for records that were set aside."""
        gone = self.first
        assert gone.next is not None
        self.first = gone.next
        if self.to_spill is gone:  # a chunk refers to the next one, so it would keep all later chunks alive
            self.to_spill = self.first
        if gone.ends:
            self.dropped_sequence = gone.last_sequence
        if gone.kept_by:
            gone.next = None
            self.apart[gone] = None
            self._note_to_spill(gone)
        else:
            self._drop(gone)

    def _note_to_spill(self, apart: Chunk) -> None:
        if apart.resident and not apart.spilling and worth_writing(apart):
            self.apart_to_spill[apart] = None

    def let_go(self, chunk: Chunk, cursor: Cursor, count: int = 0) -> None:
        """Notes that a cursor needs ``count`` of the records no more that it had set aside from this chunk; 0: none of
        them. A chunk apart that nobody needs is dropped."""
        left = chunk.kept_by[cursor] - count
        if count and left:
            chunk.kept_by[cursor] = left
            return
        del chunk.kept_by[cursor]
        if not chunk.kept_by and chunk in self.apart:
            del self.apart[chunk]
            self.apart_to_spill.pop(chunk, None)
            self._drop(chunk)

    def empty(self) -> None:
        """Drops all records. Only called while every cursor is at the end and none waits for an acknowledgement."""
        if self.first is not self.tail:
            self.trim()
        if self.first is self.tail:
            self._empty_tail()

    def _empty_tail(self) -> None:
        """Empties the tail in place; the cursors at its end stay there."""
        tail = self.tail
        if tail.size:
            self.dropped_sequence = tail.last_sequence
            self._drop(tail)
            tail.reset(self.end, self.count)

    def close(self) -> None:
        """Drops all chunks and leaves the pool's rankings."""
        if self.coming is not None:
            self.coming.leave(self)
        for chunk in self.all_chunks():
            self._drop(chunk)
        self.apart, self.apart_to_spill = {}, {}
        self.first = self.tail = self.to_spill = Chunk(self.end, self.count)
        self.chunks_with_cursors = {}
        self.pool.resident.forget(self)
        self.pool.spilled.forget(self)
        self.pool.indexed.forget(self)

    def drop_bytes(self, chunk: Chunk) -> None:
        """Drops the bytes of a chunk of the list, not the tail, because all cursors that come to it will pass it. Its
        index stays."""
        if chunk.spill is not None:
            self.spilled_bytes -= chunk.spill.disk_bytes
            self.pool.disk_bytes -= chunk.spill.disk_bytes
            chunk.spill.release()
            chunk.spill = NO_BYTES
        elif chunk.spilling:
            return  # the worker has them
        else:
            self._count_spilling(chunk, chunk.size)
            self.spilled(chunk, NO_BYTES, chunk.size)
        chunk.marks = None
        self.hollow[chunk] = None
        self.dropped_sequence = max(self.dropped_sequence, chunk.last_sequence)

    def _drop(self, chunk: Chunk) -> None:
        self.hollow.pop(chunk, None)
        if chunk.spill is None:
            self.resident_bytes -= chunk.size
            self.pool.memory_bytes -= chunk.size
            if chunk.spilling:
                self._count_spilling(chunk, -chunk.size)
        else:
            self.spilled_bytes -= chunk.spill.disk_bytes
            self.pool.disk_bytes -= chunk.spill.disk_bytes
            self.index_bytes -= chunk.index_bytes
            self.pool.memory_bytes -= chunk.index_bytes
            chunk.spill.release()
            chunk.spill = None
        assert self.resident_bytes >= 0 <= self.pool.memory_bytes, "no more is dropped than there was"
        assert self.spilled_bytes >= 0 <= self.pool.disk_bytes
        chunk.size = 0

    # -- spill ------------------------------------------------------------------------------------------------------

    def spillable(self, wanted_bytes: int, may_leave: Callable[[Chunk], bool]) -> list[Chunk]:
        """Returns the oldest resident chunks, about ``wanted_bytes`` of them, and marks them as being written. It stops
        at the first chunk that may not leave.

        The tail is among them if it is large enough; a fresh one takes its place."""
        chosen = []
        while wanted_bytes > 0:
            chunk = next(iter(self.apart_to_spill), self.to_spill)
            if chunk is self.tail and not worth_writing(chunk):
                break
            if chunk.resident and not chunk.spilling and chunk.size and not may_leave(chunk):
                break
            if chunk in self.apart_to_spill:
                del self.apart_to_spill[chunk]
            else:
                if chunk is self.tail:
                    self._seal()
                    for cursor in list(chunk.cursors_here):
                        cursor.step()  # otherwise a cursor at the end keeps this chunk until the next publish
                    if chunk is not self.to_spill:
                        continue  # it has left the list
                assert chunk.next is not None
                self.to_spill = chunk.next
            if chunk.resident and not chunk.spilling and chunk.size:
                self._count_spilling(chunk, chunk.size)
                wanted_bytes -= chunk.size
                chosen.append(chunk)
        return chosen

    def _count_spilling(self, chunk: Chunk, size: int) -> None:
        """Counts bytes that a worker begins to write; a negative ``size`` when it is done, or need not any more."""
        chunk.spilling = size > 0
        self.spilling_bytes += size
        self.report_above_bytes += size
        self.pool.spilling_bytes += size

    def spilled(self, chunk: Chunk, handle: SpillHandle | None, size: int) -> None:
        """Takes a chunk of ``size`` bytes out of memory when the worker has written it. ``handle`` None means that the
        worker failed; the bytes then stay in memory."""
        if not chunk.spilling:  # every cursor has passed it meanwhile
            if handle is not None:
                handle.release()
            return
        self._count_spilling(chunk, -size)
        if handle is None:
            if chunk in self.apart:
                self._note_to_spill(chunk)
            elif chunk.start < self.to_spill.start:
                self.to_spill = chunk
            self.pool.resident.put(self)
            return
        chunk.spill = handle
        chunk.data = b""
        self.resident_bytes -= size
        self.spilled_bytes += handle.disk_bytes
        self.index_bytes += chunk.index_bytes
        self.pool.add_memory(chunk.index_bytes - size)
        self.pool.add_disk(handle.disk_bytes)
        self.pool.spilled.put(self)
        self.pool.indexed.put(self)

    # -- reading ----------------------------------------------------------------------------------------------------

    def chunks(self) -> Iterator[Chunk]:
        chunk: Chunk | None = self.first
        while chunk is not None:
            yield chunk
            chunk = chunk.next

    def all_chunks(self) -> Iterator[Chunk]:
        """Yields the chunks apart as well."""
        return chain(list(self.apart), self.chunks())

    def apart_shares(self) -> dict[object, float]:
        """Returns the bytes of chunks apart that the owner of each cursor has to answer for. Each chunk is split evenly
        among the cursors for which it is kept."""
        shares: dict[object, float] = {}
        for chunk in self.apart:
            for cursor in chunk.kept_by:
                shares[cursor.owner] = shares.get(cursor.owner, 0.0) + chunk.size / len(chunk.kept_by)
        return shares

    def held_shares(self) -> dict[Chunk, float]:
        """Returns, for each chunk with cursors, the held bytes of the list that one of its cursors has to answer for.

        Each chunk is needed by the cursors in it and by all cursors further back, and is split evenly among them. So
        the shares of all cursors of a lane add up to the bytes that the lane holds. All chunks between two chunks with
        cursors are needed by the same cursors. So the work depends on the number of chunks with cursors, not on the
        size of the lane."""
        occupied = [chunk for chunk in (*self.chunks_with_cursors, self.tail) if chunk.cursors_here]
        chunks = sorted(occupied, key=lambda chunk: chunk.start)
        cursors = 0
        sizes = [stop - chunk.start for chunk, stop in
                 zip(chunks, [*(later.start for later in chunks[1:]), self.end], strict=False)]  # fmt: skip
        for hollow in self.hollow:
            sizes[bisect_right(chunks, hollow.start, key=_start) - 1] -= hollow.size
        portions = []
        for chunk, size in zip(chunks, sizes, strict=True):
            cursors += len(chunk.cursors_here)
            portions.append(size / cursors)
        totals = accumulate(reversed(portions))
        return dict(zip(reversed(chunks), totals, strict=True))

    # -- invariants -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Asserts the invariants of the lane, its chunks and their cursors. It visits every record."""
        chunks = list(self.chunks())
        position, number, sequence = self.first.start, self.first.first_number, 0
        for chunk in chunks:
            chunk.check()
            assert (chunk.start, chunk.first_number) == (position, number), "a chunk begins where the last one ends"
            position, number = chunk.stop, number + len(chunk)
            if chunk.ends:
                assert chunk.run_sequence[0] > sequence, "sequences only grow"
                sequence = chunk.last_sequence
            for cursor in chunk.cursors_here:
                assert cursor.lane is self
                cursor.check()
        assert (self.end, self.count) == (position, number), "positions and numbers add up"
        assert sequence in (0, self.last_sequence), "the last record is at the end"
        assert chunks[-1] is self.tail
        assert self.to_spill in chunks
        assert self.first.cursors_here or self.first is self.tail, "chunks that no cursor needs are dropped"
        keepers = self._check_apart(chunks)
        resident = [chunk for chunk in self.all_chunks() if chunk.spill is None]
        spilled = [chunk for chunk in self.all_chunks() if chunk.spill is not None]
        assert self.resident_bytes == sum(chunk.size for chunk in resident)
        assert self.spilling_bytes == sum(chunk.size for chunk in resident if chunk.spilling)
        assert self.spilled_bytes == sum(chunk.spill.disk_bytes for chunk in spilled if chunk.spill is not None)
        assert self.index_bytes == sum(chunk.index_bytes for chunk in spilled)
        cursors = [cursor for chunk in chunks for cursor in chunk.cursors_here]
        assert self.cursors_awaiting_acks == sum(cursor.leaves for cursor in keepers | set(cursors))
        assert set(self.chunks_with_cursors) == {chunk for chunk in chunks[:-1] if chunk.cursors_here}
        if cursors:
            shares = self.held_shares()
            held = sum(shares[chunk] * len(chunk.cursors_here) for chunk in shares)
            there = sum(chunk.size for chunk in chunks if chunk not in self.hollow)
            assert isclose(held, there, abs_tol=0.01), "shares add up to what is held"
        assert set(self.hollow) == {chunk for chunk in chunks if chunk.spill is NO_BYTES}
        apart = sum(self.apart_shares().values())
        assert isclose(apart, sum(chunk.size for chunk in self.apart), abs_tol=0.01), "shares add up to what is held"

    def _check_apart(self, listed: list[Chunk]) -> set[Cursor]:
        """Asserts the invariants of what is kept for records that were set aside. Returns the cursors of these."""
        keepers = {cursor for chunk in self.all_chunks() for cursor in chunk.kept_by}
        for chunk in self.apart:
            chunk.check()
            assert chunk.kept_by, "a chunk apart is kept for somebody"
            assert not chunk.cursors_here
            assert chunk.next is None, "a chunk apart keeps no other chunk alive"
            assert chunk.stop <= self.first.start
            written = chunk.spilling or not chunk.resident or not worth_writing(chunk)
            assert written == (chunk not in self.apart_to_spill)
        assert set(self.apart_to_spill) <= set(self.apart)
        for cursor in keepers:
            assert cursor.lane is self
            cursor.check()
            kept = {chunk: chunk.kept_by[cursor] for chunk in self.all_chunks() if cursor in chunk.kept_by}
            assert kept == cursor.aside_by_chunk(), "a chunk is kept for each record that was set aside"
            assert set(kept) <= {*self.apart, *listed}
        return keepers


def _start(chunk: Chunk) -> int:
    return chunk.start


def worth_writing(chunk: Chunk) -> bool:
    """Tells whether a chunk that is not full yet is large enough to go to disk."""
    return chunk.size >= SPILL_BYTES_ENOUGH or chunk.size >= max(SPILL_BYTES_MIN, 2 * chunk.index_bytes)
