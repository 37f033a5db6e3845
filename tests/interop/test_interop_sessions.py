"""Sessions that outlive their connections, and what a connection leaves behind: resume, expiry, takeover, wills."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.interop.pahos import paho, properties
from tests.interop.process import BrokerProcess
from tests.interop.raw import PubAck, PubComp, PubRec, PubRel, Raw
from tests.interop.waiting import until

from headway.core.message.record import Properties
from headway.wire.mqtt.packets import NEVER, DisconnectPacket, TopicRequest, WillMessage

BOTH = pytest.mark.parametrize("version", [4, 5])
KEEP = {"clean_start": False, "session_expiry_s": NEVER}


def kept(version: int, expiry_s: int = NEVER) -> dict[str, Any]:
    """CONNECT for a session that is to stay."""
    return {"version": version, "clean_start": False, "session_expiry_s": expiry_s}


# -- resume ---------------------------------------------------------------------------------------------------------


@BOTH
def test_what_came_meanwhile_waits(broker: BrokerProcess, name: str, version: int) -> None:
    with Raw(broker.port, name, **kept(version)) as reader, Raw(broker.port) as writer:
        assert not reader.connack.session_present
        reader.subscribed(TopicRequest(f"{name}/a", 2), TopicRequest(f"{name}/b", 0))
        reader.goodbye()
        for i in range(300):
            writer.publish(f"{name}/a", b"%d" % i, 1 + i % 2)
        writer.published(f"{name}/end")
        assert broker.consumer(name, f"{name}/a")["state"] == "away"
        with Raw(broker.port, name, **kept(version)) as back:
            assert back.connack.session_present
            assert back.payloads(300) == [b"%d" % i for i in range(300)]
        with Raw(broker.port, name, version) as fresh:  # a clean start forgets it all
            assert not fresh.connack.session_present
            writer.published(f"{name}/a", b"x")
            assert fresh.so_far() == []


@BOTH
def test_in_flight_deliveries_come_again_marked_and_in_order(broker: BrokerProcess, name: str, version: int) -> None:
    with Raw(broker.port, name, **kept(version)) as reader, Raw(broker.port) as writer:
        reader.subscribed(TopicRequest(name, 2))
        for i in range(6):
            writer.publish(name, b"%d" % i, 1 + i % 2)
        first = reader.messages(6)
        assert not any(m.dup for m in first)
        reader.ack(first[0])  # of 6: 0 done, 1 and 3 received, 3 of these complete
        for message in (first[1], first[3]):
            reader.rec(message)
            assert reader.expect(PubRel).packet_id == message.packet_id
        reader.comp(first[3].packet_id)
        reader.so_far()
        reader.close()
        writer.published(name, b"new")
        with Raw(broker.port, name, **kept(version)) as back:
            assert back.expect(PubRel).packet_id == first[1].packet_id
            again = back.messages(4)
            assert [(m.payload, m.packet_id, m.qos, m.dup) for m in again[:3]] == [
                (m.payload, m.packet_id, m.qos, True) for m in (first[2], first[4], first[5])
            ]
            assert (again[3].payload, again[3].dup) == (b"new", False)
            back.comp(first[1].packet_id)
            assert back.so_far() == []


@BOTH
def test_exactly_once_from_a_publisher_survives_reconnecting(broker: BrokerProcess, name: str, version: int) -> None:
    with Raw(broker.port, version=version) as reader:
        reader.subscribed(name)
        with Raw(broker.port, name, **kept(version)) as writer:
            number = writer.publish(name, b"once", 2)
            writer.expect(PubRec)
        with Raw(broker.port, name, **kept(version)) as writer:
            writer.publish(name, b"once", 2, dup=True)
            assert writer.expect(PubRec).packet_id == number
            writer.rel(number)
            assert writer.expect(PubComp).packet_id == number
        assert [m.payload for m in reader.so_far()] == [b"once"]


def test_paho_resumes(broker: BrokerProcess, name: str) -> None:
    keep = properties("CONNECT", SessionExpiryInterval=60)
    with paho(broker.port, name, clean=False, connect=keep) as reader:
        reader.subscribe(f"{name}/#", 2)
    with paho(broker.port, f"{name}-pub") as writer:
        for i in range(100):
            writer.client.publish(f"{name}/x", b"%d" % i, 2)
        writer.publish(f"{name}/x", b"last", 2)
    with paho(broker.port, name, clean=False, connect=keep) as back:
        got = back.wait(101)
        assert back.connect_flags.session_present
        assert [m.payload for m in got] == [*(b"%d" % i for i in range(100)), b"last"]


@pytest.mark.parametrize("how", ["connect", "disconnect"])
def test_a_session_expires(broker: BrokerProcess, name: str, how: str) -> None:
    with Raw(broker.port, name, **kept(5, 1 if how == "connect" else 1000)) as reader:
        reader.subscribed(TopicRequest(name, 1))
        if how == "disconnect":
            reader.goodbye(session_expiry_s=1)
    assert broker.consumer(name)
    until(lambda: not broker.consumer(name), what="the session ends")
    with Raw(broker.port, name, **KEEP) as back:
        assert not back.connack.session_present


def test_expiry_zero_ends_with_the_connection_and_cannot_be_raised(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port, name, clean_start=False) as reader:
        reader.subscribed(TopicRequest(name, 1))
    until(lambda: not broker.consumer(name))
    with Raw(broker.port, name, clean_start=False) as reader:
        assert not reader.connack.session_present
        reader.send(b"\xe0\x07\x00\x05\x11\x00\x00\x00\x09")  # DISCONNECT with a session expiry of 9 s
        assert reader.wait_disconnect().code == 0x82


def test_unsubscribing_with_deliveries_in_flight_keeps_to_the_window(broker: BrokerProcess, name: str) -> None:
    """What was sent is still to be acknowledged, and counts until it is; it also comes again after a reconnect."""
    with Raw(broker.port, name, receive_max=2, **KEEP) as reader, Raw(broker.port) as writer:
        reader.subscribed(TopicRequest(f"{name}/a", 2), TopicRequest(f"{name}/b", 1))
        writer.published(f"{name}/a", b"1")
        writer.publish(f"{name}/a", b"2", 2)
        one, two = reader.messages(2)
        reader.rec(two)
        reader.expect(PubRel)
        reader.unsubscribe(f"{name}/a")
        writer.published(f"{name}/b", b"3")
        assert reader.so_far() == []
        reader.comp(two.packet_id)
        assert reader.message().payload == b"3"
        reader.close()
        with Raw(broker.port, name, receive_max=2, **KEEP) as back:
            assert [(m.payload, m.dup) for m in back.messages(2)] == [(b"1", True), (b"3", True)]
            back.send(b"")
            back.ack(one)
            writer.published(f"{name}/b", b"4")
            assert back.message().payload == b"4"


# -- takeover -------------------------------------------------------------------------------------------------------


@BOTH
def test_takeover(broker: BrokerProcess, name: str, version: int) -> None:
    with Raw(broker.port, name, **kept(version)) as first:
        first.subscribed(TopicRequest(name, 1))
        with Raw(broker.port, name, **kept(version)) as second, Raw(broker.port) as writer:
            assert second.connack.session_present
            if version == 5:
                disconnect = first.wait_disconnect()
                assert disconnect.code == 0x8E
                assert disconnect.reason
            else:
                first.wait_end()
            writer.published(name, b"x")
            assert second.message().payload == b"x"


def test_a_client_without_an_id_is_given_one(broker: BrokerProcess) -> None:
    with Raw(broker.port) as one, Raw(broker.port) as other, Raw(broker.port, version=4) as old:
        ids = [one.connack.fields.assigned_client_id, other.connack.fields.assigned_client_id]
        assert all(ids)
        assert ids[0] != ids[1]
        assert old.connack.code == 0
    with Raw(broker.port, version=4, clean_start=False, granted=False) as refused:
        assert refused.connack.code == 2
        refused.wait_end()


# -- wills ----------------------------------------------------------------------------------------------------------


def will(name: str, **more: Any) -> WillMessage:
    return WillMessage(f"{name}/will", b"gone", **more)


@BOTH
def test_a_will_is_left_by_who_vanishes_and_not_by_who_says_goodbye(
    broker: BrokerProcess, name: str, version: int
) -> None:
    with Raw(broker.port, version=version) as reader:
        reader.subscribed(TopicRequest(f"{name}/will", 2))
        with Raw(broker.port, name, version, will=will(name, qos=2, retain=True)):
            pass
        left = reader.message()
        assert (left.payload, left.qos, left.retain) == (b"gone", 2, False)
        with Raw(broker.port, name, version, will=will(name)) as polite:
            polite.goodbye()
        with Raw(broker.port, name) as writer:
            writer.published(f"{name}/will", b"", retain=True)
        assert [m.payload for m in reader.so_far()] == [b""]


def test_a_will_keeps_its_properties_and_retain_flag(broker: BrokerProcess, name: str) -> None:
    said = Properties(1, "text/x", f"{name}/answers", b"c", (("a", "b"),))
    with Raw(broker.port, name, will=will(name, qos=1, retain=True, expiry_s=1000, properties=said)):
        pass
    with Raw(broker.port) as reader:

        def left() -> Any:
            reader.subscribed(TopicRequest(f"{name}/will", 1))
            return reader.so_far()

        got = until(left)[0]
        assert (got.payload, got.properties, got.qos, got.retain) == (b"gone", said, 1, True)
        assert got.expiry_s
        assert 990 < got.expiry_s <= 1000


@pytest.mark.parametrize("code", [0x04, 0x80])
def test_a_goodbye_may_ask_for_the_will(broker: BrokerProcess, name: str, code: int) -> None:
    with Raw(broker.port) as reader, Raw(broker.port, name, will=will(name)) as client:
        reader.subscribed(f"{name}/will")
        client.goodbye(code=code)
        assert reader.message().payload == b"gone"


def test_a_protocol_error_leaves_the_will(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port) as reader, Raw(broker.port, name, will=will(name)) as client:
        reader.subscribed(f"{name}/will")
        client.send(b"\xff\xff")
        assert reader.message().payload == b"gone"


@pytest.mark.parametrize(
    ("expiry_s", "delay_s", "then", "left"),
    [
        (60, 1, "away", True),  # the delay passes
        (1, 60, "away", True),  # the session ends before
        (60, 1, "back", False),  # the client is back in time
        (60, 60, "back clean", True),  # its session ended by that
        (0, 60, "away", True),  # there is no session to wait for
    ],
)
def test_will_delay(broker: BrokerProcess, name: str, expiry_s: int, delay_s: int, then: str, left: bool) -> None:
    with Raw(broker.port) as reader:
        reader.subscribed(f"{name}/will")
        began = time.monotonic()
        with Raw(broker.port, name, session_expiry_s=expiry_s, will=will(name, delay_s=delay_s)) as client:
            client.subscribed(f"{name}/own")
        until(lambda: not broker.consumer(name).get("connected"), what="the broker knows that it is gone")
        if then.startswith("back"):
            with Raw(broker.port, name, clean_start="clean" in then, session_expiry_s=60) as back:
                if not left:  # past the time at which it would have been published
                    until(lambda: time.monotonic() - began > 1.5)
                back.goodbye()
        if left:
            assert reader.message().payload == b"gone"
            assert then != "away" or not expiry_s or time.monotonic() - began >= 1.0
        else:
            assert reader.so_far() == []


@pytest.mark.parametrize(
    ("expiry_s", "delay_s", "clean", "left"),
    [(60, 0, False, True), (60, 60, True, True), (0, 60, False, True), (60, 60, False, False)],
)
def test_wills_on_takeover(
    broker: BrokerProcess, name: str, expiry_s: int, delay_s: int, clean: bool, left: bool
) -> None:
    with (
        Raw(broker.port) as reader,
        Raw(broker.port, name, session_expiry_s=expiry_s, will=will(name, delay_s=delay_s)) as first,
    ):
        reader.subscribed(f"{name}/will")
        with Raw(broker.port, name, clean_start=clean, session_expiry_s=expiry_s):
            assert isinstance(first.wait_disconnect(), DisconnectPacket)
            assert [m.payload for m in reader.so_far()] == ([b"gone"] if left else [])


def test_mqtt_5_clients_hear_nothing_of_acks_they_did_not_ask_for(broker: BrokerProcess, name: str) -> None:
    """Acknowledging what was never sent harms nobody."""
    with Raw(broker.port, name) as client:
        client.send(b"\x40\x02\x12\x34\x70\x02\x12\x34")
        client.subscribed(TopicRequest(name, 1))
        assert client.published(name, b"x") == PubAck(client.next_id)
        assert client.message().payload == b"x"
