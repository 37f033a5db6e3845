"""Records between two numbers of a lane, as those need them who leave all of them out."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from headway.core.log.lanes.chunk import Chunk


class Between(NamedTuple):
    first_sequence: int
    """0: there are none."""
    last_sequence: int
    by_publisher: Counter[int]


def records_between(chunk: Chunk | None, number: int, stop_number: int) -> Between:
    """Returns what there is from record ``number`` on, which is in the chunk or follows it, before ``stop_number``."""
    first, last = 0, 0
    by_publisher: Counter[int] = Counter()
    while chunk is not None and chunk.first_number < stop_number:
        begin, stop = number - chunk.first_number, min(stop_number - chunk.first_number, len(chunk))
        if stop > begin:
            by_publisher.update(chunk.publishers(begin, stop))
            last = chunk.sequence_of(stop - 1)
            first = first or chunk.sequence_of(begin)
        number = chunk.first_number + stop
        chunk = chunk.next
    return Between(first, last, by_publisher)
