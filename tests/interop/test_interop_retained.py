"""Retained records: set, replaced, cleared, and sent to whom they are due."""

from __future__ import annotations

import pytest
from tests.interop.pahos import paho
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw

from headway.wire.mqtt.packets import TopicRequest

BOTH = pytest.mark.parametrize("version", [4, 5])


@BOTH
def test_set_replaced_and_cleared(broker: BrokerProcess, name: str, version: int) -> None:
    with paho(broker.port, f"{name}-pub", version) as writer:
        for payload, expected in ((b"1", [(b"1", True)]), (b"2", [(b"2", True)]), (b"", []), (b"3", [(b"3", True)])):
            writer.publish(name, payload, 1, retain=True)
            with Raw(broker.port, version=version) as reader:
                reader.subscribed(name)
                assert [(m.payload, m.retain) for m in reader.so_far()] == expected


def test_a_subscriber_that_is_there_sees_no_retain_flag_unless_it_asked(broker: BrokerProcess, name: str) -> None:
    with (
        Raw(broker.port) as plain,
        Raw(broker.port) as asked,
        Raw(broker.port, version=4) as old,
        Raw(broker.port) as writer,
    ):
        plain.subscribed(name)
        asked.subscribed(TopicRequest(name, 1, retain_as_published=True))
        old.subscribed(name)
        writer.published(name, b"kept", retain=True)
        writer.published(name, b"not")
        writer.published(name, b"", retain=True)
        assert [m.retain for m in plain.so_far()] == [False] * 3
        assert [m.retain for m in asked.so_far()] == [True, False, True]
        assert [m.retain for m in old.so_far()] == [False] * 3


@pytest.mark.parametrize(
    ("filter", "got"),
    [("{0}/#", "a a/b a/c b"), ("{0}/+", "a b"), ("{0}/a/+", "a/b a/c"), ("{0}/a/#", "a a/b a/c"), ("{0}/+/b", "a/b"),
     ("+/a/b", "a/b"), ("{0}/a", "a"), ("{0}/none", "")],
)  # fmt: skip
def test_wildcard_delivery(broker: BrokerProcess, name: str, filter: str, got: str) -> None:
    with Raw(broker.port) as writer, Raw(broker.port) as reader:
        for topic in ("a", "a/b", "a/c", "b"):
            writer.published(f"{name}/{topic}", topic.encode(), retain=True)
        reader.subscribed(filter.format(name))
        mine = [m for m in reader.so_far() if m.topic.startswith(f"{name}/")]
        for topic in ("a", "a/b", "a/c", "b"):
            writer.published(f"{name}/{topic}", b"", retain=True)
    assert sorted(m.payload.decode() for m in mine) == got.split()
    assert all(m.retain for m in mine)


@pytest.mark.parametrize(("handling", "again"), [(0, [[b"x"], [b"x"]]), (1, [[b"x"], []]), (2, [[], []])])
def test_retain_handling(broker: BrokerProcess, name: str, handling: int, again: list[list[bytes]]) -> None:
    with Raw(broker.port) as writer, Raw(broker.port) as reader:
        writer.published(name, b"x", retain=True)
        for expected in again:
            reader.subscribed(TopicRequest(name, 0, retain_handling=handling))
            assert [m.payload for m in reader.so_far()] == expected
        reader.unsubscribe(name)
        reader.subscribed(TopicRequest(name, 0, retain_handling=handling))
        assert [m.payload for m in reader.so_far()] == again[0]


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_retained_records_come_at_the_lower_qos(broker: BrokerProcess, name: str, wanted: int) -> None:
    with paho(broker.port, f"{name}-pub") as writer, paho(broker.port, f"{name}-sub") as reader:
        for qos in range(3):
            writer.publish(f"{name}/{qos}", b"x", qos, retain=True)
        reader.subscribe(f"{name}/#", wanted)
        got = {message.topic[-1]: (message.qos, message.retain) for message in reader.wait(3)}
    assert got == {str(qos): (min(qos, wanted), True) for qos in range(3)}


def test_many_retained_records_come_whole_to_a_window_of_one(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port) as writer, Raw(broker.port, receive_max=1) as reader:
        for i in range(50):
            writer.publish(f"{name}/{i}", b"%d" % i, 1, retain=True)
        writer.published(f"{name}/end", b"end")
        reader.subscribed(TopicRequest(f"{name}/+", 1))
        seen = set()
        for _ in range(50):
            message = reader.message()
            assert reader.so_far() == []
            reader.ack(message)
            seen.add(int(message.payload))
    assert seen == set(range(50))


def test_shared_subscriptions_get_no_retained_records(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port) as writer, Raw(broker.port) as reader:
        writer.published(name, b"x", retain=True)
        reader.subscribed(f"$share/g/{name}")
        assert reader.so_far() == []
