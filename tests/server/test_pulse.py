"""The pulse: how late the loop is, and what took it, on a clock of ours."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Generator

import pytest
from tests.interop.waiting import holds

from headway.server.loop import PROBE_S, SAID_EVERY_S, Pulse


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pulse(clock: Clock) -> Pulse:
    made = Pulse(clock)
    made._due_s = clock.now + PROBE_S
    return made


def works(pulse: Pulse, clock: Clock, cause: str, seconds: float, who: object = None) -> None:
    began = pulse.begin()
    clock.now += seconds
    pulse.end(cause, began, who)


def beats(pulse: Pulse, clock: Clock) -> None:
    """The probe comes, as soon as it can."""
    clock.now = max(clock.now, pulse._due_s)
    pulse.look()
    pulse._due_s = clock.now + PROBE_S


def test_what_is_on_time_is_late_by_nothing(pulse: Pulse, clock: Clock) -> None:
    for _ in range(10):
        works(pulse, clock, "read", PROBE_S / 2)
        beats(pulse, clock)
    assert pulse.longest_s == 0
    assert sum(pulse.late_s.values()) == 0
    assert pulse.counts[0] == 10


def test_lateness_is_put_down_to_what_ran(pulse: Pulse, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    works(pulse, clock, "read", 1.5, "display-7")
    works(pulse, clock, "turn", 0.5)
    clock.now += 0.52  # nobody says what this was
    beats(pulse, clock)
    assert pulse.longest_s == pytest.approx(2.5)
    assert {cause: round(late_s, 6) for cause, late_s in pulse.late_s.items() if late_s} == {
        "read": 1.5, "turn": 0.5, "other": 0.5,
    }  # fmt: skip
    assert "late by 2500 ms: read 1,500 ms, turn 500 ms, other 500 ms; " in caplog.text
    assert "the longest was read of display-7, 1,500 ms" in caplog.text
    assert pulse.held_s() == pytest.approx(2.5)
    assert pulse.held_s() == 0


def test_all_that_is_late_is_in_the_causes(pulse: Pulse, clock: Clock) -> None:
    """Of what ran on time there is nothing in them."""
    late_s = 0.0
    for seconds in (0.001, 0.019, 0.03, 0.2, 0.0, 1.0):
        works(pulse, clock, "tick", seconds)
        works(pulse, clock, "spill", seconds / 2)
        due_s = pulse._due_s
        beats(pulse, clock)
        late_s += max(0.0, clock.now - due_s)
    assert sum(pulse.late_s.values()) == pytest.approx(late_s)
    assert pulse.late_s["tick"] == pytest.approx(2 * pulse.late_s["spill"])


def test_what_is_late_right_now_is_told_once(pulse: Pulse, clock: Clock) -> None:
    works(pulse, clock, "turn", 1.02)
    assert pulse.held_s() == pytest.approx(1.0)
    beats(pulse, clock)
    assert pulse.held_s() == 0
    assert sum(pulse.late_s.values()) == pytest.approx(1.0)


def test_garbage_collection_is_no_part_of_what_it_interrupts(pulse: Pulse, clock: Clock) -> None:
    began = pulse.begin()
    clock.now += 0.1
    pulse._collecting("start", {})
    clock.now += 0.3
    pulse._collecting("stop", {})
    pulse.end("read", began)
    beats(pulse, clock)
    assert pulse.late_s["gc"] == pytest.approx(3 * pulse.late_s["read"])


def test_what_is_collected_between_callbacks_is_no_part_of_the_next(pulse: Pulse, clock: Clock) -> None:
    pulse._collecting("start", {})
    clock.now += 0.3
    pulse._collecting("stop", {})
    works(pulse, clock, "read", 0.1)
    beats(pulse, clock)
    assert pulse.late_s["gc"] == pytest.approx(3 * pulse.late_s["read"])


def test_the_log_says_it_now_and_then(pulse: Pulse, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(30):
        works(pulse, clock, "turn", 0.5)
        beats(pulse, clock)
    assert 1 < len(caplog.records) <= 1 + 30 * 0.5 / SAID_EVERY_S
    assert "times)" in caplog.messages[-1]
    caplog.clear()
    works(pulse, clock, "turn", 0.09)
    clock.now += SAID_EVERY_S
    beats(pulse, clock)


def test_lately_is_a_minute_or_two(pulse: Pulse, clock: Clock) -> None:
    works(pulse, clock, "turn", 0.52)
    beats(pulse, clock)
    for seconds, lately_s in ((59, 0.5), (3, 0.5), (57, 0.5), (4, 0.0)):
        for _ in range(round(seconds / PROBE_S)):
            beats(pulse, clock)
        assert pulse.lately_s == pytest.approx(lately_s, abs=1e-6)
    assert pulse.longest_s == pytest.approx(0.5)


def test_a_coroutine_is_timed_between_its_waits(pulse: Pulse, clock: Clock) -> None:
    class Elsewhere:
        def __await__(self) -> Generator[None, None, None]:
            yield

    async def work() -> str:
        clock.now += 0.1
        await Elsewhere()
        clock.now += 0.2
        try:
            await Elsewhere()
        except asyncio.CancelledError:
            clock.now += 0.3
        return "done"

    async def whole() -> str:
        return str(await pulse.steps("admin", work()))

    running = whole()
    running.send(None)
    clock.now += 5.0
    running.send(None)
    clock.now += 5.0
    with pytest.raises(StopIteration, match="done"):
        running.throw(asyncio.CancelledError())
    assert pulse._taken["admin"] == pytest.approx(0.6)


def test_it_beats_on_a_loop_and_ends() -> None:
    async def whole() -> Pulse:
        pulse = Pulse()
        pulse.start(asyncio.get_running_loop())
        await holds(lambda: sum(pulse.counts) >= 3)
        gc.collect()
        pulse.stop()
        return pulse

    pulse = asyncio.run(whole())
    assert pulse._taken["gc"] > 0
    assert pulse._collecting not in gc.callbacks
