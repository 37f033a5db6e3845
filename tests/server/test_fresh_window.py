"""How much may be on its way to a slow reader on this host: a table of readers, and no kernel."""

from __future__ import annotations

from math import inf

import pytest

from headway.server.progress.fresh_window import (
    ALONE_S,
    LEARN_S,
    LEAST_BYTES,
    LOOKS_A_S,
    PAUSE_S,
    RELEASE_S,
    START_BYTES,
    WIDEST_BYTES,
    FreshWindow,
    RoomLooks,
)

BUFFERS_BYTES = 400 * 1024
"""What both kernels have room for."""


class Reader:
    """A reader of a feed that is faster than itself: all that it is let have comes at once."""

    def __init__(self, looks: RoomLooks | None = None) -> None:
        self.window = FreshWindow(looks or RoomLooks())
        self.now, self.sent, self.read, self.due = 1000.0, 0, 0, 0.0

    def reads(self, rate: float, seconds: float, *, every_s: float = 0.0) -> int:
        """Reads at a rate, or all that has come, up to that rate, once in ``every_s``. Returns how much it has read."""
        before, end, next_s = self.read, self.now + seconds, self.now + every_s
        while self.now < end:
            step_s = 0.2 if self.window.limit_bytes == inf else self.window.look_s
            self.now += step_s
            self.due += rate * step_s
            if self.now >= next_s:
                got = int(min(self.due, self.sent - self.read))
                self.read, self.due, next_s = self.read + got, 0.0, next_s + every_s
            held = self.sent - self.read
            self.window.look(self.now, held, self.read, self.sent, not held)
            room = min(BUFFERS_BYTES - (self.sent - self.read), self.window.room_bytes(self.sent))
            self.sent += max(0, int(room))
        return self.read - before


@pytest.mark.parametrize("rate", [1_000, 5_000, 20_000, 100_000])
def test_a_steady_reader_has_little_on_its_way_and_gets_all_that_it_reads(rate: int) -> None:
    reader = Reader()
    reader.reads(rate, LEARN_S + 1 + 1.2 * BUFFERS_BYTES / rate)
    assert reader.sent - reader.read <= max(LEAST_BYTES, 0.5 * rate)
    assert reader.reads(rate, 120) == pytest.approx(rate * 120, rel=0.01)
    assert reader.sent - reader.read <= max(LEAST_BYTES, 0.25 * rate)


def test_a_reader_that_pauses_is_let_have_no_more_for_that() -> None:
    reader = Reader()
    got = 0
    for _ in range(20):
        got += reader.reads(50_000, 4)
        reader.reads(0, 2)
    assert got >= 0.97 * 20 * 4 * 50_000
    assert reader.sent - reader.read <= 16 * 1024


@pytest.mark.parametrize("every_s", [2.0, 8.0])
def test_who_reads_all_at_once_now_and_then_has_both_buffers(every_s: float) -> None:
    reader = Reader()
    reader.reads(1e6, 60, every_s=every_s)
    assert reader.reads(1e6, 240, every_s=every_s) >= 0.95 * (240 // every_s) * BUFFERS_BYTES


def test_who_gets_faster_is_let_have_more_within_a_second() -> None:
    reader = Reader()
    reader.reads(10_000, 60)
    assert reader.window.limit_bytes < WIDEST_BYTES
    reader.reads(1_000_000, 1)
    assert reader.reads(1_000_000, 10) >= 0.95 * 10_000_000
    reader.reads(20_000_000, 1)
    assert reader.window.limit_bytes == inf


@pytest.mark.parametrize("rate", [20_000, 50_000, 100_000])
def test_little_is_on_its_way_from_the_beginning(rate: int) -> None:
    reader = Reader()
    reader.reads(rate, 0.1)
    assert reader.sent - reader.read <= START_BYTES
    assert reader.reads(rate, 5) == pytest.approx(5 * rate, rel=0.02)
    assert reader.sent - reader.read <= max(LEAST_BYTES, 0.3 * rate)


def test_who_is_fast_has_no_limit_after_a_moment() -> None:
    reader = Reader()
    reader.reads(20e6, 0.2)
    reader.reads(20e6, 0.03)
    assert reader.window.limit_bytes == inf
    assert reader.reads(20e6, 10) >= 0.95 * 10 * 5 * BUFFERS_BYTES, "all that there is at each look"


def test_who_was_fast_and_is_slow_has_a_limit_again() -> None:
    reader = Reader()
    reader.reads(10_000_000, 2)
    assert reader.window.limit_bytes == inf
    reader.reads(10_000, LEARN_S + PAUSE_S)
    assert reader.window.limit_bytes < inf


def test_who_reads_all_at_once_is_left_alone_ever_longer() -> None:
    reader = Reader()
    for alone_s in (ALONE_S, 2 * ALONE_S):
        reader.reads(10_000, 20)
        assert reader.window.limit_bytes < inf
        reader.reads(0, PAUSE_S + 0.1)
        reader.reads(1e7, 0.1)
        assert reader.window.limit_bytes == inf
        reader.reads(10_000, alone_s - 10)
        assert reader.window.limit_bytes == inf
        reader.reads(10_000, 60)


def test_who_does_not_read_for_a_while_has_both_buffers_when_it_does() -> None:
    reader = Reader()
    reader.reads(20_000, 10)
    reader.reads(0, RELEASE_S - 1)
    assert reader.sent - reader.read <= START_BYTES
    reader.reads(0, 2)
    assert reader.sent - reader.read == BUFFERS_BYTES


def test_who_reads_nothing_has_no_limit() -> None:
    reader = Reader()
    reader.reads(0, 60)
    assert reader.window.limit_bytes == inf
    assert reader.sent == BUFFERS_BYTES


def test_looks_have_a_budget_for_all_together() -> None:
    looks = RoomLooks()
    readers = [Reader(looks) for _ in range(400)]
    for reader in readers:
        reader.reads(10_000, LEARN_S + PAUSE_S)
    assert looks.peers == 400
    assert 400 / readers[0].window.look_s <= LOOKS_A_S
    for reader in readers:
        reader.window.end()
    assert looks.peers == 0
    assert readers[0].window.limit_bytes == inf


def test_one_that_stands_still_is_looked_at_less_often() -> None:
    reader = Reader()
    reader.reads(10_000, 60)
    often_s = reader.window.look_s
    reader.reads(0, 10)
    assert reader.window.look_s >= 4 * often_s
