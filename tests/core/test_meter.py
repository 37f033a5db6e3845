"""Meters: the figures, and above all the fairness of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.policy.meters.meter import Meter
from headway.core.policy.meters.sample import RATE_WINDOW_MIN_S, RATE_WINDOW_S, Figures, Lateness, Sample

SWEEP_S = 0.2


def look(meter: Meter, now: float, position: int, end: int, **more) -> Sample:
    """A look at a consumer of 100-byte records."""
    more.setdefault("lag_records", (end - position + 99) // 100)
    return meter.observe(now, Figures(position_bytes=position, end_bytes=end, **more))


def sweeps(seconds: float, start: float = 0.0) -> list[float]:
    return [start + number * SWEEP_S for number in range(1, round(seconds / SWEEP_S) + 1)]


def test_the_default_sample_is_idle_and_a_consumer_with_no_lag_reads_nought():
    sample = look(Meter(0.0), 100.0, 5000, 5000, blocked_since=1.0, credit_exhausted_since=1.0)
    assert sample.idle
    assert Sample().idle
    assert (sample.lag_records, sample.lag_bytes, sample.lag_age) == (0, 0, 0.0)
    assert (sample.blocked_time, sample.credit_exhausted_time, sample.waited) == (0.0, 0.0, 0.0)
    assert not sample.rate_judged
    assert not sample.credit_exhausted


def test_lags_times_and_what_is_passed_through():
    meter = Meter(0.0)
    sample = look(
        meter, 50.0, 1000, 4000, oldest_time_s=40.0, blocked_since=45.0, credit_exhausted_since=47.0,
        oldest_unacked_s=30.0, in_flight=7, prefetch=20, held_bytes=99, pool_share=0.25, slow_fraction=0.5,
        peer_window_closed=True, retransmitting=True,
    )  # fmt: skip
    assert (sample.lag_records, sample.lag_bytes, sample.lag_age, sample.waited) == (30, 3000, 10.0, 10.0)
    assert (sample.blocked_time, sample.credit_exhausted_time, sample.ack_age) == (5.0, 3.0, 20.0)
    assert (sample.in_flight, sample.prefetch, sample.held_bytes) == (7, 20, 99)
    assert (sample.pool_share, sample.slow_fraction) == (0.25, 0.5)
    assert sample.credit_exhausted
    assert sample.peer_window_closed
    assert sample.retransmitting
    assert not sample.idle


def test_clocks_that_start_at_time_nought_are_clocks():
    sample = look(Meter(0.0), 9.0, 0, 100, oldest_time_s=0.0, credit_exhausted_since=0.0, blocked_since=0.0)
    assert (sample.blocked_time, sample.credit_exhausted_time, sample.lag_age) == (9.0, 9.0, 9.0)


def test_ack_age_needs_something_in_flight():
    assert look(Meter(0.0), 50.0, 0, 0, oldest_unacked_s=30.0, in_flight=0).ack_age == 0.0


def test_blocked_counts_only_while_records_of_this_subscription_wait():
    """Another subscription of the session blocked the socket long ago; this one's first record came just now."""
    sample = look(Meter(0.0), 50.0, 0, 100, oldest_time_s=49.9, blocked_since=10.0, credit_exhausted_since=10.0)
    assert sample.blocked_time == pytest.approx(0.1)
    assert sample.credit_exhausted_time == pytest.approx(0.1)


def test_who_reads_nothing_is_so_since_before_records_waited_here():
    sample = look(Meter(0.0), 50.0, 0, 100, oldest_time_s=49.0, blocked_since=48.0, unread_since=37.0)
    assert (sample.blocked_time, sample.unread_time) == (1.0, 13.0)
    none_waits = look(Meter(0.0), 50.0, 100, 100, blocked_since=48.0, unread_since=37.0)
    assert none_waits.unread_time == 0.0
    not_blocked = look(Meter(0.0), 50.0, 0, 100, unread_since=37.0)
    assert not_blocked.unread_time == 0.0


def test_who_takes_no_byte_reads_none():
    assert look(Meter(0.0), 50.0, 0, 100, oldest_time_s=40.0, blocked_since=40.0, unread_since=45.0).unread_time == 10.0
    assert look(Meter(0.0), 50.0, 0, 100, oldest_time_s=40.0, blocked_since=40.0).unread_time == 10.0


def test_who_usually_reads_nothing_for_long_is_late_only_after_three_such_pauses():
    at = {"oldest_time_s": 30.0, "blocked_since": 45.0, "unread_since": 38.0}
    assert look(Meter(0.0), 50.0, 0, 100, **at, unread_pause=4.2).overdue_unread_time == 0.0
    assert look(Meter(0.0), 50.0, 0, 100, **at, unread_pause=3.9).overdue_unread_time == 12.0
    assert look(Meter(0.0), 50.0, 0, 100, **at, usual_pause=4.2).overdue_unread_time == 0.0, "no step, no reading"


def test_nobody_reads_before_the_subscription_began_nor_while_it_is_excused():
    at = {"oldest_time_s": 30.0, "blocked_since": 45.0, "unread_since": 20.0}
    assert look(Meter(40.0), 50.0, 0, 100, **at).unread_time == 10.0
    assert look(Meter(0.0), 50.0, 0, 100, **at, excused=True, patient_until=47.0).unread_time == 3.0


def test_discarding_the_oldest_does_not_hide_that_the_socket_is_blocked():
    meter = Meter(0.0)
    end = 0
    for now in sweeps(10.0):
        end += 1000
        meter.skipped(900)
        sample = look(meter, now, end - 1000, end, oldest_time_s=now - SWEEP_S, blocked_since=0.0)
    assert sample.lag_age == pytest.approx(SWEEP_S)
    assert sample.blocked_time == pytest.approx(10.0, abs=SWEEP_S)
    assert sample.waited == pytest.approx(10.0, abs=2 * SWEEP_S)


def test_nothing_waits_longer_than_the_subscription_exists():
    sample = look(Meter(1000.0), 1002.0, 0, 100, oldest_time_s=3.0)
    assert sample.lag_age == 2.0
    assert sample.waited == 2.0
    assert look(Meter(), 1002.0, 0, 100, oldest_time_s=3.0).lag_age == 999.0


def test_rates_of_a_trickling_consumer():
    meter = Meter(0.0)
    position, end = 0, 100_000
    for now in sweeps(5.0):
        position, end = position + 200, end + 2000
        sample = look(meter, now, position, end)
    assert sample.drain_rate == pytest.approx(1000, rel=0.01)
    assert sample.offered_rate == pytest.approx(10_000, rel=0.01)
    assert RATE_WINDOW_S <= sample.rate_window <= RATE_WINDOW_S * 1.25 + SWEEP_S
    assert sample.rate_judged


def test_the_drain_rate_forgets_what_was_longer_ago_than_the_window():
    meter = Meter(0.0)
    position, end = 0, 1_000_000
    for now in sweeps(5.0):
        position += 10_000
        look(meter, now, position, end)
    for now in sweeps(2.0, start=5.0):
        sample = look(meter, now, position, end)
    assert sample.drain_rate == 0.0
    assert sample.rate_judged


def test_no_rate_is_judged_before_the_window_is_long_enough():
    meter = Meter(0.0)
    assert not look(meter, 10.0, 0, 10_000).rate_judged
    assert not look(meter, 10.0 + RATE_WINDOW_MIN_S / 2, 0, 10_000).rate_judged
    assert look(meter, 10.0 + RATE_WINDOW_MIN_S, 0, 10_000).rate_judged


def test_low_supply_is_not_low_drain():
    """Each look finds one record waiting, but always another one: its rate is the publisher's (Artemis' trap)."""
    meter = Meter(0.0)
    end = 100
    for now in sweeps(20.0):
        sample = look(meter, now, end - 100, end, oldest_time_s=now - 0.01)
        assert not sample.rate_judged
        end += 100
    assert sample.drain_rate == pytest.approx(500, rel=0.01)


def test_a_second_look_at_the_same_instant_sees_the_same():
    meter = Meter(0.0)
    for number, now in enumerate(sweeps(3.0)):
        first = look(meter, now, number * 100, number * 100 + (50 if now < 2 else 5000), oldest_time_s=now - 0.01)
        assert look(meter, now, number * 100, first.lag_bytes + number * 100, oldest_time_s=now - 0.01) == first
    assert first.drain_rate > 0


def test_what_came_after_a_queue_was_emptied_has_waited_since_then():
    meter = Meter(0.0)
    assert look(meter, 10.0, 1000, 4000, oldest_time_s=9.9, blocked_since=9.9).waited == pytest.approx(0.1)
    assert look(meter, 10.2, 1000, 4000, oldest_time_s=9.9, blocked_since=9.9).waited == pytest.approx(0.3)
    sample = look(meter, 10.4, 1500, 4500, oldest_time_s=10.35, blocked_since=9.9, empties=1)
    assert (sample.waited, sample.blocked_time) == (pytest.approx(0.05), pytest.approx(0.05))
    assert look(meter, 10.6, 1500, 4500, oldest_time_s=10.35, empties=1).waited == pytest.approx(0.25)


def test_one_big_message_a_minute_is_not_a_minute_of_slowness():
    """Redis' trap: every look finds eight megabytes waiting, but the lag was gone in between."""
    end = 0
    meter = Meter(0.0)
    for minute in range(1, 5):
        now, start = 60.0 * minute, end
        end += 8_000_000
        assert look(meter, now + 0.2, start, end, oldest_time_s=now).waited == pytest.approx(0.2)
        assert look(meter, now + 0.4, start + 10, end, oldest_time_s=now).waited == pytest.approx(0.4)


def test_unseen_for_a_while_with_the_same_lag_is_still_waiting():
    meter = Meter(0.0)
    look(meter, 1.0, 0, 1000, oldest_time_s=1.0)
    assert look(meter, 6.0, 0, 1000, oldest_time_s=1.0).waited == 5.0


def test_caught_up_restarts_the_clocks():
    meter = Meter(0.0)
    for now in sweeps(5.0):
        look(meter, now, 0, 1000, oldest_time_s=0.0)
    meter.caught_up(5.05)
    sample = look(meter, 5.2, 1000, 2000, oldest_time_s=5.1, blocked_since=0.0)
    assert sample.waited == pytest.approx(0.1)
    assert sample.blocked_time == pytest.approx(0.1)
    assert not sample.rate_judged


def test_what_a_policy_skipped_was_not_drained():
    meter = Meter(0.0)
    position, end = 0, 1_000_000
    for now in sweeps(3.0):
        if now > 2.0:
            position += 50_000
            meter.skipped(50_000)
        sample = look(meter, now, position, end)
    assert sample.drain_rate == 0.0
    assert sample.rate_judged


def test_a_burst_is_seen_against_the_long_run():
    meter = Meter(0.0)
    position = end = 0
    for now in sweeps(30.0):
        end += 2000
        sample = look(meter, now, position := end - 150, end, oldest_time_s=now - 0.01)
    assert sample.offered_burst == pytest.approx(1.0, rel=0.1)
    for now in sweeps(1.0, start=30.0):
        end += 40_000
        sample = look(meter, now, position, end, oldest_time_s=30.1)
    assert sample.offered_burst > 3


def test_a_burst_that_makes_the_lag_counts_although_nobody_looked_before():
    meter = Meter(0.0)
    look(meter, 60.0, 600_000, 900_000, oldest_time_s=59.9)
    sample = look(meter, 60.3, 610_000, 1_600_000, oldest_time_s=59.9)
    assert sample.offered_burst > 3


def test_without_a_long_run_there_is_no_burst():
    meter = Meter(0.0)
    look(meter, 0.2, 0, 1_000_000, oldest_time_s=0.0)
    assert look(meter, 0.6, 0, 2_000_000, oldest_time_s=0.0).offered_burst == 1.0


def test_a_feed_that_begins_is_no_burst_until_it_has_been_there_for_a_while():
    """Who connects before its feed was told of a producer's burst, as if silence were the usual rate."""
    meter = Meter(0.0)
    look(meter, 60.2, 20_000, 200_000, oldest_time_s=60.0, flows_since_s=60.0)
    assert look(meter, 60.8, 40_000, 800_000, oldest_time_s=60.1, flows_since_s=60.0).offered_burst == 1.0
    meter = Meter(0.0)
    look(meter, 80.2, 200_000, 300_000, oldest_time_s=80.0, flows_since_s=60.0)
    assert look(meter, 80.8, 220_000, 900_000, oldest_time_s=80.1, flows_since_s=60.0).offered_burst > 3


def test_marks_count_episodes():
    meter = Meter(0.0)
    assert meter.mark_slow(1.0)
    assert not meter.mark_slow(2.0)
    assert meter.slow
    assert meter.mark_recovered(4.0) == 3.0
    assert meter.mark_recovered(5.0) == 0.0
    assert not meter.slow
    assert meter.mark_slow(6.0)
    assert look(meter, 7.0, 0, 100).slow_count == 2


def test_a_broker_that_was_late_all_the_time_judges_no_rate():
    late = Lateness()
    meter = Meter(0.0, lateness=late)
    look(meter, 10.0, 0, 1000, oldest_time_s=10.0)
    late.add(12.0, 2.0)
    assert not look(meter, 12.0, 0, 1000, oldest_time_s=10.0).rate_judged


def test_nobody_is_charged_for_the_brokers_lateness():
    late = Lateness()
    meter = Meter(0.0, lateness=late)
    more = {"oldest_time_s": 10.0, "blocked_since": 10.0, "credit_exhausted_since": 10.0, "oldest_unacked_s": 10.0}
    look(meter, 12.0, 0, 1000, in_flight=1, **more)
    late.add(32.0, 19.0)
    sample = look(meter, 32.0, 0, 1000, in_flight=1, **more)
    figures = sample.lag_age, sample.blocked_time, sample.credit_exhausted_time, sample.ack_age, sample.waited
    assert figures == (3.0,) * 5
    assert sample.rate_window == 1.0


LATE = [
    ([], 0.0, 10.0, 0.0),
    ([(5.0, 2.0)], 0.0, 10.0, 2.0),
    ([(5.0, 2.0)], 4.0, 10.0, 1.0),
    ([(5.0, 2.0)], 5.0, 10.0, 0.0),
    ([(5.0, 2.0), (9.0, 1.0)], 0.0, 10.0, 3.0),
    ([(5.0, 2.0), (9.0, 1.0)], 6.0, 10.0, 1.0),
    ([(5.0, 2.0)], 0.0, 4.0, 1.0),
    ([(5.0, -2.0)], 0.0, 10.0, 0.0),
]


@pytest.mark.parametrize(("events", "since", "now", "charged"), LATE)
def test_lateness_within_a_span(events, since, now, charged):
    late = Lateness()
    for at, seconds in events:
        late.add(at, seconds)
    assert late.within(since, now) == pytest.approx(charged)


steps = st.lists(
    st.tuples(st.floats(0.01, 5.0), st.integers(0, 5000), st.integers(0, 5000), st.booleans()), min_size=1, max_size=60
)


@given(steps)
def test_figures_are_sane_and_memory_is_bounded_whatever_happens(moves):
    meter, now, position, end = Meter(0.0), 0.0, 0, 0
    for wait, offered, drained, skip in moves:
        now += wait
        end += offered
        step = min(drained, end - position)
        position += step
        if skip:
            meter.skipped(step)
        sample = look(meter, now, position, end, oldest_time_s=now - wait / 2, blocked_since=0.0)
        assert sample.drain_rate >= 0
        assert sample.offered_rate >= 0
        assert 0 <= sample.blocked_time <= sample.waited <= now
        assert sample.lag_bytes == end - position
        assert sample.idle == (end == position)
        assert len(meter._looks) <= 8
        assert len(meter._offers) <= 8
        if end == position:
            assert sample.waited == 0
