"""Traces: a record of a sampled trace is followed by a receipt of the broker's own, with names, times and reasons."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.receipts_stage import POLICY, nothing_left, only, receipts
from tests.core.stage import STUCK, Client, Stage

from headway.core import receipts as limits
from headway.core import receipts as names
from headway.core.message import sampled_context
from headway.core.message.record import Properties, Run, parse_traceparent
from headway.core.receipts import Trace, TraceSampling
from headway.core.routing.publishing import Publishing

TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
SAMPLED, NOT_SAMPLED = (f"00-{TRACE:032x}-{SPAN:016x}-0{flags}" for flags in (1, 0))


def traced(toml: str = "", **sampling: Any) -> Stage:
    return Stage(toml, traces=TraceSampling(**sampling))


def publish(stage: Stage, topic: str = "t", number: int = 0, traceparent: str = SAMPLED, **how: Any) -> Client:
    publisher = stage.clients.get("p") or stage.client("p")
    publisher.publish(topic, number, traceparent=traceparent, **how)
    return publisher


def ended(stage: Stage) -> list[Trace]:
    stage.turn()
    found = list(stage.broker.registry.receipts.traced)
    for trace in found:
        assert trace.figures["owed"] == sum(count for name, count in trace.figures.items() if name != "owed")
        assert trace.opened_s <= trace.ended_s
        assert all(trace.opened_s <= fate.at_s <= trace.ended_s for fate in trace.fates)
    return found


def fates(trace: Trace) -> dict[str, tuple[str, str | None, float]]:
    """How it ended for each reader, why, and at what age."""
    return {
        fate.client or fate.name: (str(fate.outcome), fate.reason, round(fate.at_s - trace.opened_s, 3))
        for fate in trace.fates
    }


def followed(stage: Stage) -> Trace:
    (trace,) = ended(stage)
    nothing_left(stage)
    assert not stage.broker.registry.receipts._followed
    assert not stage.broker.registry.receipts._followed_bytes
    assert not receipts(stage), "its publisher has not asked, and is told nothing"
    return trace


def test_who_gets_a_record_and_when() -> None:
    stage = traced()
    stage.consumer("plain", "t")
    stage.consumer("acks", "#", qos=1)
    slow = stage.consumer("slow", "t", reads=STUCK, buffer=10)
    publish(stage, qos=1)
    stage.turn()
    stage.run(1.95)
    assert not ended(stage)
    slow.reads = 1e9
    stage.run(1)
    trace = followed(stage)
    assert trace.context == (TRACE, SPAN, 1, "")
    assert (trace.client, trace.topic, trace.qos, trace.records, trace.body_bytes) == ("p", "t", 1, 1, 100)
    assert trace.state == "complete"
    found = fates(trace)
    assert found["plain"] == ("delivered", None, 0.0)
    assert found["acks"] == ("delivered", None, 0.2), "acknowledgements are looked at five times a second"
    assert found["slow"][0] == "delivered"
    assert found["slow"][2] >= 2.0
    assert {fate.name for fate in trace.fates} == {"t", "#"}


def test_ended_traces_that_nobody_takes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ENDED_MAX", 4)
    stage = traced()
    stage.consumer("c", "t")
    for number in range(7):
        publish(stage, number=number)
        stage.run(0.1)
    assert len(ended(stage)) == 4
    kept = stage.broker.registry.receipts
    assert (kept.take_lost(), kept.take_lost()) == (3, 0)


@pytest.mark.parametrize("traceparent", [NOT_SAMPLED, SAMPLED[:-1], "00-nonsense", SAMPLED.upper()])
def test_what_is_not_sampled_is_not_followed(traceparent: str) -> None:
    stage = traced()
    stage.consumer("c", "t", reads=STUCK, buffer=10)
    publish(stage, traceparent=traceparent)
    assert not stage.broker.registry.receipts.open
    stage.run(1)
    assert not ended(stage)


def test_a_broker_without_traces_has_nothing_that_could_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has plain Publishing, and no trace object is made or asked."""
    def never(*_: object, **__: object) -> None:
        raise AssertionError("nobody asks for traces here")

    monkeypatch.setattr("headway.core.telemetry.observer.sampled_context", never)
    monkeypatch.setattr(Trace, "__init__", never)
    monkeypatch.setattr(TraceSampling, "wants", never)
    stage = Stage()
    assert type(stage.broker._publishing) is Publishing
    stage.consumer("c", "t")
    publish(stage, qos=1)
    stage.run(1)
    receipts_of_all = stage.broker.registry.receipts
    assert not receipts_of_all.open
    assert not receipts_of_all._news
    with pytest.raises(AssertionError, match="nobody asks"):
        publish(traced())


@pytest.mark.parametrize(("then", "outcome", "reason"), [
    ('{ action = "discard", which = "oldest", keep_records = 1 }', "discarded", "discarded"),
    ('"conflate"', "conflated", "conflated"),
    ('"disconnect"', "lost", "subscription_ended"),
    ('"delete_subscription"', "lost", "lag_records"),
])
def test_who_does_not_get_it_and_why(then: str, outcome: str, reason: str) -> None:
    stage = traced(POLICY % then)
    slow = stage.consumer("slow", "t/#", reads=STUCK, buffer=10)
    slow.publish("t/0", 0)
    publish(stage, "t/1", 1)
    for number in range(2, 7):
        slow.publish("t/1", number)
    stage.run(1)
    slow.reads = 1e9
    stage.run(1)
    found = fates(followed(stage))
    assert found["slow"][:2] == (outcome, reason)


def test_a_record_that_expires() -> None:
    stage = traced()
    stage.consumer("slow", "t", reads=STUCK, buffer=10)
    publish(stage, "t", 0)  # the socket takes a part of this one
    stage.turn()
    publish(stage, "t", 1, expiry_s=1)
    stage.run(5)
    slow = stage.clients["slow"]
    slow.reads = 1e9
    stage.run(1)
    assert [fates(trace)["slow"][:2] for trace in sorted(ended(stage), key=lambda one: one.sequence)] == [
        ("delivered", None), ("expired", "expired"),
    ]  # fmt: skip


def test_who_still_waits_when_the_time_is_over() -> None:
    stage = traced(wait_s=2.0)
    stage.consumer("quick", "t")
    stage.consumer("stuck", "t", reads=STUCK, buffer=10)
    publish(stage)
    stage.run(2.5)
    trace = followed(stage)
    assert trace.state == "timed_out"
    assert {name: found[0] for name, found in fates(trace).items()} == {"quick": "delivered", "stuck": "waiting"}


def test_a_publisher_that_leaves_is_followed_all_the_same() -> None:
    stage = traced()
    slow = stage.consumer("slow", "t", reads=STUCK, buffer=10)
    publish(stage).leave()
    stage.run(1)
    slow.reads = 1e9
    stage.run(1)
    assert followed(stage).state == "complete"


def test_a_publisher_that_asks_too_is_told_and_the_record_is_followed() -> None:
    stage = traced()
    stage.consumer("c", "t", qos=1)
    publish(stage, receipt="10s")
    stage.run(1)
    only(stage, owed=1, got=1)
    (trace,) = ended(stage)
    assert fates(trace)["c"][0] == "delivered"
    nothing_left(stage)


def test_neighbours_of_one_span_are_a_batch() -> None:
    stage = traced()
    stage.consumer("c", "t")
    publish(stage, count=5)
    stage.run(1)
    trace = followed(stage)
    assert trace.records == 5
    assert trace.figures["got"] == 1, "the last one is followed"
    assert trace.sequence == stage.broker.registry.sequence


def test_names_are_limited_and_figures_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "DELIVERED_MAX", 3)
    monkeypatch.setattr(names, "OTHERS_MAX", 2)
    stage = traced(wait_s=1.0)
    for number in range(5):
        stage.consumer(f"c{number}", "t")
        stage.consumer(f"stuck{number}", "t", reads=STUCK, buffer=10)
    publish(stage)
    stage.run(2)
    trace = followed(stage)
    assert [fate.outcome for fate in trace.fates] == ["delivered"] * 3 + ["waiting"] * 2
    assert (trace.unnamed, trace.figures["got"], trace.figures["waiting"]) == (5, 5, 5)


def test_a_share_is_chosen_by_the_trace() -> None:
    sampling = TraceSampling(0.25, 1_000_000)
    wanted = [sampling.wants(parse_traceparent(f"00-{n << 62 | 7:032x}-{SPAN:016x}-01"), 0.0) for n in range(4)]  # type: ignore[arg-type]
    assert wanted == [True, False, False, False]


def test_a_flood_of_sampled_records_is_followed_as_far_as_a_second_goes() -> None:
    stage = traced(per_second=3)
    stage.consumer("c", "t")
    for _ in range(5):
        publish(stage)
    sampling = stage.broker._publishing._sampling  # type: ignore[attr-defined]
    assert (sampling.followed, sampling.skipped) == (3, 2)
    stage.run(1)
    publish(stage)
    assert sampling.followed == 4


def test_traces_displace_their_oldest_and_no_receipt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRACES_MAX", 2)
    stage = traced()
    stage.consumer("stuck", "t", reads=STUCK, buffer=10)
    publish(stage, receipt="10s", traceparent=NOT_SAMPLED)
    for number in range(3):
        publish(stage, number=number)
    states = [trace.state for trace in ended(stage)]
    assert states == ["displaced"]
    assert stage.broker.registry.receipts.asked_open == 1
    assert len(stage.broker.registry.receipts._followed) == 2


def test_what_traces_remember_is_limited_and_on_nobodys_tab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRACES_BYTES_MAX", 5_000)
    stage = traced()
    stage.consumer("stuck", "t", reads=STUCK, buffer=10)
    for number in range(3):
        publish(stage, number=number)
    assert "receipts" not in stage.clients["p"].session.tab.amounts
    (refused,) = ended(stage)
    assert (refused.state, refused.figures["owed"], refused.fates) == ("refused", 0, [])


def test_headers_have_the_context_too() -> None:
    def run(headers: dict[str, object] | None, *user: tuple[str, str]) -> Run:
        return Run("t", b"x", [1], [0], properties=Properties(user=user), headers=headers)

    expected = (TRACE, SPAN, 1, "a=b")
    assert sampled_context(run({"traceparent": SAMPLED.encode(), "tracestate": "a=b"})) == expected
    assert sampled_context(run(None, ("traceparent", SAMPLED), ("tracestate", "a=b"))) == expected
    assert sampled_context(run({"traceparent": 7})) is None
    assert sampled_context(run(None)) is None


@pytest.mark.parametrize("text", [
    SAMPLED + "-more", "ff" + SAMPLED[2:], f"00-{0:032x}-{SPAN:016x}-01", f"00-{TRACE:032x}-{0:016x}-01", "", "0" * 55,
])
def test_what_is_no_trace_context(text: str) -> None:
    assert parse_traceparent(text) is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert parse_traceparent("01" + SAMPLED[2:] + "-more") == (TRACE, SPAN, 1, "")
