"""A stream reader for a process that does not write the stream, whether or not another process does.

``open`` reads only the headers of batches, to index them; a batch is checked when it is read. Sequences are not
counted. Nothing is changed.
Batches that are written after ``open`` are not seen.

Rules:
- The last segment ends before its first batch that is not whole, because a writer may be at work there.
- After damage in an earlier segment the reader goes on with the next whole batch, and ``open`` reports it. Losses that
  a repair accepted are skipped silently.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from headway.store.journal.disk import REAL, Files
from headway.store.journal.reading.readable_stream import ReadableStream
from headway.store.journal.segments import (
    BATCH_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    BadBatch,
    BadHeader,
    Numbers,
    SegmentIndex,
    SegmentReader,
    batch,
    is_accepted,
    ordinal_of,
    read_losses,
)

TRIES_MAX = 10
"""``open`` starts again when a segment is freed meanwhile, so many times."""


class StreamReader(ReadableStream):
    def __init__(self, folder: Path, files: Files = REAL) -> None:
        super().__init__(files, folder)

    def open(self) -> list[str]:
        """Finds the batches. Returns a sentence for each place that cannot be read. Raises OSError."""
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                segments, said = indexed(self._files, self.folder)
                break
            except FileNotFoundError:
                if not tries_left:
                    raise
        for segment in segments:
            self._add_segment(segment)
        return said


def indexed(files: Files, folder: Path) -> tuple[list[SegmentIndex], list[str]]:
    """Returns where the batches of a stream's folder stand, by their headers, and what is wrong. Raises OSError."""
    accepted = read_losses(files, folder)
    said: list[str] = []
    with ExitStack() as stack:
        found: list[tuple[SegmentReader, SegmentIndex]] = []
        for name in sorted(name for name in files.names(folder) if ordinal_of(name) is not None):
            reader = stack.enter_context(SegmentReader(files, folder / name))
            try:
                found.append((reader, SegmentIndex(reader.path, reader.header())))
            except BadHeader as error:
                if reader.size > SEGMENT_HEADER_BYTES:  # otherwise it is just being created
                    said.append(f"{reader.path}: {error}; it is passed over")
        firsts = [index.header.first_number for _, index in found]
        for at, (reader, index) in enumerate(found):
            limit = min(firsts[at + 1 :], default=None)
            _collect(reader, index, limit, accepted, said)
            if limit is not None:
                index.thin()
    return [index for _, index in found], said


def _collect(
    reader: SegmentReader, index: SegmentIndex, limit: int | None, accepted: list[Numbers], said: list[str]
) -> None:
    """Adds the batches below ``limit``: the least first number of the segments behind; None for the last one."""
    offset, number, token = SEGMENT_HEADER_BYTES, index.header.first_number, index.header.token
    while offset < reader.size and (limit is None or number < limit):
        try:
            header = batch.header_of(reader.view(offset, BATCH_HEADER_BYTES), token)
            end = offset + BATCH_HEADER_BYTES + header.length
            if end > reader.size or header.number != number:
                raise BadBatch("the file ends within a batch")
        except BadBatch:
            later = None if limit is None else reader.next_whole(offset, token, number)
            if later is None or (limit is not None and later.header.number >= limit):
                if limit is not None and not is_accepted(accepted, (number, limit - 1)):
                    said.append(f"{reader.path}: cannot be read from byte {offset} on")
                return
            if not is_accepted(accepted, (number, max(number, later.header.number - 1))):
                said.append(f"{reader.path}: bytes {offset} to {later.offset - 1} cannot be read")
            offset, number = later.offset, later.header.number
            continue
        if not is_accepted(accepted, (number, number)):
            index.add(offset, header, 0)  # only a body tells how many sequences there are
        offset, number = end, number + 1
