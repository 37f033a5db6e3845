"""How a receipt is asked for and told, and how many there may be."""

from __future__ import annotations

import json

import pytest
from tests.core.receipts_stage import asks, nothing_left, of_a_queue, only, receipts
from tests.core.stage import STUCK, Stage
from tests.core.test_idle import steps

from headway.core import receipts as table
from headway.core.message.record import receipt_request
from headway.core.receipts import ReceiptState


def test_it_goes_to_the_response_topic() -> None:
    stage = Stage()
    stage.consumer("c", "t")
    answers = stage.consumer("answers", "my/receipts", qos=1)
    asks(stage, qos=1, reply_to="my/receipts")
    stage.run(0.5)
    (seen,) = answers.seen
    assert json.loads(seen.payload)["got"] == 1
    assert (seen.qos, seen.properties.correlation_data) == (1, b"my number")
    assert seen.properties.content_type == "application/json"
    assert not receipts(stage)


def test_it_goes_to_the_queue_in_reply_to() -> None:
    stage, peer = of_a_queue()
    peer.declare("answers")
    consumer = stage.peer("c")
    consumer.consume("q")
    peer.consume("answers")
    peer.publish("q", 0, receipt=receipt_request("5s", reply_to="answers", exchange="", correlation=b"7"))
    stage.run(1)
    (seen,) = peer.seen
    assert json.loads(seen.record.payload)["owed"] == 1


@pytest.mark.parametrize(("value", "words"), [
    ("soon", "receipt='soon'"), ("0s", "needs some time"), ("5 parsecs", "unknown unit"),
    (7, "type int"), (False, "type bool"), (None, "type NoneType"),
])
def test_a_value_that_is_not_understood(value: object, words: str) -> None:
    fault = receipt_request(value).fault
    assert words in fault
    assert "30s" in fault


@pytest.mark.parametrize(("value", "wait_s"), [
    ("", 30), ("true", 30), ("Yes", 30), (True, 30), ("500ms", 0.5), ("2m", 120), ("7d", 3600)
])
def test_values(value: object, wait_s: float) -> None:
    request = receipt_request(value)
    assert (request.wait_s, request.fault) == (wait_s, "")


def test_a_fault_is_told_and_the_record_is_published() -> None:
    stage = Stage()
    consumer = stage.consumer("c", "t")
    asks(stage, receipt="soon")
    told = only(stage, state="refused")
    assert "soon" in told["text"]
    assert consumer.numbers == [0]
    asks(stage, reply_to="$SYS/headway/slow/somebody")
    assert "broker's own" in receipts(stage)[1]["text"]


def test_the_oldest_of_too_many_gives_way() -> None:
    stage = Stage()
    stage.consumer("stuck", "t", reads=STUCK, buffer=10)
    for number in range(table.OPEN_MAX + 2):
        asks(stage, number=number)
    asks(stage, "nobody")  # needs no room
    told = receipts(stage)
    assert [(one["state"], one["sequence"]) for one in told[:2]] == [("displaced", 1), ("displaced", 2)]
    assert [one["waiting"] for one in told] == [1, 1, 0]
    stage.run(11)
    assert len(receipts(stage)) == table.OPEN_MAX + 3
    nothing_left(stage)


def test_all_publishers_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "ALL_OPEN_MAX", 3)
    stage = Stage()
    stage.consumer("stuck", "t", reads=STUCK, buffer=10)
    for number in range(5):
        stage.client(f"p{number}").publish("t", number, receipt="10s")
    assert [one["client"] for one in stage.told("receipt")] == ["p0", "p1"]


def test_a_closed_receipt_keeps_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow round through a large receipt holds up those behind it in the ticks, and closed ones are not among them:
    more could be closed between two ticks than one tick forgets."""
    monkeypatch.setattr(table, "OPEN_MAX", 2)
    monkeypatch.setattr(table, "TICK_LOOKS", 1)
    stage = Stage()
    for number in range(10):
        stage.consumer(f"stuck{number}", "t", reads=STUCK, buffer=10)
    stage.client("patient").publish("t", 0, receipt="1h")
    for number in range(20):
        asks(stage, number=number)
        stage.turn()
    old = stage.broker.registry.receipts._old
    assert len(old) == 3
    assert all(one.state is ReceiptState.OPEN for one in old)
    assert {one["waiting"] for one in receipts(stage)} == {10}


def test_they_are_on_the_tab_of_the_publisher() -> None:
    stage = Stage()
    for number in range(10):
        stage.consumer(f"stuck{number}", "t", reads=STUCK, buffer=10)
    publisher = asks(stage)
    assert publisher.session.tab.amounts["receipts"] > 10 * 150
    stage.pool.client_share = 0.0
    stage.pool.memory_limit = 1000
    asks(stage, number=1)
    (told,) = receipts(stage)
    assert (told["state"], told["owed"]) == ("refused", 0), "the readers are not looked at"
    assert "may take up" in told["text"]


def test_they_end_with_the_session_of_their_publisher() -> None:
    stage = Stage()
    stage.consumer("stuck", "t", reads=STUCK, buffer=10)
    publisher = asks(stage)
    publisher.leave()
    only(stage, state="publisher_ended", owed=1, waiting=1)
    nothing_left(stage)


def test_many_readers_are_looked_at_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "TURN_LOOKS", 3)
    monkeypatch.setattr(table, "TICK_LOOKS", 4)
    stage = Stage()
    for number in range(20):
        stage.consumer(f"c{number}", "t", reads=STUCK if number % 2 else 1e9, buffer=10)
    asks(stage, receipt="3s")
    stage.run(4)
    only(stage, state="timed_out", owed=20, got=10, waiting=10)
    nothing_left(stage)


@pytest.mark.parametrize("qos", [0, 1])
def test_no_work_per_record_and_consumer(qos: int) -> None:
    """Also not while receipts are open on the same lane."""

    def of(asked: int) -> int:
        stage = Stage()
        stage.consumer("stuck", "t", reads=STUCK, buffer=10)
        for number in range(5):
            stage.consumer(f"c{number}", "t", qos=qos)
        publisher = asks(stage, number=0, receipt="1h")
        for number in range(asked):
            asks(stage, number=number, receipt="1h")
        stage.run(1)
        return steps(lambda: (publisher.publish("t", 0, 100, qos=qos), stage.broker.flush(stage.now)))

    few, many = of(1), of(50)
    assert many <= few + 20


def refused_to(readers: int) -> int:
    """Lines of Python for a request whose publisher has no room for the readers of its record."""
    stage = Stage()
    for number in range(readers):
        stage.consumer(f"c{number}", "t", reads=STUCK, buffer=10)
    publisher = asks(stage)
    stage.turn()
    stage.pool.client_share = 0.0
    publisher.publish("t", 1)
    plain = steps(lambda: publisher.publish("t", 2))
    lines = steps(lambda: publisher.publish("t", 3, receipt="10s"))
    assert receipts(stage)[-1]["state"] == "refused"
    return lines - plain


def test_a_request_that_there_is_no_room_for_costs_no_look_at_the_readers() -> None:
    assert refused_to(300) < refused_to(30) + 50
