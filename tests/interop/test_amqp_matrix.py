"""Qpid's test matrix (Q6): whoever is too slow is told so with 506, in every version, however it takes records and
whatever it says; and who is not, is not. And Q3: who is deleted, and who is spared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pamqp.commands import Basic, Channel, Connection, Queue, Tx
from tests.interop.amqp_broker import AmqpBroker
from tests.interop.amqp_raw import VERSIONS, Content
from tests.interop.amqp_slow import SMALL, Named, policy, row, start_amqp
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
        ("delete", "$queue/delete/+", '"delete_subscription"'),
        ("delete durable", "$queue/delete-durable/+", DELETE),
        ("matrix", "$queue/+", '"disconnect"'),
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
    """Takes records from a queue on channel 2, by ``basic.get`` or as they are delivered; acknowledges as its mode is.
    """

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
        return until(lambda: self.raw.get(self.queue, 2, no_ack=not self.acks))

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
    assert (close.reply_code, close.reply_text) == (506, f"RESOURCE_ERROR - {verdict['text']}")
    assert f"{LIMIT + 1} records" in verdict["text"]
    assert not reader.answers()
    assert not row(headway, raw.name, reader.queue)


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
            assert "would have been unsubscribed" in verdict["text"]
            got = [body for _ in range(0, LIMIT + WINDOW, WINDOW) for body in reader.take(WINDOW)]
            assert got + reader.take(1) == sent[WINDOW:]
            feeder.call(Queue.Delete(queue=queue), Queue.DeleteOk)
        else:
            close = raw.connection_closed()
            assert (close.reply_code, close.reply_text) == (506, f"RESOURCE_ERROR - {verdict['text']}")
            until(lambda: not feeder.exists(queue), what="the queue is gone")
