"""A client takes bytes in lumps: what the meters make of that."""

from __future__ import annotations

from math import inf

import pytest

from headway.core.policy.meters.meter import Meter
from headway.core.policy.meters.sample import ANY_LUMP_BYTES, Figures, Sample
from headway.core.policy.rules.condition import parse_condition

SWEEP_S = 0.2


class Reader:
    """A consumer that reads evenly, and whose host acknowledges it in lumps."""

    def __init__(self, rate: float, lump: int, offered: float, *, reads_until: float = inf) -> None:
        self.rate, self.lump, self.offered, self.reads_until = rate, lump, offered, reads_until
        self.meter = Meter(0.0)
        self.moved, self.acked, self.pause = 0.0, 0, 0.0
        self.since, self.before = 0.0, 0.0
        """When it began to read at this rate, and what it had read by then."""

    def read_at(self, rate: float, now: float) -> None:
        self.since, self.before, self.rate = now, self.before + (now - self.since) * self.rate, rate

    def look(self, now: float, lump_bytes: float | None = None) -> Sample:
        reached = int(self.before + (min(now, self.reads_until) - self.since) * self.rate) // self.lump * self.lump
        if reached > self.acked:
            self.pause = max(self.pause, now - self.moved)
            self.moved, self.acked = now, reached
        taken = self.acked + 100_000  # by the kernels' buffers
        end = 2_000_000 + int(now * self.offered)
        figures = Figures(
            position_bytes=taken, end_bytes=end, lag_records=max(1, (end - taken) // 200), oldest_time_s=0.0,
            blocked_since=self.moved,
            usual_pause=self.pause, unacknowledged_bytes=taken - self.acked,
            lump_bytes=self.lump if lump_bytes is None else lump_bytes,
        )  # fmt: skip
        return self.meter.observe(now, figures)

    def looks(self, seconds: float) -> list[Sample]:
        return [self.look(number * SWEEP_S) for number in range(1, round(seconds / SWEEP_S) + 1)]


@pytest.mark.parametrize("rate", [5_500, 10_000, 19_000, 47_000])
@pytest.mark.parametrize("lump", [1000, 8192, 34_816, 108_544])
def test_a_reader_above_the_floor_is_never_below_it(rate: int, lump: int) -> None:
    floor = parse_condition({"drain_rate": "5000B/s"})
    assert not [sample for sample in Reader(rate, lump, 200_000).looks(120.0) if floor.holds(sample)]


@pytest.mark.parametrize("lump", [1000, 8192, 34_816])
def test_a_reader_below_the_floor_is_found(lump: int) -> None:
    floor = parse_condition({"drain_rate": "5000B/s"})
    assert any(floor.holds(sample) for sample in Reader(2_000, lump, 200_000).looks(120.0))


@pytest.mark.parametrize("lump", [1000, 8192, 34_816])
def test_who_stops_is_below_every_floor_as_soon_as_a_lump_would_take_longer(lump: int) -> None:
    floor = parse_condition({"drain_rate": "5000B/s"})
    samples = Reader(50_000, lump, 200_000, reads_until=30.0).looks(60.0)
    first = next(number * SWEEP_S for number, sample in enumerate(samples, 1) if floor.holds(sample))
    assert 30.0 + lump / 5000 <= first <= 32.5 + lump / 5000


@pytest.mark.parametrize(("rate", "lump"), [(10_000, 34_816), (20_000, 108_544), (1_000, 2_000)])
def test_a_rate_over_whole_lumps_is_exact(rate: int, lump: int) -> None:
    assert Reader(rate, lump, 0).looks(60.0)[-1].drain_rate == pytest.approx(rate, rel=0.08)


def test_who_stands_still_no_longer_than_usual_is_not_late() -> None:
    late = parse_condition({"blocked_time": "7.5s"})
    samples = Reader(10_000, 70_000, 200_000).looks(120.0)  # steps every 7 s
    assert not any(late.holds(sample) for sample in samples)
    assert max(sample.blocked_time for sample in samples) > 6.5, "the time is told all the same"


def test_who_stops_is_late_after_three_usual_pauses() -> None:
    late = parse_condition({"blocked_time": "1s"})
    samples = Reader(10_000, 10_000, 200_000, reads_until=30.0).looks(60.0)
    first = next(number * SWEEP_S for number, sample in enumerate(samples, 1) if late.holds(sample))
    assert 33.0 <= first <= 33.8


@pytest.mark.parametrize(
    ("rate", "offered", "share", "ahead"),
    [(50_000, 100_000, 0.5, inf), (100_000, 50_000, 1.0, 6.0), (0, 100_000, 0.0, inf), (100_000, 0, 1.0, 1.0)],
)
def test_who_falls_behind_is_told_from_who_catches_up(rate: int, offered: int, share: float, ahead: float) -> None:
    """``ahead``: finite, or not."""
    reader = Reader(rate, 4096, offered)
    sample = reader.looks(19.0)[-1]
    assert sample.drain_share == pytest.approx(share, rel=0.1, abs=0.01)
    if ahead == inf:
        assert sample.catching_up == inf
    else:
        assert sample.catching_up == pytest.approx(sample.lag_bytes / (rate - offered), rel=0.15)


def test_who_takes_more_than_is_offered_now_catches_up_though_it_did_not_before() -> None:
    """A slow line with a snapshot, whose first seconds went by in small pieces."""
    reader = Reader(8_000, 1000, 11_500)
    assert reader.looks(20.0)[-1].catching_up == inf
    reader.read_at(22_500, 20.0)
    sample = [reader.look(20.0 + number * SWEEP_S) for number in range(1, 11)][-1]
    assert sample.catching_up == pytest.approx(sample.lag_bytes / (22_500 - 11_500), rel=0.3)


def test_a_share_over_a_short_time_says_nothing() -> None:
    sample = Reader(50_000, 4096, 100_000).looks(14.0)[-1]
    assert (sample.drain_share, sample.catching_up) == (1.0, 0.0)


def test_while_nobody_can_tell_the_pace_no_rate_and_no_share_is_judged() -> None:
    reader = Reader(10_000, 4096, 100_000)
    reader.looks(30.0)
    told = reader.look(30.2, ANY_LUMP_BYTES)
    assert (told.drain_share, told.catching_up, told.rate_judged) == (1.0, 0.0, False)
    shares = [reader.look(30.2 + number * SWEEP_S).drain_share for number in range(1, 100)]
    assert shares[: round(14 / SWEEP_S)] == [1.0] * round(14 / SWEEP_S)
    assert shares[-1] == pytest.approx(0.1, rel=0.2)


class Dashboard:
    """One of a hundred consumers of a connection that reads at such a rate. They are served in turn."""

    def __init__(self, each: float, reads: float, waits_at_first: float = 0.0) -> None:
        self.each, self.reads, self.waits_at_first = each, reads, waits_at_first
        self.meter = Meter(0.0)
        self.given = 10_000

    def look(self, now: float, turns: tuple[float, ...]) -> Sample:
        end = 10_000 + int(self.waits_at_first + now * self.each)
        if any(now - SWEEP_S < turn <= now for turn in turns):
            self.given = end - 1000
        return self.meter.observe(now, Figures(
            position_bytes=self.given, end_bytes=end, lag_records=max(1, (end - self.given) // 1000),
            oldest_time_s=max(0.0, (self.given - 10_000 - self.waits_at_first) / self.each), blocked_since=now,
            connection_bytes=1_000_000 + int(now * self.reads), part=0.01,
        ))  # fmt: skip


def test_one_of_many_that_is_served_seldom_catches_up_with_its_connection() -> None:
    dashboard = Dashboard(1000, 150_000, 30_000)
    looks = [dashboard.look(number * SWEEP_S, (29.0,)) for number in range(1, 140)]
    behind = parse_condition({"drain_share": "90%", "catching_up": "5m"})
    assert not any(behind.holds(sample) for sample in looks)
    assert looks[-1].drain_rate == pytest.approx(1500, rel=0.05)


def test_one_of_many_falls_behind_with_its_connection() -> None:
    dashboard = Dashboard(1000, 55_000)
    looks = [dashboard.look(number * SWEEP_S, ()) for number in range(1, 140)]
    assert looks[-1].drain_share == pytest.approx(0.55, abs=0.05)
    assert looks[-1].catching_up == inf
    assert looks[-1].drain_rate == pytest.approx(550, rel=0.05)
