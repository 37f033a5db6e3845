"""Messages of a producer that are alike are published at once; each consumer gets each with its own id, whoever it is.
"""

from __future__ import annotations

import pytest
from bench.wires.packets import connect, encode_subscribe
from tests.server.amqp_stage import House
from tests.server.greedy_stage import Greedy
from tests.server.test_turn_budget import Person
from tests.sim.once.house import JournalHouse
from tests.store.journal.fake_files import FakeFiles
from tests.wire import openwire_frames as frames

from headway.core.message import Run
from headway.server.openwire.peer import OpenWirePeer
from headway.wire.codecs import queue_form
from headway.wire.common import CommonProperties
from headway.wire.mqtt.packets import Publish, TopicRequest
from headway.wire.openwire.codes import AckType, Form, Type
from headway.wire.openwire.dialect import OpenWireDialect

COUNT, NOW_MS = 300, 1_795_800_000_123
LISTENER = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n'
PROPERTIES = b"\0\0\0\1\0\1a\5\0\0\0\5"
"""The property ``a`` is 5."""
IDS = [f"ID:c:1:2:{number}" for number in range(COUNT)]


@pytest.fixture
def house() -> House:
    return House(LISTENER)


def client(house: House, name: str) -> Greedy:
    return Greedy(house, OpenWirePeer, frames.wire_format() + frames.connection_info(name))


def publish(house: House, destination: bytes, count: int = COUNT, body: bytes = b"body %d") -> None:
    client(house, "producer").say(b"".join(
        frames.message(Type.BYTES_MESSAGE, destination, body % (number % 100), PROPERTIES, sequence=number,
                       timestamp_ms=NOW_MS + number, wants_response=False, producer=frames.producer_id())
        for number in range(count)
    ))  # fmt: skip


def messages(raw: bytes, consumer: bytes) -> list[CommonProperties]:
    """What each delivery says of its message."""
    dialect, found = OpenWireDialect(consumer, Form(12)), []
    while raw:
        size = 4 + int.from_bytes(raw[:4], "big")
        if raw[4] == Type.MESSAGE_DISPATCH:
            found.append(queue_form().read_common(dialect.decode(raw[:size]).properties))
        raw = raw[size:]
    return found


def says(found: list[CommonProperties]) -> list[tuple[str | None, int | None]]:
    return [(one.message_id, one.timestamp_ms) for one in found]


EXPECTED = [(name, NOW_MS + number) for number, name in enumerate(IDS)]


def test_consumers_of_a_topic_get_each_message_with_its_id_also_beside_other_protocols(house: House) -> None:
    consumer = frames.consumer_id()
    plain, choosy = client(house, "plain"), client(house, "choosy")
    plain.say(frames.consumer_info(consumer, frames.topic("t")))
    choosy.say(frames.consumer_info(consumer, frames.topic("t"), selector="a = 5"))
    publish(house, frames.topic("t"))
    assert says(messages(bytes(plain.sock.taken), consumer)) == EXPECTED
    assert says(messages(bytes(choosy.sock.taken), consumer)) == EXPECTED


def test_a_subscriber_of_another_protocol_gets_each_with_its_time(house: House) -> None:
    person = Person(house, "mqtt", connect("mqtt"))
    person.send(encode_subscribe(1, [TopicRequest("t")]))
    house.run()
    plain = client(house, "plain")
    plain.say(frames.consumer_info(frames.consumer_id(), frames.topic("t")))
    person.heard()
    publish(house, frames.topic("t"))
    told = []
    for item in person.heard():
        run = item.run if isinstance(item, Publish) else item
        assert isinstance(run, Run)
        told += [run.properties.user_value("timestamp_in_ms")] * len(run)
    assert told == [str(NOW_MS + number) for number in range(COUNT)]
    assert says(messages(bytes(plain.sock.taken), frames.consumer_id())) == EXPECTED


def test_consumers_of_a_queue_get_each_message_with_its_id_and_settle_many_at_once(house: House) -> None:
    consumer = frames.consumer_id()
    one = client(house, "one")
    one.say(frames.consumer_info(consumer, frames.queue("q"), prefetch=1000))
    one.sock.taken.clear()
    publish(house, frames.queue("q"))
    assert says(messages(bytes(one.sock.taken), consumer)) == EXPECTED
    assert house.stats("q").unacknowledged == COUNT
    acks = [
        frames.ack(consumer, AckType.STANDARD, frames.message_id(number, number), frames.message_id(number, number), 1)
        for number in range(1, COUNT + 1)
    ]
    one.say(b"".join(acks[:-1]))
    assert house.stats("q").unacknowledged == 1
    one.say(acks[-1] * 2)
    assert house.stats("q").unacknowledged == 0


def test_acknowledging_each_message_of_a_topic_makes_room_for_as_many(house: House) -> None:
    consumer = frames.consumer_id()
    one = client(house, "one")
    one.say(frames.consumer_info(consumer, frames.topic("t"), prefetch=100))
    one.sock.taken.clear()
    publish(house, frames.topic("t"))
    assert len(messages(bytes(one.sock.taken), consumer)) == 100
    ack = frames.ack(consumer, AckType.STANDARD, frames.message_id(1, 1), frames.message_id(1, 1), 1)
    assert len(messages(one.say(ack * 40), consumer)) == 40
    assert says(messages(one.say(ack * 100), consumer)) == EXPECTED[140:240]
    assert says(messages(one.say(ack * 100), consumer)) == EXPECTED[240:], "from two chunks"


def test_a_consumer_without_room_makes_no_work(house: House) -> None:
    """Until it acknowledges some, nobody looks at it, turn for turn."""
    consumer = frames.consumer_id()
    one = client(house, "one")
    one.say(frames.consumer_info(consumer, frames.topic("t"), prefetch=10))
    publish(house, frames.topic("t"))
    assert not house.broker.has_work
    before = house.turns
    house.run()
    assert house.turns == before


def test_a_state_has_each_record_with_its_id() -> None:
    house = House(LISTENER + '[[topic]]\nfilter = "t"\nkey = "/k"\n')
    publish(house, frames.topic("t"), body=b'{"k": "%d"}')
    (state,) = house.broker.registry.router.route("t").states
    kept = [state.current("t", str(key)) for key in range(100)]
    found = [queue_form().read_common(record.properties) for record in kept if record is not None]
    assert says(found) == EXPECTED[200:], "the last of each key"


def test_the_journal_has_each_message_with_its_id() -> None:
    consumer, house = frames.consumer_id(), JournalHouse(FakeFiles(), 1000.0)
    publish(house, frames.queue("q"))
    while house.write():
        pass
    house.files.kill()
    again = JournalHouse(house.files, house.now())
    one = client(again, "one")
    one.say(frames.consumer_info(consumer, frames.queue("q"), prefetch=1000))
    assert says(messages(bytes(one.sock.taken), consumer)) == EXPECTED
