"""Walks through the batches that share one entry of a thinned index."""

from __future__ import annotations

from headway.store.journal.disk import Files, read_all
from headway.store.journal.segments import BATCH_HEADER_BYTES, BadBatch, BatchHeader, IndexEntry, SegmentIndex, batch

TIME_MAX = 2**63 - 1


def walk(files: Files, fd: int, segment: SegmentIndex, entry: IndexEntry) -> SegmentIndex:
    """Returns an index of each batch of the entry that has sequences; these are not counted. A damaged batch is in it
    with all sequences that are missing there, because its header may be wrong about them. So reading one of these
    reports the damage, and the other batches are found as usual. Raises OSError."""
    header = segment.header._replace(first_number=entry.number, last_sequence=max(0, entry.first_sequence - 1))
    index = SegmentIndex(segment.path, header)
    damaged: tuple[int, BatchHeader] | None = None
    for offset, found, whole in _batches(files, fd, header.token, entry):
        if not whole:
            damaged = damaged or (offset, found)
        elif found.first_sequence:
            if damaged:
                _add_damaged(index, *damaged, found.first_sequence - 1)
                damaged = None
            index.add(offset, found, 0)
    if damaged:
        _add_damaged(index, *damaged, entry.last_sequence)
    return index


def _batches(files: Files, fd: int, token: int, entry: IndexEntry) -> list[tuple[int, BatchHeader, bool]]:
    """Returns the offset of each batch, its header, and whether it is whole. An impossible header stands for the rest
    of the entry, at an unknown time."""
    data = memoryview(read_all(files, fd, entry.size, entry.offset))
    batches = []
    at = 0
    for number in range(entry.number, entry.number + entry.batches):
        if at >= entry.size:
            break  # the length of the previous batch is wrong
        view = data[at:]
        try:
            header = batch.header_of(view, token)
            if header.number != number:
                raise BadBatch(f"batch {header.number} where {number} is due")
        except BadBatch:
            rest = BatchHeader(entry.size - at - BATCH_HEADER_BYTES, 0, token, number, 0, 0, 0, TIME_MAX)
            batches.append((entry.offset + at, rest, False))
            break
        try:
            batch.body_of(view, header)
            whole = True
        except BadBatch:
            whole = False
        batches.append((entry.offset + at, header, whole))
        at += BATCH_HEADER_BYTES + header.length
    return batches


def _add_damaged(index: SegmentIndex, offset: int, header: BatchHeader, last_sequence: int) -> None:
    header = header._replace(first_sequence=index.last_sequence + 1, last_sequence=last_sequence)
    index.add(offset, header, 0)
