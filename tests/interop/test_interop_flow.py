"""Windows and sizes both ways, shared subscriptions, and the options a SUBSCRIBE may carry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Message, PubRec, PubRel, Raw
from tests.interop.waiting import until

from headway.core.message.record import Properties
from headway.wire.mqtt.packets import NEVER, TopicRequest

BOTH = pytest.mark.parametrize("version", [4, 5])

# -- windows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("window", [1, 7])
def test_no_more_in_flight_than_the_client_takes(broker: BrokerProcess, name: str, qos: int, window: int) -> None:
    with Raw(broker.port, name, receive_max=window) as reader, Raw(broker.port) as writer:
        reader.subscribed(TopicRequest(f"{name}/1", qos), TopicRequest(f"{name}/2", qos), TopicRequest(f"{name}/0", 0))
        for i in range(40):
            writer.publish(f"{name}/{1 + i % 2}", b"%d" % i, qos)
        writer.published(f"{name}/0", b"free")  # QoS 0 needs no window
        got: list[int] = []
        while len(got) < 40:
            batch = reader.so_far()
            assert len([m for m in batch if m.qos]) <= window
            assert not got or not any(m.qos == 0 for m in batch)
            for message in batch:
                if not message.qos:
                    continue
                got.append(int(message.payload))
                if qos == 1:
                    reader.ack(message)
                else:
                    reader.rec(message)
            if qos == 2 and len(got) < 40:
                assert reader.so_far() == []  # received is not complete: the window is still shut
            if qos == 2:
                for message in batch:
                    if message.qos:
                        reader.comp(message.packet_id)
    assert sorted(got) == list(range(40))
    assert [i for i in got if i % 2] == list(range(1, 40, 2))


def test_a_refused_delivery_frees_its_place(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port, receive_max=1) as reader, Raw(broker.port) as writer:
        reader.subscribed(TopicRequest(name, 2))
        writer.publish(name, b"1", 2)
        writer.published(name, b"2")
        reader.rec(reader.message(), 0x97)
        assert reader.message().payload == b"2"


def test_a_smaller_window_after_reconnecting_holds_for_what_comes_again(broker: BrokerProcess, name: str) -> None:
    keep: dict[str, Any] = {"clean_start": False, "session_expiry_s": NEVER}
    with Raw(broker.port, name, **keep) as reader, Raw(broker.port) as writer:
        reader.subscribed(TopicRequest(name, 1))
        for i in range(5):
            writer.publish(name, b"%d" % i, 1)
        reader.messages(5)
    with Raw(broker.port, name, receive_max=2, **keep) as back:
        got = []
        while len(got) < 5:
            batch = back.so_far()
            assert 1 <= len(batch) <= 2
            got += [m.payload for m in batch]
            back.ack(batch[0])
            for message in batch[1:]:
                back.ack(message)
        assert got == [b"%d" % i for i in range(5)]


def test_a_publisher_must_keep_to_the_brokers_window(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port, name) as writer:
        window = writer.connack.fields.receive_max
        assert window == 1024
        for _ in range(window):
            writer.publish(name, b"x", 2)
        for _ in range(window):
            assert writer.expect(PubRec).code in (0, 0x10)
        writer.publish(name, b"one too many", 2)
        disconnect = writer.wait_disconnect()
        assert disconnect.code == 0x93
        assert "1024" in (disconnect.reason or "")


# -- packet sizes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1])
def test_records_too_large_for_a_client_are_left_out_and_announced(broker: BrokerProcess, name: str, qos: int) -> None:
    with Raw(broker.port, name, max_packet_bytes=200) as small, Raw(broker.port) as large, Raw(broker.port) as writer:
        writer.published(f"{name}/kept", b"k" * 300, retain=True)
        for reader in (small, large):
            reader.subscribed(TopicRequest(f"{name}/#", qos))
        assert small.so_far() == []
        large.message()
        sizes = [10, 500, 20, 300, 400, 30]
        for size in sizes:
            writer.publish(f"{name}/x", b"x" * size, 1)
        writer.published(f"{name}/x", b"end")
        got = small.so_far()
        assert [len(m.payload) for m in got] == [10, 20, 30, 3]
        assert [m.user.get("gap-records") for m in got] == ["1", "1", "2", None]
        assert {m.user.get("gap-reason") for m in got} == {"too_large_for_client", None}
        assert [len(m.payload) for m in large.so_far()] == [*sizes, 3]
        assert broker.consumer(name)["gap_records"] == {"too_large_for_client": 4}


@pytest.mark.parametrize("qos", [0, 1])
def test_shared_subscription_gives_what_is_too_large_for_one_client_to_another(
    broker: BrokerProcess, name: str, qos: int
) -> None:
    with Raw(broker.port, name, max_packet_bytes=200) as small, Raw(broker.port) as large, Raw(broker.port) as writer:
        for reader in (small, large):
            reader.subscribed(TopicRequest(f"$share/group/{name}", qos))
        sizes = [10, 500, 20, 300, 400, 30] * 10
        for size in sizes:
            writer.published(name, b"x" * size)
        in_small, in_large = ([len(m.payload) for m in reader.so_far()] for reader in (small, large))
        assert sorted(in_small + in_large) == sorted(sizes)
        assert in_small
        assert max(in_small) == 30
        assert broker.consumer(name)["gap_records"] == {}


def test_a_smaller_limit_after_reconnecting_holds_for_what_comes_again(broker: BrokerProcess, name: str) -> None:
    keep: dict[str, Any] = {"clean_start": False, "session_expiry_s": NEVER}
    with Raw(broker.port, name, **keep) as reader, Raw(broker.port) as writer:
        reader.subscribed(TopicRequest(name, 1))
        writer.publish(name, b"x" * 1000, 1)
        writer.publish(name, b"small", 1, expiry_s=500)
        reader.messages(2)
    with Raw(broker.port, name, max_packet_bytes=200, **keep) as back, Raw(broker.port) as writer:
        again = back.message()
        assert (again.payload, again.dup) == (b"small", True)
        assert 400 < (again.expiry_s or 0) <= 500
        writer.published(name, b"next")
        assert back.message().user["gap-reason"] == "too_large_for_client"


def test_reason_strings_are_left_out_where_there_is_no_room(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port, name, max_packet_bytes=30) as client:
        answer = client.subscribe("bad/#/filter")
        assert (answer.codes, answer.reason) == ((0x8F,), None)


def test_reason_strings_are_left_out_for_who_wants_none(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port, name, request_problem_info=False) as client:
        answer = client.subscribe("bad/#/filter")
        assert (answer.codes, answer.reason) == ((0x8F,), None)
        refused = client.published("$SYS/x", b"")
        assert refused.code == 0x87
        client.send(b"\x36\x00")
        assert client.wait_disconnect().reason  # in DISCONNECT they are welcome


# -- shared subscriptions -------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("qos", [0, 1])
def test_a_group_shares_the_records(broker: BrokerProcess, name: str, version: int, qos: int) -> None:
    members = [Raw(broker.port, f"{name}-{i}", version) for i in range(3)]
    with Raw(broker.port) as other, Raw(broker.port) as writer:
        for member in members:
            member.subscribed(TopicRequest(f"$share/g/{name}/+", qos))
        other.subscribed(f"$share/h/{name}/+")
        for i in range(300):
            writer.publish(f"{name}/x", b"%d" % i, qos)
        writer.published(f"{name}/end")
        taken: list[list[Message]] = [[] for _ in members]

        def handed_out() -> bool:
            """A group's records go out over several turns, and that of the end may come last."""
            for messages, member in zip(taken, members, strict=True):
                messages += member.so_far()
            return sum(map(len, taken)) >= 301

        until(handed_out)
        shares = [[int(m.payload) for m in messages if m.topic.endswith("x")] for messages in taken]
        assert sorted(number for share in shares for number in share) == list(range(300))
        assert all(len(share) >= 60 for share in shares)
        assert [other.message().payload for _ in range(301)][:-1] == [b"%d" % i for i in range(300)]
        for member in members[1:]:
            member.unsubscribe(f"$share/g/{name}/+")
        writer.published(f"{name}/x", b"alone")
        assert [m.payload for m in members[0].so_far()] == [b"alone"]
        for member in members:
            member.close()


@pytest.mark.parametrize("how", ["vanishes", "says goodbye", "expires"])
def test_what_a_member_leaves_unacknowledged_goes_to_the_others(broker: BrokerProcess, name: str, how: str) -> None:
    expiry = 1 if how == "expires" else 0
    with (
        Raw(broker.port, f"{name}-a", session_expiry_s=expiry, receive_max=10) as leaver,
        Raw(broker.port, f"{name}-b") as stayer,
        Raw(broker.port) as writer,
    ):
        leaver.subscribed(TopicRequest(f"$share/g/{name}", 1))
        for i in range(30):
            writer.publish(name, b"%d" % i, 1)
        writer.published(name, b"30")
        assert len(leaver.messages(10)) == 10  # its window is full; 21 wait
        stayer.subscribed(TopicRequest(f"$share/g/{name}", 1))
        assert sorted(map(int, stayer.payloads(21))) == list(range(10, 31))
        if how == "says goodbye":
            leaver.goodbye()
        else:
            leaver.close()
        rest = stayer.messages(10)
        assert sorted(int(m.payload) for m in rest) == list(range(10))
        for message in rest:
            stayer.ack(message)
        assert stayer.so_far() == []


@pytest.mark.parametrize("published", [1, 2])
@pytest.mark.parametrize("how", ["vanishes", "unsubscribes", "begins anew"])
def test_what_has_arrived_at_a_member_goes_to_nobody_else(
    broker: BrokerProcess, name: str, how: str, published: int
) -> None:
    """Only the second half of the handshake is missing when it ends (MQTT-4.8.2-5)."""
    with Raw(broker.port, f"{name}-a") as leaver, Raw(broker.port, f"{name}-b") as stayer, Raw(broker.port) as writer:
        leaver.subscribed(TopicRequest(f"$share/g/{name}", 2))
        for i in range(10):
            writer.publish(name, b"%d" % i, published)
        for message in leaver.messages(10):
            leaver.rec(message)
            assert leaver.expect(PubRel).packet_id == message.packet_id
        stayer.subscribed(TopicRequest(f"$share/g/{name}", 2))
        match how:
            case "vanishes":
                leaver.close()
            case "unsubscribes":
                leaver.unsubscribe(f"$share/g/{name}")
            case _:
                Raw(broker.port, f"{name}-a", clean_start=True).close()
        until(lambda: not broker.consumer(f"{name}-a"), what="it is no member any more")
        writer.published(name, b"another")
        assert [message.payload for message in stayer.so_far()] == [b"another"]


def test_a_stuck_member_gets_no_more_than_its_window(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port, receive_max=2) as stuck, Raw(broker.port) as lively, Raw(broker.port) as writer:
        stuck.subscribed(TopicRequest(f"$share/g/{name}", 1))
        lively.subscribed(TopicRequest(f"$share/g/{name}", 1))
        got = 0
        for i in range(50):
            writer.published(name, b"%d" % i)
            for message in lively.so_far():
                lively.ack(message)
                got += 1
        assert len(stuck.so_far()) == 2
        assert got == 48


def test_shared_subscriptions_keep_flags_identifiers_and_properties(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port) as one, Raw(broker.port) as writer:
        one.subscribed(TopicRequest(f"$share/g/{name}", 1, retain_as_published=True), identifier=9)
        writer.published(name, b"x", retain=True, properties=Properties(user=(("a", "b"),)), expiry_s=100)
        got = one.message()
        assert (got.identifiers, got.properties.user, got.expiry_s, got.retain) == ((9,), (("a", "b"),), 100, True)
        writer.published(name, b"", retain=True)


def test_no_local_on_a_shared_subscription_is_an_error(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port) as client:
        client.send(bytes.fromhex("82 10 0001 00 000a") + b"$share/g/x" + b"\x05")
        assert client.wait_disconnect().code == 0x82


# -- subscription options -------------------------------------------------------------------------------------------


def quotes(writer: Raw, topic: str, *pairs: tuple[str, int]) -> None:
    for key, value in pairs:
        writer.publish(topic, json.dumps({"key": key, "value": value}).encode(), 1)
    writer.so_far()


def seen(messages: list[Message]) -> list[tuple[str, int]]:
    return [(body["key"], body["value"]) for body in (json.loads(m.payload) for m in messages)]


@pytest.fixture(scope="module")
def optional(start: BrokerFactory) -> BrokerProcess:
    return start("""
[[topic]]
filter = "state/#"
key = "/key"
[[policy]]
name = "strict"
topics = ["nothing/of/this"]
[[policy.rule]]
when = { lag_records = 10 }
then = "disconnect"
[[policy]]
name = "usual"
""")


def test_snapshot_then_live(optional: BrokerProcess, name: str) -> None:
    topic = f"state/{name}"
    with Raw(optional.port) as writer, Raw(optional.port) as reader:
        quotes(writer, topic, ("a", 1), ("b", 1), ("a", 2), ("c", 1), ("b", 2))
        reader.subscribed(topic, user=(("snapshot", "true"),))
        quotes(writer, topic, ("a", 3))
        assert seen(reader.so_far()) == [("a", 2), ("c", 1), ("b", 2), ("a", 3)]


def test_conflating_by_interval(optional: BrokerProcess, name: str) -> None:
    topic = f"state/{name}"
    with Raw(optional.port) as writer, Raw(optional.port) as reader:
        reader.subscribed(topic, user=(("conflate", "300ms"),))
        quotes(writer, topic, *((key, value) for value in range(100) for key in "ab"))
        got = seen(reader.messages(2))
        assert got == [("a", 99), ("b", 99)]
        quotes(writer, topic, ("b", 100))
        last = reader.message()
        assert seen([last]) == [("b", 100)]
        assert last.user["gap-reason"] == "conflated"


def test_conflating_by_a_key_of_its_own(optional: BrokerProcess, name: str) -> None:
    with Raw(optional.port) as writer, Raw(optional.port) as reader:
        reader.subscribed(name, user=(("conflate", "200ms"), ("key", "/value")))
        quotes(writer, name, ("a", 1), ("b", 1), ("c", 2))
        assert seen(reader.messages(2)) == [("b", 1), ("c", 2)]


@pytest.mark.parametrize(
    ("selector", "got"),
    [("value > 2", [("a", 3), ("b", 4)]), ("key = 'a' AND value <> 1", [("a", 3)]), ("colour = 'red'", [("b", 4)])],
)
def test_selector(optional: BrokerProcess, name: str, selector: str, got: list[tuple[str, int]]) -> None:
    with Raw(optional.port) as writer, Raw(optional.port) as reader:
        reader.subscribed(name, user=(("selector", selector),))
        quotes(writer, name, ("a", 1), ("b", 2), ("a", 3))
        writer.published(name, b'{"key":"b","value":4}', properties=Properties(user=(("colour", "red"),)))
        assert seen(reader.so_far()) == got


def test_offsets_and_from(optional: BrokerProcess, name: str) -> None:
    """A client that remembers the last offset it saw goes on where it stopped, without a session."""
    topic = f"state/{name}"
    with Raw(optional.port) as writer, Raw(optional.port, session_expiry_s=60) as holder, Raw(optional.port) as reader:
        holder.subscribed(topic, user=(("offsets", "true"),))
        reader.subscribed(topic, user=(("offsets", "true"),))
        quotes(writer, topic, ("a", 1), ("b", 1))
        offsets = [int(m.user["offset"]) for m in reader.so_far()]
        assert offsets[1] == offsets[0] + 1
        reader.close()
        quotes(writer, topic, ("a", 2), ("c", 1))
        with Raw(optional.port) as back:
            back.subscribed(topic, user=(("offsets", "true"), ("from", str(offsets[1]))))
            quotes(writer, topic, ("d", 1))
            assert seen(back.so_far())[-3:] == [("a", 2), ("c", 1), ("d", 1)]


def test_a_policy_by_name(optional: BrokerProcess, name: str) -> None:
    with Raw(optional.port, name, receive_max=1) as reader, Raw(optional.port) as writer:
        reader.subscribed(TopicRequest(name, 1), user=(("policy", "strict"),))
        assert optional.consumer(name)["policy"] == "strict"
        for i in range(20):
            writer.publish(name, b"%d" % i, 1)
        assert reader.wait_disconnect().code == 0x97


def test_options_of_the_clients_own_are_left_alone(optional: BrokerProcess, name: str) -> None:
    with Raw(optional.port) as reader:
        assert reader.subscribe(name, user=(("trace", "abc"),)).codes == (0,)


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("conflate", "soon", "conflate"), ("snapshot", "maybe", "true or false"), ("policy", "none such", "no policy"),
        ("from", "yesterday", "earliest"), ("selector", "value >", "selector"), ("key", "value", "key"),
        ("offsets", "2", "offsets"), ("conflate", "-1s", "conflate"), ("from", "-5", "from"),
    ],
)  # fmt: skip
def test_a_bad_option_is_refused_with_the_reason(
    optional: BrokerProcess, name: str, option: str, value: str, says: str
) -> None:
    with Raw(optional.port) as reader, Raw(optional.port) as writer:
        answer = reader.subscribe(name, user=((option, value),))
        assert answer.codes == (0x83,)
        assert says in (answer.reason or "")
        writer.published(name, b"x")
        assert reader.so_far() == []
        reader.subscribed(name)  # and the connection goes on


def test_nothing_lags_after_all_this(optional: BrokerProcess) -> None:
    until(lambda: all(row["lag_records"] == 0 for row in optional.get("/v1/consumers")["consumers"]))


def test_what_goes_to_many_lanes_is_read_in_small_pieces(start: BrokerFactory, tmp_path: Path) -> None:
    """One read of 256 KiB would be 50 MB in 200 lanes, whatever the pool may hold."""
    broker = start(f'[pool]\nmemory = "8MB"\ndisk = "200MB"\ndisk_path = "{tmp_path}"\n')
    levels = ["a", "b", "c", "d", "e", "f", "g", "h"]
    filters = [
        "/".join("+" if mask >> place & 1 else level for place, level in enumerate(levels)) for mask in range(200)
    ]
    with Raw(broker.port, "everything", receive_buffer=4096) as reader, Raw(broker.port, "flood") as publisher:
        reader.subscribed(*filters)
        for _ in range(2):
            publisher.publish_all("/".join(levels), [b"x" * 100] * 2500)
        until(lambda: broker.get("/v1/broker")["published_records"] >= 3000, what="the flood is being taken in")
        pool = broker.get("/v1/broker")["pools"][0]
        assert pool["memory_peak_bytes"] < 1.5 * pool["memory_limit_bytes"]
