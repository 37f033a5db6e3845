"""Evaluating a policy: clocks, retries, times, stepping back, and ladders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.policies import policy_of, slow

from headway.core.policy.evaluation import PolicyState, evaluate, release, replace_policy
from headway.core.policy.meters.meter import METERS
from headway.core.policy.meters.sample import Sample
from headway.core.policy.rules.condition import AllOf, Amount, AnyOf, Comparison
from headway.core.policy.rules.rule import CALM_MAX_S, Policy
from headway.core.policy.verdicts import Decision, DecisionKind


def told(decisions: list[Decision]) -> list[str]:
    return [f"{decision.kind} {decision.rule} {decision.action.kind}" for decision in decisions]


def play(policy: Policy, story: list[tuple[float, Sample]]) -> list[tuple[float, str]]:
    """What the policy decides at which time of the story."""
    state = PolicyState()
    return [(now, said) for now, sample in story for said in told(evaluate(policy, state, sample, now))]


BLOCKED = slow(blocked_time=60.0)
FINE_AGAIN = slow(lag_records=1)


# Rules over time.


def test_for_must_hold_without_a_break():
    policy = policy_of('when = { lag_records = 50 }\nfor = "10s"\nthen = "disconnect"')
    small = slow(lag_records=50)
    assert play(policy, [(0, slow()), (9.9, slow()), (10, slow())]) == [(10, "fire 0 disconnect")]
    assert play(policy, [(0, slow()), (9, small), (9.5, slow()), (19, slow()), (19.5, slow())]) == [
        (19.5, "fire 0 disconnect")
    ]


def test_for_is_measured_by_the_clock_not_by_looks():
    """A-MQ's trap: it multiplies sweeps by their period, so one second of slowness can count as sixty."""
    policy = policy_of('when = { lag_records = 50 }\nfor = "30s"\nthen = "disconnect"')
    assert play(policy, [(29 + number / 100, slow()) for number in range(200)]) == []


def test_without_for_it_fires_at_the_first_look_and_only_once():
    policy = policy_of('when = { blocked_time = "30s" }\nthen = "disconnect"')
    assert play(policy, [(now, BLOCKED) for now in range(5)]) == [(0, "fire 0 disconnect")]


def test_retries_are_so_many_tests_spread_evenly():
    """X2: below the rate, it is tested three times within 500 ms."""
    policy = policy_of('when = { drain_rate = "<5000B/s" }\nfor = "600ms"\nretries = 3\nthen = "disconnect"')
    trickle, fast = slow(drain_rate=100), slow(drain_rate=9000)
    every = [now / 10 for now in range(12)]
    assert play(policy, [(now, trickle) for now in every]) == [(0.6, "fire 0 disconnect")]
    between = [(now, fast if now in (0.1, 0.3, 0.5) else trickle) for now in every]
    assert play(policy, between) == [(0.6, "fire 0 disconnect")]
    for test in (0.2, 0.4, 0.6):
        once_fast = [(now, fast if now == test else trickle) for now in every]
        fires = [pytest.approx(test + 0.1 + 0.6)] if test < 0.6 else []
        assert [now for now, _ in play(policy, once_fast)] == fires


def test_a_late_look_does_not_serve_for_two_tests():
    policy = policy_of('when = { drain_rate = "<5000B/s" }\nfor = "600ms"\nretries = 3\nthen = "disconnect"')
    story = [(now, slow()) for now in (0, 5.0, 5.01, 5.02, 5.1, 5.15, 5.29, 5.3)]
    assert play(policy, story) == [(5.3, "fire 0 disconnect")]


def test_an_idle_consumer_is_never_slow():
    rules = [f'when = {{ {meter} = "> 0" }}\nthen = "notify"' for meter in ("slow_count", "ack_age", "pool_share")]
    policy = policy_of(*rules, 'when = { drain_rate = "<5000B/s" }\nthen = "disconnect"')
    assert play(policy, [(0, Sample(slow_count=9, ack_age=9, pool_share=1.0))]) == []
    blocked = policy_of('when = { slow_fraction = ">= 100%" }\nthen = "block_publishers"')
    assert play(blocked, [(0, Sample(slow_fraction=1.0))]) == []
    assert play(blocked, [(0, slow(slow_fraction=1.0))]) == [(0, "fire 0 block_publishers")]


def test_supply_that_is_low_does_not_feed_a_rate_floor():
    policy = policy_of('when = { drain_rate = "<5000B/s" }\nfor = "500ms"\nretries = 3\nthen = "disconnect"')
    assert play(policy, [(now / 5, slow(drain_rate=10.0, rate_window=0.0)) for now in range(100)]) == []


def test_clocks_restart_when_the_lag_was_gone_between_looks():
    """Redis' trap: each look finds eight megabytes, a minute apart; each time they had just come."""
    policy = policy_of('when = { lag_bytes = "1MB" }\nfor = "50s"\nthen = "disconnect"')
    monthly = [(60.0 * minute, slow(lag_bytes=8_000_000, waited=0.2)) for minute in range(20)]
    assert play(policy, monthly) == []
    stuck = [(60.0 * minute, slow(lag_bytes=8_000_000, waited=60.0 * minute + 0.2)) for minute in range(3)]
    assert play(policy, stuck) == [(60.0, "fire 0 disconnect")]


def test_times_counts_separate_times():
    """J3: abort when slow so often; each time is one for which the condition held long enough."""
    policy = policy_of('when = { lag_records = 50 }\nfor = "1s"\ntimes = 3\nthen = "disconnect"')
    story = []
    for start in (0, 10, 20, 30):
        story += [(start, slow()), (start + 1, slow()), (start + 2, slow()), (start + 3, slow(lag_records=1))]
    assert play(policy, story) == [(21, "fire 0 disconnect")]
    too_short = [(start + part, sample) for start in range(9) for part, sample in ((0, slow()), (0.9, FINE_AGAIN))]
    assert play(policy, too_short) == []


def test_trembling_around_the_limit_is_one_time():
    policy = policy_of('when = { lag_records = 50 }\ntimes = 2\nthen = "disconnect"')
    trembling = [(now, slow(lag_records=51 if now % 2 else 45)) for now in range(50)]
    assert play(policy, trembling) == []
    assert play(policy, [*trembling, (50, slow(lag_records=40)), (51, slow())]) == [(51, "fire 0 disconnect")]


def test_times_that_are_separated_by_a_gone_lag_between_looks_count():
    policy = policy_of('when = { lag_bytes = "1MB" }\ntimes = 3\nthen = "disconnect"')
    story = [(60.0 * minute, slow(lag_bytes=8_000_000, waited=0.2)) for minute in range(4)]
    assert play(policy, story) == [(120.0, "fire 0 disconnect")]


@pytest.mark.parametrize("usual_s", [0.0, 1.5])
def test_times_counts_a_full_window_that_has_become_usual(usual_s: float):
    full, fine = slow(credit_exhausted=True, credit_exhausted_time=1.5, usual_pause=usual_s), slow(usual_pause=usual_s)
    story = [(2.0 * number + part, sample) for number in range(4) for part, sample in ((0, full), (0.2, fine))]
    often = policy_of('when = { credit_exhausted_time = "1s" }\ntimes = 3\nthen = "disconnect"')
    assert play(often, story) == [(4.0, "fire 0 disconnect")]
    once = policy_of('when = { credit_exhausted_time = "1s" }\nthen = "disconnect"')
    assert play(once, story)[:1] == ([] if usual_s else [(0.0, "fire 0 disconnect")])


def test_times_leaves_out_pauses_of_a_socket_that_are_usual():
    lumps = [(2.0 * number + part, slow(blocked_time=1.5 * (1 - part), usual_pause=1.5))
             for number in range(9) for part in (0, 1)]  # fmt: skip
    assert play(policy_of('when = { blocked_time = "1s" }\ntimes = 3\nthen = "disconnect"'), lumps) == []


def onsets(rules: str, story: list[tuple[float, Sample]]) -> list[float]:
    policy, state, found = policy_of(*rules.split("|")), PolicyState(), []
    for now, sample in story:
        evaluate(policy, state, sample, now)
        found += [now] if state.slow_anew else []
    return found


NOTIFY = 'when = { lag_records = 50 }\nthen = "notify"'


@pytest.mark.parametrize("apart_s", [0.4, 3.0, 400.0])
@pytest.mark.parametrize("then", ["notify", "offline", "block_publishers"])
def test_consumer_is_slow_anew_each_time_however_soon(apart_s: float, then: str):
    story = [(apart_s * number + part, sample) for number in range(12)
             for part, sample in ((0, slow()), (0.1, slow()), (0.2, FINE_AGAIN))]  # fmt: skip
    assert onsets(NOTIFY.replace("notify", then), story) == [apart_s * number for number in range(12)]


def test_consumer_that_trembles_or_breaks_a_further_rule_is_not_slow_anew():
    trembling = [(now, slow(lag_records=51 if now % 2 else 45)) for now in range(50)]
    assert onsets(NOTIFY, trembling) == [1]
    worse = [(0, slow()), (1, slow(lag_age=9)), (2, slow()), (3, slow(lag_age=9)), (9, FINE_AGAIN), (9.2, slow())]
    assert onsets(NOTIFY + '|when = { lag_age = "5s" }\nthen = "notify"', worse) == [0, 9.2]


def test_what_rules_say_of_marks_is_no_mark():
    marked = [(now, slow(lag_records=9 if now % 2 else 99, slow_count=9)) for now in range(6)]
    assert onsets(NOTIFY + '|when = { slow_count = 3 }\nthen = "notify"', marked) == [0, 2, 4]


def test_within_forgets_old_times():
    policy = policy_of('when = { lag_records = 50 }\ntimes = 3\nwithin = "1h"\nthen = "disconnect"')

    def at(*hours: float) -> list[tuple[float, Sample]]:
        return [(hour * 3600 + part, sample) for hour in hours for part, sample in ((0, slow()), (1, Sample()))]

    assert play(policy, at(0, 0.6, 1.2, 1.8, 2.4)) == []
    assert play(policy, at(0, 0.4, 0.9)) == [(0.9 * 3600, "fire 0 disconnect")]


@pytest.mark.parametrize("kind", ["notify", "conflate", "offline", "block_publishers"])
def test_stateful_actions_step_back_with_hysteresis(kind):
    policy = policy_of(f'when = {{ lag_records = 50 }}\nthen = "{kind}"')
    story = [(0, slow()), (1, slow(lag_records=45)), (2, slow(lag_records=55)), (3, slow(lag_records=40)), (4, slow())]
    assert play(policy, story) == [(0, f"fire 0 {kind}"), (3, f"clear 0 {kind}"), (4, f"fire 0 {kind}")]


@pytest.mark.parametrize("kind", ["close_consumer", "disconnect", "delete_subscription"])
def test_actions_done_once_end_without_a_clear(kind):
    policy = policy_of(f'when = {{ lag_records = 50 }}\nthen = "{kind}"')
    story = [(0, slow()), (1, slow()), (2, slow(lag_records=1)), (3, slow())]
    assert play(policy, story) == [(0, f"fire 0 {kind}"), (3, f"fire 0 {kind}")]


def test_a_rate_floor_eases_upwards_and_when_supply_is_low():
    policy = policy_of('when = { drain_rate = "<1000B/s" }\nthen = "notify"')
    story = [(0, slow(drain_rate=10)), (1, slow(drain_rate=1100)), (2, slow(drain_rate=1200))]
    assert play(policy, story) == [(0, "fire 0 notify"), (2, "clear 0 notify")]
    assert play(policy, [*story[:2], (2, slow(drain_rate=10, rate_window=0.0))])[-1] == (2, "clear 0 notify")


def test_until_says_when_to_step_back():
    policy = policy_of('when = { lag_records = 50 }\nuntil = { lag_records = "< 10" }\nthen = "conflate"')
    story = [(0, slow()), (1, slow(lag_records=10)), (2, slow(lag_records=9))]
    assert play(policy, story) == [(0, "fire 0 conflate"), (2, "clear 0 conflate")]


def test_until_that_holds_beside_when_does_not_flap():
    policy = policy_of('when = { lag_age = "1s" }\nuntil = { lag_records = "< 10" }\nthen = "conflate"')
    few = slow(lag_age=2, lag_records=5)
    assert play(policy, [(now, few) for now in range(9)]) == [(0, "fire 0 conflate")]


def test_whoever_is_idle_again_is_released_whatever_until_says():
    """Pulsar's trap: a consumer that stays blocked after it recovered."""
    policy = policy_of('when = { lag_age = "1s" }\nuntil = { drain_rate = "> 1MB/s" }\nthen = "notify"')
    story = [(0, slow(lag_age=2)), (1, slow()), (2, Sample())]
    assert play(policy, story) == [(0, "fire 0 notify"), (2, "clear 0 notify")]


def test_ladders_act_in_order_and_step_back_by_themselves():
    policy = policy_of(
        'when = { lag_age = "1s" }\nthen = "notify"',
        'when = { lag_age = "5s" }\nthen = "conflate"',
        'when = { lag_age = "30s" }\nthen = "disconnect"',
    )
    ages = [0.5, 2, 6, 6, 4.5, 3.9, 0.7]
    assert play(policy, [(now, slow(lag_age=age)) for now, age in enumerate(ages)]) == [
        (1, "fire 0 notify"),
        (2, "fire 1 conflate"),
        (5, "clear 1 conflate"),
        (6, "clear 0 notify"),
    ]
    assert [said for _, said in play(policy, [(0, slow(lag_age=31))])] == [
        "fire 0 notify", "fire 1 conflate", "fire 2 disconnect",
    ]  # fmt: skip


def test_nothing_follows_an_enforced_disconnect_but_a_dry_one_is_followed():
    rules = 'when = { lag_age = "1s" }\nthen = "disconnect"', 'when = { lag_age = "1s" }\nthen = "notify"'
    old = slow(lag_age=2)
    assert play(policy_of(*rules), [(0, old)]) == [(0, "fire 0 disconnect")]
    dry = policy_of(rules[0] + "\nenforce = false", rules[1])
    assert play(dry, [(0, old)]) == [(0, "fire 0 disconnect"), (0, "fire 1 notify")]
    assert [d.enforced for d in evaluate(dry, PolicyState(), old, 0)] == [False, True]


def test_all_slow_blocks_the_publisher_and_few_slow_are_acted_on():
    """A5."""
    policy = policy_of(
        'when = { slow_fraction = ">= 100%" }\nthen = "block_publishers"',
        'when = { slow_fraction = "< 50%", blocked_time = "30s" }\nthen = "disconnect"',
    )
    assert play(policy, [(0, slow(blocked_time=31, slow_fraction=1.0))]) == [(0, "fire 0 block_publishers")]
    assert play(policy, [(0, slow(blocked_time=31, slow_fraction=0.1))]) == [(0, "fire 1 disconnect")]
    assert play(policy, [(0, slow(blocked_time=29, slow_fraction=0.1))]) == []


def test_the_brokers_lateness_is_not_charged():
    policy = policy_of(
        'when = { lag_records = 50 }\nfor = "10s"\nthen = "disconnect"',
        'when = { lag_records = 50 }\nfor = "9s"\nretries = 3\nthen = "notify"',
    )
    state = PolicyState()
    assert evaluate(policy, state, slow(), 0) == []
    state.shift(20.0)
    said = [(now, what) for now in range(21, 31) for what in told(evaluate(policy, state, slow(), now))]
    assert said == [(29, "fire 1 notify"), (30, "fire 0 disconnect")]


def test_settled_says_when_looking_may_stop():
    policy = policy_of('when = { lag_records = 50 }\nfor = "1s"\nthen = "notify"')
    state = PolicyState()
    seen = []
    for now, sample in [(0, FINE_AGAIN), (1, slow()), (2, slow()), (3, Sample())]:
        evaluate(policy, state, sample, now)
        seen.append((state.settled, list(state.active())))
    assert seen == [(True, []), (False, []), (False, [0]), (True, [])]


def test_decisions_carry_what_they_rest_on():
    when = 'when = { slow_fraction = "<50%", lag_records = 50 }'
    policy = policy_of(when + '\nfor = "2s"\nname = "deep"\nthen = "notify"')
    state = PolicyState()
    evaluate(policy, state, slow(), 0)
    (fired,) = evaluate(policy, state, slow(), 3)
    assert (fired.kind, fired.window_s, fired.held_s, fired.rule_name) == (DecisionKind.FIRE, 2.0, 3.0, "deep")
    assert fired.leading is not None
    assert (fired.leading.meter, fired.leading.value, fired.leading.threshold) == ("lag_records", 100, 50)
    (cleared,) = evaluate(policy, state, Sample(), 10)
    assert (cleared.kind, cleared.held_s) == (DecisionKind.CLEAR, 7.0)


def test_release_steps_everything_back():
    policy = policy_of('when = { lag_age = 1 }\nthen = "conflate"', 'when = { lag_age = 1 }\nthen = "close_consumer"')
    state = PolicyState()
    evaluate(policy, state, slow(lag_age=2), 0)
    assert told(release(policy, state, slow(lag_age=2), 5)) == ["clear 0 conflate"]
    assert state.settled


def test_a_reload_keeps_the_clocks_of_rules_that_stayed():
    stays = 'when = { lag_records = 50 }\nfor = "10s"\nthen = "disconnect"'
    goes = 'when = { lag_records = 50 }\nthen = "notify"'
    old, new = policy_of(goes, stays), policy_of(stays, 'when = { lag_age = "9s" }\nthen = "conflate"')
    state = PolicyState()
    evaluate(old, state, slow(), 0)
    state, decisions = replace_policy(old, state, new, slow(), 5)
    assert told(decisions) == ["clear 0 notify"]
    assert told(evaluate(new, state, slow(), 9)) == []
    assert told(evaluate(new, state, slow(), 10)) == ["fire 0 disconnect"]


# Whatever happens.

samples = st.builds(
    Sample,
    lag_records=st.sampled_from([0, 0, 1, 40, 45, 50, 51, 1000]),
    lag_age=st.floats(0, 20),
    drain_rate=st.floats(0, 10_000),
    in_flight=st.integers(0, 1),
    ack_age=st.floats(0, 20),
    slow_fraction=st.floats(0, 1),
    rate_window=st.sampled_from([0.0, 1.0]),
    waited=st.one_of(st.none(), st.floats(0, 30)),
)
stories = st.lists(st.tuples(st.floats(0.01, 5.0), samples), max_size=60)
MANY = policy_of(
    'when = { lag_records = 50 }\nthen = "notify"',
    'when = { lag_age = "5s" }\nfor = "3s"\nthen = "conflate"\nuntil = { lag_age = "<1s" }',
    'when = { drain_rate = "<5000B/s" }\nfor = "2s"\nretries = 3\nthen = "close_consumer"',
    'when = { any = [ { ack_age = "9s" }, { lag_records = 40 } ] }\ntimes = 3\nwithin = "30s"\nthen = "offline"',
    'when = { slow_fraction = ">= 90%" }\nthen = "block_publishers"',
)


@given(stories)
def test_fires_and_clears_alternate_and_the_same_story_gives_the_same_decisions(story):
    clock, timed = 0.0, []
    for wait, sample in story:
        clock += wait
        timed.append((clock, sample))
    said = play(MANY, timed)
    assert said == play(MANY, timed)
    for index, rule in enumerate(MANY.rules):
        kinds = [what.split()[0] for _, what in said if what.split()[1] == str(index)]
        if rule.then.kind.stateful:
            assert kinds == ["fire", "clear"] * (len(kinds) // 2) + ["fire"] * (len(kinds) % 2)
        else:
            assert "clear" not in kinds


@given(stories)
def test_an_idle_look_settles_everything(story):
    state, clock = PolicyState(), 0.0
    for wait, sample in story:
        clock += wait
        evaluate(MANY, state, sample, clock)
    evaluate(MANY, state, Sample(slow_fraction=1.0), clock + 1)
    evaluate(MANY, state, Sample(slow_fraction=1.0), clock + 1 + CALM_MAX_S)  # who goes to and fro has to be calm
    assert state.settled


@given(stories, st.floats(0.1, 100))
def test_lateness_that_is_shifted_away_changes_nothing(story, late):
    plain, shifted, clock = PolicyState(), PolicyState(), 0.0
    half = len(story) // 2
    for number, (wait, sample) in enumerate(story):
        clock += wait
        if number == half:
            shifted.shift(late)
        one = told(evaluate(MANY, plain, sample, clock))
        assert one == told(evaluate(MANY, shifted, sample, clock + (late if number >= half else 0.0)))


@given(samples, st.sampled_from(sorted(METERS)), st.sampled_from([">", ">=", "<", "<="]), st.floats(0, 100))
def test_easing_only_ever_makes_a_condition_easier(sample, meter, op, limit):
    condition = Comparison(meter, op, Amount(limit))
    for whole in (condition, AllOf((condition, condition)), AnyOf((condition,))):
        assert not whole.holds(sample) or whole.holds(sample, 0.2)
