"""The judge's arithmetic: labels and verdicts in, counts out; and that the set's tools do what they say."""

from __future__ import annotations

import json
import struct
from math import inf
from pathlib import Path

import pytest
from bench.behaviours.broker import IN_FORCE, JudgedHeadway
from bench.behaviours.consumers.feeds import Feed
from bench.behaviours.consumers.frames import AmqpFrames, MqttFrames
from bench.behaviours.consumers.labels import COARSE, NETWORK, OVER_SUBSCRIPTION, READS_NOTHING, Label, Spell
from bench.behaviours.consumers.links import Job
from bench.behaviours.judging.findings import Finding
from bench.behaviours.judging.lags import Lag, doubts
from bench.behaviours.judging.score import TAIL_S, added, judge, of_label, right, scores
from bench.behaviours.kinds.every import EVERY
from bench.behaviours.results import document, load, markdown, runs_of
from bench.behaviours.run import Run
from bench.wires.amqp import BODY, frame, method, short_string
from bench.wires.packets import encode_publish

from headway.core.base import Cause
from headway.server.config import parse_settings

ENDED_S = 240.0
HEALTHY: list[Spell] = []
STUCK = [Spell(30.0, READS_NOTHING)]
FROZEN = [Spell(30.0, READS_NOTHING, 70.0)]


def _label(spells: list[Spell], *, kind: str = "k", client: str = "c", filter: str = "", stuck: bool = True) -> Label:
    return Label(kind, client, "mqtt", filter, stuck, spells)


def _finding(time_s: float, *, clears: bool = False, action: str = "notify", rule: int = 1, client: str = "c",
             filter: str = "f", policy: str = "p", cause: str = "application") -> Finding:  # fmt: skip
    return Finding(policy, rule, client, filter, time_s, clears, "" if clears else cause, action, "")


@pytest.mark.parametrize(("spells", "findings", "false", "found"), [
    pytest.param(HEALTHY, [], 0, [], id="healthy, and nobody says otherwise"),
    pytest.param(HEALTHY, [_finding(50.0)], 1, [], id="healthy, and called slow"),
    pytest.param(HEALTHY, [_finding(50.0), _finding(51.0, clears=True)], 1, [], id="a clear is no verdict"),
    pytest.param(STUCK, [], 0, [inf], id="missed"),
    pytest.param(STUCK, [_finding(40.0)], 0, [10.0], id="found"),
    pytest.param(STUCK, [_finding(40.0), _finding(35.0, rule=2)], 0, [5.0], id="the first one counts"),
    pytest.param(STUCK, [_finding(30.0)], 0, [0.0], id="found at once"),
    pytest.param(STUCK, [_finding(20.0, action="disconnect")], 1, [inf], id="too early, done once"),
    pytest.param(STUCK, [_finding(20.0)], 1, [0.0], id="too early, and it stands"),
    pytest.param(STUCK, [_finding(20.0), _finding(25.0, clears=True)], 1, [inf], id="too early, and it was cleared"),
    pytest.param(STUCK, [_finding(20.0), _finding(25.0, clears=True, rule=2)], 1, [0.0], id="another rule was cleared"),
    pytest.param(FROZEN, [_finding(71.0)], 0, [41.0], id="just after the end"),
    pytest.param(FROZEN, [_finding(70.0 + TAIL_S + 1)], 1, [inf], id="long after the end"),
    pytest.param([Spell(30.0, READS_NOTHING, 40.0)], [], 0, [], id="too short to ask for"),
    pytest.param([Spell(230.0, READS_NOTHING)], [], 0, [], id="too late in the run to ask for"),
    pytest.param([*FROZEN, Spell(100.0, READS_NOTHING, 150.0)], [_finding(110.0)], 0, [inf, 10.0], id="two spells"),
])  # fmt: skip
def test_verdicts_are_matched_to_the_truth(
    spells: list[Spell], findings: list[Finding], false: int, found: list[float]
) -> None:
    label = _label(spells)
    outcome = judge(label, of_label(label, findings), ENDED_S)
    assert (len(outcome.false), [after_s for _, _, after_s in outcome.found]) == (false, found)


@pytest.mark.parametrize(("client", "filter", "theirs"), [("c", "", 2), ("c", "good", 1), ("d", "", 0)])
def test_a_verdict_belongs_to_a_consumer_by_its_client_and_its_filter(client: str, filter: str, theirs: int) -> None:
    findings = [_finding(1.0, filter="x-good"), _finding(2.0, filter="x-bad")]
    assert len(of_label(_label([], client=client, filter=filter), findings)) == theirs


@pytest.mark.parametrize(("named", "true", "is_right"), [
    ("application", READS_NOTHING, True), (READS_NOTHING, READS_NOTHING, True), ("network", READS_NOTHING, False),
    ("network", NETWORK, True), ("application", OVER_SUBSCRIPTION, False), ("", NETWORK, False),
])  # fmt: skip
def test_a_cause_is_right_in_the_brokers_word_or_in_a_finer_one(named: str, true: str, is_right: bool) -> None:
    assert right(named, true) == is_right


def test_every_true_cause_has_a_word_of_the_brokers() -> None:
    assert set(COARSE.values()) <= set(Cause)


def test_scores_count_consumers_and_spells_by_kind() -> None:
    labels = [
        _label([], kind="fine", client="a"), _label([], kind="fine", client="b"),
        _label([Spell(0.0, READS_NOTHING)], kind="stuck", client="c"),
        _label([Spell(100.0, NETWORK)], kind="dead", client="d"),
        _label([Spell(100.0, OVER_SUBSCRIPTION)], kind="over", client="e", stuck=False),
    ]  # fmt: skip
    findings = [
        _finding(10.0, client="a"), _finding(20.0, client="a"),
        _finding(8.0, client="c"),
        _finding(112.0, client="d", cause="application"),
    ]  # fmt: skip
    found = scores(labels, findings, ["p", "silent"], ENDED_S)
    one, silent = found["p"], found["silent"]
    assert (one.healthy, dict(one.false)) == (4, {"fine": 1}), "healthy all the time, or before the trouble began"
    assert (one.troubled, dict(one.missed), one.found) == (3, {"over": 1}, 2)
    assert (one.stuck, sorted(one.times_s), one.median_s, one.worst_s) == (2, [8.0, 12.0], 10.0, 12.0)
    assert (one.causes_right, dict(one.causes_wrong)) == (1, {("dead", NETWORK, "application"): 1})
    assert (silent.false.total(), silent.missed.total(), silent.median_s) == (0, 3, None)


def test_scores_of_two_runs_add_up() -> None:
    labels = [_label(STUCK), _label([], client="fine")]
    one = scores(labels, [_finding(35.0), _finding(9.0, client="fine")], ["p"], ENDED_S)["p"]
    other = scores(labels, [], ["p"], ENDED_S)["p"]
    both = added(one, other)
    assert (both.healthy, both.false.total(), both.troubled, both.missed.total()) == (4, 1, 2, 1)
    assert (both.times_s, both.stuck, both.causes_right) == ([5.0], 2, 1)


@pytest.mark.parametrize(("spells", "before", "lately", "words"), [
    pytest.param(STUCK, 10**6, 2 * 10**6, "", id="in trouble, and behind"),
    pytest.param(STUCK, 10**6, 0, "is to be in trouble", id="in trouble, and current"),
    pytest.param(FROZEN, 0, 0, "", id="well again"),
    pytest.param(HEALTHY, 3 * 10**6, 2 * 10**6, "", id="healthy, and catching up"),
    pytest.param(HEALTHY, 10**6, 2 * 10**6, "is to be healthy", id="healthy, and falling behind"),
    pytest.param(HEALTHY, 0, 1000, "", id="healthy, and a moment behind"),
])  # fmt: skip
def test_a_label_that_the_lag_contradicts_is_in_doubt(
    spells: list[Spell], before: int, lately: int, words: str
) -> None:
    seen = [Lag(ENDED_S - 40.0, "c", "f", before, before), Lag(ENDED_S - 5.0, "c", "f", lately, lately)]
    found = doubts([_label(spells)], seen, ENDED_S)
    assert [words in one for one in found] == [True] * bool(words)


def test_what_is_written_is_read_and_counted_alike(tmp_path: Path) -> None:
    labels = [_label(STUCK), _label([], client="fine", kind="fine")]
    run = Run(1, 0.0, ENDED_S, labels, [_finding(35.0), _finding(9.0, client="fine")], 0.1, 0.2, 0.3, 4, [], [])
    machine = {"cores": 2, "cpu": "a", "memory_bytes": 1, "kernel": "b", "python": "c", "load": 0.0}
    told = document([run], ["p", "silent"], machine)
    path = tmp_path / "judge.json"
    path.write_text(json.dumps(told))
    twice = load([path, path])
    assert runs_of(told) == [run]
    assert [one["healthy"] for one in twice["scores"]] == [4, 4]
    assert "| p | 2 of 4 | 0 of 2 | 2 of 2 | 5.0 | 5.0 | 2 of 2 |" in markdown(twice)
    assert "| fine | 2 |" in markdown(twice)


def test_the_configuration_has_every_policy_and_enforces_none() -> None:
    peer = JudgedHeadway()
    text = peer.config.format(folder="/tmp/f", port=1, second_port=2, third_port=3)
    settings = parse_settings(text)
    assert IN_FORCE not in peer.trials
    assert [trial.name for trial in settings.trials] == peer.trials
    assert not any(rule.enforce for policy in (*settings.policies, *settings.trials) for rule in policy.rules)
    assert settings.policies


def test_kinds_are_both_healthy_and_troubled_over_each_protocol() -> None:
    assert len(EVERY) >= 25
    assert {kind.protocol for kind in EVERY.values()} == {"mqtt", "amqp", "http"}
    assert any(kind.stuck for kind in EVERY.values())


def test_a_feed_sends_at_its_rate_whatever_the_ticks() -> None:
    feed = Feed("t", 1000.0, 300, 0)
    assert sum(feed.due(0.05) for _ in range(200)) == 33
    feed.burst(7)
    assert (feed.due(0.0), feed.due(0.0)) == (7, 0)


def test_packet_ids_are_found_however_the_bytes_are_cut() -> None:
    data = encode_publish("a/b", bytes(300), version=4, qos=1, packet_id=7) + encode_publish("a", b"x", version=4)
    data += encode_publish("a", b"", version=4, qos=1, packet_id=65_535)
    for step in (1, 5, 1000):
        frames = MqttFrames(4)
        found = [one for at in range(0, len(data), step) for one in frames.feed(data[at : at + step])]
        assert found == [7, 65_535]


def test_delivery_tags_are_found_however_the_bytes_are_cut() -> None:
    deliver = method(2, 60, 60, short_string("c2") + struct.pack(">QB", 9, 0) + short_string("") + short_string("q"))
    data = deliver + frame(BODY, 2, bytes(100)) + method(1, 60, 21, short_string("c1"))
    for step in (1, 7, 1000):
        frames = AmqpFrames()
        assert [one for at in range(0, len(data), step) for one in frames.feed(data[at : at + step])] == [(2, 9)]


@pytest.mark.parametrize(("job", "tags"), [
    pytest.param(Job(), [3, 0, 0, 0], id="done at once"),
    pytest.param(Job(2.0), [0, 0, 1, 0, 2, 0, 3], id="one after the other"),
    pytest.param(Job(inf), [0, 0, 0, 0], id="never done"),
    pytest.param(Job(hold_s=2.0), [0, 0, 3, 0], id="all at the same time"),
    pytest.param(Job(ack_every=1000, ack_every_s=3.0), [0, 0, 0, 3, 0], id="once in a while"),
])  # fmt: skip
def test_a_worker_acknowledges_when_its_jobs_are_done(job: Job, tags: list[int]) -> None:
    job.waiting.extend((1, 2, 3))
    assert [job.done(float(second)) for second in range(len(tags))] == tags
