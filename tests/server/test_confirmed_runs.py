"""MQTT messages at QoS 1 and 2 that come in one read are published as a run, and acknowledgements are handled as one.
Publishers and subscribers notice nothing: each case is run twice, once with a read for each, and is answered alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bench.wires.packets import connect, encode_ack, encode_connect, encode_publish, encode_subscribe
from pamqp.commands import Queue
from tests.server.amqp_stage import Client, House
from tests.server.test_turn_budget import Person

from headway.core.message.record import Properties
from headway.server.connections.connections import PendingReplies
from headway.wire.mqtt.packets import Ack, Connect, Item, Publish, TopicRequest

COUNT = 40
CONFIG = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
allow_anonymous = true
[[permission]]
publish = ["a/#", "t/#", "jobs", "$queue/#"]
subscribe = ["#", "$queue/#", "$exchange/#"]
declare = ["$queue/#", "$exchange/#"]
"""
Case = Callable[[House, int], list[bytes]]
"""What is published at this QoS."""
IDS = [*range(1, COUNT - 3), 255, 256, 512, 65_535]


def publishes(topic: str, qos: int = 1, *, user: tuple[tuple[str, str], ...] = ()) -> list[bytes]:
    return [
        encode_publish(topic, b"%d" % number, qos=qos, packet_id=packet_id, properties=Properties(user=user))
        for number, packet_id in enumerate(IDS)
    ]


def to(topic: str) -> Case:
    return lambda _, qos: publishes(topic, qos)


def among_others(_: House, qos: int) -> list[bytes]:
    """Runs between messages that are none."""
    return [
        *publishes("a/b", qos)[:10], encode_publish("a/b", b"at most once"), *publishes("a/c", qos)[10:20],
        *publishes("secret", qos)[20:25], encode_publish("a/b", b"again", qos=qos, packet_id=9, dup=True),
        *publishes("a/b", qos)[25:], *publishes("a/b", qos, user=(("k", "v"),))[:5],
    ]  # fmt: skip


def ids_in_use(_: House, qos: int) -> list[bytes]:
    return [*publishes("a/b", qos)[5:10], *publishes("a/b", qos)[:20], *publishes("secret", qos)[10:30]]


def one_id(_: House, qos: int) -> list[bytes]:
    return [encode_publish("a/b", b"%d" % number, qos=qos, packet_id=7) for number in range(9)]


def queue_of(arguments: dict[str, Any]) -> Case:
    def made(house: House, qos: int) -> list[bytes]:
        owner = Client(house)
        owner.declare("jobs", arguments)
        assert owner.say(Queue.Bind(0, "jobs", "amq.topic", "jobs")) == ["1 Queue.BindOk"]
        return publishes("jobs", qos)

    return made


def to_many_groups(house: House, qos: int) -> list[bytes]:
    """More than one turn's work."""
    for member in range(4):
        groups = [TopicRequest(f"$share/g{member}-{number}/a/b") for number in range(100)]
        Person(house, f"member {member}").send(encode_subscribe(1, groups))
    house.run()
    return publishes("a/b", qos)


CASES = {
    "nobody": to("t/x"), "subscribed": to("a/b"), "forbidden": to("secret"), "its own": to("$headway/x"),
    "ids in use": ids_in_use, "one id": one_id, "among others": among_others, "many groups": to_many_groups,
    "a queue that drops": queue_of({"x-max-length": 7}),
    "a queue that refuses": queue_of({"x-max-length": 7, "x-overflow": "reject-publish"}),
}  # fmt: skip


def told(items: list[Item]) -> list[object]:
    """What was said, message by message."""
    found: list[object] = []
    for item in items:
        if isinstance(item, Publish):
            found.append((item.run.topic, item.run.payload(0), item.qos, item.packet_id, item.run.properties))
        else:
            found.append(item if isinstance(item, Ack) else type(item))
    return found


def say(house: House, person: Person, packets: list[bytes], *, at_once: bool) -> list[object]:
    for packet in [b"".join(packets)] if at_once else packets:
        person.send(packet)
        house.run()
    return told(person.heard())


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_messages_in_one_read_are_answered_as_if_they_came_one_by_one(case: Case, qos: int) -> None:
    answers = []
    for at_once in (True, False):
        house = House(CONFIG)
        reader, publisher = Person(house, "reader"), Person(house, "publisher")
        reader.send(encode_subscribe(1, [TopicRequest("a/#", qos)]))
        packets = case(house, qos)
        house.run()
        reader.heard()
        said = [say(house, publisher, packets, at_once=at_once)]
        assert said[0]
        session = house.broker.registry.sessions["publisher"]
        queue = house.queues.get("jobs")
        said.append([session.published_records, session.refused_records, house.lost("publisher"), *session.incoming])
        said.append([queue and queue.backlog.lag_records])
        said.append(told(reader.heard()))
        releases = [encode_ack(6, packet_id) for packet_id in (*IDS[:20], 7, 7, 9_999, *IDS[20:])]
        said.append(say(house, publisher, releases if qos == 2 else [], at_once=at_once))
        assert not session.incoming
        answers.append(said)
    assert answers[0] == answers[1]


def test_a_run_is_published_and_confirmed_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    published, answers = [], []
    house = House(CONFIG)
    slice_, send = house.broker.intake.publish_slice, PendingReplies.send
    monkeypatch.setattr(house.broker.intake, "publish_slice",
                        lambda session, run, *how: published.append(len(run)) or slice_(session, run, *how))  # type: ignore[func-returns-value]
    monkeypatch.setattr(PendingReplies, "send",
                        lambda replies, frame, **how: answers.append(len(frame)) or send(replies, frame, **how))  # type: ignore[func-returns-value]
    publisher, reader = Person(house, "publisher"), Person(house, "reader")
    reader.send(encode_subscribe(1, [TopicRequest("a/b")]))
    house.run()
    answers.clear()
    publisher.send(*publishes("a/b"))
    house.run()
    assert (published, answers) == ([COUNT], [4 * COUNT])


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(
    "ids", [range(1, 31), [1, 3, 2, 9, 10, 11], [7, 60_000, 8, 7, 9, 1, 1, 41_000], [60_000, 60_001]],
)  # fmt: skip
def test_acknowledgements_in_one_read_do_what_they_do_one_by_one(ids: list[int], qos: int) -> None:
    answers = []
    for at_once in (True, False):
        house = House(CONFIG)
        reader = Person(house, "reader", encode_connect(Connect(5, "reader", True, receive_max=30)))
        publisher = Person(house, "publisher")
        reader.send(encode_subscribe(1, [TopicRequest("a/#", qos), TopicRequest("$share/g/a/b", qos)]))
        house.run()
        publisher.send(*publishes("a/b", qos))
        house.run()
        channel, said = house.broker.registry.sessions["reader"].channel, [told(reader.heard())]
        for kind in (4,) if qos == 1 else (5, 7):
            said.append(say(house, reader, [encode_ack(kind, packet_id) for packet_id in ids], at_once=at_once))
            said.append([(known, one.released) for known, one in channel.in_flight.items()])
        channel.check()
        answers.append(said)
    assert answers[0] == answers[1]


def test_deliveries_in_a_row_pass_by_ids_in_use_and_begin_again() -> None:
    house = House(CONFIG)
    reader, publisher = Person(house, "reader"), Person(house, "publisher")
    reader.send(encode_subscribe(1, [TopicRequest("a/b", 1)]))
    house.run()
    reader.heard()
    channel, left = house.broker.registry.sessions["reader"].channel, []
    for before, count in ((9, 3), (0, 3), (3, 7), (65_529, 10), (7, 40)):
        assert len(channel.in_flight) == sum(map(len, left)), "ids begin again only where nothing is in rows"
        channel.go_on_after(before)
        publisher.send(*publishes("a/b")[:count])
        house.run()
        heard = [(item.packet_id, item.run.payload(0)) for item in reader.heard() if isinstance(item, Publish)]
        assert [text for _, text in heard] == [b"%d" % number for number in range(count)]
        left.append([packet_id for packet_id, _ in heard])
        channel.check()
    assert left[:4] == [[10, 11, 12], [1, 2, 3], [4, 5, 6, 7, 8, 9, 13], [*range(65_530, 65_536), 14, 15, 16, 17]]
    ids = [packet_id for some in left for packet_id in some]
    assert list(channel.in_flight) == ids
    assert len(set(ids)) == len(ids)
    reader.send(*(encode_ack(4, packet_id) for packet_id in ids))
    house.run()
    assert not channel.in_flight


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("at_once", [True, False])
def test_what_a_queue_refuses_is_counted_record_by_record(
    version: int, qos: int, caplog: pytest.LogCaptureFixture, *, at_once: bool
) -> None:
    house = House(CONFIG)
    publisher = Person(house, "publisher", connect("publisher", version), version)
    queue_of({"x-max-length": 7, "x-overflow": "reject-publish"})(house, qos)
    ids = IDS if qos else [0] * COUNT
    packets = [encode_publish("jobs", b"x", version=version, qos=qos, packet_id=packet_id) for packet_id in ids]
    heard = say(house, publisher, packets, at_once=at_once)
    assert house.queues["jobs"].backlog.lag_records == 7
    session = house.broker.registry.sessions["publisher"]
    assert (session.published_records, session.refused_records) == (COUNT, COUNT - 7)
    assert len(heard) == (COUNT if qos else 0)
    assert ("cannot tell it" in caplog.text) == (qos > 0 and version == 4)
