"""The demo's pure parts: the order of the flights, the ledger, and the judgement that decides its exit code."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import msgspec
import pytest

pytest.importorskip("paho.mqtt")

from demo.actors.consumer import BEHAVIOURS
from demo.actors.tally import Tally
from demo.cast import CONSUMERS, Behaviour, Role
from demo.flights import START, Flight, due_s, head, in_order, moment
from demo.judgement import Outcome, complete, expected, gaps_in_words, judge
from demo.reports import ActorReport, percentile
from demo.screen import Rates
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from demo import broker, main
from headway.server.config.reading import parse_settings

PUBLISHED = {"flights/EWR/UA": 3, "flights/EWR/US": 2, "flights/JFK/B6": 9}
BOARD = Role("board", "flights/EWR/#", Behaviour.HEALTHY)
ALL_WELL = ActorReport("done", records=5, topics={"flights/EWR/UA": 3, "flights/EWR/US": 2}, p99_ms=10.0)


def row(**changes: str) -> dict[str, str]:
    usual = {
        "year": "2013", "month": "1", "day": "1", "sched_dep_time": "515", "dep_delay": "2", "arr_delay": "11",
        "carrier": "UA", "flight": "1545", "tailnum": "N14228", "origin": "EWR", "dest": "IAH",
    }  # fmt: skip
    return usual | changes


def verdict(kind: str = "notify", number: int = 1, phase: str = "fire") -> dict[str, Any]:
    return {"kind": phase, "action": {"kind": kind}, "number": number, "text": f"{kind} for a reason"}


# -- flights ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({}, "2013-01-01T05:17"),
        ({"dep_delay": "-17.0"}, "2013-01-01T04:58"),
        ({"sched_dep_time": "2350", "dep_delay": "40"}, "2013-01-02T00:30"),
        ({"month": "12", "day": "31", "sched_dep_time": "2359", "dep_delay": "2"}, "2014-01-01T00:01"),
        ({"month": "3", "day": "1", "sched_dep_time": "0", "dep_delay": "0"}, "2013-03-01T00:00"),
    ],
)
def test_a_flight_left_when_it_was_due_plus_its_delay(changes: dict[str, str], left: str) -> None:
    (flight,) = in_order([row(**changes)])
    assert moment(flight.minute) == left
    assert json.loads(flight.payload(0.0))["left"] == left


def test_flights_go_by_departure_and_keep_the_table_s_order_within_a_minute() -> None:
    table = [
        row(flight="1", sched_dep_time="600", dep_delay="90"),
        row(flight="2", sched_dep_time="700", dep_delay="0"),
        row(flight="3", sched_dep_time="730", dep_delay="0"),
        row(flight="4", sched_dep_time="800", dep_delay="-60"),
        row(flight="5", sched_dep_time="630", dep_delay="NA"),
    ]
    order = [json.loads(flight.payload(0.0))["flight"] for flight in in_order(table)]
    assert order == ["UA5", "UA2", "UA4", "UA1", "UA3"]


def test_each_topic_is_numbered_by_itself() -> None:
    flights = in_order([row(), row(carrier="US"), row(), row(origin="JFK"), row(carrier="US")])
    numbered = [(flight.topic, json.loads(flight.payload(0.0))["n"]) for flight in flights]
    united, us = "flights/EWR/UA", "flights/EWR/US"
    assert numbered == [(united, 1), (us, 1), (united, 2), ("flights/JFK/UA", 1), (us, 2)]


@pytest.mark.parametrize("nothing", ["", "NA"])
def test_what_is_not_known_is_null(nothing: str) -> None:
    flight = Flight(0, "t", head(row(tailnum=nothing, dep_delay=nothing, arr_delay=nothing), 0, 1))
    said = json.loads(flight.payload(12.5))
    assert (said["tailnum"], said["left"], said["dep_delay"], said["arr_delay"]) == (None, None, None, None)
    assert said["sent_s"] == 12.5


def test_the_year_takes_the_seconds_it_was_given() -> None:
    assert [due_s(minute, 50.0, 100, 300) for minute in (100, 200, 300)] == [0.0, 25.0, 50.0]
    assert due_s(7, 50.0, 7, 7) == 0.0
    assert START.year == 2013


# -- the ledger -------------------------------------------------------------------------------------------------------


def message(n: int, topic: str = "flights/EWR/UA", gap: list[tuple[str, str]] | None = None) -> MQTTMessage:
    made = MQTTMessage(topic=topic.encode())
    made.payload = b'{"n":%d,"sent_s":%.6f}' % (n, time.monotonic())
    if gap:
        made.properties = Properties(PacketTypes.PUBLISH)
        for pair in gap:
            made.properties.UserProperty = pair
    return made


@pytest.mark.parametrize(
    ("numbers", "missing", "disorder"),
    [([1, 2, 3], 0, 0), ([1, 3], 1, 0), ([4], 3, 0), ([1, 2, 2], 0, 1), ([1, 3, 2], 1, 1), ([2, 5, 6], 3, 0)],
)
def test_the_ledger_sees_jumps_and_steps_back(numbers: list[int], missing: int, disorder: int) -> None:
    ledger = Tally()
    for n in numbers:
        ledger.enter(message(n))
        ledger.enter(message(len(ledger.latencies_s) // 2 + 1, "flights/JFK/B6"))
    report = ledger.done()
    assert (report.missing, report.disorder) == (missing, disorder)
    assert report.topics == {"flights/EWR/UA": len(numbers), "flights/JFK/B6": len(numbers)}


def test_announced_gaps_add_up_by_reason() -> None:
    ledger = Tally()
    for records, reason in (("5", "conflated"), ("7", "discarded"), ("2", "conflated")):
        pairs = [("gap-records", records), ("gap-reason", reason), ("colour", "blue")]
        ledger.enter(message(ledger.records + 1, gap=pairs))
    ledger.enter(message(4, gap=[("colour", "blue")]))
    assert ledger.live().gap_records == {"conflated": 7, "discarded": 7}


def test_a_live_report_is_about_what_came_since_the_last() -> None:
    ledger = Tally()
    ledger.enter(message(1))
    assert ledger.live().max_ms > 0
    assert ledger.live().max_ms == 0
    assert ledger.done().max_ms > 0


def test_percentiles() -> None:
    values = [float(value) for value in range(100)]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [0.0, 50.0, 99.0, 99.0]
    assert percentile([], 0.99) == 0.0


# -- the judgement ----------------------------------------------------------------------------------------------------


def judged(
    report: ActorReport, verdicts: list[dict[str, Any]] | None = None, part: Role = BOARD, **gaps: int
) -> Outcome:
    return judge(part, report, PUBLISHED, verdicts or [], gaps, limit_ms=250.0)


def changed(**fields: Any) -> ActorReport:
    return msgspec.structs.replace(ALL_WELL, **fields)


def test_a_healthy_consumer_that_got_everything_has_no_complaint() -> None:
    outcome = judged(ALL_WELL)
    assert outcome.complaints == []
    assert outcome.published == 5
    assert expected(BOARD, PUBLISHED) == {"flights/EWR/UA": 3, "flights/EWR/US": 2}


@pytest.mark.parametrize(
    ("report", "verdicts", "gaps", "says"),
    [
        (changed(topics={"flights/EWR/UA": 1, "flights/EWR/US": 2}), [], {}, "lost 2 records on 1 topics"),
        (changed(topics={"flights/EWR/UA": 3}), [], {}, r"most on flights/EWR/US \(2\)"),
        (changed(topics={"flights/EWR/UA": 4, "flights/EWR/US": 2}), [], {}, "1 records too many"),
        (changed(topics={**ALL_WELL.topics, "flights/JFK/B6": 2}), [], {}, "2 records too many"),
        (changed(disorder=1), [], {}, "out of order or twice"),
        (changed(gap_records={"conflated": 3}), [], {}, "a gap: 3 conflated"),
        (ALL_WELL, [], {"discarded": 4}, "a gap: 4 discarded"),
        (changed(lost_connections=1, told=["0x97 Quota exceeded"]), [], {}, "lost its connection: 0x97"),
        (ALL_WELL, [verdict()], {}, "got a verdict: notify for a reason"),
        (ALL_WELL, [verdict(phase="clear")], {}, "got a verdict"),
        (changed(p99_ms=250.1), [], {}, "was held up: p99 250 ms"),
    ],
)
def test_everything_a_healthy_consumer_should_not_see_is_a_complaint(
    report: ActorReport, verdicts: list[dict[str, Any]], gaps: dict[str, int], says: str
) -> None:
    (complaint,) = judged(report, verdicts, **gaps).complaints
    assert re.search(says, complaint)


def test_losing_as_many_on_one_topic_as_are_too_many_on_another_does_not_cancel_out() -> None:
    report = changed(topics={"flights/EWR/UA": 2, "flights/EWR/US": 3})
    assert len(judged(report).complaints) == 2


def test_nothing_at_all_is_a_complaint_even_when_nothing_was_due() -> None:
    part = Role("board", "flights/LGA/#", Behaviour.HEALTHY)
    assert judged(ActorReport("done"), part=part).complaints == ["got nothing at all"]


def test_a_troubled_consumer_complains_of_nothing() -> None:
    part = Role("frozen", "flights/EWR/#", Behaviour.STALL)
    outcome = judged(ActorReport("done"), [verdict("disconnect")], part, conflated=3)
    assert outcome.complaints == []
    assert outcome.gap_records == {"conflated": 3}


def test_the_severest_verdict_decides_and_of_equals_the_last() -> None:
    verdicts = [verdict("notify", 1), verdict("offline", 2), verdict("offline", 3), verdict("notify", 4),
                verdict("offline", 5, "clear")]  # fmt: skip
    outcome = judged(ALL_WELL, verdicts)
    assert outcome.decisive is not None
    assert outcome.decisive["number"] == 3
    assert outcome.deeds == ["reported as slow (2 times)", "offlined to disk (2 times)"]
    assert judged(ALL_WELL).decisive is None


def test_complete_means_as_many_as_were_sent_to_what_it_reads() -> None:
    assert complete(BOARD, ALL_WELL, PUBLISHED)
    assert not complete(BOARD, changed(records=4), PUBLISHED)


def test_gaps_in_words() -> None:
    assert gaps_in_words({"expired": 6, "conflated": 12345, "discarded": 0}) == "12,345 conflated, 6 expired"


def test_rates_are_over_a_second_or_more() -> None:
    rates = Rates()
    assert rates.of("a", 100, 10.0) == 0.0
    assert rates.of("a", 150, 10.5) == 0.0
    assert rates.of("a", 300, 12.0) == 100.0
    assert rates.of("a", 301, 12.5) == 100.0


# -- the cast and its broker ------------------------------------------------------------------------------------------


def test_the_broker_s_configuration_is_a_good_one_and_governs_every_consumer() -> None:
    settings = parse_settings(broker.CONFIG.replace("DISK_PATH", "/tmp"))
    assert {part.policy for part in CONSUMERS if part.policy} <= {policy.name for policy in settings.policies}
    assert [policy.name for policy in settings.policies] == ["departure boards", "airline desks", "whole map", "strict"]


def test_every_behaviour_is_on_stage_and_healthy_ones_read_what_troubled_ones_read() -> None:
    assert {part.behaviour for part in CONSUMERS} == set(Behaviour) == set(BEHAVIOURS)
    healthy = {part.filter for part in CONSUMERS if part.healthy}
    assert {part.filter for part in CONSUMERS if not part.healthy} - {"flights/#"} <= healthy
    assert len({part.name for part in CONSUMERS}) == len(CONSUMERS)


@pytest.mark.parametrize("argument", ["--seconds=0", "--seconds=-1", "--limit-ms=nan", "--limit-ms=inf", "--what"])
def test_an_option_that_makes_no_sense_is_refused(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main([argument])
    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err
