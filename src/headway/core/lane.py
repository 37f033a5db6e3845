"""Lanes: the encoded stream of one (topic filter, selector, dialect); chunks in one address space.

A position is a byte count since the lane began and only grows; a number counts records likewise. Appending never looks
at a cursor. Chunks hang in a singly linked list, so a cursor keeps its place by holding its chunk, and walking on needs
no search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from headway.core.chunk import CHUNK_BYTES, Chunk, SpillHandle
from headway.core.pool import Pool
from headway.core.record import Dialect, Frames, Run

SPILL_BYTES_MIN = 8 * 1024
"""A tail smaller than this is not worth writing: its index, which stays in memory, is about as large."""


class Lane:
    """One encoded stream. ``end`` and ``count`` are the position and number of the record to come."""

    __slots__ = (
        "count", "dialect", "dropped_sequence", "end", "first", "holding", "largest", "last_sequence", "pool",
        "resident_bytes", "spilled_bytes", "tail",
    )  # fmt: skip

    def __init__(self, dialect: Dialect, pool: Pool, last_sequence: int = 0) -> None:
        self.dialect = dialect
        self.pool = pool
        self.end = 0
        self.count = 0
        self.last_sequence = last_sequence
        self.resident_bytes = 0
        self.spilled_bytes = 0
        self.dropped_sequence = last_sequence
        """Everything the lane was given after this sequence is still held."""
        self.largest = 0
        self.holding = 0
        """Cursors that wait for acknowledgements: what they were sent may be wanted again."""
        self.first = self.tail = Chunk(0, 0)

    # -- writing ----------------------------------------------------------------------------------------------------

    def append(self, run: Run, frames: Frames, sequence: int, now: float) -> None:
        """Append a run; whole records, chunks of about 64 KiB."""
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

    def _seal(self) -> None:
        fresh = Chunk(self.end, self.count)
        self.tail.next = fresh
        self.tail = fresh

    # -- letting go -------------------------------------------------------------------------------------------------

    def trim(self) -> None:
        """Drop what no cursor needs any more."""
        while self.first.standing == 0 and self.first.next is not None:
            self._drop(self.first)
            self.first = self.first.next
        if self.first.standing == 0:  # nobody stands anywhere: they read state
            self._restart()

    def empty(self) -> None:
        """Forget everything. Only while every cursor stands at the end and none waits for an acknowledgement."""
        self.trim()
        if self.tail is self.first:
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
        self.first = self.tail = Chunk(self.end, self.count)

    def _drop(self, chunk: Chunk) -> None:
        if len(chunk):
            self.dropped_sequence = chunk.sequence_of(len(chunk) - 1)
        if chunk.spill is None:
            self.resident_bytes -= chunk.size
            self.pool.memory_bytes -= chunk.size
            if chunk.spilling:
                self.pool.spilling_bytes -= chunk.size
                chunk.spilling = False
        else:
            self.spilled_bytes -= chunk.size
            self.pool.disk_bytes -= chunk.size
            self.pool.memory_bytes -= chunk.index_bytes
            chunk.spill.release()
            chunk.spill = None
        chunk.size = 0

    # -- spill ------------------------------------------------------------------------------------------------------

    def spillable(self, wanted_bytes: int) -> list[Chunk]:
        """The oldest resident chunks, up to about ``wanted_bytes``; they are marked as on their way to disk.

        The tail is among them when it is worth a chunk of its own; a fresh one takes its place."""
        chosen = []
        for chunk in self.chunks():
            if wanted_bytes <= 0 or (chunk is self.tail and chunk.size < SPILL_BYTES_MIN):
                break
            if chunk is self.tail:
                self._seal()
            if chunk.resident and not chunk.spilling and chunk.size:
                chunk.spilling = True
                self.pool.spilling_bytes += chunk.size
                wanted_bytes -= chunk.size
                chosen.append(chunk)
        return chosen

    def spilled(self, chunk: Chunk, handle: SpillHandle | None, size: int) -> None:
        """The worker is done with a chunk of ``size`` bytes; without a handle it failed and the bytes stay."""
        if not chunk.spilling:  # every cursor has passed it meanwhile
            if handle is not None:
                handle.release()
            return
        self.pool.spilling_bytes -= size
        chunk.spilling = False
        if handle is None:
            return
        chunk.spill = handle
        chunk.data = b""
        self.resident_bytes -= size
        self.spilled_bytes += size
        self.pool.add_memory(chunk.index_bytes - size)
        self.pool.add_disk(size)

    # -- reading ----------------------------------------------------------------------------------------------------

    def chunks(self) -> Iterator[Chunk]:
        chunk: Chunk | None = self.first
        while chunk is not None:
            yield chunk
            chunk = chunk.next

    def held_shares(self) -> dict[Chunk, float]:
        """For each chunk: the bytes from there on that one cursor standing in it has to answer for.

        A chunk is needed by every cursor that stands in it or further back, and is split evenly among them, so the
        shares of all cursors of a lane add up to the bytes it holds."""
        chunks = list(self.chunks())
        standing = 0
        portions = []
        for chunk in chunks:
            standing += chunk.standing
            portions.append(chunk.size / standing if standing else 0.0)
        shares: dict[Chunk, float] = {}
        total = 0.0
        for chunk, portion in zip(reversed(chunks), reversed(portions), strict=True):
            total += portion
            shares[chunk] = total
        return shares
