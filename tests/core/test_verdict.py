"""Verdicts: the cause, the reason, the sentence, and the book they are kept in."""

from __future__ import annotations

from math import inf

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.base.errors import Cause, Reason
from headway.core.policy.evaluation import PolicyState, evaluate
from headway.core.policy.meters.meter import METERS
from headway.core.policy.meters.sample import Sample
from headway.core.policy.rules.condition import Reading
from headway.core.policy.rules.rule import ACTIONS, ActionKind, parse_policy
from headway.core.policy.verdicts import (
    Decision,
    DecisionKind,
    Verdict,
    VerdictBook,
    explain_cause,
    find_cause,
    find_reason,
    judge,
    judge_pressure,
)

LAGGING = {"lag_records": 12_408, "lag_bytes": 1_588_224}


def slow(**more) -> Sample:
    return Sample(**{**LAGGING, **more})


def decide(rule: dict[str, object], *looks: tuple[float, Sample]) -> tuple[Decision, Sample]:
    """The last decision of a policy whose second rule this is."""
    never = {"when": {"lag_age": "9d"}, "then": "notify"}
    policy = parse_policy({"name": "default", "rule": [never, rule]})
    state = PolicyState()
    decisions = [(decision, sample) for now, sample in looks for decision in evaluate(policy, state, sample, now)]
    return decisions[-1]


def say(rule: dict[str, object], *looks: tuple[float, Sample], **more) -> Verdict:
    decision, sample = decide(rule, *looks)
    who = {"client": "board-7", "filter": "flights/#", "policy": "default"}
    return judge(decision, sample, number=1, now=5.0, wall_s=1.7e9, **who, **more)


BLOCKED = slow(blocked_time=31.2, peer_window_closed=True)

# Causes, in the order in which they are asked for.

CAUSES = [
    ({"retransmitting": True, "peer_window_closed": True}, Cause.NETWORK, "bytes sent to it are being retransmitted"),
    ({"blocked_time": 9, "reads_itself": True}, Cause.APPLICATION, "it reports no progress"),
    ({"peer_window_closed": True, "blocked_time": 9.0}, Cause.APPLICATION, "its receive window is closed"),
    (
        {"credit_exhausted": True, "in_flight": 20, "blocked_time": 9},
        Cause.APPLICATION,
        "its window is full with 20 records unacknowledged",
    ),
    (
        {"credit_exhausted": True, "in_flight": 5, "credit_exhausted_time": 0.4, "waited": 0.5, "drain_rate": 9e5,
         "offered_rate": 1e6},
        Cause.APPLICATION,
        "its window is full with 5 records unacknowledged",
    ),
    (
        {"credit_exhausted": True, "in_flight": 5, "credit_exhausted_time": 0.4, "waited": 50.0, "drain_rate": 9e5,
         "offered_rate": 1e6},
        Cause.OVER_SUBSCRIPTION,
        "it takes 900 kB/s of the 1 MB/s offered",
    ),
    (
        {"in_flight": 1, "ack_age": 12.0, "drain_rate": 9e5},
        Cause.APPLICATION,
        "its acknowledgements are late, the oldest outstanding for 12 s",
    ),
    (
        {"drain_rate": 1e6, "offered_rate": 3e6, "in_flight": 9, "ack_age": 0.2},
        Cause.OVER_SUBSCRIPTION,
        "it takes 1 MB/s of the 3 MB/s offered",
    ),
    (
        {"drain_rate": 1e6, "offered_rate": 3e6, "offered_burst": 4.25},
        Cause.PRODUCER_BURST,
        "it takes 1 MB/s of the 3 MB/s offered, 4.2 times the usual",
    ),
    (
        {"drain_rate": 3e6, "offered_rate": 1e6},
        Cause.PRODUCER_BURST,
        "it takes 3 MB/s of the 1 MB/s offered now and is working off what came before",
    ),
    (
        {"drain_rate": 225e3, "offered_rate": 217e3},
        Cause.OVER_SUBSCRIPTION,
        "it takes 225 kB/s, hardly more than is offered now",
    ),
    (
        {"drain_rate": 3e6, "offered_rate": 1e6, "drain_share": 0.5, "catching_up": inf},
        Cause.OVER_SUBSCRIPTION,
        "it takes 50 % of what is offered",
    ),
    (
        {"drain_rate": 0.0, "offered_rate": 1e3, "drain_share": 0.55, "blocked_time": 0.8, "usual_pause": 0.6},
        Cause.OVER_SUBSCRIPTION,
        "it takes 55 % of what is offered",
    ),
    (
        {"drain_share": 0.55, "blocked_time": 1.2, "unread_time": 16.0, "usual_pause": 2.0, "unread_pause": 2.0,
         "peer_window_closed": True},
        Cause.APPLICATION,
        "its receive window is closed",
    ),
    ({"blocked_time": 31.0}, Cause.NETWORK, "its socket takes no bytes though its receive window is not seen to be"),
    ({"blocked_time": 31.0, "drain_rate": 10.0, "offered_rate": 1e6}, Cause.NETWORK, "its socket takes no bytes"),
    ({"drain_rate": 200.0, "offered_rate": 1e6, "offered_burst": 9.0}, Cause.APPLICATION, "it reads only 200 B/s"),
    ({"offered_rate": 1e6}, Cause.APPLICATION, "it does not read"),
]


@pytest.mark.parametrize(("figures", "cause", "why"), CAUSES)
def test_causes(figures, cause, why):
    sample = slow(**figures)
    assert find_cause(sample) is cause
    assert explain_cause(sample).startswith(f"{cause.replace('_', '-')}, {why}")


def test_a_late_broker_takes_the_blame_itself():
    assert find_cause(BLOCKED, broker_late=True) is Cause.BROKER
    assert explain_cause(BLOCKED, broker_late=True) == "broker, its own loop was late"


# Reasons: the leading reading's meter, whatever else held.

REASONS = [
    ({"lag_records": 1}, Reason.LAG_RECORDS),
    ({"lag_bytes": 1}, Reason.LAG_BYTES),
    ({"lag_age": 1}, Reason.LAG_AGE),
    ({"drain_rate": 5000}, Reason.DRAIN_RATE),
    ({"blocked_time": 1}, Reason.BLOCKED),
    ({"credit_exhausted_time": 1}, Reason.CREDIT_EXHAUSTED),
    ({"slow_count": 1}, Reason.SLOW_COUNT),
    ({"ack_age": 1}, Reason.ACK_AGE),
    ({"pool_share": 0.1}, Reason.POOL_SHARE),
    ({"slow_fraction": "<50%", "blocked_time": 1}, Reason.BLOCKED),
    ({"slow_fraction": ">10%", "slow_count": 1, "lag_bytes": 1}, Reason.LAG_BYTES),
    ({"any": [{"lag_age": 100}, {"ack_age": 1}]}, Reason.ACK_AGE),
]
ALL_BAD = slow(
    lag_age=9, blocked_time=9, credit_exhausted_time=9, slow_count=9, ack_age=9, in_flight=9, pool_share=0.9,
    slow_fraction=0.4,
)  # fmt: skip


@pytest.mark.parametrize(("when", "reason"), REASONS)
def test_reasons(when, reason):
    decision, _ = decide({"when": when, "then": "notify"}, (0, ALL_BAD))
    assert find_reason(decision) is reason


def test_block_publishers_by_the_company():
    decision, _ = decide({"when": {"slow_fraction": "10%"}, "then": "block_publishers"}, (0, ALL_BAD))
    assert find_reason(decision) is Reason.SLOW_FRACTION


# Sentences.

WAITED = "12,408 records (1.59 MB)"
BY = "by policy 'default', rule 2"
SENTENCES = [
    (
        {"when": {"blocked_time": "30s"}, "then": "disconnect"},
        BLOCKED,
        f"no bytes taken for 31.2 s (limit 30 s) while {WAITED} waited; cause: application, "
        f"its receive window is closed; disconnected {BY}",
    ),
    (
        {"when": {"credit_exhausted_time": "30s"}, "then": "close_consumer"},
        slow(credit_exhausted_time=45, credit_exhausted=True, in_flight=20, prefetch=20),
        f"its window full for 45 s (limit 30 s) with 20 records unacknowledged while {WAITED} waited; cause: "
        f"application, its window is full with 20 records unacknowledged; asked to close {BY}",
    ),
    (
        {"when": {"lag_records": "> 2 x prefetch"}, "then": {"action": "discard", "which": "oldest"}},
        slow(prefetch=3, drain_rate=1e6, offered_rate=2e6),
        f"{WAITED} waited (limit 6); cause: over-subscription, it takes 1 MB/s of the 2 MB/s offered; "
        f"its oldest waiting records discarded down to 6 records {BY}",
    ),
    (
        {"when": {"lag_bytes": "1MB"}, "then": "offline", "name": "too much"},
        slow(retransmitting=True),
        f"1.59 MB waited in 12,408 records (limit 1 MB); cause: network, bytes sent to it are being retransmitted; "
        f"offlined to disk {BY} (too much)",
    ),
    (
        {"when": {"lag_age": "10s"}, "then": "conflate"},
        slow(lag_age=11.5, drain_rate=1e6, offered_rate=2e6, offered_burst=5.0),
        f"the oldest of {WAITED} had waited 11.5 s (limit 10 s); cause: producer-burst, it takes 1 MB/s of the 2 MB/s "
        f"offered, 5.0 times the usual; conflated to the latest record per key {BY}",
    ),
    (
        {"when": {"drain_rate": "<5000B/s"}, "then": "disconnect", "enforce": False},
        slow(drain_rate=1234.0, offered_rate=1e6),
        f"only 1.23 kB/s taken over 1 s (at least 5 kB/s asked) while {WAITED} waited; cause: application, it reads "
        f"only 1.23 kB/s; would have been disconnected {BY} (dry run: enforce = false)",
    ),
    (
        {"when": {"drain_rate": "<5000B/s"}, "then": "delete_subscription"},
        slow(),
        f"nothing taken over 1 s (at least 5 kB/s asked) while {WAITED} waited; cause: application, it does not read; "
        f"unsubscribed {BY}",
    ),
    (
        {"when": {"ack_age": "10s"}, "then": "notify"},
        Sample(in_flight=1, ack_age=10.004),
        "the oldest of 1 record unacknowledged for just over 10 s (limit 10 s); cause: application, its "
        f"acknowledgements are late, the oldest outstanding for 10 s; reported as slow {BY}",
    ),
    (
        {"when": {"slow_fraction": ">= 75%", "slow_count": 2}, "then": "block_publishers"},
        slow(slow_fraction=0.8, slow_count=3, blocked_time=3.0),
        f"80 % of the topic's consumers slow (limit 75 %) and marked slow 3 times (limit 2) while {WAITED} waited; "
        f"cause: network, its socket takes no bytes though its receive window is not seen to be closed; "
        f"publishers held back {BY}",
    ),
    (
        {"when": {"slow_fraction": "< 50%", "pool_share": "25%"}, "then": "notify"},
        slow(slow_fraction=0.1, pool_share=0.3),
        f"30 % of the pool held (limit 25 %) and slow consumers of the topic 10 % (less than 50 %) while {WAITED} "
        f"waited; cause: application, it does not read; reported as slow {BY}",
    ),
    (
        {
            "when": {"lag_records": 50},
            "then": {"action": "discard", "which": "selector", "selector": "price < 3"},
            "enforce": False,
        },
        slow(),
        f"{WAITED} waited (limit 50); cause: application, it does not read; its waiting records that match 'price < 3' "
        f"would have been discarded {BY} (dry run: enforce = false)",
    ),
]


@pytest.mark.parametrize(("rule", "sample", "sentence"), SENTENCES)
def test_sentences(rule, sample, sentence):
    assert say(rule, (0, sample)).text == f"board-7 on flights/#: {sentence}"


def test_a_sentence_tells_for_how_long_and_in_how_many_tests():
    rule = {"when": {"lag_records": 50}, "for": "10s", "then": "disconnect"}
    assert "waited (limit 50), for 10.4 s (limit 10 s); cause:" in say(rule, (0, slow()), (10.4, slow())).text
    rule = {"when": {"drain_rate": "<5000B/s"}, "for": "600ms", "retries": 3, "then": "disconnect"}
    text = say(rule, *((number / 5, slow()) for number in range(4))).text
    assert f"asked), found in each of 3 tests over 600 ms while {WAITED} waited" in text
    rule = {"when": {"lag_records": 50}, "times": 2, "then": "disconnect"}
    assert "waited (limit 50), for the 2nd time; cause:" in say(rule, (0, slow()), (1, Sample()), (2, slow())).text


def test_a_clear_says_how_it_stands_now_and_blames_nobody():
    rule = {"when": {"lag_records": 50}, "then": "conflate"}
    verdict = say(rule, (0, slow()), (3, Sample()))
    assert (verdict.kind, verdict.cause, verdict.reason) == (DecisionKind.CLEAR, None, Reason.LAG_RECORDS)
    assert verdict.text == (
        "board-7 on flights/#: back within limits after 3 s, nothing waiting; "
        "no longer conflated (policy 'default', rule 2)"
    )
    left = Sample(lag_records=1, lag_bytes=128, drain_rate=2e6)
    assert "1 record (128 B) waiting, 2 MB/s taken; would be no longer conflated" in (
        say({**rule, "enforce": False}, (0, slow()), (3, left)).text
    )


def test_a_verdict_carries_everything_it_rests_on():
    verdict = say({"when": {"blocked_time": "30s"}, "then": "disconnect"}, (0, BLOCKED), listener="mqtt")
    assert (verdict.client, verdict.filter, verdict.listener) == ("board-7", "flights/#", "mqtt")
    assert (verdict.policy, verdict.rule, verdict.action.kind) == ("default", 2, ActionKind.DISCONNECT)
    assert (verdict.reason, verdict.cause, verdict.enforced) == (Reason.BLOCKED, Cause.APPLICATION, True)
    assert verdict.readings == (Reading("blocked_time", 31.2, ">", 30.0),)
    assert verdict.sample == BLOCKED
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict


def pressure(**more) -> Verdict:
    settings = {"number": 1, "now": 0.0, "wall_s": 0.0, "client": "board-7", "filter": "flights/#", **more}
    why = "the disk is over its limit (1.02 GB of 1 GB) and it is furthest back"
    sample = settings.pop("sample", BLOCKED)
    return judge_pressure(Reason.DISK_LIMIT, ActionKind.DISCONNECT, why, sample, **settings)


def test_pressure_without_a_policy():
    verdict = pressure(readings=(Reading("disk_bytes", 1.02e9, ">", 1e9),))
    assert (verdict.policy, verdict.rule, verdict.reason) == ("", 0, Reason.DISK_LIMIT)
    assert verdict.text == (
        "board-7 on flights/#: the disk is over its limit (1.02 GB of 1 GB) and it is furthest back while "
        f"{WAITED} waited; cause: application, its receive window is closed; disconnected"
    )
    assert pressure(sample=Sample(), filter="").text == (
        "board-7: the disk is over its limit (1.02 GB of 1 GB) and it is furthest back; disconnected"
    )


@given(
    st.lists(st.sampled_from(sorted(METERS)), min_size=1, max_size=4, unique=True),
    st.builds(
        Sample,
        lag_records=st.integers(1, 10**9), lag_bytes=st.integers(0, 10**15), lag_age=st.floats(1.5, 1e7),
        drain_rate=st.floats(0, 1e12), offered_rate=st.floats(0, 1e12), blocked_time=st.floats(0, 1e7),
        credit_exhausted_time=st.floats(0, 1e7), slow_count=st.integers(0, 10**6), ack_age=st.floats(0, 1e7),
        in_flight=st.integers(0, 65535), offered_burst=st.floats(0, 1e6), rate_window=st.floats(0, 100),
        retransmitting=st.booleans(), peer_window_closed=st.booleans(), credit_exhausted=st.booleans(),
    ),
    st.sampled_from(sorted(ACTIONS)),
)  # fmt: skip
def test_every_decision_has_a_sentence_of_one_line(meters, sample, kind):
    then = {"action": kind, "which": "older_per_key"} if kind == "discard" else kind
    when = {"lag_age": "1ms", **{meter: 1 for meter in meters if meter not in ("pool_share", "slow_fraction")}}
    policy = parse_policy({"name": "p", "rule": [{"when": {"any": [{k: v} for k, v in when.items()]}, "then": then}]})
    (decision,) = evaluate(policy, PolicyState(), sample, 0)
    text = judge(decision, sample, number=1, now=0, wall_s=0, client="c", filter="f", policy="p").text
    assert text.startswith("c on f: ")
    assert text.endswith("by policy 'p', rule 1")
    for odd in ("\n", "  ", "None", "inf", "nan", "e+", "{", "}"):
        assert odd not in text


# The book.


def entry(client: str, number: int) -> Verdict:
    return pressure(client=client, number=number)


def test_the_book_keeps_the_last_of_each_client():
    book = VerdictBook(per_client=3)
    for _ in range(5):
        book.add(entry("a", book.next_number()))
    book.add(entry("b", book.next_number()))
    assert [verdict.number for verdict in book.of("a")] == [3, 4, 5]
    assert book.last("b") == entry("b", 6)
    assert book.of("nobody") == ()
    assert book.last("nobody") is None
    assert [verdict.number for verdict in book.recent(2)] == [6, 5]
    assert len(book) == 4


def test_the_book_forgets_whoever_was_judged_longest_ago():
    book = VerdictBook(clients_max=2)
    for client in ("a", "b", "a", "c"):
        book.add(entry(client, book.next_number()))
    assert book.names() == ("a", "c")
    assert len(book) == 3


def test_the_book_is_bounded_in_all():
    book = VerdictBook(per_client=3, clients_max=100, verdicts_max=4)
    for client in ("a", "a", "b", "b", "b"):
        book.add(entry(client, book.next_number()))
    assert [len(book.of(client)) for client in ("a", "b")] == [1, 3]
    book.add(entry("c", book.next_number()))
    assert book.names() == ("b", "c")


@given(st.lists(st.sampled_from("abcdefgh"), max_size=200), st.integers(1, 5), st.integers(1, 5), st.integers(1, 12))
def test_the_book_keeps_its_bounds_and_its_count(clients, per_client, clients_max, verdicts_max):
    book = VerdictBook(per_client, clients_max, verdicts_max)
    for client in clients:
        book.add(entry(client, book.next_number()))
        assert book.last(client).number == book.recent(1)[0].number
        assert len(book) == sum(len(book.of(name)) for name in book.names()) <= verdicts_max
        assert len(book.names()) <= clients_max
        assert all(1 <= len(book.of(name)) <= per_client for name in book.names())


def test_a_meter_that_is_asked_twice_is_told_once():
    rule = {"when": {"any": [{"lag_age": "1s", "lag_records": 5}, {"lag_age": "2s"}]}, "then": "notify"}
    text = say(rule, (0.0, slow(lag_age=3.0, lag_records=60))).text
    assert text.count("had waited 3 s") == 1, text
