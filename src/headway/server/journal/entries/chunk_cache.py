"""The chunk cache: reads chunks whose bytes are only in the journal.

The journal has records as they were published; a lane has them encoded for sending. So a chunk that is read back is
encoded again in its lane's dialect. The result has the same bytes as before, since the encoding does not depend on the
time. The cache keeps a few chunks in memory, because one consumer reads a chunk in many pieces.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection
from typing import Protocol

from headway.core.log import Chunk
from headway.core.message import Dialect, Run
from headway.core.routing import part_of
from headway.server.journal.entries.entry_codec import DecodedRun, decode_runs
from headway.store.journal import Corrupt, ReadableStream

CHUNKS_MAX = 32


class JournalChunk:
    """A ``SpillHandle`` to a chunk in the journal. ``fd`` is -1: no file has the chunk's bytes as they are sent."""

    fd = -1
    offset = 0
    disk_bytes = 0
    __slots__ = ("_cache", "_chunk", "_dialect")

    def __init__(self, chunk_cache: ChunkCache, chunk: Chunk, dialect: Dialect) -> None:
        self._cache = chunk_cache
        self._chunk = chunk
        chunk_cache.unloaded[chunk] = chunk.sequence_of(0)
        self._dialect = dialect

    def read(self, start: int, stop: int) -> bytes:
        """Raises OSError."""
        return self._cache.data(self._chunk, self._dialect)[start:stop]

    def release(self) -> None:
        self._cache.forget(self._chunk)


class Clock(Protocol):
    @property
    def wall_offset_s(self) -> float:
        """The wall clock less the monotonic one, in seconds."""


class ChunkCache:
    def __init__(self, streams: Collection[ReadableStream], clock: Clock) -> None:
        """``streams``: the streams in which records of chunks may be."""
        self._streams = streams
        self._clock = clock
        self.unloaded: dict[Chunk, int] = {}
        """The chunks whose bytes are only in the journal, and the first sequence of each."""
        self._made: OrderedDict[Chunk, bytes] = OrderedDict()
        self._found: list[DecodedRun] = []
        """The runs of the last batch that was read."""
        self._firsts: list[int] = []

    def data(self, chunk: Chunk, dialect: Dialect) -> bytes:
        data = self._made.get(chunk)
        if data is None:
            data = self._made[chunk] = self._make(chunk, dialect)
            if len(self._made) > CHUNKS_MAX:
                self._made.popitem(last=False)
        self._made.move_to_end(chunk)
        return data

    def forget(self, chunk: Chunk) -> None:
        self.unloaded.pop(chunk, None)
        self._made.pop(chunk, None)

    def _make(self, chunk: Chunk, dialect: Dialect) -> bytes:
        parts: list[bytes] = []
        stops = [*chunk.run_first[1:], len(chunk)]
        for first, stop, sequence in zip(chunk.run_first, stops, chunk.run_sequence, strict=True):
            left = stop - first
            while left:
                run, run_sequence = self._run_with(sequence)
                at = sequence - run_sequence
                part = part_of(run, at, min(len(run), at + left))
                parts.append(dialect.encode(part, sequence).data)
                sequence += len(part)
                left -= len(part)
        data = b"".join(parts)
        if len(data) != chunk.ends[-1]:
            raise OSError(errno.EIO, f"the journal has {len(data)} bytes for {chunk.ends[-1]} of a lane")
        return data

    def _run_with(self, sequence: int) -> tuple[Run, int]:
        found = self._look(sequence)
        if found is not None:
            return found
        for stream in self._streams:
            try:
                batch = stream.batch_with(sequence)
            except Corrupt as error:
                raise OSError(errno.EIO, str(error)) from error
            self._found = list(decode_runs(batch or (), self._clock.wall_offset_s))
            self._firsts = [read.sequence for read in self._found]
            found = self._look(sequence)
            if found is not None:
                return found
        raise OSError(errno.EIO, f"record {sequence} is not in the journal any more")

    def _look(self, sequence: int) -> tuple[Run, int] | None:
        at = bisect_right(self._firsts, sequence) - 1
        if at < 0 or sequence >= self._firsts[at] + len(self._found[at].run):
            return None
        return self._found[at].run, self._firsts[at]
