"""Replaying one consumer: recordings made by hand, with answers worked out by hand."""

from __future__ import annotations

import pytest
from tests.pipeline.recordings import rate, replay, samples, total, trace
from tests.pipeline.replay_rows import RECOVERS, SLOW, STUCK

from headway.core.base.errors import Reason
from headway.core.policy.meters.meter import SHARE_WINDOW_MIN_S
from headway.core.policy.rules.rule import ActionKind


@pytest.mark.parametrize(
    ("rule", "at"),
    [
        ({"when": {"blocked_time": "5s"}, "then": "disconnect"}, 15.0),
        ({"when": {"lag_age": "5s"}, "then": "disconnect"}, 15.0),
        ({"when": {"lag_records": 500}, "then": "disconnect"}, 15.0),
        ({"when": {"lag_bytes": "100kB"}, "then": "disconnect"}, 20.0),
        ({"when": {"lag_records": 500}, "for": "3s", "then": "disconnect"}, 18.0),
        ({"when": {"drain_rate": "<5000B/s"}, "for": "3s", "retries": 3, "then": "disconnect"}, 13.3),
        ({"when": {"drain_rate": "<5000B/s"}, "for": "3s", "then": "disconnect"}, 13.3),
        ({"when": {"any": [{"lag_age": "20s"}, {"lag_records": 700}]}, "then": "disconnect"}, 17.0),
        ({"when": {"lag_age": "1s", "lag_records": 700}, "then": "disconnect"}, 17.0),
    ],
)
def test_a_stuck_consumer_is_hit_when_it_would_have_been(rule: dict, at: float) -> None:
    hit = replay(trace(STUCK), rule).hit
    assert hit is not None
    assert at <= hit.time <= at + 0.6


@pytest.mark.parametrize(("usual_pause_ms", "at"), [(4000.0, 22.0), (1000.0, 15.0), (0.0, 15.0), (None, 15.0)])
def test_who_usually_pauses_is_blocked_only_after_three_pauses(usual_pause_ms: float | None, at: float) -> None:
    rows = [dict(one, usual_pause_ms=usual_pause_ms) for one in STUCK]
    hit = replay(trace(rows), {"when": {"blocked_time": "5s"}, "then": "disconnect"}).hit
    assert hit is not None
    assert at <= hit.time <= at + 0.6
    assert replay(trace(rows), {"when": {"lag_age": "5s"}, "then": "disconnect"}).hit is not None


@pytest.mark.parametrize(
    ("unread_s", "pause_s", "at"),
    [(4.0, 0.0, 14.0), (4.0, 5.0, 21.0), (0.5, 0.0, 17.5), (0.0, 0.0, 18.0), (None, None, 18.0)],
)
def test_who_reads_nothing_is_hit_as_long_after_it_read_as_a_rule_says(
    unread_s: float | None, pause_s: float | None, at: float
) -> None:
    """It has read nothing for longer than its socket took nothing. An older lake does not tell."""
    rows = [
        dict(one, unread_ms=None if unread_s is None else one["blocked_ms"] + 1000 * unread_s * (one["blocked_ms"] > 0),
             unread_pause_ms=None if pause_s is None else 1000 * pause_s)
        for one in STUCK
    ]  # fmt: skip
    hit = replay(trace(rows), {"when": {"unread_time": "8s", "blocked_time": "4s"}, "then": "disconnect"}).hit
    assert hit is not None
    assert at <= hit.time <= at + 0.6


@pytest.mark.parametrize(("pause_s", "at"), [(0.0, 18.0), (5.0, 25.0), (None, None)])
def test_who_acknowledges_nothing_is_hit_as_the_recording_says(pause_s: float | None, at: float | None) -> None:
    """An older lake does not tell."""
    rows = [
        dict(one, in_flight=10, ack_pause_ms=None if pause_s is None else 1000 * pause_s,
             unacknowledged_ms=None if pause_s is None else one["blocked_ms"])
        for one in STUCK
    ]  # fmt: skip
    hit = replay(trace(rows), {"when": {"unacknowledged_time": "8s"}, "then": "disconnect"}).hit
    assert (hit is None) == (at is None)
    assert hit is None or at is None or at <= hit.time <= at + 0.6


@pytest.mark.parametrize("when", [{"blocked_time": "5s"}, {"lag_age": "5s"}, {"drain_rate": "<5000B/s"}])
def test_who_has_patience_is_hit_when_it_is_over(when: dict) -> None:
    """As the broker records it: the clocks of its meters begin to run then."""
    rows = []
    for second, one in enumerate(STUCK):
        since_s = max(0.0, second - 10)
        late_ms = max(0.0, since_s - 20) * 1000
        left_ms = max(0.0, 20 - since_s) * 1000 if since_s else 0.0
        rows.append(dict(one, blocked_ms=late_ms, lag_age_ms=late_ms, excused_ms=left_ms))
    hit = replay(trace(rows), {"when": when, "then": "disconnect"}).hit
    assert hit is not None
    assert 30.0 <= hit.time <= 36.0
    before = [dict(one, blocked_ms=0.0) for one in rows[:29]]
    assert replay(trace(before), {"when": when, "then": "disconnect"}).hit is None


@pytest.mark.parametrize(
    ("patience_max", "when", "at"),
    [
        ("1h", {"credit_exhausted_time": "5s"}, 35.0),
        ("1h", {"ack_age": "5s"}, 35.0),
        ("5s", {"credit_exhausted_time": "5s"}, 20.0),
        ("5s", {"ack_age": "5s"}, 20.0),
        ("0s", {"credit_exhausted_time": "5s"}, 15.0),
        ("0s", {"ack_age": "5s"}, 15.0),
    ],
)
def test_a_candidate_grants_the_patience_that_was_asked_for_or_less(patience_max: str, when: dict, at: float) -> None:
    """It was asked for 20 s at a job that began at 10 s, and the broker that recorded it granted them."""
    rows = []
    for second, one in enumerate(samples(rate(100), rate(100, until=10), 60, patience_ms=20_000.0, protocol="amqp")):
        job_s = max(0.0, second - 10)
        late_ms = max(0.0, job_s - 20) * 1000
        rows.append(dict(one, in_flight=1, prefetch=1, unacked_ms=job_s * 1000, window_full_ms=job_s * 1000,
                         ack_age_ms=late_ms, credit_exhausted_ms=late_ms))  # fmt: skip
    hit = replay(trace(rows), {"when": when, "then": "disconnect"}, patience_max=patience_max).hit
    assert hit is not None
    assert at <= hit.time <= at + 1.1


def test_a_usual_pause_is_that_of_the_stretch_it_belongs_to() -> None:
    """The row before the stretch is of a consumer that was not looked at, so it does not know."""
    rows = [dict(one, usual_pause_ms=4000.0 if n > 10 else 0.0) for n, one in enumerate(STUCK)]
    assert trace(rows).blocked.pause(10.5) == 4.0
    assert trace(rows).blocked.pause(9.5) == 0.0


@pytest.mark.parametrize(
    ("when", "at"),
    [
        ({"drain_share": "<50%"}, 10 + SHARE_WINDOW_MIN_S),
        ({"drain_share": "<50%", "lag_records": 1500}, 31.4),
        ({"catching_up": "10m"}, 10 + SHARE_WINDOW_MIN_S),
    ],
)
def test_the_meters_of_half_a_minute_are_replayed(when: dict, at: float) -> None:
    """70 of 100 a second are not taken from 10 s on; the first seconds of lag say nothing."""
    hit = replay(trace(SLOW), {"when": when, "then": "disconnect"}).hit
    assert hit is not None
    assert at <= hit.time <= at + 1.0
    assert replay(trace(SLOW), {"when": {"drain_share": "<20%"}, "then": "disconnect"}).hit is None


def test_a_slow_one_is_hit_by_its_lag_and_not_by_its_rate() -> None:
    found = replay(trace(SLOW), {"when": {"lag_records": 700}, "then": "disconnect"})
    assert found.hit is not None
    assert found.hit.time == pytest.approx(20.2, abs=0.4), "70 a second are left over"
    assert found.hit.reason is Reason.LAG_RECORDS
    assert found.records_lost == found.hit.lag_records
    assert found.would_catch_up == "no"
    assert replay(trace(SLOW), {"when": {"drain_rate": "<2000B/s"}, "then": "disconnect"}).hit is None
    faster = replay(trace(SLOW), {"when": {"drain_rate": "<4000B/s"}, "for": "2s", "then": "disconnect"})
    assert faster.hit is not None
    assert faster.hit.time == pytest.approx(12.8, abs=1.0)


def test_discard_keeps_what_it_says_and_counts_the_rest_as_lost() -> None:
    rule = {"when": {"lag_records": 200}, "then": {"action": "discard", "which": "oldest", "keep_records": 100}}
    found = replay(trace(STUCK), rule)
    assert found.hit is not None
    assert found.hit.time == pytest.approx(12.2, abs=0.3)
    # 5000 records come while it is stuck. With 100 kept the rule steps back and holds again at 200.
    assert 4800 <= found.records_lost <= 4900
    assert found.lag_bytes_peak <= 25_000
    assert not found.cut


def test_discarding_what_comes_leaves_a_hole() -> None:
    rule = {
        "when": {"lag_records": 200}, "until": {"lag_records": "< 10"},
        "then": {"action": "discard", "which": "newest", "keep_records": 100},
    }  # fmt: skip
    found = replay(trace(RECOVERS), rule)
    # From 12.2 s, with 120 too many waiting, until it has taken the 100 that were kept, at 20.2 s.
    assert found.records_lost == pytest.approx(920, abs=60)
    assert [event.kind for event in found.events] == ["fire", "clear"]
    assert not found.behind_at_end


def test_a_conflated_consumer_holds_nothing_and_is_given_the_latest() -> None:
    found = replay(trace(SLOW), {"when": {"lag_age": "1s"}, "then": "conflate"})
    assert found.hit is not None
    assert found.hit.action is ActionKind.CONFLATE
    assert found.records_lost == 0
    assert found.records_conflated == pytest.approx(70 * 50, rel=0.1), "70 of the 100 a second are left out"
    assert not found.behind_at_end
    ladder = replay(trace(STUCK), {"when": {"lag_age": "1s"}, "then": "conflate"},
                    {"when": {"blocked_time": "30s"}, "then": "disconnect"})  # fmt: skip
    assert [event.action for event in ladder.events if event.hits] == ["conflate", "disconnect"]
    assert ladder.over_at == pytest.approx(40.2, abs=0.4), "blocked it traces, though it holds nothing"


@pytest.mark.parametrize("keyed", [True, False])
def test_a_rule_for_keyed_topics_is_for_those_for_whom_it_was_recorded(keyed: bool) -> None:
    rows = [dict(row, keyed=keyed) for row in samples(rate(100), total(rate(100, until=10), rate(30, since=10)), 60)]
    rule = {"when": {"lag_age": "1s"}, "keyed": True, "then": "conflate"}
    assert (replay(trace(rows), rule).hit is not None) is keyed
    assert replay(trace(SLOW), rule).hit is None, "an older lake does not tell"


def test_times_within_and_dry_runs() -> None:
    first, second = total(rate(100, until=5), rate(400, 8, 9)), total(rate(100, 9, 20), rate(400, 23, 24))
    stalls = samples(rate(100), total(first, second, rate(100, 24)), 60)
    rule = {"when": {"lag_age": "1s"}, "times": 2, "then": "disconnect"}
    found = replay(trace(stalls), rule)
    assert found.hit is not None
    assert 21.0 <= found.hit.time <= 21.6, "the second time"
    assert replay(trace(stalls), rule | {"within": "10s"}).hit is None
    dry = replay(trace(stalls), rule | {"enforce": False})
    assert dry.hit is None
    assert [event.enforced for event in dry.events] == [False]
    assert not dry.cut


@pytest.mark.parametrize(
    ("rows", "horizon", "answer"),
    [
        (RECOVERS, None, "yes"),
        (SLOW, None, "no"),
        (samples(rate(100), rate(100, until=10), 20, blocked_from=10), None, "unknown"),
        (samples(rate(100), rate(100, until=10), 40, blocked_from=10, ended="blocked"), 100.0, "unknown"),
        (samples(rate(100), rate(100, until=10), 40, blocked_from=10, ended="client_gone"), 100.0, "no"),
    ],
)
def test_whether_it_would_have_caught_up(rows: list, horizon: float | None, answer: str) -> None:
    found = replay(trace(rows, horizon), {"when": {"lag_age": "5s"}, "then": "disconnect"})
    assert found.would_catch_up == answer


def test_to_be_told_of_is_to_be_found() -> None:
    told = replay(trace(STUCK), {"when": {"lag_age": "5s"}, "then": "notify"})
    assert told.hit is None
    assert told.found is not None
    assert told.found.time - told.behind_since_s == pytest.approx(5.2, abs=0.3)
    assert (told.found_would_catch_up, told.soon_over, told.cut_s) == ("no", False, None)
    assert told.stuck_s == pytest.approx(10.0, abs=0.3)
    cut = replay(trace(STUCK), {"when": {"lag_age": "5s"}, "then": "disconnect"})
    assert cut.cut_s == cut.over_at == pytest.approx(15.2, abs=0.3)
    missed = replay(trace(STUCK), {"when": {"lag_age": "5m"}, "then": "notify"})
    assert (missed.found, missed.behind_at_end) == (None, True)
    assert missed.behind_since_s == pytest.approx(10.0, abs=0.3)


@pytest.mark.parametrize(("lag_age", "soon"), [("2s", True), ("5s", False), ("8s", False)])
def test_who_had_soon_caught_up_was_told_of_wrongly(lag_age: str, soon: bool) -> None:
    """Stuck from 10 s on, and well again at 20 s or, told of first at 12 s, at 16 s."""
    until = 16.0 if soon else 28.0
    rows = samples(rate(100), total(rate(100, until=10), rate(2000, since=until)), 60, blocked_from=10)
    found = replay(trace(rows), {"when": {"lag_age": lag_age}, "then": "notify"})
    assert (found.found_would_catch_up, found.soon_over, found.stuck_s) == ("yes", soon, None)
