"""Replaying what ends a consumer, or takes it away, and what nobody looks at."""

from __future__ import annotations

from typing import Any

import pytest
from tests.pipeline.recordings import MEMORY, client, policy, rate, replay, samples, total, trace
from tests.pipeline.replay_rows import RECOVERS, SLOW, STUCK

from headway.core.policy.meters.sample import Sample
from headway.core.policy.rules.condition import parse_condition
from headway.pipeline.lab.replays.base import MeterRange, may_hold, must_hold


def test_who_still_takes_something_is_not_stuck() -> None:
    assert replay(trace(SLOW), {"when": {"lag_age": "5s"}, "then": "notify"}).stuck_s is None
    away = trace([dict(one, durable=True, connected=n < 20) for n, one in enumerate(STUCK)])
    assert replay(away, {"when": {"lag_age": "5s"}, "then": "notify"}).stuck_s is None


def test_what_the_broker_cut_off_is_extrapolated() -> None:
    rows = samples(rate(100), rate(100, until=10), 15, blocked_from=10, ended="blocked")
    one = trace(rows, 60.0)
    assert one.extrapolated
    offered, records, capacity = one.at(60.0)
    assert offered == pytest.approx(600_000)
    assert records == pytest.approx(6000)
    assert capacity == pytest.approx(one.at(15.0)[2])
    late = replay(one, {"when": {"blocked_time": "30s"}, "then": "disconnect"})
    assert late.hit is not None
    assert late.hit.time == pytest.approx(40.2, abs=0.3)
    gone = trace(samples(rate(100), rate(100, until=10), 15, blocked_from=10, ended="client_gone"), 60.0)
    assert replay(gone, {"when": {"blocked_time": "30s"}, "then": "disconnect"}).hit is None


def test_who_came_back_after_it_was_cut_off_would_not_have_had_to() -> None:
    first = trace(samples(rate(100), rate(100, until=10), 15, blocked_from=10, ended="blocked"), 60.0)
    again = samples(total(rate(100)), rate(100), 40, subscription=2)
    for one in again:
        one["time"] += again[20]["time"] - again[0]["time"]
    second = trace(again, 60.0)
    second.begin, second.seen = 20.0, [t + 20 for t in second.seen]
    second.times = [t + 20 for t in second.times]
    second.recorded_end = second.end = 60.0
    both = client(first, second)
    [lenient] = both.replay(policy({"when": {"blocked_time": "100s"}, "then": "disconnect"}), 1000).values()
    assert [passage.trace.subscription for passage in lenient] == [1], "it stayed, stuck, to the end"
    [strict] = both.replay(policy({"when": {"blocked_time": "3s"}, "then": "disconnect"}), 1000).values()
    assert [passage.trace.subscription for passage in strict] == [1, 2]
    assert strict[1].hit is None


def test_a_durable_consumer_stays_and_goes_on_lagging() -> None:
    one = trace(samples(rate(100), rate(100, until=10), 60, blocked_from=10, durable=True))
    found = replay(one, {"when": {"blocked_time": "5s"}, "then": "disconnect"},
                   {"when": {"lag_records": 2000}, "then": "delete_subscription"})  # fmt: skip
    assert [event.action for event in found.events if event.enforced] == ["disconnect"]
    assert [event.action for event in found.events] == ["disconnect", "delete_subscription"], "spared, and said so"
    assert (found.cut, found.records_lost, found.behind_at_end) == (False, 0, True)
    told = replay(one, {"when": {"lag_records": 2000}, "then": {"action": "delete_subscription", "durable": True}})
    assert told.cut
    assert told.records_lost == pytest.approx(2010, abs=30)


def test_mqtt_consumers_are_asked_to_close_and_disconnected_later() -> None:
    rule = {"when": {"blocked_time": "5s"}, "then": "close_consumer"}
    asked = replay(trace(STUCK), rule)
    assert asked.hit is not None
    assert asked.cut_s == pytest.approx(asked.hit.time + 10)
    assert asked.cut_client
    assert asked.over_at == asked.cut_s
    patient = replay(trace(STUCK), rule | {"then": {"action": "close_consumer", "within": "1h"}})
    assert patient.hit is not None
    assert not patient.cut
    other = samples(rate(100), rate(100, until=10), 60, blocked_from=10, protocol="amqp")
    assert replay(trace(other), rule).cut


def test_blocking_publishers_holds_them_back_and_is_no_hit() -> None:
    rule = {"when": {"lag_records": 200}, "until": {"lag_records": "< 10"}, "then": "block_publishers"}
    found = replay(trace(RECOVERS), rule)
    assert found.hit is None
    assert found.records_lost == 0
    # Held from 12 s until it has taken the 200 at 20 s; then 800 come at once, which it takes in half a second.
    assert found.stall_ms == pytest.approx(8500, abs=1500)
    assert found.lag_bytes_peak < 100_000


def test_a_client_loses_all_its_subscriptions_with_its_connection() -> None:
    stuck = trace(STUCK)
    fine = trace(samples(rate(10), rate(10), 60, subscription=2, filter="u"))
    found = client(stuck, fine).replay(policy({"when": {"blocked_time": "5s"}, "then": "disconnect"}), 1000)
    [other] = found["u"]
    assert other.cut
    assert other.over_at == found["t/#"][0].over_at
    spared = client(stuck, fine).replay(policy({"when": {"blocked_time": "5s"}, "then": "delete_subscription"}), 1000)
    assert not spared["u"][0].cut


def test_the_policy_is_chosen_as_the_broker_chooses() -> None:
    rule = {"when": {"blocked_time": "5s"}, "then": "disconnect"}
    assert replay(trace(STUCK), rule, topics=["u/#"]).hit is None
    assert replay(trace(STUCK), rule, subscriptions="durable").hit is None
    asked = trace(samples(rate(100), rate(100, until=10), 60, blocked_from=10, policy_asked="p"))
    assert replay(asked, rule, topics=["u/#"]).hit is not None
    shared = trace(samples(rate(100), rate(100, until=10), 60, blocked_from=10, filter="$share/g/u/1"))
    assert replay(shared, rule, topics=["u/#"]).hit is not None
    desk = trace(samples(rate(100), rate(100, until=10), 60, blocked_from=10, listener="desk"))
    assert replay(desk, rule, listeners=["desk"]).hit is not None
    assert replay(trace(STUCK), rule, listeners=["desk"]).hit is None


@pytest.mark.parametrize(
    ("recorded", "topics", "chosen"),
    [
        ("$queue/q\norders/#\n#", "orders/#", True),
        ("$queue/q\norders/#\n#", "$queue/q", True),
        ("$queue/q\norders/#\n#", "prices/#", False),
        (None, "#", True),  # an older broker did not record them
        (None, "$queue/q", True),
        (None, "orders/#", False),
        ("$queue/q.eu\n#", "$queue/q/#", True),  # an older broker did not record both spellings
        ("$queue/q.eu\n#", "$queue/r/#", False),
    ],
)
def test_the_policy_of_a_queue_is_chosen_by_all_its_topics(recorded: str | None, topics: str, chosen: bool) -> None:
    rows = [dict(one, filter="$queue/q", protocol="amqp", topics=recorded) for one in STUCK]
    hit = replay(trace(rows), {"when": {"blocked_time": "5s"}, "then": "disconnect"}, topics=[topics]).hit
    assert (hit is not None) is chosen


def test_what_has_not_reached_a_client_is_not_drained() -> None:
    """From 10 s on the kernel takes on as before for 20 s, and the client's host acknowledges none of it."""
    rows = samples(rate(100), total(rate(100, until=10), rate(90, since=10, until=30)), 60)
    rule = {"when": {"drain_rate": "<5000B/s"}, "then": "disconnect"}
    late = replay(trace(rows), rule).hit
    assert late is not None
    assert late.time == pytest.approx(31, abs=1)
    there = [dict(one, unacknowledged_bytes=max(0, min(at, 30) - 10) * 9000) for at, one in enumerate(rows)]
    soon = replay(trace(there), rule).hit
    assert soon is not None
    assert soon.time == pytest.approx(12, abs=1)  # who takes all that waited at the look before is not judged
    lumps = [dict(one, lump_bytes=50_000.0) for one in there]
    after = replay(trace(lumps), rule).hit
    assert after is None  # it may have read some of it


def test_what_is_left_out_for_who_asked_for_the_latest_only_is_no_lag() -> None:
    rows = samples(rate(100), rate(100), 60)
    for one in rows:
        for unit in ("records", "bytes"):
            one[f"skipped_{unit}"] = one[f"drained_{unit}"] * 3 // 4
            one[f"drained_{unit}"] -= one[f"skipped_{unit}"]
    rule = {"when": {"lag_age": "3s"}, "then": "disconnect"}
    assert replay(trace(rows), rule).hit is not None  # a policy left it out
    assert replay(trace([one | {"conflates": True} for one in rows]), rule).hit is None


def test_who_is_away_is_told_of_and_not_disconnected() -> None:
    rows = [dict(one, durable=True, connected=at < 10, blocked_ms=0.0) for at, one in enumerate(STUCK)]
    rule = {"when": {"lag_age": "3s"}, "then": "notify"}
    assert replay(trace(rows), rule).found is not None
    assert replay(trace(rows), rule | {"then": "close_consumer"}).found is None
    share = {"when": {"drain_share": "<90%"}, "then": "notify"}
    assert replay(trace(rows), share).found is None  # it takes nothing because it is away


def test_without_a_policy_it_stands_at_each_sample_where_it_was_recorded() -> None:
    for rows in (STUCK, SLOW, RECOVERS):
        one = trace(rows)
        [base] = client(one)._chains.values()
        assert base == [one]
        replayed = client(one)._base(one, one.begin)
        for index, time in enumerate(one.seen):
            if 11 <= time <= 19:
                recorded = pytest.approx(one.lag_bytes[index], abs=2100)
                assert replayed.lag_at(time + 0.01) == recorded, (time, rows[index])


def test_a_notice_is_taken_back_when_the_consumer_recovers() -> None:
    found = replay(trace(RECOVERS), {"when": {"lag_age": "5s"}, "then": "notify"})
    assert [(event.kind, event.action) for event in found.events] == [("fire", "notify"), ("clear", "notify")]
    assert 20 <= found.events[1].time <= 21
    assert found.hit is None


def test_a_healthy_consumer_is_never_looked_at() -> None:
    one = trace(samples(total(rate(100), rate(900, 20, 21)), total(rate(100), rate(900, 20, 21)), 60, every=10))
    assert client(one)._base(one, one.begin).times == []


RULES: list[dict[str, Any]] = [
    {"when": {"blocked_time": "3s"}, "for": "2s", "then": "disconnect"},
    {"when": {"lag_age": "2s"}, "then": "conflate"},
    {"when": {"lag_records": 150}, "then": {"action": "discard", "which": "oldest", "keep_records": 50}},
    {"when": {"lag_records": 150}, "until": {"lag_records": "< 20"}, "then": "block_publishers"},
    {"when": {"drain_rate": "<2500B/s"}, "for": "1s", "retries": 3, "then": "delete_subscription"},
    {"when": {"lag_age": "1s"}, "times": 2, "within": "1m", "then": "disconnect"},
    {"when": {"lag_bytes": "50kB"}, "then": "offline"},
    {"when": {"drain_share": "<40%"}, "for": "1s", "then": "disconnect"},
    {"when": {"catching_up": "30s"}, "then": "conflate"},
]
TREMBLES = samples(
    rate(100),
    total(*(rate(200, since, since + 2) for since in range(0, 60, 4)), rate(20)),
    60,
)
"""Takes 220 a second for two seconds, then 20 for two."""
LUMPS = [dict(one, usual_pause_ms=2000.0) for one in STUCK]


@pytest.mark.parametrize("rows", [STUCK, SLOW, RECOVERS, TREMBLES, LUMPS])
@pytest.mark.parametrize("rule", RULES)
def test_long_steps_change_nothing(monkeypatch: pytest.MonkeyPatch, rule: dict, rows: list) -> None:
    """What is passed over for speed comes out as if the governor had looked at every sweep."""
    quick = replay(trace(rows), rule)
    monkeypatch.setattr("headway.pipeline.lab.replays.candidate_replay.changes", lambda *_: True)
    slow = replay(trace(rows), rule)
    assert [e.action for e in quick.events[:1]] == [e.action for e in slow.events[:1]]
    for one, other in zip(quick.events[:1], slow.events[:1], strict=True):
        assert one.time == pytest.approx(other.time, abs=0.45)
    assert quick.records_lost == pytest.approx(slow.records_lost, rel=0.03, abs=110), "one cut more or less"
    assert quick.records_conflated == pytest.approx(slow.records_conflated, rel=0.1, abs=120)
    assert quick.stall_ms == pytest.approx(slow.stall_ms, rel=0.1, abs=1500)
    assert (quick.cut, quick.behind_at_end, quick.would_catch_up) == (slow.cut, slow.behind_at_end, slow.would_catch_up)


def test_a_range_knows_that_a_usual_pause_is_no_block() -> None:
    looks = [Sample(lag_records=9, blocked_time=8.0), Sample(lag_records=9, blocked_time=9.0, usual_pause=5.0)]
    for number, both in enumerate((looks, looks[::-1])):
        between = MeterRange(both, [100.0])
        low, high = between.low, between.high
        assert may_hold(parse_condition({"blocked_time": "< 5s"}), low, high), number
        assert may_hold(parse_condition({"blocked_time": "5s"}), low, high)
        assert not must_hold(parse_condition({"blocked_time": "5s"}), low, high, 0.0)
        assert may_hold(parse_condition({"drain_rate": "50B/s"}), low, high), "over ten seconds, not over these two"


def test_a_range_knows_that_a_usual_pause_is_none_without_reading() -> None:
    looks = [Sample(lag_records=9, unread_time=8.0), Sample(lag_records=9, unread_time=9.0, unread_pause=5.0)]
    for both in (looks, looks[::-1]):
        between = MeterRange(both, [100.0])
        low, high = between.low, between.high
        assert may_hold(parse_condition({"unread_time": "< 5s"}), low, high)
        assert may_hold(parse_condition({"unread_time": "5s"}), low, high)
        assert not must_hold(parse_condition({"unread_time": "5s"}), low, high, 0.0)


def test_candidates_do_not_see_each_other() -> None:
    """All share one base: what one does to the consumer must not be there for the next."""
    shared = client(trace(SLOW))
    for rule in (*RULES, *reversed(RULES)):
        [[found]] = shared.replay(policy(rule), MEMORY).values()
        alone = replay(trace(SLOW), rule)
        assert (found.events, found.records_lost, found.buckets) == (alone.events, alone.records_lost, alone.buckets)
