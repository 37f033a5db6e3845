"""Few records that wait: a worker is measured by its own pace, not by their number."""

from __future__ import annotations

import tomllib
from math import inf

import pytest
from tests.core.test_default_policy import FILE

from headway.core.policy import parse_policies
from headway.core.policy.meters.meter import Holding, Meter
from headway.core.policy.meters.sample import Figures, Sample
from headway.core.policy.rules.condition import parse_condition

SWEEP_S = 0.2
JOB_BYTES = 500
HOLDING_S = 1.0
SILENT = parse_policies(tomllib.loads(FILE.read_text())["policy"])[-1].rules[0].when
"""The default's rule for those who do not read, or acknowledge nothing."""
BEHIND = parse_condition({"lag_age": "20s", "drain_share": "90%", "catching_up": "5m"})


class Queue:
    """A queue that gets a job once in ``every_s``, and its worker. ``first``: the jobs that come at once."""

    def __init__(self, every_s: float, prefetch: int, first: int = 0) -> None:
        self.every_s, self.prefetch, self.first = every_s, prefetch, first
        self.meter = Meter(0.0)
        self.holding = Holding(0.0, 0)
        self.sent: list[float] = []
        self.acked: list[float] = []

    def came(self, now: float) -> int:
        return self.first + int(now / self.every_s)

    def time_of(self, number: int) -> float:
        return max(0.0, (number + 1 - self.first) * self.every_s)

    def look(self, now: float) -> Sample:
        in_flight, waits = len(self.sent) - len(self.acked), self.came(now) - len(self.sent)
        full = in_flight >= self.prefetch and waits > 0
        position = len(self.sent) * JOB_BYTES
        full_since = max(self.sent[-1], self.time_of(len(self.sent)), *self.acked[-1:]) if full else inf
        oldest_s = self.sent[len(self.acked)] if in_flight else inf
        if now - self.holding.looked_s >= HOLDING_S:
            self.holding.look(now, len(self.acked), in_flight, oldest_s)
        return self.meter.observe(now, Figures(
            position_bytes=position, end_bytes=position + waits * JOB_BYTES, lag_records=waits,
            oldest_time_s=self.time_of(len(self.sent)) if waits else inf, in_flight=in_flight, prefetch=self.prefetch,
            credit_exhausted_since=full_since, acknowledged=len(self.acked), oldest_unacked_s=oldest_s,
            unacknowledged_since=self.holding.late_since(full_since), ack_pause=self.holding.usual_pause_s,
        ))  # fmt: skip

    def send(self, now: float) -> None:
        while len(self.sent) < self.came(now) and len(self.sent) - len(self.acked) < self.prefetch:
            self.sent.append(now)

    def run(
        self, seconds: float, job_s: float, *, stops_s: float = 1e9, at_once: int = 1, swing: float = 0.0,
        begins_s: float = 0.0,
    ) -> list[tuple[float, Sample]]:  # fmt: skip
        """A worker that does so many jobs at a time, and acknowledges these together. Every second time takes longer by
        ``swing``, and the others are shorter."""
        looks, began_s, swings = [], begins_s, -swing
        for number in range(1, round(seconds / SWEEP_S) + 1):
            now = begins_s + number * SWEEP_S
            self.send(now)
            there = len(self.sent) - len(self.acked)
            if not there:
                began_s = now
            elif now - began_s >= job_s * (1 + swings) - 1e-9 and now < stops_s:
                self.acked += [now] * min(at_once, there)
                began_s, swings = now, -swings
                self.send(now)
            if self.came(now) > len(self.sent):
                looks.append((now, self.look(now)))
            else:
                self.meter.caught_up(now)
        return looks


@pytest.mark.parametrize(("every_s", "prefetch", "found_s"), [
    (0.5, 1, 31), (1.0, 5, 36), (0.4, 20, 39), (1.0, 20, 51), (0.4, 50, 51),
])  # fmt: skip
def test_who_stops_is_found_however_few_wait(every_s: float, prefetch: int, found_s: float) -> None:
    looks = Queue(every_s, prefetch).run(90.0, 0.2, stops_s=30.0)
    assert not any(SILENT.holds(sample) for at, sample in looks if at < 30.0)
    first = next(at for at, sample in looks if SILENT.holds(sample))
    assert first <= 30.0 + found_s


@pytest.mark.parametrize("long_s", [12.0, 20.0, 28.0])
def test_one_long_job_among_quick_ones_is_no_trouble(long_s: float) -> None:
    """A few wait for it, or for a worker beside it."""
    queue = Queue(1.0, 1)
    looks = queue.run(30.0, 0.4) + queue.run(long_s, 0.4, stops_s=0.0, begins_s=30.0)
    assert looks[-1][1].credit_exhausted_time > long_s - 3
    assert [at for at, sample in looks if SILENT.holds(sample)] == []


@pytest.mark.parametrize(("job_s", "prefetch", "at_once"), [
    (12.0, 1, 1), (30.0, 1, 1), (9.0, 5, 1), (40.0, 8, 8), (11.0, 30, 30), (20.0, 4, 4), (6.0, 500, 500),
])  # fmt: skip
@pytest.mark.parametrize(("load", "swing"), [(0.5, 0.0), (0.8, 0.0), (0.8, 0.15)])
def test_who_acknowledges_at_its_pace_is_not_late(
    job_s: float, prefetch: int, at_once: int, load: float, swing: float
) -> None:
    """One after the other, or its window at a time, with as much again waiting at first."""
    queue = Queue(job_s / at_once / load, prefetch, first=2 * prefetch + 3)
    looks = queue.run(400.0, job_s, at_once=at_once, swing=swing)
    assert looks
    assert [at for at, sample in looks if SILENT.holds(sample)] == []


@pytest.mark.parametrize(("job_s", "prefetch"), [(30.2, 2), (12.0, 5), (20.0, 10), (38.0, 3)])
def test_who_has_done_one_job_is_not_late_at_the_next_that_came_with_it(job_s: float, prefetch: int) -> None:
    looks = Queue(job_s * 1.4, prefetch, first=prefetch + 3).run(200.0, job_s)
    assert [at for at, sample in looks if SILENT.holds(sample)] == []


@pytest.mark.parametrize("job_s", [3.0, 7.0, 10.0])
def test_who_does_half_of_the_jobs_falls_behind_though_few_wait(job_s: float) -> None:
    looks = Queue(job_s / 2.2, 1).run(120.0, job_s)
    behind = [at for at, sample in looks if at > 75.0 and BEHIND.holds(sample)]
    assert len(behind) >= 0.95 * sum(at > 75.0 for at, _ in looks)
    assert looks[-1][1].lag_records < 50


@pytest.mark.parametrize(("job_s", "prefetch", "at_once"), [
    (2.0, 1, 1), (7.0, 1, 1), (12.0, 1, 1), (30.0, 1, 1), (38.0, 2, 1), (40.0, 8, 8), (60.0, 16, 16), (25.0, 4, 4),
    (20.0, 32, 32),
])  # fmt: skip
@pytest.mark.parametrize("slack", [1.2, 1.4, 1.6])
def test_who_keeps_up_with_its_jobs_does_not_fall_behind(
    job_s: float, prefetch: int, at_once: int, slack: float
) -> None:
    queue = Queue(job_s / at_once * slack, prefetch, first=prefetch + 5)
    looks = queue.run(400.0, job_s, at_once=at_once)
    assert [at for at, sample in looks if BEHIND.holds(sample)] == []
