"""Qpid's test matrix (Q6): whoever is too slow is told so with 506, in every version, however it takes records and
whatever it says; and who is not, is not. And Q3: who is deleted, and who is spared; Q5: whom a policy is for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pamqp.commands import Basic, Channel, Connection, Exchange, Queue, Tx
from tests.interop.amqp_broker import AmqpBroker
from tests.interop.amqp_raw import VERSIONS, Content
from tests.interop.amqp_slow import SMALL, Named, assert_told_why, numbered, policy, row, start_amqp
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until

pytest_plugins = ("tests.interop.amqp_fixtures",)

LIMIT = 20
WINDOW = 4
LOOKS_MS = 60
"""In that time the governor looks several times (its sweep is 10 ms)."""
BIG = b"." * 300_000
"""More than all sockets on the way take."""

DELETE = '{ action = "delete_subscription", durable = true }'
CONFIG = "\n".join(
    policy(name, topics, f'when = {{ lag_records = "> {LIMIT}" }}\nthen = {then}')
    for name, topics, then in (
        ("topics cut", "q6-cut/#", '"disconnect"'),
        ("topics deleted", "q6-deleted/#", '"delete_subscription"'),
        ("delete", "$queue/delete/+", '"delete_subscription"'),
        ("delete durable", "$queue/delete-durable/+", DELETE),
        ("matrix", "$queue/+", '"disconnect"'),
        ("key", "$exchange/q5-stocks/us/+", '"disconnect"'),
        ("queue", "$queue/q5/orders", '"disconnect"'),
        ("topics", "q5/us/#", '"disconnect"'),
    )
)


@pytest.fixture(scope="module")
def amqp_broker(start: BrokerFactory) -> Iterator[AmqpBroker]:
    broker = start_amqp(start, CONFIG, sweep="10ms")
    yield broker
    assert broker.process
    broker.process.stop()


@pytest.fixture(scope="module")
def feeder(amqp_broker: AmqpBroker) -> Iterator[Named]:
    """Publishes, and takes what is left."""
    with Named(amqp_broker.port, "feeder") as raw:
        yield raw


class Reader:
    """Takes records from a queue on channel 2, asking or being called; acknowledges as its mode is."""

    def __init__(self, raw: Named, queue: str, mode: str, how: str) -> None:
        self.raw, self.queue, self.mode, self.how = raw, queue, mode, how
        self.acks = mode != "no-ack"
        if mode == "transacted":
            raw.call(Tx.Select(), Tx.SelectOk, 2)
        if how == "callback":
            raw.consume(queue, 2, no_ack=not self.acks, prefetch=WINDOW)

    def _next(self) -> Content:
        if self.how == "callback":
            return self.raw.expect(Content, 2)
        got = until(lambda: self.raw.get(self.queue, 2, no_ack=not self.acks))
        assert got
        return got

    def take(self, count: int) -> list[bytes]:
        """The next ones, all settled."""
        got: list[Content] = []
        for _ in range(count):
            got.append(self._next())
            if self.mode == "auto":
                self.raw.ack(got[-1].method.delivery_tag, channel=2)
        tags = [one.method.delivery_tag for one in got]
        if self.mode == "single":
            self.raw.ack(*reversed(tags), channel=2)
        elif self.mode in ("multiple", "transacted"):
            self.raw.ack(tags[-1], channel=2, multiple=True)
        if self.mode == "transacted":
            self.raw.call(Tx.Commit(), Tx.CommitOk, 2)
        return [one.body for one in got]

    def ask(self) -> None:
        """Whatever such a client says next, and expects to be answered."""
        if self.acks:
            self.raw.ack(0, channel=2, multiple=True)
        if self.how == "get":
            self.raw.do(Basic.Get(queue=self.queue, no_ack=not self.acks), 2)
        if self.mode == "transacted":
            self.raw.do(Tx.Commit(), 2)
        elif self.how == "callback":
            self.raw.do(Basic.Qos(prefetch_count=WINDOW), 2)

    def answers(self) -> list[object]:
        """All that has come on the channel and is no delivery."""
        return [
            item for channel, item in self.raw.inbox
            if channel == 2 and not (isinstance(item, Content) and isinstance(item.method, Basic.Deliver))
        ]  # fmt: skip


@pytest.mark.parametrize(
    "outcome", ["none", "channel.close", "channel.close when asked", "connection.close", "connection.close when asked"]
)
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
@pytest.mark.parametrize("how", ["get", "callback"])
@pytest.mark.parametrize("mode", ["auto", "single", "multiple", "transacted", "no-ack"])
@pytest.mark.parametrize("version", VERSIONS)
def test_q6_who_is_too_slow_gets_506_with_the_verdict_on_every_path(
    headway: BrokerProcess, feeder: Named, name: str, version: str, mode: str, how: str, durable: bool, outcome: str
) -> None:
    """``when asked``: the client says something before it reads what it has been told."""
    feeder.declare(name, exclusive=False, durable=durable)
    unread = how == "callback" and mode == "no-ack"  # its socket is full; else its window is, or it asks for no more
    with Named(headway.port, name, version, receive_buffer=SMALL if unread else None) as raw:
        raw.open_channel(2)
        reader = Reader(raw, name, mode, how)
        company = raw.declare()
        if outcome.startswith("channel"):
            raw.consume(company)
        sent = [b"%d" % number for number in range(WINDOW)]
        feeder.put(name, *sent)
        assert reader.take(WINDOW) == sent
        ahead = [BIG] if unread else [b"ahead"] * WINDOW if how == "callback" else []
        waiting = [b"%d" % number for number in range(LIMIT)]
        feeder.put(name, *ahead, *waiting)
        if outcome != "none":
            waiting.append(b"one more")
            feeder.put(name, waiting[-1])
            assert_told(headway, reader, company, outcome)
            assert feeder.drain(name) == ahead * (not unread) + waiting
        else:
            until(lambda: row(headway, name, name)["lag_age_ms"] >= LOOKS_MS)
            assert row(headway, name, name)["lag_records"] == LIMIT  # and that is not too many
            left = len(ahead) + LIMIT
            got = [body for at in range(0, left, WINDOW) for body in reader.take(min(WINDOW, left - at))]
            assert got == ahead + waiting
            raw.sync(2)
            assert row(headway, name, name)["in_flight"] == 0
            assert headway.verdicts(name) == []
            assert not reader.answers()
        assert feeder.count(name) == 0
    feeder.call(Queue.Delete(queue=name), Queue.DeleteOk)


def assert_told(headway: BrokerProcess, reader: Reader, company: str, outcome: str) -> None:
    """It is told why, once, and what it asks for is not answered; its other channel, if it consumes there, goes on."""
    raw = reader.raw
    if outcome.endswith("when asked"):
        until(lambda: headway.verdicts(raw.name))
        reader.ask()
    elif reader.how == "callback" and not reader.acks:
        until(lambda: headway.verdicts(raw.name), what="a verdict")  # would it read now, it were not too slow
    if outcome.startswith("channel"):
        close: Channel.Close | Connection.Close = raw.channel_closed(2)
        raw.publish("", company, b"still there")
        assert raw.bodies(1) == [b"still there"]
        raw.sync()
        assert not any(isinstance(item, Channel.Close) for _, item in raw.inbox)
        raw.open_channel(2)
    else:
        close = raw.connection_closed()
    [verdict] = headway.verdicts(raw.name)
    assert (verdict["reason"], verdict["policy"], verdict["enforced"]) == ("lag_records", "matrix", True)
    assert verdict["filter"] == f"$queue/{reader.queue}"
    assert_told_why(close, verdict)
    assert f"{LIMIT + 1} records" in verdict["text"]
    assert not reader.answers()
    assert not row(headway, raw.name, reader.queue)


@pytest.mark.parametrize("outcome", ["channel.close", "connection.close"])
@pytest.mark.parametrize("transacted", [True, False], ids=["transacted", "no transaction"])
@pytest.mark.parametrize(
    ("reads", "does"),
    [("topics", "cut"), ("topics", "deleted"), ("queue", "cut"), ("queue", "deleted"), ("durable queue", "cut")],
)
def test_q6_on_topics_who_is_too_slow_gets_506_with_the_verdict_too(
    headway: BrokerProcess, feeder: Named, name: str, reads: str, does: str, transacted: bool, outcome: str
) -> None:
    """Consumers of topics, and of queues that are bound to them. A transaction under way does nothing any more."""
    key, queue = f"q6-{does}.{name}", "amq.topic"
    with Named(headway.port, name, receive_buffer=SMALL) as raw:
        raw.open_channel(2)
        company = raw.declare()
        if outcome.startswith("channel"):
            raw.consume(company)
        if transacted:
            raw.call(Tx.Select(), Tx.SelectOk, 2)
            raw.publish("", company, b"of the transaction", channel=2)
        if reads == "topics":
            arguments = {"x-headway-topics": key}
            raw.call(Basic.Consume(queue=queue, no_ack=True, arguments=arguments), Basic.ConsumeOk, 2)
        else:
            queue = raw.declare(f"q6/{name}" if "durable" in reads else "", exclusive=reads == "queue",
                                durable=reads != "queue")
            raw.call(Queue.Bind(queue=queue, exchange="amq.topic", routing_key=key), Queue.BindOk)
            raw.consume(queue, 2, prefetch=WINDOW)
        feeder.put(key, *[BIG] * WINDOW, *numbered(LIMIT + 1, 10), exchange="amq.topic")
        [verdict] = until(lambda: headway.verdicts(name), what="a verdict")
        assert (verdict["policy"], verdict["enforced"]) == (f"topics {does}", True)
        if transacted:
            raw.do(Tx.Commit(), 2)
        if outcome.startswith("channel"):
            assert_told_why(raw.channel_closed(2), verdict)
            assert raw.sync().bodies(0) == []
        else:
            assert_told_why(raw.connection_closed(), verdict)
        assert not any(isinstance(item, Tx.CommitOk) for _, item in raw.inbox)
    if "durable" in reads:
        feeder.call(Queue.Delete(queue=queue), Queue.DeleteOk)


@pytest.mark.parametrize("how", ["get", "callback"])
@pytest.mark.parametrize(
    ("queue", "durable", "spared"),
    [("delete", False, False), ("delete", True, True), ("delete-durable", True, False)],
    ids=["transient", "durable", "durable, and told so"],
)
def test_q3_deleting_spares_durable_queues_unless_told(
    headway: BrokerProcess, feeder: Named, name: str, how: str, queue: str, durable: bool, spared: bool
) -> None:
    queue = f"{queue}/{name}"
    with Named(headway.port, name) as raw:
        raw.open_channel(2)
        raw.declare(queue, exclusive=False, durable=durable)
        reader = Reader(raw, queue, "multiple", how)
        sent = [b"%d" % number for number in range(LIMIT + 2 * WINDOW + 1)]
        feeder.put(queue, *sent[:WINDOW])
        assert reader.take(WINDOW) == sent[:WINDOW]
        feeder.put(queue, *sent[WINDOW:])
        verdict = until(lambda: headway.verdicts(name))[0]
        assert verdict["enforced"] != spared
        if spared:
            assert "durable, so spared, and not unsubscribed by policy" in verdict["text"]
            got = [body for _ in range(0, LIMIT + WINDOW, WINDOW) for body in reader.take(WINDOW)]
            assert got + reader.take(1) == sent[WINDOW:]
            feeder.call(Queue.Delete(queue=queue), Queue.DeleteOk)
        else:
            assert_told_why(raw.connection_closed(), verdict)
            until(lambda: not feeder.exists(queue), what="the queue is gone")


@pytest.mark.parametrize(
    ("exchange", "key", "queue", "expected"),
    [
        ("q5-stocks", "us.*", "", "key"), ("q5-stocks", "us.ibm", "", "key"), ("q5-stocks", "us.#", "", "none"),
        ("q5-stocks", "uk.*", "", "none"), ("q5-others", "us.ibm", "", "none"),
        ("amq.topic", "q5.us.*", "", "topics"), ("amq.topic", "q5.us.#", "", "topics"),
        ("amq.topic", "q5.#", "", "none"), ("amq.topic", "us.ibm", "", "none"),
        ("q5-others", "us.ibm", "q5/orders", "queue"), ("q5-stocks", "us.*", "q5/orders", "key"),
    ],
)  # fmt: skip
def test_j5_q5_policies_by_exchange_and_key_by_queue_and_by_topic(
    headway: BrokerProcess, feeder: Named, name: str, exchange: str, key: str, queue: str, expected: str
) -> None:
    """The first in the file that covers one of the queue's names."""
    if not exchange.startswith("amq."):
        feeder.call(Exchange.Declare(exchange=exchange, exchange_type="topic"), Exchange.DeclareOk)
    queue = feeder.shared(queue or f"q5/{name}")
    feeder.call(Queue.Bind(queue=queue, exchange=exchange, routing_key=key), Queue.BindOk)
    with Named(headway.port, name) as slow:
        slow.consume(queue, prefetch=1)
        assert row(headway, name, queue)["policy"] == expected
        feeder.put(key.replace("*", "ibm").replace("#", "ibm"), *numbered(LIMIT + 2, 10), exchange=exchange)
        if expected != "none":
            assert_told_why(slow.connection_closed(), headway.verdicts(name)[0])
            assert f"policy '{expected}', rule 1" in headway.verdicts(name)[0]["text"]
        else:
            assert slow.sync().bodies(1) == numbered(1, 10)
            assert headway.verdicts(name) == []


def test_j5_q5_a_consumer_is_governed_by_what_its_queue_is_bound_to_later(
    headway: BrokerProcess, feeder: Named, name: str
) -> None:
    feeder.call(Exchange.Declare(exchange="q5-stocks", exchange_type="topic"), Exchange.DeclareOk)
    with Named(headway.port, name) as slow:
        queue = slow.declare(f"q5/{name}")
        slow.consume(queue, prefetch=1)
        slow.call(Queue.Bind(queue=queue, exchange="q5-stocks", routing_key="us.later"), Queue.BindOk)
        until(lambda: row(headway, name, queue)["policy"] == "key", 2)
        feeder.put("us.later", *numbered(LIMIT + 2, 10), exchange="q5-stocks")
        assert_told_why(slow.connection_closed(), headway.verdicts(name)[0])
