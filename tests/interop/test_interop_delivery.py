"""What is published arrives: with real clients, at every QoS, in order, and only where it is wanted."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.interop.pahos import paho, properties
from tests.interop.process import BrokerProcess
from tests.interop.raw import Message, PubComp, PubRec, PubRel, Raw
from tests.interop.waiting import PATIENCE_S, until

from headway.core.message.record import Properties
from headway.wire.mqtt.packets import TopicRequest

BOTH = pytest.mark.parametrize("version", [4, 5])


@BOTH
@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_paho_gets_every_record_in_order_at_the_lower_qos(
    broker: BrokerProcess, name: str, version: int, wanted: int
) -> None:
    with paho(broker.port, f"{name}-sub", version) as reader, paho(broker.port, f"{name}-pub", version) as writer:
        assert [code.value for code in reader.subscribe(f"{name}/+", wanted)] == [wanted]
        sent = [(f"{name}/{i % 2}", b"%d" % i, i % 3) for i in range(60)]
        for topic, payload, qos in sent:
            info = writer.client.publish(topic, payload, qos)
        info.wait_for_publish(PATIENCE_S)
        got = reader.wait(60)
    for topic in (f"{name}/0", f"{name}/1"):
        for qos in (0, 1, 2):  # order is promised per topic and QoS
            expected = [(p, min(qos, wanted)) for t, p, q in sent if t == topic and q == qos]
            mine = {p for t, p, q in sent if t == topic and q == qos}
            assert [(m.payload, m.qos) for m in got if m.topic == topic and m.payload in mine] == expected
    assert len(got) == 60


@BOTH
def test_exactly_once_handshake_with_the_publisher(broker: BrokerProcess, name: str, version: int) -> None:
    with Raw(broker.port, version=version) as reader, Raw(broker.port, version=version) as writer:
        reader.subscribed(name)
        number = writer.publish(name, b"once", 2)
        assert writer.expect(PubRec).packet_id == number
        for _ in range(2):  # the client is not sure it arrived and sends it again
            writer.send(b"")
            writer.next_id = number - 1
            assert writer.publish(name, b"once", 2, dup=True) == number
            assert writer.expect(PubRec) == PubRec(number)
        writer.rel(number)
        assert writer.expect(PubComp) == PubComp(number)
        writer.rel(number)  # known to nobody any more
        assert writer.expect(PubComp) == PubComp(number, 0x92 if version == 5 else 0)
        writer.next_id = number - 1
        writer.publish(name, b"another", 2)
        writer.expect(PubRec)
        assert reader.payloads(2) == [b"once", b"another"]


@BOTH
def test_exactly_once_handshake_with_the_consumer(broker: BrokerProcess, name: str, version: int) -> None:
    with Raw(broker.port, version=version) as reader, Raw(broker.port, version=version) as writer:
        reader.subscribed(TopicRequest(name, 2))
        writer.publish(name, b"x", 2)
        got = reader.message()
        assert (got.qos, got.dup, got.payload) == (2, False, b"x")
        for _ in range(2):
            reader.rec(got)
            assert reader.expect(PubRel) == PubRel(got.packet_id)
        reader.comp(got.packet_id)
        reader.rec(got)  # it is over; MQTT 5 says so
        assert reader.expect(PubRel) == PubRel(got.packet_id, 0x92 if version == 5 else 0)
        assert reader.so_far() == []


@pytest.mark.parametrize(
    ("filter", "got"),
    [
        ("{0}/a/b", "ab"), ("{0}/+/b", "ab nb"), ("{0}/a/+", "ab ac a/"), ("{0}/#", "ab ac nb abc a/ own"),
        ("{0}/a/#", "ab ac abc a/"), ("{0}/+/+/c", "abc"), ("{0}/+", ""), ("+/a/b", "ab"), ("{0}", "own"),
    ],
)  # fmt: skip
def test_wildcards(broker: BrokerProcess, name: str, filter: str, got: str) -> None:
    topics = {"ab": "a/b", "ac": "a/c", "nb": "n/b", "abc": "a/b/c", "a/": "a/"}
    with Raw(broker.port) as reader, Raw(broker.port) as writer:
        reader.subscribed(filter.format(name))
        for word, topic in topics.items():
            writer.publish(f"{name}/{topic}", word.encode())
        writer.published(name, b"own")
        mine = [m.payload.decode() for m in reader.so_far() if m.topic.startswith(name)]
    assert sorted(mine) == sorted(got.split())


def test_overlapping_filters_deliver_once_for_each(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port) as reader, Raw(broker.port) as writer:
        reader.subscribed(TopicRequest(f"{name}/#", 0)).subscribed(TopicRequest(f"{name}/a", 1))
        writer.published(f"{name}/a", b"x")
        assert sorted(m.qos for m in reader.so_far()) == [0, 1]


@BOTH
def test_unsubscribing_ends_delivery(broker: BrokerProcess, name: str, version: int) -> None:
    with Raw(broker.port, version=version) as reader, Raw(broker.port) as writer:
        reader.subscribed(f"{name}/a", f"{name}/b")
        writer.published(f"{name}/a", b"1")
        answer = reader.unsubscribe(f"{name}/a", f"{name}/never")
        assert answer.codes == ((0, 0x11) if version == 5 else ())
        writer.published(f"{name}/a", b"2")
        writer.published(f"{name}/b", b"3")
        assert [m.payload for m in reader.so_far()] == [b"1", b"3"]
        assert writer.published(f"{name}/a", b"4").code == 0x10  # nobody there


def test_a_second_subscription_of_the_same_filter_replaces_the_first(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port) as reader, Raw(broker.port) as writer:
        reader.subscribed(TopicRequest(name, 2)).subscribed(TopicRequest(name, 0))
        writer.publish(name, b"x", 1)
        assert [m.qos for m in [reader.message(), *reader.so_far()]] == [0]


def test_dollar_topics_are_the_brokers_own(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port, name) as writer, Raw(broker.port) as reader:
        reader.subscribed("#", "+/#", f"$SYS/{name}")
        answer = writer.published(f"$SYS/{name}", b"x")
        assert answer.code == 0x87
        writer.publish(f"$SYS/{name}", b"x")
        writer.published(f"{name}/end", b"end")
        assert not [m for m in reader.so_far() if m.topic.startswith("$")]
        assert broker.publisher(name)["refused_records"] == 2


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_no_local(broker: BrokerProcess, name: str, qos: int) -> None:
    with Raw(broker.port) as one, Raw(broker.port) as other:
        one.subscribed(TopicRequest(name, qos, no_local=True))
        one.published(name, b"mine")
        other.published(name, b"theirs")
        assert [m.payload for m in one.so_far()] == [b"theirs"]


def test_properties_travel_unaltered(broker: BrokerProcess, name: str) -> None:
    """Request and response among them: topic and correlation data reach whoever answers."""
    said = Properties(1, "text/plain", f"{name}/answers", b"\x00\x01", (("a", "1"), ("b", "2"), ("a", "3")))
    with (
        Raw(broker.port) as server,
        Raw(broker.port, request_response_info=True) as client,
        Raw(broker.port, version=4) as old,
    ):
        assert client.connack.fields.response_info is not None
        for qos in (0, 1):
            server.subscribed(TopicRequest(f"{name}/ask", qos))
            client.subscribed(f"{name}/answers")
            old.subscribed(f"{name}/ask")
            client.publish(f"{name}/ask", b"?", qos, properties=said)
            asked = server.message()
            assert (asked.payload, asked.properties) == (b"?", said)
            assert old.message().payload == b"?"
            assert asked.properties.response_topic is not None
            server.publish(
                asked.properties.response_topic,
                b"!",
                properties=Properties(correlation_data=asked.properties.correlation_data),
            )
            answer = client.message()
            assert (answer.payload, answer.properties.correlation_data) == (b"!", b"\x00\x01")
        old.publish(f"{name}/ask", b"plain")
        assert server.message() == Message(f"{name}/ask", b"plain")


def test_subscription_identifiers(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port) as reader, Raw(broker.port) as writer:
        reader.subscribed(f"{name}/#", identifier=7).subscribed(TopicRequest(f"{name}/a", 1), identifier=268_435_455)
        writer.publish(f"{name}/a", b"0", retain=True)
        writer.published(f"{name}/a", b"1")
        got = [(m.payload, m.identifiers) for m in reader.so_far()]
        assert sorted(got) == [(b"0", (7,)), (b"0", (268_435_455,)), (b"1", (7,)), (b"1", (268_435_455,))]
        reader.subscribed(
            TopicRequest(f"{name}/a", 1), identifier=3
        )  # the identifier is replaced, the retained record comes anew
        assert (reader.message().identifiers) == (3,)


def test_topic_aliases(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port) as reader, Raw(broker.port) as writer:
        aliases = writer.connack.fields.topic_alias_max
        assert aliases
        reader.subscribed(f"{name}/#")
        writer.publish(f"{name}/a", b"1", alias=1)
        writer.publish("", b"2", alias=1)
        writer.publish(f"{name}/b", b"3", 1, alias=aliases)
        writer.publish("", b"4", 1, alias=aliases)
        writer.publish(f"{name}/c", b"5", alias=1)
        writer.publish("", b"6", alias=1)
        writer.published(f"{name}/end")
        got = [(m.topic[-1], m.payload) for m in reader.so_far()][:-1]
    assert got == [("a", b"1"), ("a", b"2"), ("b", b"3"), ("b", b"4"), ("c", b"5"), ("c", b"6")]


def test_message_expiry(broker: BrokerProcess, name: str) -> None:
    """What waits loses lifetime; what waited too long is not delivered, and its absence is announced to who asks."""
    with Raw(broker.port) as writer:
        away = Raw(broker.port, f"{name}-away", session_expiry_s=60).subscribed(TopicRequest(name, 1))
        away.close()
        with Raw(broker.port, f"{name}-asks", session_expiry_s=60) as asks:
            asks.subscribed(TopicRequest(name, 1), user=(("expiries", "true"),))
        writer.publish(name, b"short", 1, expiry_s=1)
        writer.publish(name, b"long", 1, expiry_s=1000)
        writer.publish(f"{name}/kept", b"short", 1, expiry_s=1, retain=True)
        writer.published(name, b"for ever")
        with Raw(broker.port) as now:  # delivered at once: as published
            now.subscribed(f"{name}/kept")
            assert now.message().expiry_s == 1
            now.subscribed(name)
            writer.published(name, b"quick", expiry_s=77)
            assert now.message().expiry_s == 77

        def gone() -> bool:
            with Raw(broker.port) as late:
                late.subscribed(f"{name}/kept")
                return late.so_far() == []

        until(gone, what="the retained record expires")
        with Raw(broker.port, f"{name}-away", clean_start=False, session_expiry_s=60) as back:
            got = back.messages(3)
        with Raw(broker.port, f"{name}-asks", clean_start=False, session_expiry_s=60) as back:
            told = back.messages(3)
    assert [m.payload for m in got] == [b"long", b"for ever", b"quick"]
    assert got[0].expiry_s is not None
    assert 900 < got[0].expiry_s < 1000
    assert not [message.user for message in got if message.user]
    assert told[0].user["gap-records"] == "1"
    assert told[0].user["gap-reason"] == "expired"


def mosquitto(broker: BrokerProcess, tool: str, *args: str, said: str | None = None) -> str:
    """Run mosquitto_pub or mosquitto_sub to its end; its output."""
    command = [f"mosquitto_{tool}", "-h", "127.0.0.1", "-p", str(broker.port), *args]
    done = subprocess.run(command, input=said, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.stdout


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_mosquitto_clients(broker: BrokerProcess, name: str, version: str, qos: str) -> None:
    common = ["-V", version, "-q", qos]
    lines = [f"line {i}" for i in range(100)]
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(
            mosquitto, broker, "sub", *common, "-i", f"{name}-sub", "-t", f"{name}/#", "-C", "101", "-W", "12",
            "-F", "%t %q %p",
        )  # fmt: skip
        until(lambda: broker.consumer(f"{name}-sub"), what="mosquitto_sub is subscribed")
        mosquitto(broker, "pub", *common, "-t", f"{name}/x", "-l", said="\n".join(lines) + "\n")
        mosquitto(broker, "pub", *common, "-t", f"{name}/empty", "-n")
        out = reader.result(PATIENCE_S)
    assert out.splitlines() == [*(f"{name}/x {qos} {line}" for line in lines), f"{name}/empty {qos} "]


def test_mosquitto_retained_with_properties(broker: BrokerProcess, name: str) -> None:
    said = ["-D", "publish", "user-property", "a", "b", "-D", "publish", "content-type", "text/x"]
    mosquitto(broker, "pub", "-V", "5", "-t", name, "-m", "kept", "-r", "-q", "1", *said)
    got = mosquitto(broker, "sub", "-V", "5", "-t", name, "-C", "1", "-W", "10", "-F", "%r %p %P %C")
    assert got.split() == ["1", "kept", "a:b", "text/x"]
    mosquitto(broker, "pub", "-V", "5", "-t", name, "-r", "-n")
    with Raw(broker.port) as reader:
        reader.subscribed(name)
        assert reader.so_far() == []


def test_paho_sees_what_mqtt_5_offers(broker: BrokerProcess, name: str) -> None:
    with paho(broker.port, "") as client:
        greeting = client.connect_properties
        assert greeting.AssignedClientIdentifier
        assert greeting.ReceiveMaximum == 1024
        assert greeting.MaximumPacketSize == 1_000_000
        assert greeting.TopicAliasMaximum > 0
        said = properties("PUBLISH", UserProperty=[("k", "v")], MessageExpiryInterval=30, ContentType="c")
        client.subscribe(name, qos=1)
        client.publish(name, b"x", 1, properties=said)
        got = client.wait(1)[0]
    assert (got.properties.UserProperty, got.properties.ContentType) == ([("k", "v")], "c")
    assert got.properties.MessageExpiryInterval == 30
