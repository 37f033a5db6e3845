"""The usual pause of somebody who takes one step after the other."""

from __future__ import annotations

import pytest

from headway.core.policy.meters.figures import Figures
from headway.core.policy.meters.meter import Meter
from headway.core.policy.meters.sample import Sample
from headway.core.policy.meters.usual_pause import FADES_S, RARE_S, USUAL_MAX_S, UsualPause


def paused(*pauses: float) -> tuple[UsualPause, float]:
    pause, now = UsualPause(), 0.0
    for seconds in pauses:
        now += seconds
        pause.note(seconds, now)
    return pause, now


@pytest.mark.parametrize(("pauses", "usual"), [
    pytest.param((2.0, 0.1), 2.0, id="the longest"),
    pytest.param((0.1, 2.0), 2.0, id="a longer one later"),
    pytest.param((0.1, 30.0), RARE_S, id="a long stop is trouble, not a habit"),
    pytest.param((0.1, 12.0, 12.0), 12.0, id="it comes again: it is a habit"),
    pytest.param((3.0, 8.0), 8.0, id="not out of proportion"),
    pytest.param((4.9, 14.0, 20.0), USUAL_MAX_S, id="there is a most"),
])  # fmt: skip
def test_what_is_usual(pauses: tuple[float, ...], usual: float) -> None:
    pause, now = paused(*pauses)
    assert pause.seconds(now) == pytest.approx(usual, rel=0.05)


def test_it_fades_by_half() -> None:
    pause, now = paused(4.0)
    assert pause.seconds(now + FADES_S) == pytest.approx(2.0)


def test_until_there_was_a_pause_it_is_what_was_said() -> None:
    pause = UsualPause(6.0)
    assert pause.seconds(100.0) == 6.0
    pause.note(1.0, 101.0)
    assert pause.seconds(101.0) == 1.0


class Worker:
    """A worker with a window of 2, whose jobs take so long; as many records as it likes wait."""

    def __init__(self, job_s: float, offered: float, record_bytes: int = 500) -> None:
        self.job_s, self.offered, self.record_bytes = job_s, offered, record_bytes
        self.meter = Meter(0.0)

    def look(self, now: float, *, works_until: float = 1e9) -> Sample:
        done = int(min(now, works_until) / self.job_s)
        position = (done + 2) * self.record_bytes
        return self.meter.observe(now, Figures(
            position_bytes=position, end_bytes=100_000 + int(now * self.offered), lag_records=200, oldest_time_s=0.0,
            credit_exhausted_since=done * self.job_s, in_flight=2, prefetch=2, oldest_unacked_s=(done - 1) * self.job_s,
        ))  # fmt: skip


@pytest.mark.parametrize("job_s", [0.5, 2.5, 4.0])
def test_a_worker_is_measured_over_whole_jobs(job_s: float) -> None:
    worker = Worker(job_s, offered=2 * 500 / job_s)
    samples = [worker.look(number * 0.2) for number in range(1, 300)]
    assert 0.45 <= samples[-1].drain_share <= 0.5 + 2 * job_s / 30, "the most that it may be, for a record more or less"
    assert samples[-1].usual_pause == pytest.approx(job_s, abs=0.25)
    assert not any(sample.overdue_credit_time for sample in samples if sample.waited and sample.waited > 2 * job_s)


def test_a_worker_that_stops_is_late_after_three_of_its_jobs() -> None:
    worker = Worker(2.0, offered=1000)
    late = [number * 0.2 for number in range(1, 400) if worker.look(number * 0.2, works_until=30.0).overdue_credit_time]
    assert 35.0 <= min(at for at in late if at > 10) <= 37.0
