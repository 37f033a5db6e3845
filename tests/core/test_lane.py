"""Lanes: whole records in chunks of limited size, dropped when nobody stands in them, spilled once."""

from __future__ import annotations

import gc
from collections import Counter
from itertools import combinations_with_replacement
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.lanes import Handle, append, lane, sizes_of

from headway.core.log.lanes import lane as lanes
from headway.core.log.lanes.chunk import Chunk
from headway.core.log.lanes.cursor import Cursor


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([[10]], [10]),
        ([[40, 40, 40]], [80, 40]),
        ([[99], [1], [1]], [100, 1]),
        ([[250]], [250]),
        ([[10], [250], [10]], [10, 250, 10]),
        ([[100], [100]], [100, 100]),
        ([[60, 60, 250, 10]], [60, 60, 250, 10]),
    ],
)
def test_records_are_never_split_between_chunks(
    runs: list[list[int]], expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "CHUNK_BYTES", 100)
    filled = lane()
    Cursor(filled)
    for run in runs:
        append(filled, *run)
    assert sizes_of(filled) == expected
    assert filled.count == sum(map(len, runs))
    assert filled.end == filled.pool.memory_bytes == sum(map(sum, runs))


def test_each_chunk_knows_whose_records_it_has() -> None:
    for publisher in (1, 2):
        filled = lane()
        Cursor(filled)
        append(filled, 10, 10, publisher=publisher)
        assert filled.first.publishers(0, 2) == {publisher: 2}


ANY_SIZES = st.lists(st.integers(2, 60), min_size=1, max_size=8)
ONE_SIZE = st.builds(lambda size, count: [size] * count, st.sampled_from([2, 7, 20, 70_000]), st.integers(1, 20))


@given(st.lists(ANY_SIZES | ONE_SIZE, min_size=1, max_size=12), st.integers(10, 80))
def test_every_record_is_where_the_index_says(runs: list[list[int]], chunk_bytes: int) -> None:
    old, lanes.CHUNK_BYTES = lanes.CHUNK_BYTES, chunk_bytes
    try:
        filled = lane()
        Cursor(filled)
        for run in runs:
            append(filled, *run, holes=len(run) % 2 == 0)
    finally:
        lanes.CHUNK_BYTES = old
    number, position = 0, 0
    wanted = [(i, size, len(run) % 2 == 0) for run in runs for i, size in enumerate(run)]
    for chunk in filled.chunks():
        assert (chunk.start, chunk.first_number) == (position, number)
        for index in range(len(chunk)):
            letter, size, hole = wanted[number]
            start = chunk.record_start(index)
            assert bytes(chunk.read(start, chunk.ends[index])) == bytes([65 + letter % 26]) * size
            assert chunk.sequence_of(index) == number + 1
            assert chunk.index_at(position) == index
            assert (chunk.holes[index] if chunk.holes else 0) == (start + 2 if hole else 0)
            number, position = number + 1, position + size
    assert number == len(wanted)


def test_a_burst_of_small_runs_needs_one_entry_and_whatever_differs_its_own() -> None:
    """A thousand topics in one read; then another time, another publisher, a sequence left out (another lane's)."""
    filled = lane()
    Cursor(filled)
    for _ in range(1000):
        append(filled, 10, now=1.0)
    (chunk,) = filled.chunks()
    small = chunk.index_bytes
    append(filled, 10, now=2.0)
    append(filled, 10, now=2.0, publisher=2)
    filled.last_sequence += 5
    append(filled, 10, now=2.0, publisher=2)
    assert small < 512 + 4 * 1000 + 100
    assert chunk.index_bytes == small + 3 * (4 + 37)
    assert [chunk.sequence_of(i) for i in (0, 500, 999, 1000, 1001, 1002)] == [1, 501, 1000, 1001, 1002, 1008]
    assert [chunk.time_of(i) for i in (0, 999, 1000, 1002)] == [1.0, 1.0, 2.0, 2.0]
    assert chunk.publishers(998, 1003) == {1: 3, 2: 2}


def test_publishers_of_any_records() -> None:
    filled, rng = lane(), Random(1)
    Cursor(filled)
    for _ in range(40):
        append(filled, *[10] * rng.randint(1, 4), now=rng.random(), publisher=rng.randint(1, 3))
    (chunk,) = filled.chunks()
    each = [chunk.run_publisher[chunk.run_of(index)] for index in range(len(chunk))]
    for first, last in combinations_with_replacement(range(len(chunk) + 1), 2):
        assert chunk.publishers(first, last) == Counter(each[first:last])


def test_records_flow_since_the_first_one_and_since_the_first_after_a_pause() -> None:
    filled = lane()
    found = []
    for now in (100.0, 104.0, 113.9, 123.9, 130.0):
        append(filled, 10, now=now)
        found.append(filled.flows_since_s)
    assert found == [100.0, 100.0, 100.0, 123.9, 123.9]


def test_what_nobody_needs_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "CHUNK_BYTES", 100)
    filled = lane()
    stuck, fast = Cursor(filled), Cursor(filled)
    append(filled, *[50] * 10)
    fast.catch_up()
    assert sizes_of(filled) == [100] * 5
    stuck.skip_to(5)
    assert (sizes_of(filled), filled.pool.memory_bytes, filled.dropped_sequence) == ([100] * 3, 300, 4)
    stuck.detach()
    fast.detach()
    assert (sizes_of(filled), filled.pool.memory_bytes) == ([0], 0), "detached cursors hold nothing, not even the tail"
    assert (filled.end, filled.count) == (500, 10), "positions and numbers go on"


def test_what_was_dropped_is_gone_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "CHUNK_BYTES", 100)
    filled = lane()
    reader = Cursor(filled)
    before = _chunks_alive()
    for _ in range(50):
        append(filled, 90, 90, 90)
        reader.catch_up()
    assert _chunks_alive() == before
    append(filled, 90, 90)
    assert len(filled.spillable(1000, lambda chunk: True)) > 0
    reader.catch_up()
    for _ in range(50):
        append(filled, 90, 90, 90)
        reader.catch_up()
    assert _chunks_alive() <= before + 1


def _chunks_alive() -> int:
    gc.collect()
    return sum(type(one) is Chunk for one in gc.get_objects())


def test_a_spilled_chunk_is_counted_once_and_let_go_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "CHUNK_BYTES", 100)
    filled = lane()
    cursors = [Cursor(filled) for _ in range(50)]
    append(filled, *[100] * 4)
    chunks = filled.spillable(150, lambda _: True)
    assert chunks == list(filled.chunks())[:2]
    assert filled.spillable(150, lambda _: True) == [list(filled.chunks())[2]], "what is on its way is not sent again"
    handles = [Handle(bytes(chunk.data)) for chunk in chunks]
    for chunk, handle in zip(chunks, handles, strict=True):
        filled.spilled(chunk, handle, 100)
    index = sum(chunk.index_bytes for chunk in chunks)
    assert (filled.pool.memory_bytes, filled.pool.disk_bytes) == (200 + index, 200)
    for cursor in cursors:
        cursor.catch_up()
    assert [handle.released for handle in handles] == [1, 1]
    filled.close()
    assert (filled.pool.memory_bytes, filled.pool.disk_bytes, filled.pool.spilling_bytes) == (0, 0, 0)


@pytest.mark.parametrize("written", [True, False])
def test_a_chunk_that_was_passed_while_it_was_being_written(written: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "CHUNK_BYTES", 100)
    filled = lane()
    cursor = Cursor(filled)
    append(filled, 100, 100)
    (chunk,) = filled.spillable(1, lambda _: True)
    cursor.catch_up()
    assert filled.pool.spilling_bytes == 0
    handle = Handle(b"x" * 100)
    filled.spilled(chunk, handle if written else None, 100)
    assert handle.released == written
    assert (filled.pool.memory_bytes, filled.pool.disk_bytes, filled.pool.spilling_bytes) == (100, 0, 0)


def test_shares_of_what_is_held_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "CHUNK_BYTES", 100)
    filled = lane()
    cursors = [Cursor(filled) for _ in range(3)]
    append(filled, *[100] * 3)
    cursors[1].skip_to(1)
    cursors[2].skip_to(2)
    held = filled.held_shares()
    each = [held[cursor.floor] for cursor in cursors if cursor.floor is not None]
    assert each == [pytest.approx(100 + 50 + 100 / 3), pytest.approx(50 + 100 / 3), pytest.approx(100 / 3)]
    assert sum(each) == pytest.approx(300)
