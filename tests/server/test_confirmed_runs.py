"""MQTT messages at QoS 1 that come in one read are published as a run. Their publishers and subscribers notice nothing:
each case is run twice, once with a read for each message, and is answered alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bench.wires.packets import encode_ack, encode_connect, encode_publish, encode_subscribe
from pamqp.commands import Queue
from tests.server.amqp_stage import Client, House
from tests.server.test_turn_budget import Person

from headway.core.message.record import Properties
from headway.server.connections.pending_replies import PendingReplies
from headway.wire.mqtt.packets import Connect, Item, PubAck, Publish, TopicRequest

COUNT = 40
CONFIG = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
allow_anonymous = true
[[permission]]
publish = ["a/#", "t/#", "jobs"]
subscribe = ["#", "$queue/#", "$exchange/#"]
declare = ["$queue/#", "$exchange/#"]
"""
IDS = [*range(1, COUNT - 3), 255, 256, 512, 65_535]


def publishes(topic: str, *, user: tuple[tuple[str, str], ...] = ()) -> list[bytes]:
    return [
        encode_publish(topic, b"%d" % number, qos=1, packet_id=packet_id, properties=Properties(user=user))
        for number, packet_id in enumerate(IDS)
    ]


def nobody(_: House) -> list[bytes]:
    return publishes("t/x")


def subscribed(_: House) -> list[bytes]:
    return publishes("a/b")


def forbidden(_: House) -> list[bytes]:
    return publishes("secret")


def its_own(_: House) -> list[bytes]:
    return publishes("$headway/x")


def among_others(_: House) -> list[bytes]:
    """Runs between messages that are none."""
    return [
        *publishes("a/b")[:10], encode_publish("a/b", b"at most once"), *publishes("a/c")[10:20],
        *publishes("secret")[20:25], encode_publish("a/b", b"again", qos=1, packet_id=9, dup=True),
        *publishes("a/b")[25:], *publishes("a/b", user=(("k", "v"),))[:5],
    ]  # fmt: skip


def queue_of(arguments: dict[str, Any]) -> Callable[[House], list[bytes]]:
    def made(house: House) -> list[bytes]:
        owner = Client(house)
        owner.declare("jobs", arguments)
        owner.say(Queue.Bind(0, "jobs", "amq.topic", "jobs"))
        return publishes("jobs")

    return made


def to_many_groups(house: House) -> list[bytes]:
    """More than one turn's work."""
    for member in range(4):
        groups = [TopicRequest(f"$share/g{member}-{number}/a/b") for number in range(100)]
        Person(house, f"member {member}").send(encode_subscribe(1, groups))
    house.run()
    return publishes("a/b")


CASES = {
    "nobody": nobody, "subscribed": subscribed, "forbidden": forbidden, "its own": its_own,
    "among others": among_others, "many groups": to_many_groups, "a queue that drops": queue_of({"x-max-length": 7}),
    "a queue that refuses": queue_of({"x-max-length": 7, "x-overflow": "reject-publish"}),
}  # fmt: skip


def told(items: list[Item]) -> list[object]:
    """What was said, message by message."""
    found: list[object] = []
    for item in items:
        if isinstance(item, Publish):
            found.append((item.run.topic, item.run.payload(0), item.qos, item.run.properties))
        else:
            found.append(item if isinstance(item, PubAck) else type(item))
    return found


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_messages_in_one_read_are_answered_as_if_they_came_one_by_one(case: Callable[[House], list[bytes]]) -> None:
    answers = []
    for at_once in (True, False):
        house = House(CONFIG)
        reader, publisher = Person(house, "reader"), Person(house, "publisher")
        reader.send(encode_subscribe(1, [TopicRequest("a/#", 1)]))
        packets = case(house)
        house.run()
        reader.heard()
        if at_once:
            publisher.send(*packets)
        for packet in () if at_once else packets:
            publisher.send(packet)
            house.run()
        house.run()
        session = house.broker.registry.sessions["publisher"]
        queue = house.queues.get("jobs")
        answers.append((
            told(publisher.heard()), told(reader.heard()), session.published_records, session.refused_records,
            queue and queue.backlog.lag_records, house.lost("publisher"),
        ))  # fmt: skip
    assert answers[0] == answers[1]
    assert [ack.packet_id for ack in answers[0][0] if isinstance(ack, PubAck)][: len(IDS)]


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


@pytest.mark.parametrize(
    "ids", [range(1, 31), [1, 3, 2, 9, 10, 11], [7, 60_000, 8, 7, 9, 1, 1, 41_000], [60_000, 60_001]],
)  # fmt: skip
def test_acknowledgements_in_one_read_settle_what_they_settle_one_by_one(ids: list[int]) -> None:
    left = []
    for at_once in (True, False):
        house = House(CONFIG)
        reader = Person(house, "reader", encode_connect(Connect(5, "reader", True, receive_max=30)))
        publisher = Person(house, "publisher")
        reader.send(encode_subscribe(1, [TopicRequest("a/#", 1), TopicRequest("$share/g/a/b", 1)]))
        house.run()
        publisher.send(*publishes("a/b"))
        house.run()
        acks = [encode_ack(4, packet_id) for packet_id in ids]
        for packet in [b"".join(acks)] if at_once else acks:
            reader.send(packet)
        house.run()
        left.append((told(reader.heard()), list(house.broker.registry.sessions["reader"].channel.in_flight)))
    assert left[0] == left[1]


def test_deliveries_in_a_row_pass_by_ids_in_use_and_begin_again() -> None:
    house = House(CONFIG)
    reader, publisher = Person(house, "reader"), Person(house, "publisher")
    reader.send(encode_subscribe(1, [TopicRequest("a/b", 1)]))
    house.run()
    reader.heard()
    channel, left = house.broker.registry.sessions["reader"].channel, []
    for before, count in ((9, 3), (0, 3), (3, 7), (65_529, 10), (7, 40)):
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
