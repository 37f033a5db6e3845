"""What is left out ahead of a cursor."""

from __future__ import annotations

from array import array

from headway.core.consumer.progress import LeftOut
from headway.core.log import Chunk


def test_a_look_that_stops_early_keeps_no_later_one_from_finding_new_records() -> None:
    left_out, chunk = LeftOut(), Chunk(0, 0)
    chunk.ends = array(chunk.ends.typecode, range(1, 11))
    left_out.add(chunk, [(2, 4)], 2)
    early = left_out.waiting(chunk, 0, 10)
    assert next(early) == (0, 2)
    chunk.ends.extend(range(11, 21))
    assert list(left_out.waiting(chunk, 0, 20)) == [(0, 2), (4, 20)]
    left_out.add(chunk, [(18, 20)], 2)
    assert list(early) == [(4, 10)]
