"""Steady readers are told from those that read in gulps, from looks five times a second."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headway.server.progress.steadiness import LEARN_S, UNSEEN_S, Steadiness

LOOK_S = 0.2
LUMP_BYTES = 108_544

Curve = Callable[[float], int]
"""Acknowledged bytes by time."""


def lumps(rate: float) -> Curve:
    """A steady reader, whose kernel frees a lump at a time."""
    return lambda now: int(now * rate) // LUMP_BYTES * LUMP_BYTES


def gulps(size: int, every_s: float) -> Curve:
    return lambda now: int(now / every_s) * size


def pausing(now: float) -> int:
    """Reads 50 kB/s for 4 s, and nothing for 3 s."""
    return int((now // 7 * 4 + min(now % 7, 4)) * 50_000) // LUMP_BYTES * LUMP_BYTES


def looked_at(acked: Curve, seconds: float, steadiness: Steadiness | None = None, *, since: float = 0.0,
              unsent: int = 200_000) -> Steadiness:
    steadiness = steadiness or Steadiness()
    for number in range(1, round(seconds / LOOK_S) + 1):
        now = since + number * LOOK_S
        steadiness.look(now, acked(now), unsent)
    return steadiness


@pytest.mark.parametrize("acked", [lumps(5_000), lumps(20_000), lumps(100_000), lumps(500_000), pausing])
def test_who_reads_what_its_kernel_holds_is_steady(acked: Curve) -> None:
    assert not looked_at(acked, LEARN_S).steady, "it has just come"
    assert looked_at(acked, 120).steady


@pytest.mark.parametrize("acked", [gulps(300_000, 8), gulps(1_400_000, 8), lumps(2_000_000)])
def test_who_reads_more_than_its_kernel_frees_at_a_time_or_fast_is_not(acked: Curve) -> None:
    assert not looked_at(acked, 120).steady


def test_what_a_large_buffer_frees_at_a_time_is_no_gulp() -> None:
    assert looked_at(gulps(192_512, 3.8), 60).steady


@pytest.mark.parametrize("share", [0.7, 0.95])
def test_who_gets_less_since_it_is_taken_for_steady_is_left_alone(share: float) -> None:
    steadiness = looked_at(gulps(200_000, 5), 30)
    assert steadiness.steady
    before = gulps(200_000, 5)(30.0)
    looked_at(lambda now: before + gulps(int(200_000 * share), 5)(now - 30), 60, steadiness, since=30.0, unsent=30_000)
    assert steadiness.steady is (share > 0.8)
    before, since = steadiness._acked_bytes, 90.0
    looked_at(lambda now: before + gulps(200_000, 5)(now - since), 60, steadiness, since=since)
    assert steadiness.steady is (share > 0.8), "for some minutes"
    looked_at(lambda now: before + gulps(200_000, 5)(now - since), 300, steadiness, since=150.0)
    assert steadiness.steady


def test_less_that_comes_because_less_was_published_says_nothing() -> None:
    steadiness = looked_at(lumps(20_000), 40)
    before = lumps(20_000)(40.0)
    assert looked_at(lambda now: before + int((now - 40) * 5000), 60, steadiness, since=40.0, unsent=0).steady


def test_who_does_not_read_is_not() -> None:
    assert not looked_at(lambda _: 300_000, 120).steady


def test_who_takes_all_is_not_known() -> None:
    assert not looked_at(lumps(100_000), 60, unsent=0).steady


def test_a_steady_peer_stays_so_though_nothing_waits_in_the_kernel_for_a_while() -> None:
    steadiness = looked_at(lumps(20_000), 60)
    assert looked_at(lumps(20_000), 10, steadiness, since=60.0, unsent=0).steady


def test_one_gulp_ends_it_and_it_can_be_steady_again() -> None:
    steadiness = looked_at(lumps(20_000), 60)
    looked_at(lambda _: lumps(20_000)(60.0), 8, steadiness, since=60.0)
    assert steadiness.steady, "it stands still"
    looked_at(lambda _: lumps(20_000)(60.0) + 400_000, LOOK_S, steadiness, since=68.0)
    assert not steadiness.steady
    assert looked_at(lambda now: lumps(20_000)(now) + 400_000, 30, steadiness, since=68.2).steady


def test_who_gets_fast_is_left_alone() -> None:
    steadiness = looked_at(lumps(20_000), 60)
    assert not looked_at(lambda now: lumps(20_000)(60.0) + int((now - 60) * 5e6), 2, steadiness, since=60.0).steady


def test_after_a_time_without_looks_nothing_is_known() -> None:
    steadiness = looked_at(lumps(20_000), 60)
    steadiness.look(60.0 + 2 * UNSEEN_S, lumps(20_000)(60.0), 200_000)
    assert not steadiness.steady
