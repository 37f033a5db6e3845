"""Between two samples: what a recording says of the time in which nobody looked, and of the broker's own lateness."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from tests.pipeline.recordings import client, rate, replay, samples, total, trace

from headway.pipeline.lab.replays.trace import Reach, RecordedLateness, late_stretches

BLOCKED = {"when": {"blocked_time": "5s"}, "then": "disconnect"}


def stuck(*blocked_s: float, **columns: Any) -> list[dict[str, Any]]:
    """A row each second of a consumer that lags, and has stood still for so long."""
    rows = samples(rate(100), rate(50), len(blocked_s) - 1, **columns)
    return [one | {"blocked_ms": seconds * 1000} for one, seconds in zip(rows, blocked_s, strict=True)]


def test_who_moved_right_after_a_sample_stands_still_since_then() -> None:
    """It moved 30 ms after the row at 4 s: two stretches of four seconds are not one of eight."""
    rows = stuck(0, 1, 2, 3, 4, 0.97, 1.97, 2.97, 3.97, 0.0, 0.0)
    assert trace(rows).blocked.since(4.0) == 0.0
    assert trace(rows).blocked.since(6.0) == pytest.approx(4.03)
    assert replay(trace(rows), BLOCKED).hit is None


def test_the_brokers_lateness_is_no_ones_fault() -> None:
    """It took nothing from 10 s on; from 12 s to 16 s the broker was busy."""
    rows = samples(rate(100), rate(100, until=10), 40, blocked_from=10)
    recorded = [
        one | {name: one[name] - 4000.0 for name in ("blocked_ms", "lag_age_ms")} if n >= 16 else one
        for n, one in enumerate(rows) if not 12 < n < 16
    ]  # fmt: skip
    late = trace(recorded, lateness=RecordedLateness([(16.0, 4.0)]))
    assert late.blocked.since(30.0) == pytest.approx(10.0)
    for rule in (BLOCKED, {"when": {"lag_age": "5s"}, "then": "disconnect"}):
        hit = replay(late, rule).hit
        assert hit is not None
        assert 19.0 <= hit.time <= 19.6
    window = replay(late, {"when": {"lag_records": 150}, "for": "3s", "then": "disconnect"}).hit
    assert window is not None
    assert 18.5 <= window.time <= 19.1, "the rule's window began at 11.5 s, and four seconds do not count"


def test_nobody_is_judged_while_the_broker_is_late() -> None:
    rows = samples(rate(100), rate(100, until=10), 40, blocked_from=10)
    late = trace(rows, lateness=RecordedLateness([(16.0, 4.0)]))
    hit = replay(late, {"when": {"lag_records": 350}, "then": "disconnect"}).hit
    assert hit is not None
    assert 16.0 < hit.time <= 16.5


def test_lateness_is_placed_between_two_rows_of_the_broker() -> None:
    first, second = late_stretches([(3.0, 4.0, 0.4), (7.0, 11.0, 3.5)])
    assert first == (pytest.approx(3.7), 0.4)
    assert second == (pytest.approx(10.75), 3.5)
    lateness = RecordedLateness([(10.0, 3.0), (20.0, 1.0)])
    assert [lateness.within(5.0, at) for at in (6.0, 8.0, 10.0, 19.5, 30.0)] == [0.0, 1.0, 3.0, 3.5, 4.0]
    assert [lateness.total(at) for at in (9.9, 10.0, 25.0)] == [0.0, 3.0, 4.0]
    assert [lateness.since(30.0, seconds) for seconds in (5.0, 9.5, 18.0, 20.0)] == [25.0, 20.5, 11.0, 6.0]
    assert lateness.next_sweep(8.0, 0.2) == pytest.approx(10.2)
    assert lateness.next_sweep(10.1, 0.2) == 10.1


def group(**columns: Any) -> list[dict[str, Any]]:
    """A member of a group that gets one record in two; the group lags from 18.5 s on. Rows each ten seconds before."""
    rows = samples(rate(100), total(rate(100, until=18.5), rate(20, since=18.5)), 40, filter="$share/g/t/#")
    rows = [one | columns for n, one in enumerate(rows) if n in (0, 10) or n >= 19]
    for one in rows:
        for unit in ("records", "bytes"):
            one[f"skipped_{unit}"] = one[f"drained_{unit}"] // 2
            one[f"drained_{unit}"] -= one[f"skipped_{unit}"]
    return rows


@pytest.mark.parametrize("columns", [{}, {"filter": "jobs", "protocol": "amqp"}])
def test_what_went_to_others_of_a_group_was_not_left_out(columns: dict[str, str]) -> None:
    """Else its offers would begin at the last idle row, and go on piling up."""
    one = trace(group(**columns))
    replayed = client(one)._base(one, one.begin)
    assert all(time >= 18.5 for time in replayed.times)
    for index, time in enumerate(one.seen):
        if time > 19:
            assert replayed.lag_at(time + 0.01) == pytest.approx(one.lag_bytes[index], abs=1000), time
    late = replay(one, {"when": {"lag_age": "3s"}, "then": "notify"})
    assert [round(event.time) for event in late.events] == [22]


def test_a_members_rate_is_its_own() -> None:
    """Twenty records a second leave the group's queue: ten of them, 1000 bytes a second, are its own."""
    rule = {"when": {"drain_rate": "<1500B/s"}, "for": "2s", "then": "notify"}
    assert len(replay(trace(group()), rule).events) == 1
    assert not replay(trace(group()), {**rule, "when": {"drain_rate": "<700B/s"}}).events


def test_a_peak_between_two_samples_is_there() -> None:
    """A burst at 20.2 s that is gone by 20.8 s: one row says so, ten seconds later."""
    rows = [one for n, one in enumerate(samples(rate(10), rate(10), 40)) if n % 10 == 0]
    rule = {"when": {"lag_bytes": "4kB"}, "then": "notify"}
    assert not replay(trace(rows), rule).events
    rows[3] |= {"most_lag_bytes": 5000, "most_lag_ago_ms": 9600.0}
    found = replay(trace(rows), rule)
    assert [event.kind for event in found.events] == ["fire", "clear"]
    assert 20.2 <= found.events[0].time <= 20.6
    assert found.events[1].time <= 21.2
    assert found.lag_bytes_peak == 5000


def test_a_sawtooth_keeps_its_teeth() -> None:
    """It takes half a second's worth twice a second; the rows say so only by the most and the least."""
    rows = samples(rate(100), total(rate(100, until=10), rate(60, since=10)), 30)
    for n, one in enumerate(rows):
        if n > 12:
            one |= {
                "most_lag_bytes": one["lag_bytes"] + 3000, "most_lag_ago_ms": 600.0,
                "least_lag_bytes": one["lag_bytes"] - 2000, "least_lag_ago_ms": 300.0,
            }  # fmt: skip
    one = trace(rows)
    base = client(one)._base(one, one.begin)
    for t in range(15, 29):
        lag = one.lag_bytes[t]
        assert base.lag_at(t + 0.01) == pytest.approx(lag, abs=150)
        assert base.lag_at(t - 0.6 + 0.001) == pytest.approx(lag + 3000, abs=150)
        assert base.lag_at(t - 0.3 + 0.001) == pytest.approx(lag - 2000, abs=150)
    rule = {"when": {"lag_bytes": "50kB"}, "for": "3s", "then": "notify"}
    assert len(replay(one, rule).events) == 1
    assert replay(trace(samples(rate(100), rate(100), 5)), rule).events == []


def test_a_step_ends_where_the_usual_pause_says() -> None:
    """It stood still from 10 s to 15.6 s. The row at 15 s does not say for how long yet, the row at 16 s does."""
    taken = total(rate(100, until=10), rate(30_000, since=15.6))
    rows = samples(rate(100), taken, 30)
    for n, one in enumerate(rows):
        one["blocked_ms"] = (n - 10) * 1000.0 if 10 < n < 16 else 0.0
        one["usual_pause_ms"] = 5600.0 if n >= 16 else 400.0
    one = trace(rows)
    assert one.blocked.since(15.5) == 10.0
    assert one.blocked.since(15.7) == inf
    late = replay(one, {"when": {"blocked_time": "5.3s"}, "then": "notify"})
    assert 15.3 <= late.events[0].time <= 15.6
    assert one.at(15.55)[2] == pytest.approx(one.at(10.1)[2], abs=200), "nothing is taken up to then"


def test_what_reached_a_client_went_up_where_it_was_seen_to_step() -> None:
    """It steps at 1.2 s, and at 3.1 s and 3.5 s; a sample each second tells when it did last."""
    rows = stuck(1, 2, 0.8, 1.8, 0.5, 1.5)
    for one, (given, under_way) in zip(
        rows, [(2000, 1000), (2000, 1000), (3000, 1000), (3000, 1000), (5000, 1000), (5000, 1000)], strict=True
    ):
        one |= {"drained_bytes": given, "unacknowledged_bytes": under_way, "usual_pause_ms": 400.0}
    reach = Reach([dict(one, time=float(at)) for at, one in enumerate(rows)], lambda time: time)
    reached = [round(reach._at(time)) for time in (0.9, 1.1, 1.2, 2.9, 3.0, 3.1, 3.4, 3.5, 4.9)]
    assert reached == [1000, 1000, 2000, 2000, 2000, 3000, 3000, 4000, 4000]
    assert reach.unacknowledged(1.5) == 500  # half of what it was given in that second
    assert reach.unacknowledged(5.0) == 1000


def test_the_governor_looked_whenever_it_took_a_sample() -> None:
    """The first row shows a lag of which little is left soon; rows are 1.03 s apart, and looks are 0.2 s."""
    rows = samples(total(lambda t: 500, rate(100)), rate(5000), 10.3, every=1.03)
    rows[0] |= {"lag_age_ms": 30.0}
    replayed = trace(rows)
    found = replay(replayed, {"when": {"lag_records": 300}, "then": "notify"})
    assert found.found is not None
    assert found.found.time == 0.0
    slow = trace(samples(rate(100), rate(50), 10.3, every=1.03))
    looks = [time for block in client(slow)._base(slow, slow.begin).blocks for time, _ in block.looks()]
    assert set(slow.seen[1:]) <= set(looks)
    assert 45 <= len(looks) <= 65


def test_one_step_between_two_samples_was_right_after_most_waited() -> None:
    """A cursor, whose usual pause nobody knows: it moved at 3.5 s, and its lag was at its peak at the look before."""
    rows = stuck(1, 2, 3, 4, 0.5, 1.5)
    rows[4] |= {"most_lag_bytes": rows[4]["lag_bytes"] + 5000, "most_lag_ago_ms": 650.0}
    assert trace(rows).blocked.since(3.4) == pytest.approx(-1.0)
    assert trace(rows).blocked.since(3.6) == pytest.approx(3.5)
    rows[4] |= {"most_lag_ago_ms": 900.0}  # it moved before that, too
    assert trace(rows).blocked.since(3.4) == inf


def test_who_acknowledges_late_is_looked_at_though_nothing_ever_waits() -> None:
    rows = samples(rate(10), rate(10), 40)
    for at, one in enumerate(rows[5:]):
        one |= {"ack_age_ms": 1000.0 * (at % 8), "in_flight": 10 * (at % 8)}
    late = replay(trace(rows), {"when": {"ack_age": "5500ms"}, "then": "notify"}).events
    assert [event.kind for event in late][:3] == ["fire", "clear", "fire"]
    assert late[0].time == pytest.approx(11, abs=0.5)


def test_a_member_that_ends_leaves_a_lag_that_was_not_its_own() -> None:
    """What it had not acknowledged waits again: nobody looked at it any more."""
    rows = samples(rate(100), rate(100), 20, filter="$queue/q", protocol="amqp", ended="client_gone")
    rows[-1] |= {"lag_records": 500, "lag_bytes": 50_000, "offered_records": 2500, "offered_bytes": 250_000}
    assert not replay(trace(rows), {"when": {"lag_records": 50}, "then": "notify"}).events
    full = [dict(one, credit_exhausted_ms=max(0.0, at - 5) * 1000.0, lag_records=9, lag_bytes=900, lag_age_ms=10.0)
            for at, one in enumerate(rows)]  # fmt: skip
    full[-1] |= {"credit_exhausted_ms": 14_000.0}  # as of the last look
    assert trace(full).credit.since(19.9) == pytest.approx(5.0)


def test_a_window_is_full_up_to_the_acknowledgement_after_which_it_was_full_again() -> None:
    ages_s = (1, 2, 3, 0.4, 1.4, 0, 0.5)
    rows = [one | {"credit_exhausted_ms": age * 1000.0} for one, age in zip(stuck(*[0] * 7), ages_s, strict=True)]
    credit = trace(rows).credit
    assert [credit.since(time) for time in (2.5, 2.7, 4.0)] == [-1.0, 2.6, 2.6]
    assert credit.since(5.2) == inf  # at the sample there it had room


@pytest.mark.parametrize(("seq", "at"), [(0, 3.0), (7, 0.0)])
def test_old_records_wait_since_the_consumer_began(seq: int, at: float) -> None:
    """It came to a queue of old records 0.2 s before its first sample. If there were samples before, it was there."""
    rows = [
        one | {"seq": seq + number, "lag_age_ms": 9000.0 if not number else 1000.0 * number + 200.0}
        for number, one in enumerate(samples(rate(0), rate(0), 8))
    ]
    for one in rows:
        one |= {"offered_records": 500, "offered_bytes": 50_000, "lag_records": 500, "lag_bytes": 50_000}
    found = replay(trace(rows), {"when": {"lag_age": "3100ms"}, "then": "notify"}).found
    assert found is not None
    assert found.time == pytest.approx(at, abs=0.21)


def test_a_last_sample_has_the_ages_of_the_last_look() -> None:
    rows = stuck(0, 1, 2, 3, 4, 4, ended="client_gone")
    assert trace(rows).blocked.since(4.9) == pytest.approx(0.0)


def test_who_fell_behind_just_before_a_sample_kept_up_until_then() -> None:
    for thousandths in range(100, 200, 7):  # whatever the rounding
        rows = [one for at, one in enumerate(samples(rate(107), rate(107), 11)) if at in (0, 10, 11)]
        for one, age_ms in zip(rows[1:], (thousandths, 1000 + thousandths), strict=True):
            lag = one["offered_bytes"] - rows[1]["offered_bytes"] + 113 * thousandths
            one |= {"lag_records": lag // 100, "lag_bytes": lag, "lag_age_ms": age_ms, "blocked_ms": age_ms}
            one |= {"drained_bytes": one["offered_bytes"] - lag}
        assert trace(rows).falls_behind(0.0) == pytest.approx(10 - thousandths / 1000)
