"""A consumer that goes to and fro is judged once, and has to be well for longer each time."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest
from tests.core.rows import assert_told_why
from tests.core.stage import Client, Stage, documented

from headway.core.policy.evaluation import PolicyState, evaluate
from headway.core.policy.meters.sample import Sample
from headway.core.policy.rules.rule import CALM_MAX_S, CALM_S, MEMORY_S, ActionKind, Policy, parse_policy
from headway.core.policy.verdicts import Decision, DecisionKind, explain

SWEEP_S = 0.2
BEHIND = Sample(lag_records=100, lag_bytes=10_000, lag_age=9.0)
WELL = Sample(lag_records=1, lag_bytes=100)
IDLE = Sample()


def policy(then: str = "notify") -> Policy:
    options = ', which = "oldest", keep_records = 5' if then == "discard" else ""
    action = f'then = {{ action = "{then}"{options} }}'
    return parse_policy(tomllib.loads(f'name = "p"\n[[rule]]\nwhen = {{ lag_age = "5s" }}\n{action}'))


class Story:
    """Looks at one consumer on a fake clock."""

    def __init__(self, then: str = "notify") -> None:
        self.policy = policy(then)
        self.state = PolicyState()
        self.now = 0.0
        self.decisions: list[tuple[float, Decision]] = []

    def looks(self, sample: Sample, seconds: float) -> None:
        for _ in range(round(seconds / SWEEP_S)):
            self.now += SWEEP_S
            self.decisions += [(self.now, one) for one in evaluate(self.policy, self.state, sample, self.now)]

    def flap(self, times: int, slow_s: float = 1.0, well_s: float = 1.0, sample: Sample = WELL) -> None:
        for _ in range(times):
            self.looks(BEHIND, slow_s)
            self.looks(sample, well_s)

    @property
    def kinds(self) -> list[str]:
        return [one.kind for _, one in self.decisions]


@pytest.mark.parametrize("sample", [WELL, IDLE])
def test_who_goes_to_and_fro_is_judged_once(sample: Sample) -> None:
    story = Story()
    story.flap(22, sample=sample)
    assert story.kinds == ["fire", "clear", "fire"]
    story.looks(sample, CALM_MAX_S)
    (_, last) = story.decisions[-1]
    assert (last.kind, last.relapses) == (DecisionKind.CLEAR, 21), "those without a decision are counted"
    assert story.state.settled


def test_the_sentences_say_how_often() -> None:
    story = Story()
    story.flap(5)
    story.looks(WELL, CALM_MAX_S)
    texts = [explain(one, WELL, client="board", filter="t", policy="p") for _, one in story.decisions]
    assert ["for the 2nd time of late" in text for text in texts] == [False, False, True, False]
    assert ["having relapsed 4 times" in text for text in texts] == [False, False, False, True]


def test_the_first_time_it_steps_back_at_once() -> None:
    story = Story()
    story.looks(BEHIND, 1.0)
    story.looks(WELL, SWEEP_S)
    assert story.kinds == ["fire", "clear"]


def test_each_relapse_takes_twice_as_long_up_to_a_limit() -> None:
    story, waits = Story(), []
    for _ in range(9):
        story.looks(BEHIND, SWEEP_S)
        since = story.now
        story.looks(WELL, 2 * CALM_MAX_S)
        at, last = story.decisions[-1]
        assert last.kind is DecisionKind.CLEAR
        waits.append(at - since - SWEEP_S)
    assert waits == pytest.approx([0, *(min(CALM_MAX_S, CALM_S * 2**power) for power in range(8))], abs=SWEEP_S)


def test_after_a_time_all_is_forgotten() -> None:
    story = Story()
    story.flap(10)
    story.looks(WELL, MEMORY_S + CALM_MAX_S)
    count = len(story.decisions)
    story.looks(BEHIND, 1.0)
    story.looks(WELL, SWEEP_S)
    (_, fired), (_, cleared) = story.decisions[count:]
    assert (fired.kind, fired.relapses, cleared.kind, cleared.relapses) == ("fire", 0, "clear", 0)


def test_who_is_slow_for_long_after_all_steps_back_at_once() -> None:
    story = Story()
    story.flap(3)
    story.looks(BEHIND, MEMORY_S + 1)
    story.looks(WELL, SWEEP_S)
    assert story.kinds[-1] == "clear"


def test_calm_is_without_a_break() -> None:
    story = Story()
    story.flap(2)  # relapsed once: it takes CALM_S
    story.looks(WELL, CALM_S / 2 - 1.0 + SWEEP_S)
    between = Sample(lag_records=100, lag_bytes=100, lag_age=4.5)  # neither over the limit nor well
    story.looks(between, SWEEP_S)
    story.looks(WELL, CALM_S - SWEEP_S)
    assert story.kinds == ["fire", "clear", "fire"]
    story.looks(WELL, 2 * SWEEP_S)
    assert story.kinds == ["fire", "clear", "fire", "clear"]


@pytest.mark.parametrize("then", ["discard", "block_publishers", "return"])
def test_what_does_harm_while_it_lasts_ends_at_once(then: str) -> None:
    story = Story(then)
    story.flap(5)
    assert story.kinds == ["fire", "clear"] * 5


def test_what_is_done_once_is_not_done_each_time() -> None:
    story = Story("close_consumer")
    story.flap(10)
    assert story.kinds == ["fire", "fire"]
    assert {one.action.kind for _, one in story.decisions} == {ActionKind.CLOSE_CONSUMER}


def test_the_brokers_lateness_is_no_calm() -> None:
    story = Story()
    story.flap(2)
    story.looks(WELL, SWEEP_S)
    story.state.shift(10.0)
    story.now += 10.0
    story.looks(WELL, SWEEP_S)
    assert story.kinds == ["fire", "clear", "fire"], "ten seconds more, and nobody looked"


def test_no_look_is_left_out_while_a_calm_is_measured() -> None:
    story = Story()
    story.looks(BEHIND, SWEEP_S)
    assert story.state.steady
    story.flap(2)
    assert not story.state.steady


# -- how often ---------------------------------------------------------------------------------------------------------


def stalls(stage: Stage, apart_s: float) -> Iterator[Client]:
    """A client that stops acknowledging for 1.6 s, again and again, and takes everything in between."""
    publisher, client = stage.client("publisher"), stage.consumer("c", "t", 1, window=5)
    for number in range(12):
        client.acks = False
        publisher.publish("t", 1000 * number, 40, qos=1)
        stage.run(1.6)
        yield client
        client.acks = True
        client.acknowledge(5)
        stage.run(apart_s)


@pytest.mark.parametrize("apart_s", [0.3, 0.9, 1.5, 3.0])
def test_each_time_counts_however_soon_it_comes_again(apart_s: float) -> None:
    stage = Stage(documented("J3").replace("times = 30", "times = 12"))
    connected = [client.connected for client in stalls(stage, apart_s)]
    assert connected == [True] * 11 + [False]
    assert_told_why(stage.clients["c"], "for the 12th time")


@pytest.mark.parametrize(("apart_s", "most"), [(0.3, 2), (3.0, 12)])
def test_slow_count_counts_each_time_that_is_not_usual(apart_s: float, most: int) -> None:
    stage = Stage('[[policy]]\nname = "p"\n[[policy.rule]]\nwhen = { credit_exhausted_time = "1s" }\nthen = "notify"')
    counts = [stage.stats(client).slow_count for client in stalls(stage, apart_s)]
    assert counts == [min(number, most) for number in range(1, 13)]
