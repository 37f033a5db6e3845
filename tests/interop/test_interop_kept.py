"""What was confirmed is kept when there is no room for it on the spill's disk: in the journal, or publishers wait."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pamqp.commands import Confirm, Connection, Queue
from tests.interop.amqp_slow import Named, closing
from tests.interop.conftest import BrokerFactory
from tests.interop.process import LISTENER
from tests.interop.raw import Raw
from tests.interop.waiting import until

from headway.wire.mqtt.packets import PubAck, TopicRequest

AMQP = '[listeners.amqp]\nurl = "amqp://127.0.0.1:0"\n'
HOUR = 3600


def small(folder: Path, disk: str = "100MB") -> str:
    return f'{LISTENER}{AMQP}[pool]\nmemory = "2MB"\ndisk = "{disk}"\ndisk_path = "{folder / "spill"}"\n'


def body(number: int) -> bytes:
    return b"%06d" % number + b"." * 1994


@pytest.mark.parametrize("mixed", [False, True])
def test_a_spill_disk_that_takes_nothing_costs_nothing_that_the_journal_has(
    start: BrokerFactory, tmp_path: Path, mixed: bool
) -> None:
    """8 MB beyond a pool of 2 MB, for one who is away; ``mixed``: beside it what nobody was promised."""
    broker = start(small(tmp_path) + f'[journal]\npath = "{tmp_path / "journal"}"\n')
    shutil.rmtree(tmp_path / "spill")
    with Raw(broker.port, "away", session_expiry_s=HOUR) as away:
        away.subscribed(TopicRequest("t", 1), *([TopicRequest("u", 1)] if mixed else []))
    with Raw(broker.port) as writer:
        for first in range(0, 4000, 100):
            if mixed:
                writer.publish_all("u", [body(number) for number in range(first, first + 10)])
            for number in range(first, first + 100):
                writer.publish("t", body(number), 1)
            for _ in range(100):
                writer.expect(PubAck)
    with Raw(broker.port, "away", clean_start=False, session_expiry_s=HOUR) as away:
        got = []
        while len(got) < 4000:
            message = away.message()
            if message.qos:
                away.ack(message)
                got.append(message.payload)
        assert got == [body(number) for number in range(4000)]


def test_without_a_journal_whoever_publishes_to_one_who_is_away_waits_and_nobody_else(
    start: BrokerFactory, tmp_path: Path
) -> None:
    broker = start(small(tmp_path, "0"))
    with Raw(broker.port, "away", session_expiry_s=HOUR) as away:
        away.subscribed(TopicRequest("t", 1))
    with Raw(broker.port, "writer") as writer, Raw(broker.port) as other, Raw(broker.port) as reader:
        reader.subscribed("news")
        sent = 0
        while not broker.publisher("writer").get("paused"):
            writer.publish("t", body(sent), 1)
            sent += 1
        for number in range(2000):
            other.publish("news", body(number))
            assert reader.message().payload == body(number)
        for _ in range(10):  # nor does it help to connect again
            with Raw(broker.port) as pushy:
                for number in range(30):
                    pushy.publish("t", b"pushed in " + body(number), 1)
                other.publish("news", b"meanwhile")
                assert reader.message().payload == b"meanwhile"
        assert broker.get("/v1/broker")["pools"][0]["memory_bytes"] < 2_500_000
        with Raw(broker.port, "away", clean_start=False, session_expiry_s=HOUR) as back:
            for number in range(sent):
                message = back.message()
                assert message.payload == body(number)
                back.ack(message)
        for _ in range(sent):
            writer.expect(PubAck)


def test_a_queue_without_consumers_blocks_whom_it_confirms_to_and_says_why(
    start: BrokerFactory, tmp_path: Path
) -> None:
    broker = start(small(tmp_path, "0"))
    port = broker.ports["amqp"]
    publisher, other, heir = Named(port, "publisher"), Named(port, "other"), Named(port, "heir")
    with closing(publisher, other, heir):
        publisher.call(Queue.Declare(queue="q"), Queue.DeclareOk)
        publisher.call(Confirm.Select(), Confirm.SelectOk)
        sent: list[bytes] = []

        def publish() -> bool:
            sent.extend(body(number) for number in range(len(sent), len(sent) + 20))
            publisher.publish("", "q", *sent[-20:])
            return bool(broker.publisher("publisher").get("paused"))

        until(publish, what="the publisher is not read")
        for _ in range(10):  # nor does it help to connect again
            pushy = Named(port, "pushy")
            with closing(pushy):
                pushy.publish("", "q", *[b"pushed in"] * 20)
                pushy.expect(Connection.Blocked, 0)
        elsewhere = other.declare()
        until(lambda: not broker.publisher("other").get("paused"))
        other.put(elsewhere, b"x")
        other.consume(elsewhere, no_ack=True)
        assert other.bodies(1) == [b"x"], "others are read"
        heir.consume("q", no_ack=True)
        assert heir.bodies(len(sent)) == sent
        why = publisher.expect(Connection.Blocked, 0).reason
        assert why == "memory is used up" or "use up their room" in why
        publisher.expect(Connection.Unblocked, 0)
        assert not [row for row in broker.get("/v1/queues")["queues"] if row["dropped_records"]]
