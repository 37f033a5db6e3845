"""Cursors over HTTP: who reads what is recorded by himself tells how far he is, is seen, judged, and told."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.records import ask, recording
from tests.interop.waiting import PATIENCE_S, until

TOPICS = '[[topic]]\nfilter = "t/#"\nkeep = "7d"\n[[topic]]\nfilter = "other"\nkeep = "7d"\n'
POLICIES = """
[[policy]]
name = "strict"
topics = ["nobody"]
[[policy.rule]]
when = { lag_records = "> 50" }
then = "disconnect"

[[policy]]
name = "stalled"
topics = ["nobody"]
[[policy.rule]]
when = { blocked_time = "> 300ms" }
then = "disconnect"

[[policy]]
name = "away"
topics = ["nobody"]
[[policy.rule]]
when = { lag_records = "> 50" }
then = { action = "delete_subscription", durable = true }

[[policy]]
name = "newest"
topics = ["nobody"]
[[policy.rule]]
when = { lag_records = "> 50" }
then = { action = "discard", which = "oldest", keep_records = 10 }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal")


@pytest.fixture(scope="module")
def keeping(start: BrokerFactory, folder: Path) -> BrokerProcess:
    return start(recording(folder, TOPICS + POLICIES))


def put(
    broker: BrokerProcess, name: str, offset: int, topic: str = "t/#", **more: object
) -> tuple[int, dict[str, Any]]:
    status, body = broker.call(f"/v1/cursors/{name}", "PUT", json.dumps({"topic": topic, "offset": offset, **more}))
    return status, json.loads(body)


def told(broker: BrokerProcess, name: str, offset: int, topic: str = "t/#", **more: object) -> dict[str, Any]:
    status, answer = put(broker, name, offset, topic, **more)
    assert status == 200, answer
    return answer


def publish(broker: BrokerProcess, count: int, topic: str = "t/x") -> None:
    with Raw(broker.ports["mqtt"]) as writer:
        for number in range(count - 1):
            writer.publish(topic, b"%d" % number)
        writer.published(topic, b"last")


def begin(broker: BrokerProcess, name: str, **more: object) -> int:
    """A cursor at the end of what is recorded."""
    return int(told(broker, name, ask(broker, "t/#", "HEAD").offset("Latest"), **more)["offset"])


# -- what is seen -----------------------------------------------------------------------------------------------------


def test_it_is_a_consumer_with_a_lag_that_shrinks_when_it_moves(keeping: BrokerProcess, name: str) -> None:
    first = begin(keeping, name)
    publish(keeping, 40)
    answer = told(keeping, name, first)
    assert (answer["offset"], answer["latest"] - first >= 40, answer["gap"]) == (first, True, None)
    seen = keeping.consumer(name)
    assert (seen["protocol"], seen["connected"], seen["filter"], seen["state"]) == ("http", True, "t/#", "behind")
    assert seen["lag_records"] == answer["lag_records"] >= 40
    assert seen["lag_bytes"] > 0
    assert seen["held_bytes"] == 0
    answer = told(keeping, name, answer["latest"])
    assert (answer["lag_records"], answer["lag_bytes"]) == (0, 0)
    seen = keeping.consumer(name)
    assert (seen["lag_records"], seen["state"]) == (0, "ok")
    assert seen["delivered_records"] >= 40


def test_it_never_moves_back(keeping: BrokerProcess, name: str) -> None:
    first = begin(keeping, name)
    publish(keeping, 5)
    told(keeping, name, first + 3)
    assert told(keeping, name, first)["offset"] == first + 3


def test_it_is_told_as_soon_as_there_is_more(keeping: BrokerProcess, name: str) -> None:
    first = begin(keeping, name)
    with Raw(keeping.ports["mqtt"]) as writer:
        found: list[dict[str, Any]] = []
        waiting = threading.Thread(
            target=lambda: found.append(told(keeping, name, first, wait_ms=int(PATIENCE_S * 1000)))
        )
        waiting.start()
        writer.published("t/x", b"1")
        waiting.join(PATIENCE_S)
    assert found[0]["latest"] > first
    assert told(keeping, name, found[0]["latest"], wait_ms=50)["lag_records"] == 0, "there was nothing to wait for"


def test_what_it_takes_room_with_is_nobodys_memory(keeping: BrokerProcess, name: str) -> None:
    """No lane is filled for it: the pool does not notice whether it reads."""
    begin(keeping, name)
    before = keeping.get("/v1/broker")["pools"][0]["memory_bytes"]
    publish(keeping, 2000)
    assert keeping.get("/v1/broker")["pools"][0]["memory_bytes"] < before + 2000
    assert keeping.consumer(name)["lag_records"] >= 2000


def test_offset_0_is_where_a_complete_topic_begins(keeping: BrokerProcess, name: str) -> None:
    publish(keeping, 3)
    answer = told(keeping, name, 0)
    assert (answer["offset"], answer["gap"]) == (1, None)
    assert answer["lag_records"] >= 3


def test_an_offset_beyond_the_end_is_not_believed(keeping: BrokerProcess, name: str) -> None:
    """It is another broker's, or records were lost: who asks sees it by ``latest``."""
    publish(keeping, 1)
    answer = told(keeping, name, 10**12)
    assert answer["offset"] == answer["latest"] < 10**12
    publish(keeping, 3)
    assert told(keeping, name, 0)["lag_records"] >= 3, "it stands at what was the end"


# -- what its policy does ---------------------------------------------------------------------------------------------


def test_it_is_disconnected_told_once_and_may_come_again(keeping: BrokerProcess, name: str) -> None:
    first = begin(keeping, name, policy="strict")
    publish(keeping, 100)
    until(lambda: not keeping.consumer(name)["connected"])
    status, answer = put(keeping, name, first)
    assert status == 409
    assert "records" in answer["error"]
    assert answer["error"] in [one["text"] for one in keeping.verdicts(name)] or "readmitted" in answer["error"]
    until(lambda: put(keeping, name, first + 90)[0] == 200)
    assert keeping.consumer(name)["connected"]


def begin_and_move(broker: BrokerProcess, name: str, **more: object) -> None:
    """A cursor that has moved on twice, so its usual pause is known, and then has more to read than in its steps."""
    offset = begin(broker, name, policy="stalled", **more)
    for _ in range(2):
        publish(broker, 1)
        offset += 1
        told(broker, name, offset, policy="stalled", **more)
    publish(broker, 50)


def test_a_query_that_stalls_is_blocked(keeping: BrokerProcess, name: str) -> None:
    begin_and_move(keeping, name)
    until(lambda: not keeping.consumer(name)["connected"])
    (verdict,) = keeping.verdicts(name)
    assert verdict["reason"] == "blocked"


def test_who_asked_for_patience_is_not_stalled_while_it_lasts(keeping: BrokerProcess, name: str) -> None:
    """A query may work on one batch for long."""
    begin_and_move(keeping, name, patience="1500ms")
    held = until(lambda: (one := keeping.consumer(name))["blocked_ms"] > 900 and one)
    assert (held["connected"], held["slow"], held["patience_ms"]) == (True, False, 1500)
    until(lambda: not keeping.consumer(name)["connected"])
    assert keeping.verdicts(name)[0]["reason"] == "blocked"


def test_patience_is_granted_and_is_a_time(keeping: BrokerProcess, name: str) -> None:
    first = begin(keeping, name)
    assert told(keeping, name, first)["patience_ms"] == 0
    assert told(keeping, name, first, patience="20m")["patience_ms"] == 1_200_000
    assert told(keeping, name, first, patience="2h")["patience_ms"] == 3_600_000, "no more than the policy grants"
    status, answer = put(keeping, name, first, patience="long")
    assert status == 400
    assert "option patience='long': takes a duration" in str(answer)


def test_who_is_away_is_judged_and_told_when_he_comes(keeping: BrokerProcess, name: str) -> None:
    first = begin(keeping, name, policy="away")
    assert keeping.call(f"/v1/cursors/{name}/leave", "POST")[0] == 204
    assert not keeping.consumer(name)["connected"]
    publish(keeping, 100)
    until(lambda: all(one["client"] != name for one in keeping.get("/v1/consumers")["consumers"]))
    status, answer = put(keeping, name, first)
    assert (status, answer["reason"]) == (409, "deleted")
    assert told(keeping, name, first)["offset"] == first, "a new one"


def settled(consumer: dict[str, Any]) -> int:
    """Returns how many records wait, once policy "newest" has nothing more to discard. It keeps 10 when it looks; what
    is published after that look waits, too."""
    lag: int = consumer["lag_records"]
    return lag if consumer["gap_records"] and 10 <= lag <= 50 else 0


def test_what_is_discarded_is_a_gap(keeping: BrokerProcess, name: str) -> None:
    first = begin(keeping, name, policy="newest")
    publish(keeping, 100)
    left = until(lambda: settled(keeping.consumer(name)))
    answer = told(keeping, name, first)
    assert answer["latest"] - answer["offset"] == left
    gap = answer["gap"]
    assert (gap["records"], gap["reason"]) == (100 - left, "discarded"), "records, not offsets"
    assert told(keeping, name, first)["gap"] is None, "told once"


# -- what outlives it -------------------------------------------------------------------------------------------------


def test_it_stands_where_it_stood_after_a_kill(start: BrokerFactory, tmp_path: Path, name: str) -> None:
    config = recording(tmp_path, TOPICS + POLICIES)
    broker = start(config)
    first = begin(broker, name)
    publish(broker, 20)
    lag = told(broker, name, first + 12)["lag_records"]
    assert 7 <= lag <= 9
    publish(broker, 1, "other")  # what was said before it is on disk with it
    broker.kill()
    broker = start(config)
    seen = broker.consumer(name)
    assert (seen["connected"], seen["lag_records"]) == (False, lag)
    assert told(broker, name, first)["offset"] == first + 12
    assert broker.call(f"/v1/cursors/{name}", "DELETE")[0] == 204
    publish(broker, 1, "other")
    broker.kill()
    broker = start(config)
    assert broker.get("/v1/consumers")["consumers"] == []


def test_what_it_needs_is_not_trimmed(start: BrokerFactory, tmp_path: Path, name: str) -> None:
    """Nor is anything but that kept for it."""
    topics = '[[topic]]\nfilter = "t/#"\nkeep = "200kB"\n'
    broker = start(recording(tmp_path, topics, segment="100kB"))
    first = begin(broker, name)
    with Raw(broker.ports["mqtt"]) as writer:

        def more() -> bool:
            for _ in range(20):
                writer.publish("t/x", b"." * 5000)
            writer.published("t/x", b"." * 5000)
            (topic,) = broker.get("/v1/topics")["topics"]
            return bool(topic["bytes"] > 1_000_000)

        until(more)
        (topic,) = broker.get("/v1/topics")["topics"]
        assert topic["earliest"] <= first + 1, "nothing is gone"
        told(broker, name, topic["latest"])

        def trimmed() -> bool:
            writer.published("t/x", b"a turn")
            (topic,) = broker.get("/v1/topics")["topics"]
            return bool(topic["earliest"] > first + 50)

        until(trimmed)
    status, answer = put(broker, f"{name}-late", first)
    assert status == 410
    assert answer["earliest"] > first


# -- what is asked wrongly --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"topic": "t/#"}, 400, "offset"),
        ({"topic": "t/#", "offset": 1, "colour": 1}, 400, "colour"),
        ({"topic": "t/#/x", "offset": 1}, 400, "#"),
        ({"topic": "unknown", "offset": 1}, 404, "not recorded"),
        ({"topic": "t/#", "offset": 1, "policy": "nobody"}, 400, "there is no policy"),
    ],
)
def test_mistakes_are_said(keeping: BrokerProcess, name: str, body: dict[str, Any], status: int, says: str) -> None:
    publish(keeping, 1)
    code, answer = keeping.call(f"/v1/cursors/{name}", "PUT", json.dumps(body))
    assert code == status
    assert says in json.loads(answer)["error"]
    assert all(one["client"] != name for one in keeping.get("/v1/consumers")["consumers"])


def test_another_clients_name_is_not_taken(keeping: BrokerProcess, name: str) -> None:
    with Raw(keeping.ports["mqtt"], name) as client:
        status, answer = put(keeping, name, 1)
        assert status == 400
        assert "the name of a client" in answer["error"]
        client.published("t/x", b"still there")
    assert keeping.call(f"/v1/cursors/{name}", "DELETE")[0] == 404
    assert keeping.call(f"/v1/cursors/{name}/leave", "POST")[0] == 404
