"""The state as it was, of a recorded topic: at each offset it is what had been published up to there."""

from __future__ import annotations

import json
import random
import urllib.request
from bisect import bisect_right
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import paho, properties
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.raw import Raw
from tests.interop.test_interop_events import Stream, image
from tests.interop.test_interop_state import ask
from tests.interop.view_stories import TOPIC
from tests.interop.waiting import until

COUNT = 120
KEYS = 20
OTHERS = '[[topic]]\nfilter = "alone/#"\nkey = "/k"\n[[topic]]\nfilter = "t/#"\nkey = "/k"\nkeep = "200kB"\n'


def config(folder: Path) -> str:
    return f'{LISTENER}[journal]\npath = "{folder}"\nsegment = "100kB"\n{TOPIC}keep = "1d"\n{OTHERS}'


@pytest.fixture(scope="module")
def recorded(start: BrokerFactory, tmp_path_factory: pytest.TempPathFactory) -> BrokerProcess:
    return start(config(tmp_path_factory.mktemp("journal")))


class Truth(NamedTuple):
    """The delay of each key, after each offset of a record."""

    offsets: list[int]
    states: list[dict[str, int]]

    def at(self, offset: int) -> dict[str, int]:
        return self.states[bisect_right(self.offsets, offset)]


@pytest.fixture(scope="module")
def truth(recorded: BrokerProcess) -> Truth:
    chance = random.Random(7)
    states: list[dict[str, int]] = [{}]
    with paho(recorded.ports["mqtt"], "publisher") as client:
        for number in range(COUNT):
            key = f"N{chance.randrange(KEYS)}"
            client.publish(f"flights/{key}", json.dumps({"tailnum": key, "delay": number}).encode(), number % 2)
            states.append(states[-1] | {key: number})
    return Truth(offsets_of(recorded), states)


def offsets_of(broker: BrokerProcess) -> list[int]:
    with urllib.request.urlopen(f"{broker.admin}/v1/topics/flights%2F%23/records?format=json") as answer:
        return [json.loads(line)["offset"] for line in answer]


def delays(answer: dict[str, Any]) -> dict[str, int]:
    return {one["key"]: json.loads(one["payload"])["delay"] for one in answer["records"]}


def test_at_each_offset(recorded: BrokerProcess, truth: Truth) -> None:
    """Offsets have holes: the broker counts all that it publishes."""
    assert len(truth.offsets) == COUNT
    last = truth.offsets[-1]
    for offset in {0, 1, 2, 3, 17, 60, 61, truth.offsets[30], truth.offsets[30] + 1, last - 1, last}:
        answer = ask(recorded, "flights/#", {"at": offset}).json
        assert (delays(answer), answer["offset"]) == (truth.at(offset), offset)
        assert answer["keys"] == len(truth.at(offset))
        assert "earliest" not in answer, "nothing is deleted"
    only = ask(recorded, "flights/N3", {"at": 100}).json
    assert delays(only) == {key: value for key, value in truth.at(100).items() if key == "N3"}


def test_what_is_asked_of_it_is_as_for_the_present(recorded: BrokerProcess, truth: Truth) -> None:
    best = sorted((value for value in truth.at(80).values() if value > 40), reverse=True)
    page: dict[str, object] = {"at": 80, "order_by": "/delay DESC", "top": 5, "skip": 1, "where": "delay > 40"}
    assert ask(recorded, "flights/#", page).delays == best[1:6]
    rows = ask(recorded, "flights/#", {"at": 80, "select": "count(*) AS n, max(/delay) AS most"}).json["records"]
    assert rows == [{"n": len(truth.at(80)), "most": best[0]}]


def test_at_a_time(recorded: BrokerProcess, truth: Truth) -> None:
    """To the precision of a commit."""
    times = [one["timestamp"] for one in ask(recorded, "flights/#", {}).json["records"]]
    middle = ask(recorded, "flights/#", {"at": times[5]}).json
    assert middle["offset"] in truth.offsets
    assert delays(middle) == truth.at(middle["offset"])
    assert delays(ask(recorded, "flights/#", {"at": "-1h"}).json) == {}
    assert delays(ask(recorded, "flights/#", {"at": datetime.now(UTC).isoformat()}).json) == truth.states[-1]


@pytest.mark.parametrize(
    ("filter", "at", "status", "words"),
    [
        ("flights/#", "yesterday", 400, 'at="yesterday" is none of: an offset, a time such as'),
        ("flights/#", "9" * 18, 400, "there is no such offset yet; the last one is "),
        ("flights/#", "9" * 30, 400, "at="),
        ("flights/#", "", 400, 'at="" is none of'),
        ("alone/#", "1", 404, "at: alone/# is not recorded; recorded is flights/#, t/#"),
        ("trains/#", "1", 404, "trains/# has no state"),
    ],
)
def test_what_cannot_be_answered_is_one_clear_error(
    recorded: BrokerProcess, truth: object, filter: str, at: str, status: int, words: str
) -> None:
    answer = ask(recorded, filter, {"at": at})
    assert (answer.status, words in answer.json["error"]) == (status, True), answer.body


def test_a_deleted_key_is_not_there_and_was(start: BrokerFactory, tmp_path: Path) -> None:
    broker = start(config(tmp_path))
    with paho(broker.ports["mqtt"], "publisher") as client:
        client.publish("flights/x", b'{"tailnum": "a", "delay": 1}', 1)
        client.publish("flights/x", b'{"tailnum": "b", "delay": 2}', 1)
        client.publish("flights/x", b'{"tailnum": "a"}', 1,
                       properties=properties("PUBLISH", UserProperty=[("delete", "true")]))  # fmt: skip
    states = [delays(ask(broker, "flights/#", {"at": offset}).json) for offset in offsets_of(broker)]
    assert states == [{"a": 1}, {"a": 1, "b": 2}, {"b": 2}]


def test_what_has_changed_since_a_time_is_told_with_what_went_out_of_focus(
    recorded: BrokerProcess, truth: Truth
) -> None:
    want = {key: delay for key, delay in truth.states[-1].items() if delay >= 100}
    asked = {"where": "delay >= 100", "out_of_focus": "true", "from": "-1h"}
    with closing(Stream(recorded, **asked)) as stream:
        events = []
        while image(events) != want:
            events.append(next(stream.events))
    assert {one.data["reason"] for one in events if one.name == "gap"} <= {"conflated", "not_retained"}


def test_where_records_are_deleted_it_says_so(recorded: BrokerProcess, truth: object) -> None:
    """Offsets before the first record of the topic have gone to others: they are no deleted records."""

    def earliest() -> int:
        found = {one["filter"]: one for one in recorded.get("/v1/topics")["topics"]}
        return int(found["t/#"]["earliest"])

    with Raw(recorded.ports["mqtt"]) as writer:

        def publish_more() -> None:
            for number in range(20):
                writer.publish("t/x", json.dumps({"k": number, "fill": "." * 5000}).encode())
            writer.published("t/x", b"{}")

        def trimmed() -> bool:
            publish_more()
            return earliest() > first

        publish_more()
        first = earliest()
        until(trimmed)
    last = ask(recorded, "t/#", {"top": 0}).json["offset"]
    answer = ask(recorded, "t/#", {"at": last})
    assert answer.status == 200, answer.body
    assert answer.json["earliest"] == int(answer.headers["Headway-Earliest-Offset"]) > first
    early = ask(recorded, "t/#", {"at": first})
    assert (early.status, "is not known any more; the earliest is" in early.json["error"]) == (410, True)
