"""A pretended spill disk: late, full, or unreadable, as the dice will have it; and it remembers what was written."""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING

from headway.core.consumer.effects import Spill
from headway.core.log.lanes.chunk import Chunk
from headway.core.log.lanes.lane import Lane
from headway.core.log.lanes.pool import Pool

if TYPE_CHECKING:
    from headway.core.broker import Broker


class Handle:
    """A chunk's bytes on the pretended disk."""

    fd = -1
    offset = 0

    def __init__(self, disk: Disk, pool: Pool, data: bytes) -> None:
        self._disk = disk
        self._data = data
        self.pool = pool
        self.released = False

    @property
    def size(self) -> int:
        return len(self._data)

    @property
    def disk_bytes(self) -> int:
        return len(self._data)

    def read(self, start: int, stop: int) -> bytes:
        assert not self.released, "read after release"
        assert 0 <= start <= stop <= len(self._data), "read outside the chunk"
        if self._disk.dice.random() < self._disk.unreadable:
            raise OSError(errno.EIO, "Input/output error")
        return self._data[start:stop]

    def release(self) -> None:
        assert not self.released, "released twice"
        self.released = True
        self._disk.held.pop(self)


class Disk:
    """``full``: how often a write fails. ``unreadable``: how often a read does. ``delay_s``: how late writes are."""

    def __init__(self, rng: Random, full: float, unreadable: float, delay_s: float) -> None:
        self.dice = rng
        self.full = full
        self.unreadable = unreadable
        self.delay_s = delay_s
        self.held: dict[Handle, None] = {}
        self.written: dict[Chunk, None] = {}
        self.failures = 0
        self._jobs: list[tuple[float, Lane, list[tuple[Chunk, int, bytearray, bytes]]]] = []

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def submit(self, spill: Spill, now: float) -> None:
        chunks = [chunk for chunk in spill.chunks if chunk.spilling]
        for chunk in chunks:
            assert chunk not in self.written, "a chunk is written twice"
            assert chunk is not spill.lane.tail, "a chunk that still grows is written"
        job = [(chunk, chunk.size, chunk.data, bytes(chunk.data)) for chunk in chunks]
        self._jobs.append((now + self.dice.random() * self.delay_s, spill.lane, job))

    def work(self, broker: Broker, now: float) -> bool:
        """Finish what is due."""
        due = [job for job in self._jobs if job[0] <= now]
        self._jobs = [job for job in self._jobs if job[0] > now]
        for _, lane, chunks in due:
            for chunk, size, data, copy in chunks:
                assert bytes(data) == copy, "a chunk changed while it was being written"
                if self.dice.random() < self.full:
                    self.failures += 1
                    broker.spilled(lane, chunk, size, None, "No space left on device", now)
                    continue
                self.written[chunk] = None
                handle = Handle(self, lane.pool, copy)
                self.held[handle] = None
                broker.spilled(lane, chunk, size, handle, "", now)
        if due:
            broker.relieve(now)
        return bool(due)
