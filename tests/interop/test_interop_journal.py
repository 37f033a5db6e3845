"""What outlives the broker, as clients see it: real ones, a real disk, SIGKILL."""

from __future__ import annotations

import resource
import threading
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from pika.exceptions import ChannelClosedByBroker
from tests.interop.amqp_pika import Pika
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.records import LISTENERS
from tests.interop.waiting import until

from headway.wire.mqtt.packets import ConnAck, PubAck, TopicRequest

RECORDED = '[[topic]]\nfilter = "flights/#"\nkey = "topic"\nkeep = "1d"\n'
DELETE = """
[[policy]]
name = "away"
topics = ["#"]
[[policy.rule]]
when = { lag_records = "> 50" }
then = { action = "delete_subscription", durable = true }
"""
HOUR = 3600


def config(folder: Path, more: str = "") -> str:
    return f'{LISTENERS}[journal]\npath = "{folder / "journal"}"\n{more}'


def killed(broker: BrokerProcess, start: BrokerFactory, text: str) -> BrokerProcess:
    broker.kill()
    return start(text)


def filled(port: int, topic: str, count: int, first: int = 0) -> None:
    with Raw(port) as writer:
        for number in range(first, first + count):
            writer.published(topic, b"%d" % number)


def test_retained_records_are_there_after_a_crash(start: BrokerFactory, tmp_path: Path) -> None:
    text = config(tmp_path)
    broker = start(text)
    with Raw(broker.port) as writer:
        writer.published("a", b"old", retain=True)
        writer.published("a", b"new", retain=True)
        writer.published("b", b"gone", retain=True)
        writer.published("b", b"", retain=True)
    broker = killed(broker, start, text)
    with Raw(broker.port) as reader:
        reader.subscribed("#")
        kept = reader.message()
        assert (kept.topic, kept.payload, kept.retain) == ("a", b"new", True)
        assert reader.so_far() == []


def test_from_an_offset_in_the_middle_of_a_flood_nothing_is_missing(start: BrokerFactory, tmp_path: Path) -> None:
    """Those lost records who subscribed in the very turn in which they were published."""
    broker, over, last = start(config(tmp_path, RECORDED)), threading.Event(), 0

    def flood(name: str) -> None:
        with Raw(broker.port, name) as writer:
            for number in count():
                if over.is_set():
                    break
                writer.published(f"flights/{name}", b"%d" % number)

    floods = [threading.Thread(target=flood, args=(name,)) for name in ("a", "b", "c", "d")]
    for one in floods:
        one.start()
    try:
        for number in range(60):
            with Raw(broker.port) as reader:
                user = (("offsets", "true"), ("from", str(last)))
                reader.subscribe(TopicRequest("flights/#", number % 2), user=user)
                after: dict[str, int] = {}
                for message in reader.messages(20):
                    found = int(message.payload)
                    assert found == after.get(message.topic, found), f"of {message.topic}, reader {number}"
                    after[message.topic], last = found + 1, int(message.user["offset"])
    finally:
        over.set()
        for one in floods:
            one.join()


def test_a_recorded_topic_from_its_beginning_an_offset_or_a_time(start: BrokerFactory, tmp_path: Path) -> None:
    text = config(tmp_path, RECORDED)
    broker = start(text)
    filled(broker.port, "flights/1", 100)
    between = datetime.now(UTC)
    until(lambda: datetime.now(UTC) > between + timedelta(milliseconds=20))
    filled(broker.port, "flights/2", 50, 100)
    broker = killed(broker, start, text)

    def read(count: int, filter: str = "flights/#", **options: str) -> tuple[list[int], list[int]]:
        with Raw(broker.port) as reader:
            user = tuple(({"from_": "from"}.get(name, name), value) for name, value in options.items())
            reader.subscribe(TopicRequest(filter, 1), user=(*user, ("offsets", "true")))
            found = []
            for _ in range(count):
                found.append(reader.message())
                reader.ack(found[-1])
            assert reader.so_far() == []
            return [int(one.payload) for one in found], [int(one.user["offset"]) for one in found]

    numbers, offsets = read(150, from_="earliest")
    assert numbers == list(range(150))
    assert offsets == sorted(set(offsets))
    assert read(100, "flights/1", from_="earliest")[0] == list(range(100))
    assert read(30, from_=str(offsets[119]))[0] == list(range(120, 150))
    assert read(50, from_=(between + timedelta(milliseconds=10)).isoformat())[0] == list(range(100, 150))
    assert read(0, from_="end")[0] == []
    assert read(150, from_="-1h")[0] == list(range(150))
    with Raw(broker.port) as reader:  # the latest per key is known again
        reader.subscribe(TopicRequest("flights/#", 1), user=(("snapshot", "true"),))
        assert sorted(reader.payloads(2)) == [b"149", b"99"]
    filled(broker.port, "flights/1", 1, 150)
    assert read(151, from_="earliest")[1][-1] > offsets[-1], "no offset is used twice"


def test_a_queue_gets_what_is_recorded_first(start: BrokerFactory, tmp_path: Path) -> None:
    broker = start(config(tmp_path, RECORDED))
    filled(broker.port, "flights/ua/1", 300)
    filled(broker.port, "flights/dl/1", 10, 1000)
    client = Pika(broker.ports["amqp"])
    queue = client.queue()
    client.put("", "waits already", exchange="")
    client.put(queue, "before")
    client.channel.queue_bind(queue, "amq.topic", "flights.ua.*", arguments={"from": "earliest"})
    filled(broker.port, "flights/ua/2", 1, 300)
    client.consume(queue, prefetch=7)
    got = []
    while len(got) < 302:
        for one in client.wait(1):
            got.append(one.body)
            client.ack(one)
    assert got == [b"before", *(b"%d" % number for number in range(301))]
    with client.refused(406):
        client.channel.queue_bind(queue, "amq.topic", "trains.#", arguments={"from": "earliest"})
    client.close()


@pytest.mark.parametrize("crash", [False, True])
def test_who_was_away_is_told_that_its_subscription_was_deleted(
    start: BrokerFactory, tmp_path: Path, crash: bool
) -> None:
    text = config(tmp_path, DELETE)
    broker = start(text)
    with Raw(broker.port, "reader", session_expiry_s=HOUR) as reader:
        reader.subscribed(TopicRequest("t", 1))
    client = Pika(broker.ports["amqp"])
    client.channel.queue_declare("q", durable=True)
    filled(broker.port, "t", 60)
    client.put("q", *[b"x"] * 60, delivery_mode=2)
    until(lambda: broker.verdicts("reader") and broker.verdicts("$queue/q"))
    client.close()
    if crash:
        broker = killed(broker, start, text)
    with Raw(broker.port, "reader", clean_start=False, session_expiry_s=HOUR) as reader:
        assert reader.connack.fields.reason_string is not None
        assert "(limit 50)" in reader.connack.fields.reason_string
    with Raw(broker.port, "reader", clean_start=False, session_expiry_s=HOUR) as reader:
        assert reader.connack.fields.reason_string is None, "once"
    client = Pika(broker.ports["amqp"])
    with pytest.raises(ChannelClosedByBroker, match=r"506.*\(limit 50\)"):
        client.channel.basic_consume("q", lambda *_: None)
    client.close()
    client = Pika(broker.ports["amqp"])
    assert client.channel.queue_declare("q", durable=True).method.message_count == 0
    client.close()


def test_a_full_disk_confirms_nothing_and_is_got_over(start: BrokerFactory, tmp_path: Path) -> None:
    """No file may be larger than 200 kB for a while."""
    text = config(tmp_path)
    broker = start(text)
    with Raw(broker.port, "reader", session_expiry_s=HOUR) as reader:
        reader.subscribed(TopicRequest("t", 1))
    with Raw(broker.port) as writer, Raw(broker.port) as other, Raw(broker.port) as watcher:
        watcher.subscribed("news")
        writer.published("t", b"first")
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        waiting = [writer.publish("t", b"%06d" % number * 1000, 1) for number in range(60)]
        until(lambda: broker.get("/v1/broker")["journal"]["error"])
        other.publish("news", b"goes on")
        assert watcher.message().payload == b"goes on"
        confirmed = len([one for one in writer.so_far() if isinstance(one, PubAck)])
        assert confirmed < 60
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        told = [writer.expect(PubAck).packet_id for _ in range(60 - confirmed)]
        assert told == waiting[confirmed:], "all of them, in order"
        assert not broker.get("/v1/broker")["journal"]["error"]
    assert "File too large" in broker.log.read_text()
    broker = killed(broker, start, text)
    with Raw(broker.port, "reader", clean_start=False, session_expiry_s=HOUR) as reader:
        assert isinstance(reader.connack, ConnAck)
        sizes = []
        for _ in range(61):
            message = reader.message()
            sizes.append(len(message.payload))
            reader.ack(message)
        assert sizes == [5, *[6000] * 60]


@pytest.mark.parametrize("recorded", [True, False])
def test_who_was_conflated_when_the_broker_was_killed_has_the_state_or_is_told_that_it_is_not_whole(
    start: BrokerFactory, tmp_path: Path, recorded: bool
) -> None:
    text = config(tmp_path, RECORDED if recorded else RECORDED.replace('keep = "1d"\n', ""))
    broker = start(text)
    session = {"session_expiry_s": HOUR, "clean_start": False}
    with Raw(broker.port, "durable", **session) as reader:
        reader.subscribed(TopicRequest("flights/#", 1), user=(("conflate", "3s"),))
        filled(broker.port, "flights/1", 3)
    broker = killed(broker, start, text)
    with Raw(broker.port, "durable", **session) as reader:
        assert reader.connack.session_present
        if recorded:
            assert reader.message().payload == b"2"
            return
        filled(broker.port, "flights/2", 1)
        told = reader.message()
        assert (told.topic, told.user.get("gap-reason")) == ("flights/2", "not_retained"), "not that the latest came"
        assert int(told.user["gap-records"]) > 0
