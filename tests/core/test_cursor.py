"""Cursors: every move, and what it leaves held."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.lanes import Handle, append, lane

from headway.core.log.lanes import lane as lanes
from headway.core.log.lanes.cursor import Cursor
from headway.core.log.lanes.lane import Lane


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> Lane:
    """Ten records of 50 bytes, two to a chunk, with somebody at the very beginning."""
    monkeypatch.setattr(lanes, "CHUNK_BYTES", 100)
    made = lane()
    Cursor(made)
    made_cursors[made] = Cursor(made)
    append(made, *[50] * 10)
    return made


made_cursors: dict[Lane, Cursor] = {}


@pytest.mark.parametrize(
    ("move", "position", "number", "boundary"),
    [
        (lambda c: c.advance(50), 50, 1, True),
        (lambda c: c.advance(70), 70, 1, False),
        (lambda c: c.advance(100), 100, 2, True),
        (lambda c: c.advance(500), 500, 10, True),
        (lambda c: c.catch_up(), 500, 10, True),
        (lambda c: c.skip_to(7), 350, 7, True),
        (lambda c: (c.advance(200), c.skip_to(2)), 200, 4, True),
        (lambda c: c.skip_to(10), 500, 10, True),
        (lambda c: c.skip_to(99), 500, 10, True),
        (lambda c: (c.advance(70), c.rewind_record()), 50, 1, True),
        (lambda c: (c.advance(150), c.rewind_record()), 150, 3, True),
        (lambda c: (c.advance(150), c.detach()), 150, 3, True),
        (lambda c: (c.detach(), c.jump_to_end()), 500, 10, True),
        (lambda c: (c.detach(), c.jump_to_end(), c.catch_up()), 500, 10, True),
        (lambda c: (c.catch_up(), c.start_at(c.lane.first, 1)), 50, 1, True),
    ],
)
def test_moves(
    filled: Lane, move: Callable[[Cursor], object], position: int, number: int, boundary: bool
) -> None:
    cursor = made_cursors[filled]
    move(cursor)
    assert (cursor.position, cursor.number, cursor.at_boundary) == (position, number, boundary)
    assert cursor.lag_bytes == 500 - position
    assert cursor.lag_records == 10 - number
    floors = {chunk: len(chunk.cursors_here) for chunk in filled.chunks()}
    assert sum(floors.values()) == 1 + (cursor.floor is not None)
    assert (cursor.floor is cursor.chunk) if cursor.attached else (cursor.floor is None)


def test_who_read_the_tail_to_its_end_goes_on_in_the_next_chunk(filled: Lane) -> None:
    cursor = made_cursors[filled]
    cursor.catch_up()
    append(filled, 50, now=7.0)
    assert cursor.chunk is not filled.tail, "appending never looks at a cursor"
    assert cursor.oldest_time() == 7.0
    cursor.step()
    assert cursor.chunk is filled.tail
    assert (cursor.number, cursor.lag_records) == (10, 1)


def test_unacknowledged_records_hold_their_chunks(filled: Lane) -> None:
    cursor = made_cursors[filled]
    first = filled.first
    for number in (0, 1, 2):
        cursor.sent(number, cursor.chunk)
        cursor.advance(50)
    cursor.catch_up()
    assert (cursor.floor, filled.cursors_awaiting_acks) == (first, 1)
    cursor.acknowledge(1)
    cursor.acknowledge(1)
    assert cursor.floor is first, "record 0 is in it, too"
    cursor.acknowledge(0)
    assert cursor.floor is first.next
    cursor.detach()
    assert (cursor.floor, first.next.kept_by) == (None, {cursor: 1}), "also while the subscription reads state"
    cursor.acknowledge(2)
    assert (first.next.kept_by, filled.cursors_awaiting_acks) == ({}, 0)


def test_closing_lets_go_of_everything(filled: Lane) -> None:
    cursor = made_cursors[filled]
    cursor.sent(0, cursor.chunk)
    cursor.advance(50)
    cursor.close()
    assert (cursor.floor, filled.cursors_awaiting_acks, len(filled.first.cursors_here)) == (None, 0, 1)


MOVES = ["append", "advance", "skip", "ack", "catch_up", "detach", "jump", "spill", "close"]


@given(st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 3), st.integers(0, 200)), max_size=60))
def test_cursors_are_always_in_their_floors(steps: list[tuple[str, int, int]]) -> None:
    old, lanes.CHUNK_BYTES = lanes.CHUNK_BYTES, 64
    try:
        filled = lane()
        cursors = [Cursor(filled) for _ in range(4)]
        for what, who, amount in steps:
            cursor = cursors[who]
            if what == "append":
                append(filled, *[1 + amount % 50] * (1 + who))
            elif what == "close":
                cursor.close()
                cursors[who] = Cursor(filled)
            elif what == "advance" and cursor.attached:
                cursor.step()
                if cursor.lag_bytes:
                    cursor.sent(cursor.number, cursor.chunk)
                    size = cursor.chunk.ends[cursor.chunk.index_at(cursor.position)]
                    cursor.advance(cursor.chunk.start + size - cursor.position)
            elif what == "skip" and cursor.attached:
                cursor.skip_to(amount % (filled.count + 1))
            elif what == "ack" and (sent := [*cursor.aside, *cursor.unacknowledged]):
                cursor.acknowledge(sent[amount % len(sent)])
            elif what == "catch_up":
                cursor.catch_up()
            elif what == "detach":
                cursor.detach()
            elif what == "jump":
                cursor.jump_to_end()
            elif what == "spill":
                for chunk in filled.spillable(amount, lambda _: True):
                    handle = Handle(bytes(chunk.data)) if who else None
                    filled.spilled(chunk, handle, chunk.size)
            filled.trim()
            chunks = list(filled.chunks())
            for chunk in chunks:
                assert set(chunk.cursors_here) == {cursor for cursor in cursors if cursor.floor is chunk}
            assert filled.first.cursors_here or filled.first is filled.tail
            filled.check()
            filled.pool.check([filled])
            needed = {chunk for cursor in cursors for chunk in cursor.aside.values()}
            assert set(filled.apart) == needed - set(chunks), "nothing else is kept"
    finally:
        lanes.CHUNK_BYTES = old
