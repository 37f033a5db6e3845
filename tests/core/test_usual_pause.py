"""The usual pause of somebody who takes one step after the other."""

from __future__ import annotations

import pytest

from headway.core.policy.meters.meter import FADES_S, RARE_S, USUAL_MAX_S, Meter, UsualPause
from headway.core.policy.meters.sample import Figures, Sample


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


def lived(*spells: tuple[float, float]) -> tuple[UsualPause, float]:
    """Returns what is known of somebody who takes a step every 0.2 s for a while, and then stands still."""
    pause, now = UsualPause(), 0.0
    for moves_s, stands_s in spells:
        for _ in range(int(moves_s / 0.2)):
            now += 0.2
            pause.note(0.2, now)
        now += stands_s
        pause.note(stands_s, now)
    return pause, now


def test_a_long_pause_that_repeats_at_once_is_a_habit_however_long_it_is() -> None:
    pause, now = paused(1.0, 1.0, 30.0)
    assert pause.seconds(now) == RARE_S
    pause.note(30.0, now + 30.0)
    assert pause.seconds(now + 30.0) == USUAL_MAX_S


def test_reading_for_a_second_between_long_pauses_is_a_habit() -> None:
    pause, now = lived((20.0, 24.0), (1.0, 24.0), (1.0, 24.0))
    assert pause.seconds(now) == USUAL_MAX_S


@pytest.mark.parametrize("pauses", [
    pytest.param((2.0, 3.3, 5.4, 8.8, 14.3, 23.4, 35.0, 35.0), id="each is longer"),
    pytest.param((30.0, 25.0, 30.0, 20.0), id="each is as long"),
])  # fmt: skip
def test_long_pauses_of_somebody_who_moves_on_in_between_are_no_habit(pauses: tuple[float, ...]) -> None:
    for ends in range(1, len(pauses) + 1):
        pause, now = lived(*((12.0, seconds) for seconds in pauses[:ends]))
        assert pause.seconds(now) <= RARE_S


def test_a_first_pause_no_longer_than_what_is_unknown_allows_counts_as_a_whole() -> None:
    pause = UsualPause(4.5)
    pause.note(12.0, 12.0)
    assert pause.seconds(12.0) == 12.0


def test_a_slow_reader_that_takes_small_steps_first_may_pause_for_as_long_as_full_ones_take() -> None:
    pause = UsualPause()
    pause.note(6.0, 6.0, 6.6)
    assert pause.seconds(6.0) == USUAL_MAX_S


def test_a_stop_of_somebody_who_moves_on_counts_once_however_small_the_step_after_it_is() -> None:
    pause, now = lived((10.0, 2.0), (10.0, 0.2))
    pause.note(8.0, now + 8.0, 6.6)
    assert pause.seconds(now + 8.0) == RARE_S


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


class Committer:
    """A worker with a window of 10, looked at every 0.2 s. It acknowledges all of it at once."""

    def __init__(self) -> None:
        self.meter, self.now, self.acked = Meter(0.0), 0.0, 0

    def full(self, seconds: float) -> Sample:
        """Its window is full for so long."""
        since, sample = self.now, Sample()
        while self.now < since + seconds - 0.1:
            self.now += 0.2
            sample = self.meter.observe(self.now, Figures(
                position_bytes=(self.acked + 10) * 100, end_bytes=10**6, lag_records=500, oldest_time_s=0.0,
                credit_exhausted_since=since, in_flight=10, prefetch=10, acknowledged=self.acked,
                oldest_unacked_s=since,
            ))  # fmt: skip
        return sample

    def commits(self) -> None:
        self.acked += 10

    def has_room(self, seconds: float, acknowledges: int) -> None:
        """Nothing waits for it for so long, and it is not looked at; meanwhile it acknowledges so many records."""
        self.meter.observe(self.now, Figures(position_bytes=10**6, end_bytes=10**6, lag_records=0, prefetch=10,
                                             acknowledged=self.acked))  # fmt: skip
        self.now += seconds
        self.acked += acknowledges


def test_time_with_nothing_to_acknowledge_takes_no_habit_away() -> None:
    worker = Committer()
    for _ in range(3):
        worker.full(12.0)
        worker.commits()
    worker.has_room(180.0, 70)
    assert worker.full(30.0).overdue_credit_time == 0.0


def test_a_client_that_has_become_quicker_loses_its_habit() -> None:
    worker = Committer()
    for _ in range(3):
        worker.full(12.0)
        worker.commits()
    worker.has_room(180.0, 5000)
    assert worker.full(8.2).overdue_credit_time == pytest.approx(8.2)


def test_a_fork_learns_by_itself() -> None:
    worker = Committer()
    worker.full(12.0)
    other = worker.meter.fork()
    worker.commits()
    worker.full(0.2)
    assert other.observe(worker.now, Figures(position_bytes=0, end_bytes=100, lag_records=1, credit_exhausted_since=0.0,
                                             in_flight=10, prefetch=10)).usual_pause == 0  # fmt: skip
