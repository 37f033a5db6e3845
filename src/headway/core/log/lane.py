"""Lanes: the encoded stream of one (topic filter, selector, dialect); chunks in one address space.

A position is a byte count since the lane began and only grows; a number counts records likewise. Appending never looks
at a cursor. Chunks hang in a singly linked list, so a cursor keeps its place by holding its chunk, and walking on needs
no search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from math import isclose

from headway.core.log.chunk import CHUNK_BYTES, Chunk, SpillHandle
from headway.core.log.pool import GRACE_S, Pool
from headway.core.message import Dialect, EncodedRun, Run

SPILL_BYTES_MIN = 1024
SPILL_BYTES_ENOUGH = 8 * 1024
"""What a tail has to have to be written: so much, and twice as much as its index, which stays in memory; or enough. A
little in each of very many lanes, and less than this, is not much beside what the lanes themselves take up (tab.py)."""


class Lane:
    """One encoded stream. ``end`` and ``count`` are the position and number of the record to come."""

    __slots__ = (
        "count", "dialect", "dropped_sequence", "end", "first", "full", "holding", "index_bytes", "known_bytes",
        "largest", "last_sequence", "pool", "resident_bytes", "spilled_bytes", "spilling_bytes", "stood", "tail",
        "to_spill",
    )  # fmt: skip

    def __init__(self, dialect: Dialect, pool: Pool, last_sequence: int = 0) -> None:
        self.dialect = dialect
        self.pool = pool
        self.end = 0
        self.count = 0
        self.last_sequence = last_sequence
        self.resident_bytes = 0
        self.spilling_bytes = 0
        """Part of ``resident_bytes`` that a worker is writing at this moment."""
        self.spilled_bytes = 0
        """On the pool's disk; what the journal has is not among it."""
        self.index_bytes = 0
        """What is in memory of chunks that are not."""
        self.full = False
        """It takes up more than its share, and nothing of it could leave when that was last tried."""
        self.known_bytes = 0
        """When more than this stays in memory its pool is to be told."""
        self.dropped_sequence = last_sequence
        """Everything the lane was given after this sequence is still held."""
        self.largest = 0
        self.holding = 0
        """Cursors that wait for acknowledgements: what they were sent may be wanted again."""
        self.stood: dict[Chunk, None] | None = None
        """The chunks that cursors stand in; None: there is one chunk."""
        self.first = self.tail = self.to_spill = Chunk(0, 0)
        """``to_spill``: in front of it everything is on disk, or on its way."""

    @property
    def staying_bytes(self) -> int:
        """In memory, and not on its way to disk."""
        return self.resident_bytes - self.spilling_bytes

    @property
    def nothing_to_write(self) -> bool:
        """All that is in front of its tail is on disk or on its way there, and the tail is not worth it."""
        return self.to_spill is self.tail and not worth_writing(self.tail)

    @property
    def memory_bytes(self) -> int:
        return self.resident_bytes + self.index_bytes

    @property
    def over_share(self) -> bool:
        """It takes up more memory than one client may."""
        return self.memory_bytes > int(self.pool.memory_limit * self.pool.client_share)

    def closed(self, now: float) -> bool:
        """There is no room for more: its own share, or its pool's memory, is used up by what cannot leave, and somebody
        stands in it who should have taken what is there by now, and was promised it. (Who was not is given up.)"""
        self.full = self.full and self.over_share
        return (self.full or self.pool.tight) and not self.first.free and self.stuck(now)

    def stuck(self, now: float) -> bool:
        """The oldest that is held should have been taken by now."""
        return len(self.first) > 0 and self.first.time_of(0) <= now - GRACE_S

    # -- writing ----------------------------------------------------------------------------------------------------

    def append(self, run: Run, frames: EncodedRun, sequence: int, now: float) -> None:
        """Append a run; whole records, chunks of about 64 KiB."""
        assert sequence > self.tail.last_sequence, "sequences only grow"
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
        self.pool.add_memory(size)
        if self.resident_bytes > self.known_bytes:
            self.pool.resident.put(self)

    def _seal(self) -> None:
        if self.stood is None:
            self.stood = {self.tail: None} if self.tail.standing else {}
        fresh = Chunk(self.end, self.count)
        self.tail.next = fresh
        self.tail = fresh

    # -- letting go -------------------------------------------------------------------------------------------------

    def trim(self) -> None:
        """Drop what no cursor needs any more."""
        while not self.first.standing and self.first.next is not None:
            gone, self.first = self.first, self.first.next
            self._drop(gone)
            if self.to_spill is gone:  # a chunk knows its next: it would keep all that ever come after it
                self.to_spill = self.first
        if self.first is self.tail:
            self.stood = None
        if not self.first.standing:  # nobody stands anywhere: they read state
            self._restart()

    def empty(self) -> None:
        """Forget everything. Only while every cursor stands at the end and none waits for an acknowledgement."""
        if self.first is not self.tail:
            self.trim()
        if self.first is self.tail:
            self._restart()

    def _restart(self) -> None:
        """Begin the tail anew, empty, for those who stand at its end."""
        tail = self.tail
        if tail.size:
            self._drop(tail)
            tail.reset(self.end, self.count)

    def close(self) -> None:
        """The lane is gone; so is what it held."""
        for chunk in self.chunks():
            self._drop(chunk)
        self.first = self.tail = self.to_spill = Chunk(self.end, self.count)
        self.stood = None
        self.pool.resident.forget(self)
        self.pool.spilled.forget(self)
        self.pool.indexed.forget(self)

    def _drop(self, chunk: Chunk) -> None:
        if chunk.ends:
            self.dropped_sequence = chunk.last_sequence
        if chunk.spill is None:
            self.resident_bytes -= chunk.size
            self.pool.memory_bytes -= chunk.size
            if chunk.spilling:
                self._on_its_way(chunk, -chunk.size)
        else:
            self.spilled_bytes -= chunk.spill.disk_bytes
            self.pool.disk_bytes -= chunk.spill.disk_bytes
            self.index_bytes -= chunk.index_bytes
            self.pool.memory_bytes -= chunk.index_bytes
            chunk.spill.release()
            chunk.spill = None
        assert self.resident_bytes >= 0 <= self.pool.memory_bytes, "more was let go of than there was"
        assert self.spilled_bytes >= 0 <= self.pool.disk_bytes
        chunk.size = 0

    # -- spill ------------------------------------------------------------------------------------------------------

    def spillable(self, wanted_bytes: int, may_leave: Callable[[Chunk], bool]) -> list[Chunk]:
        """The oldest resident chunks, up to about ``wanted_bytes``, in front of the first that may not leave; they are
        marked as on their way to disk.

        The tail is among them when it is worth a chunk of its own; a fresh one takes its place."""
        chosen = []
        while wanted_bytes > 0:
            chunk = self.to_spill
            if chunk is self.tail and not worth_writing(chunk):
                break
            if chunk.resident and not chunk.spilling and chunk.size and not may_leave(chunk):
                break
            if chunk is self.tail:
                self._seal()
                for cursor in list(chunk.standing):
                    cursor.step()  # who has everything would keep it for as long as nobody publishes
            if chunk.resident and not chunk.spilling and chunk.size:
                self._on_its_way(chunk, chunk.size)
                wanted_bytes -= chunk.size
                chosen.append(chunk)
            assert chunk.next is not None
            self.to_spill = chunk.next
        return chosen

    def _on_its_way(self, chunk: Chunk, size: int) -> None:
        """A worker is to write so much; or, less than nothing, is not or no longer."""
        chunk.spilling = size > 0
        self.spilling_bytes += size
        self.known_bytes += size
        self.pool.spilling_bytes += size

    def spilled(self, chunk: Chunk, handle: SpillHandle | None, size: int) -> None:
        """The worker is done with a chunk of ``size`` bytes; without a handle it failed and the bytes stay."""
        if not chunk.spilling:  # every cursor has passed it meanwhile
            if handle is not None:
                handle.release()
            return
        self._on_its_way(chunk, -size)
        if handle is None:
            if chunk.start < self.to_spill.start:
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

    def held_shares(self) -> dict[Chunk, float]:
        """For each chunk that cursors stand in: the bytes from there on that one of them has to answer for.

        A chunk is needed by every cursor that stands in it or further back, and is split evenly among them, so the
        shares of all cursors of a lane add up to the bytes it holds. Up to the next that somebody stands in all chunks
        are needed by the same: so this is as much work as cursors are apart, whatever the lane holds."""
        stood = [one for one in (self.first,) if one.standing] if self.stood is None else self.stood
        chunks = sorted(stood, key=lambda chunk: chunk.start)
        standing = 0
        portions = []
        for chunk, stop in zip(chunks, [*(later.start for later in chunks[1:]), self.end], strict=False):
            standing += len(chunk.standing)
            portions.append((stop - chunk.start) / standing)
        totals = accumulate(reversed(portions))
        return dict(zip(reversed(chunks), totals, strict=True))

    # -- invariants -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what always holds of it, its chunks, and the cursors that stand in them. It goes through all records.
        """
        chunks = list(self.chunks())
        position, number, sequence = self.first.start, self.first.first_number, 0
        for chunk in chunks:
            chunk.check()
            assert (chunk.start, chunk.first_number) == (position, number), "a chunk begins where the last one ends"
            position, number = chunk.stop, number + len(chunk)
            if chunk.ends:
                assert chunk.run_sequence[0] > sequence, "sequences only grow"
                sequence = chunk.last_sequence
            for cursor in chunk.standing:
                assert cursor.lane is self
                cursor.check()
        assert (self.end, self.count) == (position, number), "positions and numbers add up"
        assert sequence in (0, self.last_sequence), "what came last is at the end"
        assert chunks[-1] is self.tail
        assert self.to_spill in chunks
        assert self.first.standing or self.first is self.tail, "what nobody needs is let go of"
        resident = [chunk for chunk in chunks if chunk.spill is None]
        spilled = [chunk for chunk in chunks if chunk.spill is not None]
        assert self.resident_bytes == sum(chunk.size for chunk in resident)
        assert self.spilling_bytes == sum(chunk.size for chunk in resident if chunk.spilling)
        assert self.spilled_bytes == sum(chunk.spill.disk_bytes for chunk in spilled if chunk.spill is not None)
        assert self.index_bytes == sum(chunk.index_bytes for chunk in spilled)
        standing = [cursor for chunk in chunks for cursor in chunk.standing]
        assert self.holding == sum(bool(cursor.unacknowledged) for cursor in standing)
        if self.stood is None:
            assert self.first is self.tail, "one chunk: nobody asks where cursors stand"
        else:
            assert set(self.stood) == {chunk for chunk in chunks if chunk.standing}
        if standing:
            shares = self.held_shares()
            held = sum(shares[chunk] * len(chunk.standing) for chunk in shares)
            assert isclose(held, sum(chunk.size for chunk in chunks), abs_tol=0.01), "shares add up to what is held"


def worth_writing(chunk: Chunk) -> bool:
    """A chunk that is not full yet is large enough to go to disk."""
    return chunk.size >= SPILL_BYTES_ENOUGH or chunk.size >= max(SPILL_BYTES_MIN, 2 * chunk.index_bytes)
