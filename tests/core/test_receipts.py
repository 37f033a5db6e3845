"""Receipts: each reader of a record that asks counts once, for what became of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.core.queues_stage import QueueStage
from tests.core.stage import STUCK, Client, Stage
from tests.core.test_idle import steps

from headway.core.base.errors import Reason
from headway.core.governance.write_off import write_off
from headway.core.message.receipt_request import ReceiptRequest, receipt_request
from headway.core.receipts import ReceiptState
from headway.core.receipts import receipts as table

FATES = ("got", "conflated", "discarded", "dead_lettered", "lost", "waiting")


def receipts(stage: Stage, client: str = "p") -> list[dict[str, Any]]:
    told = stage.told("receipt", client)
    for one in told:
        assert one["owed"] == sum(one[fate] for fate in FATES), one
        assert sum(one["why"].values()) == one["conflated"] + one["discarded"] + one["dead_lettered"] + one["lost"]
    return told


def only(stage: Stage, **expected: object) -> dict[str, Any]:
    """The one receipt there is; what is not expected otherwise is 0."""
    (told,) = receipts(stage)
    seen = {name: told[name] for name in ("state", "owed", *FATES, "why") if told[name]}
    assert seen == {"state": "complete", **expected}
    return told


def asks(stage: Stage, topic: str = "t", number: int = 0, receipt: str = "10s", **how: Any) -> Client:
    publisher = stage.clients.get("p") or stage.client("p")
    publisher.publish(topic, number, receipt=receipt, **how)
    return publisher


def nothing_left(stage: Stage) -> None:
    found = stage.broker.registry.receipts
    assert not found.open
    assert not found.done
    assert not found._of_session
    assert not found._parked
    stage.run(1)  # what was looked at in vain is dropped at a tick
    assert not found._old
    assert all(feed.lane.receipts is None for feed in stage.broker.registry.router.feeds.values())
    assert all("receipts" not in session.tab.amounts for session in stage.broker.registry.sessions.values())


# -- got and waiting -------------------------------------------------------------------------------------------------


def test_nobody_is_owed() -> None:
    stage = Stage()
    asks(stage)
    told = only(stage)
    assert told["took_ms"] == 0
    nothing_left(stage)


def test_who_acknowledges_nothing_has_it_in_the_same_turn() -> None:
    stage = Stage()
    for number in range(3):
        stage.consumer(f"c{number}", "t")
    asks(stage, qos=1)
    assert only(stage, owed=3, got=3)["took_ms"] == 0


def test_who_acknowledges_has_it_at_the_next_tick() -> None:
    stage = Stage()
    for number in range(3):
        stage.consumer(f"c{number}", "t", qos=number)
    asks(stage, qos=1)
    assert len(stage.broker.registry.timers) == 1
    stage.run(0.3)
    assert not len(stage.broker.registry.timers), "nobody waits for its time any more"
    told = only(stage, owed=3, got=3)
    assert (told["topic"], told["client"], told["timeout_ms"]) == ("t", "p", 10_000)
    nothing_left(stage)


def test_who_does_not_read_is_waited_for() -> None:
    stage = Stage()
    stage.consumer("quick", "t")
    stuck = stage.consumer("stuck", "t", reads=STUCK, buffer=300)
    asks(stage, number=0)
    asks(stage, number=1, size=1000)
    stage.run(9)
    assert [one["got"] for one in receipts(stage)] == [2]
    stuck.reads = 1e9
    stage.run(0.5)
    assert [(one["owed"], one["got"], one["state"]) for one in receipts(stage)] == [(2, 2, "complete")] * 2
    nothing_left(stage)


def test_after_its_time_it_says_who_waits() -> None:
    stage = Stage()
    stage.consumer("quick", "#")
    stage.consumer("stuck", "t", reads=STUCK, buffer=10)
    asks(stage, receipt="2s")
    stage.run(1.9)
    assert not receipts(stage)
    stage.run(0.3)
    only(stage, state="timed_out", owed=2, got=1, waiting=1)
    nothing_left(stage)


def test_an_unacknowledged_delivery_waits() -> None:
    stage = Stage()
    consumer = stage.consumer("c", "t", qos=1, acks=False)
    asks(stage, qos=1)
    stage.run(1)
    assert len(consumer.seen) == 1
    assert not receipts(stage)
    consumer.acknowledge()
    stage.run(0.3)
    only(stage, owed=1, got=1)


def test_who_is_away_is_owed_and_gets_it_when_it_is_back() -> None:
    stage = Stage()
    consumer = stage.consumer("c", "t", qos=1, expiry_s=60.0)
    consumer.leave()
    asks(stage, qos=1, receipt="1m")
    stage.run(5)
    assert not receipts(stage)
    consumer.connect()
    stage.run(0.5)
    only(stage, owed=1, got=1)


def test_who_comes_later_is_not_owed() -> None:
    stage = Stage()
    stage.consumer("stuck", "t", reads=STUCK, buffer=10)
    asks(stage, receipt="1s")
    stage.consumer("later", "t", reads=STUCK, buffer=10)
    stage.run(2)
    only(stage, state="timed_out", owed=1, waiting=1)


def test_selectors_and_no_local_keep_it_from_those_it_is_not_for() -> None:
    stage = Stage()
    stage.consumer("picky", "t", options={"selector": "key = 'a'"})
    stage.consumer("other", "t", options={"selector": "key = 'b'"})
    asks(stage, key="a")
    only(stage, owed=1, got=1)


def test_a_shared_group_is_owed_once() -> None:
    stage = Stage()
    for number in range(3):
        stage.consumer(f"c{number}", "$share/g/t", qos=1)
    stage.consumer("other", "$share/h/t", qos=1)
    asks(stage, qos=1)
    stage.run(0.3)
    only(stage, owed=2, got=2)


# -- not got, and why ------------------------------------------------------------------------------------------------

POLICY = """
[[topic]]
filter = "t/#"
key = "topic"
[[policy]]
name = "p"
[[policy.rule]]
when = { lag_records = "> 2" }
then = %s
"""


def stuck_behind_a_policy(then: str, filter: str = "t/#") -> tuple[Stage, Client]:
    stage = Stage(POLICY % then)
    return stage, stage.consumer("slow", filter, reads=STUCK, buffer=10)


@pytest.mark.parametrize(("then", "expected"), [
    ('{ action = "discard", which = "oldest", keep_records = 1 }', {"discarded": 1, "why": {"discarded": 1}}),
    ('"disconnect"', {"lost": 1, "why": {"subscription_ended": 1}}),
    ('"delete_subscription"', {"lost": 1, "why": {"lag_records": 1}}),
])
def test_a_policy_takes_it_away(then: str, expected: dict[str, object]) -> None:
    stage, slow = stuck_behind_a_policy(then)
    slow.publish("t/0", 0)  # the socket takes a part of this one
    asks(stage, "t/1", 1)
    slow.publish("t/2", 2, 5)
    stage.run(1)
    only(stage, owed=1, **expected)
    nothing_left(stage)


def test_newest_are_discarded() -> None:
    stage, slow = stuck_behind_a_policy('{ action = "discard", which = "newest", keep_records = 3 }')
    slow.publish("t/0", 0, 5)
    stage.run(1)
    asks(stage, "t/1", 5)
    stage.run(1)
    slow.reads = 1e9
    stage.run(1)
    only(stage, owed=1, discarded=1, why={"discarded": 1})


@pytest.mark.parametrize("then", ["conflate", '{ action = "discard", which = "older_per_key" }'])
@pytest.mark.parametrize("replaced", [False, True])
def test_it_is_conflated_if_a_newer_one_replaces_it(then: str, replaced: bool) -> None:
    stage, slow = stuck_behind_a_policy(then if "{" in then else f'"{then}"')
    slow.publish("t/0", 0, 5, size=500)
    asks(stage, "t/a", 5)
    stage.run(1)
    slow.publish("t/a" if replaced else "t/b", 6)
    stage.run(1)
    slow.reads = 1e9
    stage.run(1)
    assert (5 in slow.numbers) is not replaced
    if replaced:
        only(stage, owed=1, conflated=1, why={"conflated": 1})
    else:
        only(stage, owed=1, got=1)
    nothing_left(stage)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_consumer_that_asked_to_be_conflated(qos: int) -> None:
    stage = Stage()
    consumer = stage.consumer("c", "t/#", qos=qos, options={"conflate": "1s"})
    for number in range(4):
        asks(stage, "t/a", number, qos=qos)
    stage.run(3)
    assert consumer.numbers == [3]
    assert [(one["got"], one["conflated"]) for one in receipts(stage)] == [(0, 1)] * 3 + [(1, 0)]
    nothing_left(stage)


def test_it_was_sent_before_conflation_began() -> None:
    stage = Stage(POLICY % '"conflate"')
    slow = stage.consumer("slow", "t/#", qos=1, reads=2000, acks=False, window=1)
    asks(stage, "t/a", 0, qos=1, receipt="1m")
    stage.run(0.5)
    slow.publish("t/a", 1, 5, qos=1)
    stage.run(1)
    assert slow.session.subscriptions["t/#"].conflating
    assert not receipts(stage), "it is not acknowledged yet"
    slow.acknowledge()
    stage.run(0.5)
    only(stage, owed=1, got=1)


def test_a_conflated_delivery_is_acknowledged_after_the_subscription_ended() -> None:
    stage = Stage()
    consumer = stage.consumer("c", "t/#", qos=1, acks=False, options={"conflate": "500ms"})
    asks(stage, "t/a", 0, qos=1)
    stage.run(1)
    assert consumer.numbers == [0]
    stage.broker.unsubscribe(consumer.session, "t/#", stage.now)
    stage.run(1)
    assert not receipts(stage)
    consumer.acknowledge()
    stage.run(0.5)
    only(stage, owed=1, got=1)


def test_a_conflated_delivery_is_written_off() -> None:
    stage = Stage()
    consumer = stage.consumer("c", "t/#", qos=1, acks=False, options={"conflate": "500ms"})
    asks(stage, "t/a", 0, qos=1)
    stage.run(1)
    (subscription,) = consumer.session.subscriptions.values()
    broker = stage.broker
    write_off(broker.registry, broker._ending, subscription, Reason.MEMORY_LIMIT, stage.now, unreadable=False)
    only(stage, owed=1, lost=1, why={"memory_limit": 1})
    nothing_left(stage)


def test_it_expires() -> None:
    stage = Stage()
    slow = stage.consumer("slow", "t", reads=STUCK, buffer=10)
    slow.publish("t", 0)
    stage.turn()
    asks(stage, number=1, expiry_s=1)
    stage.run(3)
    slow.reads = 1e9
    stage.run(1)
    only(stage, owed=1, lost=1, why={"expired": 1})


def test_it_is_too_large_for_a_client() -> None:
    stage = Stage()
    client = stage.client("narrow")
    client.session.max_packet_bytes = 200
    client.subscribe("t")
    asks(stage, size=500)
    only(stage, owed=1, lost=1, why={"too_large_for_client": 1})


def test_the_subscription_ends() -> None:
    stage = Stage()
    slow = stage.consumer("slow", "t", reads=STUCK, buffer=10)
    asks(stage)
    stage.turn()
    stage.broker.unsubscribe(slow.session, "t", stage.now)
    only(stage, owed=1, got=1)  # half of it was sent, and the rest is on its way
    asks(stage, number=1)
    slow.subscribe("t")
    asks(stage, number=2)
    stage.broker.unsubscribe(slow.session, "t", stage.now)
    assert receipts(stage)[-1]["why"] == {"subscription_ended": 1}


@pytest.mark.parametrize("later", [False, True])
def test_the_session_ends_without_an_acknowledgement(later: bool) -> None:
    stage = Stage()
    consumer = stage.consumer("c", "t", qos=1, acks=False)
    asks(stage, qos=1)
    stage.turn()
    if later:
        stage.broker.unsubscribe(consumer.session, "t", stage.now)
    consumer.leave()
    only(stage, owed=1, lost=1, why={"unacknowledged": 1})
    nothing_left(stage)


def test_a_client_that_confirmed_the_arrival_has_it() -> None:
    stage = Stage()
    consumer = stage.consumer("c", "t", qos=2, acks=False)
    asks(stage, qos=2)
    stage.turn()
    (delivery_id,) = consumer.session.channel.in_flight
    stage.broker.on_pubrec(consumer.session, delivery_id)
    consumer.leave()
    only(stage, owed=1, got=1)


def test_the_pool_is_full() -> None:
    stage = Stage(memory="40KB", disk="0")
    slow = stage.consumer("slow", "t", reads=STUCK, buffer=10)
    slow.publish("t", 0)
    asks(stage, number=1)
    other = stage.client("other")
    for number in range(60):
        other.publish("t", number, size=1000)
        stage.run(0.2)
    (told,) = receipts(stage)
    assert told["lost"] == 1
    assert set(told["why"]) <= {"memory_limit", "client_share", "subscription_ended"}


@pytest.mark.parametrize("read", [True, False])
def test_a_replaced_subscription_hands_it_over(read: bool) -> None:
    stage = Stage()
    slow = stage.consumer("slow", "t", reads=STUCK, buffer=10)
    slow.publish("t", 0, size=100_000)
    stage.turn()
    asks(stage, number=1)
    slow.subscribe("t", 1)
    asks(stage, number=2)
    stage.run(1)
    assert not receipts(stage)
    if read:
        slow.reads = 1e9
        stage.run(1)
        assert slow.numbers == [0, 1, 2]
        assert [(one["owed"], one["got"]) for one in receipts(stage)] == [(1, 1)] * 2
    else:
        stage.broker.unsubscribe(slow.session, "t", stage.now)
        assert [one["why"] for one in receipts(stage)] == [{"subscription_ended": 1}] * 2
    nothing_left(stage)


def test_a_snapshot_repeats_what_the_replaced_subscription_was_owed() -> None:
    stage = Stage()
    slow = stage.consumer("slow", "t", qos=1, reads=STUCK, buffer=10, acks=False, options={"snapshot": "true"})
    slow.publish("t", 0, size=100_000)
    stage.turn()
    asks(stage, number=1, qos=1)
    slow.subscribe("t", 1, snapshot="true", offsets="true")
    slow.reads = 1e9
    stage.run(1)
    assert slow.numbers == [0, 1, 1]
    slow.acknowledge(1)
    stage.run(1)
    only(stage, owed=1, got=1)
    slow.leave()
    nothing_left(stage)


def test_a_delivery_of_a_pass_is_acknowledged_after_the_subscription_was_replaced() -> None:
    stage = Stage(POLICY % '{ action = "discard", which = "older_per_key" }')
    slow = stage.consumer("slow", "t/#", qos=1, reads=2000, acks=False, window=2)
    for number in range(4):
        slow.publish("t/0", number, qos=1)
    asks(stage, "t/a", 4, qos=1)
    stage.run(1)
    assert slow.numbers == [0, 1]
    slow.acknowledge(2)
    stage.run(1)
    assert slow.numbers == [0, 1, 3, 4]
    slow.publish("t/0", 5, 2, qos=1)
    stage.run(0.1)
    slow.subscribe("t/#", 0)
    stage.run(1)
    assert not receipts(stage)
    slow.acknowledge(5)
    stage.run(1)
    only(stage, owed=1, got=1)


# -- queues ----------------------------------------------------------------------------------------------------------

ASKED = ReceiptRequest(10.0)


def of_a_queue(**terms: Any) -> tuple[QueueStage, Any]:
    stage = QueueStage()
    peer = stage.peer("p")
    peer.declare("q", **terms)
    return stage, peer


@pytest.mark.parametrize(("acks", "got"), [(True, 1), (None, 1), (False, 0)])
def test_a_queue_is_owed_once(acks: bool | None, got: int) -> None:
    stage, peer = of_a_queue()
    for number in range(2):
        stage.peer(f"c{number}").consume("q", acks=acks)
    peer.publish("q", 0, receipt=ASKED)
    stage.run(1)
    if got:
        only(stage, owed=1, got=1)
    else:
        assert not receipts(stage)
        stage.run(10)
        only(stage, owed=1, waiting=1, state="timed_out")


def test_what_comes_back_to_a_queue_waits() -> None:
    stage, peer = of_a_queue()
    first = stage.peer("first")
    first.consume("q", acks=False)
    peer.publish("q", 0, receipt=ASKED)
    stage.run(1)
    first.leave()
    stage.run(1)
    assert not receipts(stage)
    stage.peer("second").consume("q")
    stage.run(1)
    only(stage, owed=1, got=1)
    nothing_left(stage)


@pytest.mark.parametrize(("terms", "dead"), [({}, False), ({"dead_letter_exchange": "x"}, True)])
def test_a_rejected_record(terms: dict[str, Any], dead: bool) -> None:
    stage, peer = of_a_queue(**terms)
    consumer = stage.peer("c")
    consumer.consume("q", acks=False)
    peer.publish("q", 0, receipt=ASKED)
    stage.run(1)
    consumer.nack(1, requeue=False)
    expected = {"dead_lettered": 1} if dead else {"lost": 1}
    only(stage, owed=1, why={"rejected": 1}, **expected)


@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize(("terms", "reason"), [({"records_max": 1}, "queue_length"), ({"ttl_s": 1.0}, "expired")])
def test_a_queue_leaves_it_out(terms: dict[str, Any], reason: str, dead: bool) -> None:
    stage, peer = of_a_queue(**terms, dead_letter_exchange="x" if dead else None)
    peer.publish("q", 0, receipt=ASKED)
    peer.publish("q", 1)
    stage.run(2)
    only(stage, owed=1, why={reason: 1}, **({"dead_lettered": 1} if dead else {"lost": 1}))


def test_a_full_queue_refuses_it() -> None:
    stage, peer = of_a_queue(records_max=1, refuses=True)
    peer.publish("q", 0)
    peer.publish("q", 1, receipt=ASKED)
    only(stage, owed=1, lost=1, why={"queue_length": 1})


@pytest.mark.parametrize("how", ["purge", "delete"])
def test_a_queue_is_purged_or_deleted(how: str) -> None:
    stage, peer = of_a_queue()
    peer.publish("q", 0, receipt=ASKED)
    stage.turn()
    if how == "delete":
        peer.delete("q")
    else:
        list(stage.queue("q").purge())
    only(stage, owed=1, lost=1, why={"purged": 1})
    nothing_left(stage)


def test_a_queue_and_topics_together() -> None:
    stage, peer = of_a_queue()
    peer.bind("q", "amq.topic", "t")
    stage.consumer("mqtt", "t")
    stage.peer("c").consume("q")
    asker = stage.client("asker")
    asker.publish("t", 0, receipt="true", qos=1)
    stage.run(1)
    (told,) = receipts(stage, "asker")
    assert (told["owed"], told["got"], told["timeout_ms"]) == (2, 2, 30_000)


def test_the_end_of_a_group() -> None:
    stage = Stage()
    member = stage.consumer("c", "$share/g/t", reads=STUCK, buffer=10)
    member.publish("t", 0)
    asks(stage, number=1)
    stage.turn()
    stage.broker.unsubscribe(member.session, "$share/g/t", stage.now)
    only(stage, owed=1, lost=1, why={"subscription_ended": 1})
    nothing_left(stage)


def test_the_end_of_a_group_that_was_sent_it() -> None:
    """The client keeps what it was sent, and no group is left to give it to another."""
    stage = Stage()
    member = stage.consumer("c", "$share/g/t", qos=1, acks=False)
    asks(stage, qos=1)
    stage.run(0.5)
    assert not receipts(stage)
    stage.broker.unsubscribe(member.session, "$share/g/t", stage.now)
    only(stage, owed=1, got=1)


# -- telling ---------------------------------------------------------------------------------------------------------


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


# -- limits ----------------------------------------------------------------------------------------------------------


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
    """A slow round through a large receipt holds up those behind it in the ticks, and closed ones are on no tab."""
    monkeypatch.setattr(table, "OPEN_MAX", 2)
    monkeypatch.setattr(table, "TICK_LOOKS", 1)
    stage = Stage()
    for number in range(10):
        stage.consumer(f"stuck{number}", "t", reads=STUCK, buffer=10)
    stage.client("patient").publish("t", 0, receipt="1h")
    for number in range(20):
        asks(stage, number=number)
        stage.turn()
    closed = [one for one in stage.broker.registry.receipts._old if one.state is not ReceiptState.OPEN]
    assert closed
    assert not any(one.pending or one.numbers or one.to_look for one in closed)
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
    assert (told["state"], told["owed"], told["waiting"]) == ("refused", 10, 10)
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
