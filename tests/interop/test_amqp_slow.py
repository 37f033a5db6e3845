"""Slow AMQP consumers, row by row (docs/FIVE_SYSTEMS.md): judged by their policies, told so, and nobody else notices.

tests/core/test_queue_rows_*.py have the rows themselves; here they go over sockets, to clients that show what
they are told. The rows of publishers, disk and discarding are in test_amqp_stuck.py, Qpid's in test_amqp_matrix.py.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pamqp.commands import Channel, Connection, Queue
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker
from tests.interop.amqp_broker import AmqpBroker
from tests.interop.amqp_pika import Delivery, Pika, PikaFactory
from tests.interop.amqp_raw import Content
from tests.interop.amqp_slow import SMALL, Named, assert_told_why, closing, numbered, policy, row, start_amqp
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until

pytest_plugins = ("tests.interop.amqp_fixtures",)

STARVED = 'when = { credit_exhausted_time = "200ms" }\nthen = '
RULES: dict[str, tuple[str, ...]] = {
    "rate": ('when = { drain_rate = "<20kB/s" }\nfor = "300ms"\nretries = 3\nthen = "disconnect"',),
    "suspect": ('when = { drain_rate = "<20kB/s" }\nthen = "notify"',),
    "constant": ('when = { lag_records = "> 50" }\n'
                 'then = { action = "discard", which = "oldest", keep_records = 50 }',),
    "multiple": ('when = { lag_records = "> 2 x prefetch" }\n'
                 'then = { action = "discard", which = "oldest", keep_records = "2 x prefetch" }',),
    "least": ('when = { lag_records = "> 50" }\n'
              'then = { action = "discard", which = "lowest_priority", keep_records = 50 }',),
    "often": ('when = { credit_exhausted_time = "50ms" }\nthen = "notify"',
              'when = { credit_exhausted_time = "50ms" }\ntimes = 3\nthen = "disconnect"'),
    "notify": (STARVED + '"notify"',),
    "close": (STARVED + '"close_consumer"',),
    "poll": ('when = { lag_records = "> 5" }\nthen = "close_consumer"',),
    "cut": (STARVED + '"disconnect"',),
    "return": ('when = { ack_age = "300ms" }\nthen = "return"',),
}  # fmt: skip
CONFIG = "[flap]\nbase = '300ms'\n" + "".join(policy(name, f"$queue/{name}/+", *rules) for name, rules in RULES.items())
CONFIG += policy("late acks", "$exchange/late-acks/#", *RULES["return"])


@pytest.fixture(scope="module")
def amqp_broker(start: BrokerFactory) -> Iterator[AmqpBroker]:
    broker = start_amqp(start, CONFIG)
    yield broker
    assert broker.process
    broker.process.stop()


# -- rates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["does not read", "does not acknowledge"])
def test_x2_below_the_rate_in_every_test_while_records_wait(
    headway: BrokerProcess, feeder: Named, name: str, how: str
) -> None:
    queues = [feeder.shared(f"rate/{name}"), feeder.shared(f"rate/{name}-fast")]
    no_ack = how == "does not read"
    slow = Named(headway.port, name, receive_buffer=SMALL)
    fast = Named(headway.port, f"{name}-fast")
    with closing(slow, fast):
        slow.consume(queues[0], no_ack=no_ack, prefetch=10)
        fast.consume(queues[1], no_ack=no_ack)
        got: list[Content] = []

        def verdict() -> list[dict[str, Any]]:
            for queue in queues:
                feeder.put(queue, *numbered(20))
            got.extend(fast.contents(20))
            if not no_ack:
                fast.ack(0, multiple=True)
            return headway.verdicts(name)

        found = until(verdict)[0]
        assert "each of 3 tests" in found["text"]
        assert found["held_s"] >= 0.29
        assert_told_why(slow.connection_closed(), headway.verdicts(name)[0])
        assert headway.verdicts(f"{name}-fast") == []
        assert row(headway, f"{name}-fast", queues[1])["delivered_records"] == len(got)


def test_x1_a_suspect_that_reads_again_is_none(headway: BrokerProcess, feeder: Named, name: str) -> None:
    queue, sent = feeder.shared(f"suspect/{name}"), numbered(300)
    with Named(headway.port, name, receive_buffer=SMALL) as slow:
        slow.consume(queue, no_ack=True)
        feeder.put(queue, *sent)
        found = until(lambda: (one := row(headway, name, queue))["slow"] and one)
        assert found["last_verdict"]["reason"] == "drain_rate"
        assert found["blocked_ms"] > 0
        assert found["credit_exhausted_ms"] == 0
        assert slow.bodies(300) == sent
        until(lambda: not row(headway, name, queue)["slow"], what="it is no suspect any more")


# -- how many may wait, how long, how often -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "prefetch", "kept"), [("constant", 10, 50), ("multiple", 3, 6), ("multiple", 20, 40), ("least", 10, 50)]
)
def test_j1_j2_so_many_may_wait_on_top_of_the_prefetch(
    headway: BrokerProcess, named: Pika, name: str, limit: str, prefetch: int, kept: int
) -> None:
    queue = named.queue(f"{limit}/{name}")
    named.consume(queue, prefetch=prefetch)
    sent = numbered(200, 10)
    named.put(queue, *sent[: prefetch + kept])
    got = named.wait(prefetch)
    assert row(headway, name, queue)["lag_records"] == kept
    named.put(queue, *sent[prefetch + kept :])
    until(lambda: row(headway, name, queue)["lag_records"] == kept)
    assert row(headway, name, queue)["in_flight"] == prefetch
    while len(got) < prefetch + kept:
        named.ack(*got[-prefetch:])
        got += named.wait(min(prefetch, prefetch + kept - len(got)))
    assert [one.body for one in got] == sent[:prefetch] + sent[-kept:]
    assert row(headway, name, queue)["gap_records"] == {"discarded": 200 - prefetch - kept}


def test_j3_slow_too_often(headway: BrokerProcess, named: Pika, name: str) -> None:
    queue = named.queue(f"often/{name}")
    named.consume(queue, prefetch=2)
    for times in (1, 2):
        named.put(queue, *numbered(6, 10))
        got = named.wait(2)
        until(lambda: row(headway, name, queue)["slow"])
        while len(got) < 6:
            named.ack(*got[-2:])
            got += named.wait(2)
        named.ack(*got[-2:])
        until(lambda: not row(headway, name, queue)["slow"])
        assert row(headway, name, queue)["slow_count"] == times
    named.put(queue, *numbered(6, 10))
    with pytest.raises(ConnectionClosedByBroker) as caught:
        until(lambda: named.connection.process_data_events(0))
    assert caught.value.reply_code == 506
    assert "for the 3rd time" in caught.value.reply_text


# -- closing, cutting -----------------------------------------------------------------------------------------------


def starve(client: Pika, queue: str, prefetch: int = 2) -> list[Delivery]:
    """More than the window takes waits in a queue that the client consumes; what it has of it."""
    client.consume(queue, prefetch=prefetch)
    client.put(queue, *numbered(prefetch + 3, 10))
    return client.wait(prefetch)


def test_j4_the_client_is_asked_to_close_its_consumer(headway: BrokerProcess, named: Pika, name: str) -> None:
    cancelled: list[str] = []
    queue, other = named.queue(f"close/{name}"), named.queue()
    named.channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    named.consume(other, auto_ack=True)
    got = starve(named, queue)
    until(lambda: named.turn() or cancelled)
    assert cancelled == [got[0].consumer]
    assert named.count(queue) == (3, 0)
    assert headway.verdicts(name)[0]["reason"] == "credit_exhausted"
    named.put(other, b"goes on")
    assert named.bodies(1) == [b"goes on"]
    named.ack(*got)  # it may finish its work
    assert named.drain(queue) == numbered(5, 10)[2:]


@pytest.mark.parametrize(
    ("version", "polls"), [("0-9-1", False), ("0-9", False), ("0-8", False), ("0-9-1", True), ("0-8", True)]
)
def test_j4_who_cannot_be_asked_has_its_channel_closed(
    headway: BrokerProcess, feeder: Named, name: str, version: str, polls: bool
) -> None:
    """It does not understand a cancel; or it polls, and there is nothing to cancel."""
    queue = feeder.declare(f"{'poll' if polls else 'close'}/{name}", exclusive=False)
    with Named(headway.port, name, version, able=polls) as slow:
        if polls:
            feeder.put(queue, *numbered(1, 10))
            assert slow.get(queue)
        else:
            slow.consume(queue, prefetch=2)
        feeder.put(queue, *numbered(10, 10))
        verdict = until(lambda: headway.verdicts(name))[0]
        assert_told_why(slow.expect(Channel.Close, 1, 5), verdict)
        slow.do(Channel.CloseOk())
        slow.open_channel(2)
        slow.declare(channel=2)
    feeder.call(Queue.Delete(queue=queue), Queue.DeleteOk)


@pytest.mark.parametrize("company", [True, False])
def test_j4_its_channel_is_cut_or_its_connection(
    headway: BrokerProcess, named: Pika, feeder: Named, name: str, company: bool
) -> None:
    """pika raises what users will see. Others get what it had not acknowledged."""
    queue, other = feeder.declare(f"cut/{name}", exclusive=False), named.queue()
    channel = named.channel
    if company:
        named.channel = named.connection.channel()
        named.consume(other, auto_ack=True)
        named.channel = channel
    got = starve(named, queue)
    with pytest.raises(ChannelClosedByBroker if company else ConnectionClosedByBroker) as caught:
        channel.start_consuming()
    assert_told_why(caught.value, headway.verdicts(name)[0])
    assert headway.verdicts(name)[0]["reason"] == "credit_exhausted"
    feeder.consume(queue, no_ack=True)
    assert [(one.body, one.method.redelivered) for one in feeder.contents(5)] == [
        (body, number < len(got)) for number, body in enumerate(numbered(5, 10))
    ]
    if company:
        named.put(other, b"goes on")
        assert named.bodies(1) == [b"goes on"]
        assert named.connection.channel().queue_declare(other, passive=True)
    else:
        assert named.connection.is_closed


@pytest.mark.parametrize("company", [True, False])
def test_who_is_cut_again_and_again_is_readmitted_later(
    headway: BrokerProcess, feeder: Named, name: str, company: bool
) -> None:
    """``company``: the first time it was its channel."""
    queue = feeder.declare(f"cut/{name}", exclusive=False)
    feeder.put(queue, *numbered(9, 10))
    for times in (1, 2):
        with Named(headway.port, name) as slow:
            slow.open_channel(2)
            slow.consume(queue, 2, prefetch=1)
            if company and times == 1:
                slow.consume(slow.declare())
                close: Any = slow.channel_closed(2)
            else:
                close = slow.connection_closed()
            assert close.reply_text.startswith(f"RESOURCE_ERROR - {name} on $queue/{queue}: its window full for")
    with Named(headway.port, name, connect=False) as refused:
        refused.greet()
        refused.log_in()
        refused.tune()
        refused.do(Connection.Open(), 0)
        close = refused.connection_closed()
        assert close.reply_code == 506
        assert "2 times" in close.reply_text
    until(lambda: headway.get(f"/v1/why/{name}")["readmitted_in_s"] == 0)
    with Named(headway.port, name) as back:
        assert back.drain(queue) == numbered(9, 10)
    feeder.call(Queue.Delete(queue=queue), Queue.DeleteOk)


# -- credit, acknowledgements, transactions -------------------------------------------------------------------------


def test_credit_is_a_meter_of_its_own(headway: BrokerProcess, named: Pika, name: str) -> None:
    """A full window is nothing, a full socket is another thing."""
    queue = named.queue(f"notify/{name}")
    named.consume(queue, prefetch=3)
    named.put(queue, *numbered(3, 10))
    got = named.wait(3)
    until(lambda: row(headway, name, queue)["ack_age_ms"] > 300)
    assert row(headway, name, queue)["credit_exhausted_ms"] == 0  # nothing waits
    named.put(queue, b"waits")
    verdict = until(lambda: headway.verdicts(name))[0]
    assert (verdict["reason"], verdict["cause"]) == ("credit_exhausted", "application")
    assert [(one["meter"], one["value"] > 0.2) for one in verdict["readings"]] == [("credit_exhausted_time", True)]
    found = row(headway, name, queue)
    assert (found["credit_exhausted_ms"] >= 200, found["blocked_ms"], found["in_flight"]) == (True, 0, 3)
    named.ack(*got)
    named.wait(1)
    until(lambda: not row(headway, name, queue)["slow"])
    assert row(headway, name, queue)["credit_exhausted_ms"] == 0


def test_an_ack_timeout_returns_the_records_and_kills_no_long_job(
    headway: BrokerProcess, named: Pika, connect: PikaFactory, name: str
) -> None:
    queue, sent = named.queue(f"return/{name}", exclusive=False, auto_delete=True), numbered(15, 10)
    named.consume(queue, prefetch=5)
    named.put(queue, *sent[:5])
    job = named.wait(5)
    heir = connect()
    heir.consume(queue, auto_ack=True)
    again = heir.wait(5)
    assert [(one.body, one.redelivered) for one in again] == [(body, True) for body in sent[:5]]
    assert headway.verdicts(name)[0]["reason"] == "ack_age"
    heir.put(queue, *sent[5:10])
    assert heir.bodies(5) == sent[5:10]  # who is late gets no more in their place
    named.channel.basic_ack(job[-1].tag, multiple=True)
    assert named.so_far() == []
    heir.put(queue, *sent[10:])
    until(lambda: len(named.turn()) + len(heir.turn()) == 5)
    assert named.got  # its window is free again
    assert sorted(one.body for one in named.got + heir.got) == sent[10:]
    named.ack(*named.got)
    assert named.count(queue) == (0, 2)


@pytest.mark.parametrize("company", [True, False])
def test_an_ack_timeout_gives_nothing_back_to_who_has_it(
    headway: BrokerProcess, named: Pika, connect: PikaFactory, name: str, company: bool
) -> None:
    """It is at work on it, whatever room there is in its window; also while nobody else is there."""
    queue, heir = named.queue(f"return/{name}", exclusive=False, auto_delete=True), connect()
    named.consume(queue)
    named.put(queue, *numbered(3, 10))
    job = named.wait(3)
    if company:
        heir.consume(queue, auto_ack=True)
    until(lambda: headway.verdicts(name))
    assert named.so_far() == []
    if not company:
        heir.consume(queue, auto_ack=True)
    assert [(one.body, one.redelivered) for one in heir.wait(3)] == [(body, True) for body in numbered(3, 10)]
    named.ack(*job)
    assert named.count(queue) == (0, 2)


def test_an_ack_timeout_counts_for_what_was_sent_before_it_was_in_force(
    headway: BrokerProcess, named: Pika, name: str
) -> None:
    """Its queue comes under the policy when it is bound; nothing more happens to it."""
    queue = named.queue()
    named.consume(queue)
    named.put(queue, *numbered(2, 10))
    named.wait(2)
    named.channel.queue_bind(queue, named.exchange("late-acks"))
    verdict = until(lambda: headway.verdicts(name))[0]
    assert (verdict["reason"], verdict["policy"]) == ("ack_age", "late acks")


@pytest.mark.parametrize("does", ["waits", "commits"])
def test_a_transaction_fails_whose_consumer_was_cut_meanwhile(
    headway: BrokerProcess, named: Pika, feeder: Named, name: str, does: str
) -> None:
    queue, target = (named.queue(f"{word}/{name}", exclusive=False) for word in ("cut", "target"))
    named.consume(named.queue())
    tx = named.channel = named.connection.channel()
    tx.tx_select()
    got = starve(named, queue)
    tx.basic_publish("", target, b"never")
    named.ack(*got)
    until(lambda: headway.verdicts(name))
    with pytest.raises(ChannelClosedByBroker) as caught:
        {"waits": tx.start_consuming, "commits": tx.tx_commit}[does]()
    assert_told_why(caught.value, headway.verdicts(name)[0])
    assert feeder.count(target) == 0
    assert feeder.drain(queue) == numbered(5, 10)
    for one in (queue, target):
        feeder.call(Queue.Delete(queue=one), Queue.DeleteOk)


# -- why ------------------------------------------------------------------------------------------------------------


def test_why_knows_an_amqp_client_by_the_name_of_its_connection(
    headway: BrokerProcess, connect: PikaFactory, name: str
) -> None:
    title = f"orders of {name}"
    clients = [connect(client_properties={"connection_name": title}) for _ in range(2)]
    for number, client in enumerate(clients):
        starve(client, client.queue(f"cut/{title} {number}"))
        with pytest.raises(ConnectionClosedByBroker):
            client.channel.start_consuming()
    for number, known in enumerate([title, f"{title}#2"]):
        command = [sys.executable, "-m", "headway", "why", known, "--admin", headway.admin]
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
        text = headway.verdicts(known)[0]["text"]
        assert text.startswith(f"{known} on $queue/cut/{title} {number}: its window full")
        assert text in said
