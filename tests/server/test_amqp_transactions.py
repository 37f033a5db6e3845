"""AMQP transactions and publisher confirms."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import base
from pamqp.commands import Basic, Confirm, Exchange, Queue, Tx
from tests.server.amqp_frames import BYE, CLOSE, MISTAKE, close_by_effect
from tests.server.amqp_stage import Client, message, method

# -- transactions ------------------------------------------------------------------------------------------------------


@pytest.fixture
def tx(client: Client) -> Client:
    """Channel 1 has transactions."""
    assert client.say(Tx.Select()) == ["1 Tx.SelectOk"]
    return client


def waiting(client: Client, queue: str = "q") -> int:
    return client.house.stats(queue).records


def test_a_commit_publishes_in_the_order_it_was_said(tx: Client, other: Client) -> None:
    tx.put("q", b"1")
    other.put("q", b"2")
    tx.put("q", b"3", b"4")
    assert waiting(tx) == 1
    assert tx.say(Tx.Commit()) == ["1 Tx.CommitOk"]
    assert other.drain("q") == [b"2", b"1", b"3", b"4"]
    assert tx.say(Tx.Commit()) == ["1 Tx.CommitOk"]  # the next one has begun
    assert waiting(tx) == 0


@pytest.mark.parametrize(
    "end", [Tx.Rollback(), BYE, MISTAKE, CLOSE, None], ids=["rollback", "close", "verdict", "connection", "gone"]
)
def test_without_a_commit_nothing_was_said(tx: Client, other: Client, end: base.Frame | None) -> None:
    tx.put("q", b"1", b"2")
    tx.say(Basic.Get(queue=""), Basic.Get(queue=""))
    other.put("q", b"a", b"b")
    tx.say(Basic.Get(queue="q"), Basic.Get(queue="q"))
    tx.say(Basic.Ack(1), Basic.Nack(2, requeue=False))
    assert tx.house.stats("q").unacknowledged == 2
    if end is None:
        tx.leave()
    elif end is MISTAKE:
        assert close_by_effect(tx) == ["1 Channel.Close 506"]
    else:
        tx.say(method(0, end) if end is CLOSE else end)
    if isinstance(end, Tx.Rollback):
        assert tx.say(Basic.Ack(1), Basic.Ack(2), Tx.Commit()) == ["1 Tx.CommitOk"]
        assert other.drain("q") == []
    else:
        assert other.drain("q") == [b"a", b"b"]


def test_settlements_count_from_the_commit_on(tx: Client, other: Client) -> None:
    other.put("q", *(b"%d" % number for number in range(1, 7)))
    tx.say(*[Basic.Get(queue="q")] * 6)
    tx.say(Basic.Ack(2, True), Basic.Nack(3, requeue=True), Basic.Reject(4, requeue=False), Basic.Nack(6, requeue=True))
    assert (waiting(tx), tx.house.stats("q").unacknowledged) == (0, 6)
    assert tx.say(Tx.Commit()) == ["1 Tx.CommitOk"]
    assert (waiting(tx), tx.house.stats("q").unacknowledged) == (2, 1)
    assert other.drain("q") == [b"3", b"6"]


def test_what_nobody_wants_is_returned_before_the_commit_is_granted(tx: Client) -> None:
    assert tx.put("nowhere", b"1", mandatory=True) == []
    assert tx.put("q", b"2", immediate=True) == []
    assert tx.say(Tx.Commit()) == ["1 Basic.Return 312 1", "1 Basic.Return 313 2", "1 Tx.CommitOk"]
    assert tx.put("nowhere", b"1", mandatory=True) == []
    assert tx.say(Tx.Rollback()) == ["1 Tx.RollbackOk"]


def test_what_may_not_be_published_is_refused_at_once(tx: Client) -> None:
    assert tx.put("q", b"1") == []
    assert tx.put("q", b"2", exchange="none") == ["1 Channel.Close 404"]
    assert waiting(tx) == 0


def test_an_exchange_that_is_gone_at_the_commit(tx: Client) -> None:
    """It takes nothing, and that is no reason for others to miss anything."""
    tx.say(Exchange.Declare(exchange="e", exchange_type="fanout"), Queue.Bind(queue="q", exchange="e"))
    tx.put("", b"1", exchange="e", mandatory=True)
    tx.put("q", b"2")
    tx.say(Exchange.Delete(exchange="e"), channel=2)
    assert tx.say(Tx.Commit()) == ["1 Basic.Return 312 1", "1 Tx.CommitOk"]
    assert tx.drain("q") == [b"2"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([Tx.Commit()], ["1 Channel.Close 406"]),
        ([Tx.Rollback()], ["1 Channel.Close 406"]),
        ([Confirm.Select(), Tx.Select()], ["1 Confirm.SelectOk", "1 Channel.Close 406"]),
        ([Tx.Select(), Confirm.Select()], ["1 Tx.SelectOk", "1 Channel.Close 406"]),
        ([Tx.Select(), Confirm.Select(nowait=True)], ["1 Tx.SelectOk", "1 Channel.Close 406"]),
        ([Tx.Select(), message(1, "q", b"1"), Tx.Select(), Tx.Commit()],
         ["1 Tx.SelectOk", "1 Tx.SelectOk", "1 Tx.CommitOk"]),
    ],
    ids=["commit nothing", "roll back nothing", "confirms, tx", "tx, confirms", "tx, confirms unasked", "tx twice"],
)  # fmt: skip
def test_what_has_transactions(client: Client, said: list[Any], expected: list[str]) -> None:
    assert client.say(*said) == expected
    assert waiting(client) == (len(said) == 4)


def test_the_other_channel_has_none(tx: Client) -> None:
    tx.put("q", b"1")
    tx.put("q", b"2", channel=2)
    assert tx.drain("q") == [b"2"]


def test_an_ack_of_all_is_of_all_there_was(tx: Client, other: Client) -> None:
    """What is delivered between it and the commit is not acknowledged."""
    tx.say(Basic.Consume(queue="q", consumer_tag="t"))
    other.put("q", b"1")
    assert tx.say(Basic.Ack(0, True)) == ["1 Basic.Deliver t 1 1"]
    other.put("q", b"2")
    assert tx.say(Tx.Commit()) == ["1 Basic.Deliver t 2 2", "1 Tx.CommitOk"]
    tx.leave()
    assert other.drain("q") == [b"2"]


@pytest.mark.parametrize(
    "said", [Basic.Ack(9), Basic.Ack(9, True), Basic.Nack(9), Basic.Reject(9)],
    ids=["ack", "ack upto", "nack", "reject"],
)  # fmt: skip
def test_a_commit_is_of_all_or_nothing(tx: Client, other: Client, said: base.Frame) -> None:
    tx.put("q", b"1")
    assert [*tx.say(said), *tx.say(Tx.Commit())] == ["1 Channel.Close 406"]
    assert other.drain("q") == []


@pytest.mark.parametrize("again", [Basic.Ack(2), Basic.Ack(2, True), Basic.Nack(2), Basic.Reject(2)],
                         ids=["ack", "ack upto", "nack", "reject"])  # fmt: skip
@pytest.mark.parametrize("first", [Basic.Ack(2), Basic.Ack(2, True), Basic.Nack(0, True), Basic.Reject(2)],
                         ids=["ack", "ack upto", "nack all", "reject"])  # fmt: skip
def test_what_is_to_be_settled_can_be_settled_once(tx: Client, other: Client, first: Any, again: Any) -> None:
    other.put("q", b"1", b"2")
    tx.say(Basic.Get(queue="q"), Basic.Get(queue="q"))
    assert tx.say(first) == []
    assert tx.say(again) == ["1 Channel.Close 406"]
    assert other.drain("q") == [b"1", b"2"]


@pytest.mark.parametrize("how", [Basic.Ack(1), Basic.Nack(1, requeue=False), Basic.Reject(1, requeue=False)],
                         ids=["ack", "nack", "reject"])  # fmt: skip
def test_what_is_to_be_settled_is_not_recovered(tx: Client, other: Client, how: base.Frame) -> None:
    other.put("q", b"1", b"2")
    tx.say(Basic.Get(queue="q"), Basic.Get(queue="q"))
    tx.put("q", b"3")
    assert tx.say(how, Basic.Recover(True), Tx.Commit()) == ["1 Basic.RecoverOk", "1 Tx.CommitOk"]
    assert other.drain("q") == [b"2", b"3"]


# -- confirms ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sure(client: Client) -> Client:
    """Channel 1 has confirms."""
    assert client.put("q", b"uncounted") == []
    assert client.say(Confirm.Select()) == ["1 Confirm.SelectOk"]
    return client


def test_confirms_count_from_the_first_on(sure: Client) -> None:
    assert sure.put("q", b"1") == ["1 Basic.Ack 1"]
    assert sure.put("q", *[b"x"] * 4) == ["1 Basic.Ack 5+"]
    assert sure.put("q", b"x", b"xx", b"xxx") == ["1 Basic.Ack 8+"]
    assert sure.put("q", b"x", channel=2) == []
    assert sure.put("nowhere", b"x", b"x") == ["1 Basic.Ack 10+"]  # nobody minds that it is lost
    assert sure.say(Confirm.Select(), message(1, "q", b"x")) == ["1 Confirm.SelectOk", "1 Basic.Ack 11"]
    assert sure.put("q", b"x" * 9000) == ["1 Basic.Ack 12"]
    assert sure.say(Confirm.Select(), message(2, "q", b"x"), channel=2) == ["2 Confirm.SelectOk", "2 Basic.Ack 1"]


def test_several_runs_in_one_breath(sure: Client) -> None:
    said = [message(1, key, b"x") for key in ("q", "q", "nowhere", "q", "q", "q")]
    assert sure.say(*said) == ["1 Basic.Ack 2+", "1 Basic.Ack 3", "1 Basic.Ack 6+"]


def test_what_is_returned_comes_before_its_confirm(sure: Client) -> None:
    said = [message(1, "q", b"1"), *(message(1, "nowhere", text, mandatory=True) for text in (b"2", b"3"))]
    assert sure.say(*said) == ["1 Basic.Ack 1", "1 Basic.Return 312 2", "1 Basic.Return 312 3", "1 Basic.Ack 3+"]
    assert sure.put("q", b"4", b"5", immediate=True) == [
        "1 Basic.Return 313 4", "1 Basic.Ack 4", "1 Basic.Return 313 5", "1 Basic.Ack 5"
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["reject-publish", "reject-publish-dlx"])
@pytest.mark.parametrize("limit", [{"x-max-length": 3}, {"x-max-length-bytes": 3}], ids=str)
def test_what_a_full_queue_does_not_take_is_refused(sure: Client, how: str, limit: dict[str, int]) -> None:
    """Of a run the first are taken, the rest is not."""
    sure.declare("full", {"x-overflow": how, **limit})
    assert sure.put("full", b"1") == ["1 Basic.Ack 1"]
    assert sure.put("full", *[b"x"] * 5) == ["1 Basic.Ack 3+", "1 Basic.Nack 6+"]
    assert sure.put("full", b"7") == ["1 Basic.Nack 7"]
    assert sure.put("full", b"8", b"9") == ["1 Basic.Nack 9+"]
    assert sure.take("full")
    assert sure.put("full", b"a", b"b") == ["1 Basic.Ack 10", "1 Basic.Nack 11"]
    assert sure.put("q", b"c") == ["1 Basic.Ack 12"]
    assert sure.drain("full") == [b"x", b"x", b"a"]


def test_one_of_several_queues_is_full(sure: Client) -> None:
    """The others have it all the same."""
    sure.declare("full", {"x-overflow": "reject-publish", "x-max-length": 2})
    for queue in ("q", "full"):
        sure.say(Queue.Bind(queue=queue, exchange="amq.fanout"))
    said = [f"{number}".encode() for number in range(4)]
    assert sure.put("", *said, exchange="amq.fanout") == ["1 Basic.Ack 2+", "1 Basic.Nack 4+"]
    assert sure.drain("full") == said[:2]
    assert sure.drain("q") == [b"uncounted", *said]


def test_a_queue_that_is_full_is_no_reason_to_return_it(sure: Client) -> None:
    sure.declare("full", {"x-overflow": "reject-publish", "x-max-length": 0})
    assert sure.put("full", b"1", mandatory=True) == ["1 Basic.Nack 1"]


def test_confirms_that_nobody_asked_an_answer_for(client: Client) -> None:
    assert client.say(Confirm.Select(nowait=True), message(1, "q", b"x")) == ["1 Basic.Ack 1"]


def without_room(tx: Client, other: Client) -> int:
    """A commit to two queues waits, for one is full. Returns how many records that one has, all of them confirmed: no
    others would be evicted for them."""
    tx.house.broker.registry.pools[""].memory_limit = 1_000_000
    other.say(Confirm.Select())
    tx.declare("mine")
    tx.put("mine", b"1")
    tx.put("q", b"2")
    for _ in range(80):
        other.put("q", bytes(14_000))
    assert "1 Tx.CommitOk" not in tx.say(Tx.Commit())
    assert waiting(tx, "mine") == 0
    return waiting(tx)


@pytest.mark.parametrize("end", [None, BYE, CLOSE], ids=["gone", "close", "connection"])
def test_commit_that_waits_for_room_is_dropped_if_its_client_leaves(
    tx: Client, other: Client, caplog: pytest.LogCaptureFixture, end: base.Frame | None
) -> None:
    house, filled = tx.house, without_room(tx, other)
    if end is None:
        tx.leave()
    else:
        tx.say(method(0, end) if end is CLOSE else end)
        tx.leave()
    house.pass_time(30.0)
    assert "2 records are lost" in caplog.text
    assert (waiting(other), waiting(other, "mine")) == (filled, 0)


def test_commit_that_waits_for_room_goes_on_when_there_is_some(tx: Client, other: Client) -> None:
    without_room(tx, other)
    tx.house.broker.queues.delete(tx.house.queues["q"], tx.house.now())
    tx.house.pass_time(1.0)
    assert waiting(tx, "mine") == 1
    tx.run()
    assert tx.new()[-1] == "1 Tx.CommitOk"
