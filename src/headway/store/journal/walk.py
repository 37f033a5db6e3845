"""Walking through a stretch of a segment: the batches that share one entry of a thinned index."""

from __future__ import annotations

from headway.store.journal.batch import HEADER_BYTES, BadBatch, BatchHeader, body_of, header_of
from headway.store.journal.files import Files, read_all
from headway.store.journal.index import IndexEntry, SegmentIndex

TIME_MAX = 2**63 - 1


def walk(files: Files, fd: int, segment: SegmentIndex, stretch: IndexEntry) -> SegmentIndex:
    """An index of each batch of the stretch that has sequences. Raises OSError, and never Corrupt: a batch that is not
    whole is in it, with all the sequences that are missing there, for what its header says of them may be wrong. So
    whoever wants one of them reads it and sees what is wrong; the others are found as ever."""
    header = segment.header._replace(first_number=stretch.number, last_sequence=max(0, stretch.first_sequence - 1))
    index = SegmentIndex(segment.path, header)
    damaged: tuple[int, BatchHeader] | None = None
    for offset, found, whole in _batches(files, fd, header.token, stretch):
        if not whole:
            damaged = damaged or (offset, found)
        elif found.first_sequence:
            if damaged:
                _add_damaged(index, *damaged, found.first_sequence - 1)
                damaged = None
            index.add(offset, found)
    if damaged:
        _add_damaged(index, *damaged, stretch.last_sequence)
    return index


def _batches(files: Files, fd: int, token: int, stretch: IndexEntry) -> list[tuple[int, BatchHeader, bool]]:
    """Where each begins, its header, and whether it is whole. Behind a header that cannot be one there is nothing more:
    it stands for the rest, at no time that is known."""
    data = memoryview(read_all(files, fd, stretch.size, stretch.offset))
    batches = []
    at = 0
    for number in range(stretch.number, stretch.number + stretch.batches):
        if at >= stretch.size:
            break  # the length of the one before is wrong
        view = data[at:]
        try:
            header = header_of(view, token)
            if header.number != number:
                raise BadBatch(f"batch {header.number} where {number} is due")
        except BadBatch:
            rest = BatchHeader(stretch.size - at - HEADER_BYTES, 0, token, number, 0, 0, 0, TIME_MAX)
            batches.append((stretch.offset + at, rest, False))
            break
        try:
            body_of(view, header)
            whole = True
        except BadBatch:
            whole = False
        batches.append((stretch.offset + at, header, whole))
        at += HEADER_BYTES + header.length
    return batches


def _add_damaged(index: SegmentIndex, offset: int, header: BatchHeader, last_sequence: int) -> None:
    index.add(offset, header._replace(first_sequence=index.last_sequence + 1, last_sequence=last_sequence))
