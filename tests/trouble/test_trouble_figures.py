"""What a run of trouble counts, and what it concludes from that."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pamqp import commands, frame

from headway.trouble.figures import Delays, Stamp, Tally, read_stamp, write_stamp
from headway.trouble.report import judge
from headway.trouble.wires import AmqpDialogue, MqttDialogue

RUN = 7


def tally_of(numbers: list[int], *, from_start: bool = False) -> Tally:
    tally = Tally(RUN, from_start=from_start)
    for number in numbers:
        tally.add(write_stamp(Stamp(RUN, 0, number, 0), 40), 1)
    return tally


@pytest.mark.parametrize(
    ("numbers", "lost", "repeated"),
    [
        ([5, 6, 7], 0, 0),
        ([5, 8], 2, 0),
        ([5, 8, 6], 1, 0),
        ([5, 8, 6, 7], 0, 0),
        ([5, 8, 6, 6], 1, 1),
        ([5, 5], 0, 1),
    ],
)
def test_gaps_and_repetitions(numbers: list[int], lost: int, repeated: int) -> None:
    tally = tally_of(numbers)
    assert (tally.lost, tally.repeated) == (lost, repeated)


def test_who_was_there_from_the_start_misses_the_first_and_the_last_too() -> None:
    tally = tally_of([2, 3], from_start=True)
    assert tally.lost == 2
    assert not tally.has_all([5])
    tally.start_anew()  # it was cut: what it does not get now is lost as well
    tally.close([5])
    assert tally.lost == 3


def test_what_is_sent_while_somebody_is_away_is_not_lost() -> None:
    tally = tally_of([0, 1])
    tally.start_anew()
    tally.add(write_stamp(Stamp(RUN, 0, 90, 0), 40), 1)
    assert tally.lost == 0


def test_records_of_others_are_only_counted() -> None:
    tally = Tally(RUN)
    for payload in (b"", b"x" * 50, write_stamp(Stamp(RUN + 1, 0, 0, 0), 40)):
        assert read_stamp(payload, RUN) is None
        tally.add(payload, 1)
    assert (tally.records, tally.foreign, tally.lost, tally.last_sent_ns) == (3, 3, 0, None)


def test_quantiles_are_right_within_two_percent() -> None:
    rng, delays = random.Random(1), Delays()
    values = sorted(int(rng.lognormvariate(14, 2)) for _ in range(5000))
    for value in values:
        delays.add(value)
    for share in (0.01, 0.5, 0.99, 1.0):
        exact = values[max(0, int(share * 5000) - 1)] / 1e6
        assert delays.quantile_ms(share) == pytest.approx(exact, rel=0.02)
    assert Delays().quantile_ms(0.5) is None


def found(**more: Any) -> dict[str, Any]:
    span = {"rate": 500.0, "blocked_s": 0.0}
    base = {
        "listens": None,
        "controls": {"clients": 5, "cut": 0, "words": "", "lost": 0, "before": {"p99_ms": 2.1},
                     "beside": {"p99_ms": 2.4}},
        "publisher": {"before": span, "beside": span},
        "machine": {"cpu_share": 0.2, "late_beside_p99_ms": 0.3},
    }  # fmt: skip
    for name, value in more.items():
        outer, _, inner = name.partition("__")
        base[outer] = {**base[outer], inner: value} if inner else value
    return base


@pytest.mark.parametrize(
    ("more", "harmed", "words"),
    [
        ({}, False, "p99 2.1 ms before, 2.4 ms beside the trouble"),
        ({"controls__beside": {"p99_ms": 80.0}}, True, "healthy consumers noticed: p99 2.1 ms before, 80.0 ms"),
        ({"controls__beside": {"p99_ms": 80.0}, "machine__late_beside_p99_ms": 60.0}, None, "woke up late, p99 60.0"),
        ({"controls__beside": {"p99_ms": 80.0}, "machine__cpu_share": 0.97}, None, "97% of a core"),
        ({"machine__cpu_share": 0.97}, False, "with care"),
        ({"controls__lost": 3}, True, "lost 3 records"),
        ({"controls__lost": 3, "machine__cpu_share": 0.97}, True, "lost 3 records"),
        ({"controls__cut": 1, "controls__words": "bye"}, True, "1 of 5 healthy consumers were cut: bye"),
        ({"publisher__beside": {"rate": 200.0, "blocked_s": 9.0}}, True, "held back: 500 records a second before, 200"),
        ({"publisher": None, "listens": "a/#", "controls__before": {"p99_ms": None}}, False, "all that can be told"),
    ],
)  # fmt: skip
def test_the_verdict_and_its_words(more: dict[str, Any], harmed: bool | None, words: str) -> None:
    verdict = judge(found(**more), tolerate_s=0.01)
    assert verdict.harmed is harmed
    assert words in "; ".join(verdict.words)


def test_confirms_of_amqp_in_any_order() -> None:
    dialogue = AmqpDialogue("a", None, None, "/")
    for _ in range(6):
        dialogue.publish("t", b"x", confirmed=True)
    answers = [(2, False, True), (1, False, True), (4, True, True), (6, True, False)]
    for tag, multiple, kept in answers:
        method = (commands.Basic.Ack if kept else commands.Basic.Nack)(tag, multiple)
        dialogue.take(frame.marshal(method, 1))
    assert (dialogue.confirmed, dialogue.refused, dialogue.unconfirmed) == (4, 2, 0)


@pytest.mark.parametrize("dialogue", [AmqpDialogue("a", None, None, "/"), MqttDialogue("a", None, None, 5)])
def test_what_speaks_another_protocol_is_told_so(dialogue: AmqpDialogue | MqttDialogue) -> None:
    dialogue.take(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4)
    assert "does not speak" in dialogue.over
