"""A stretch has the bytes and the ends that its records have one by one, whichever chunks they are in."""

from __future__ import annotations

from itertools import accumulate, combinations

import pytest
from tests.core.lanes import append, lane

from headway.core.log import Cursor, read_stretch, stretch_bytes
from headway.core.log.lanes import lane as lanes


@pytest.mark.parametrize(
    "runs",
    [
        [[20] * 17],
        [[20, 30, 50, 20, 80, 7, 60, 100, 250, 10]],
        [[50] * 4, [25] * 8, [50] * 3],
        [[30, 10, 20, 40], [20] * 5],
        [[25, 40, 10, 25], [25, 40, 10, 25]],
        [[50, 20, 30], [50, 20, 30]],
    ],
    ids=str,
)
def test_a_stretch_has_what_its_records_have(runs: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "CHUNK_BYTES", 100)
    filled = lane()
    Cursor(filled)
    for run in runs:
        append(filled, *run)
    sizes = [size for run in runs for size in run]
    chunks, base = list(filled.chunks()), 0
    for number, chunk in enumerate(chunks):
        rest, starts = sizes[base:], [0, *accumulate(sizes[base:])]
        whole = b"".join(bytes(one.data) for one in chunks[number:])
        for first, last in combinations(range(len(rest) + 1), 2):
            if first < len(chunk):
                data, ends = read_stretch(chunk, first, last)
                assert bytes(data) == whole[starts[first] : starts[last]]
                assert list(ends) == list(accumulate(rest[first:last]))
                assert stretch_bytes(chunk, first, last) == sum(rest[first:last])
        base += len(chunk)
