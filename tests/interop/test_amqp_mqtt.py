"""``amq.topic`` and MQTT topics are the same topics: ``a.b`` here is ``a/b`` there. With pika and paho."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp.commands import Basic
from pika import BasicProperties
from pika.exceptions import UnroutableError
from tests.interop.amqp_broker import AmqpBroker
from tests.interop.amqp_pika import Pika
from tests.interop.amqp_raw import Raw
from tests.interop.pahos import paho, properties
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until

pytest_plugins = ("tests.interop.amqp_fixtures",)

TOPIC = "amq.topic"
SENT = ("a", "a.b", "a.c", "a.b.c", "b", "")
"""Behind a word of the test's own."""


@pytest.fixture
def mqtt(amqp_broker: AmqpBroker) -> int:
    """The port."""
    if amqp_broker.mqtt_port is None:
        pytest.skip("the other broker speaks no MQTT")
    return amqp_broker.mqtt_port


BOTH = pytest.mark.parametrize("version", [4, 5])


@pytest.fixture(autouse=True)
def spoken(request: pytest.FixtureRequest, amqp_broker: AmqpBroker) -> None:
    """RabbitMQ 3.10 has no MQTT 5."""
    version = getattr(request.node, "callspec", None) and request.node.callspec.params.get("version")
    if version == 5 and amqp_broker.process is None:
        pytest.skip("about Headway only")


def under(word: str, rest: str, mark: str) -> str:
    return word + mark + rest.replace(".", mark) if rest else word


# -- which way records go -------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ("a/b", "a.b"), ("a/+", "a.b a.c"), ("+", "a b"), ("+/b", "a.b"), ("a/#", "a a.b a.c a.b.c"),
        ("#", "a a.b a.c a.b.c b ."), ("a/+/c", "a.b.c"),
    ],
)  # fmt: skip
def test_amqp_to_mqtt(mqtt: int, client: Pika, word: str, filter: str, expected: str, version: int) -> None:
    with paho(mqtt, word, version) as reader:
        reader.subscribe(f"{word}/{filter}", qos=1)
        for key in SENT:
            client.put(under(word, key, "."), key, exchange=TOPIC)
        client.put(f"{word}.{filter.replace('/', '.').replace('+', 'b').replace('#', 'b')}", "end", exchange=TOPIC)
        wanted = ["" if one == "." else one for one in expected.split()]
        got = reader.wait(len(wanted) + 1)
    assert [message.payload.decode() for message in got] == [*wanted, "end"]
    assert [message.topic for message in got[:-1]] == [under(word, key, "/") for key in wanted]
    assert not any(message.retain for message in got)


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt_to_amqp(mqtt: int, client: Pika, word: str, version: int, qos: int) -> None:
    keys = {
        "a.b": "a.b", "a.*": "a.b a.c", "a.#": "a a.b a.c a.b.c", "#": "a a.b a.c a.b.c b .", "*": "a b",
        "#.c": "a.c a.b.c",
    }  # fmt: skip
    queues = {key: client.bound(TOPIC, f"{word}.{key}") for key in keys}
    with paho(mqtt, word, version) as writer:
        for key in SENT:
            writer.publish(under(word, key, "/"), key, qos)
        for key, expected in keys.items():
            wanted = ["" if one == "." else one for one in expected.split()]
            got = [client.take(queues[key]) for _ in wanted]
            assert [one.body.decode() for one in got] == wanted
            assert [one.key for one in got] == [under(word, one, ".") for one in wanted]
            assert {one.exchange for one in got} == {TOPIC}
            assert client.count(queues[key])[0] == 0


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("lifetime", ["9223372036854775807", "4294967296500", "60000"])
def test_lifetimes_that_mqtt_cannot_tell(mqtt: int, client: Pika, word: str, lifetime: str, qos: int) -> None:
    with paho(mqtt, word, 5) as reader:
        reader.subscribe(f"{word}/#", qos=qos)
        client.channel.basic_publish(TOPIC, f"{word}.a", b"1", BasicProperties(expiration=lifetime))
        client.channel.basic_publish(TOPIC, f"{word}.a", b"2")
        first, second = reader.wait(2)
        assert (first.payload, second.payload) == (b"1", b"2")
        assert first.properties.MessageExpiryInterval == min(int(lifetime) // 1000, 0xFFFF_FFFF)


@BOTH
def test_in_order_and_in_bulk(mqtt: int, client: Pika, word: str, version: int) -> None:
    queue = client.bound(TOPIC, f"{word}.up")
    client.consume(queue, auto_ack=True)
    sent = [b"%d" % i for i in range(300)]
    with paho(mqtt, word, version) as other:
        other.subscribe(f"{word}/down", qos=1)
        for body in sent:
            other.client.publish(f"{word}/up", body, 1)
            client.channel.basic_publish(TOPIC, f"{word}.down", body)
        assert client.bodies(300) == sent
        assert [message.payload for message in other.wait(300)] == sent


@BOTH
def test_a_subscriber_is_a_route(mqtt: int, client: Pika, word: str, version: int) -> None:
    """Mandatory records that somebody of MQTT gets are not returned."""
    with paho(mqtt, word, version) as reader:
        reader.subscribe(f"{word}/#")
        client.put(f"{word}.x", b"1", exchange=TOPIC, mandatory=True)
        assert reader.wait(1)[0].payload == b"1"
    with pytest.raises(UnroutableError):
        until(lambda: client.put(f"{word}.x", b"2", exchange=TOPIC, mandatory=True), what="nobody is there any more")


@BOTH
def test_by_way_of_other_exchanges(mqtt: int, client: Pika, word: str, version: int) -> None:
    before, after = client.exchange(f"{word}-before"), client.exchange(f"{word}-after")
    client.channel.exchange_bind(TOPIC, before)
    client.channel.exchange_bind(after, TOPIC, f"{word}.#")
    queue = client.bound(after, "")
    with paho(mqtt, word, version) as other:
        other.subscribe(f"{word}/down")
        client.put(f"{word}.down", b"1", exchange=before)
        [message] = other.wait(1)
        assert (message.topic, message.payload) == (f"{word}/down", b"1")
        other.publish(f"{word}/up", b"2", 1)
    got = [client.take(queue), client.take(queue)]
    assert [(one.body, one.key) for one in got] == [(b"1", f"{word}.down"), (b"2", f"{word}.up")]
    client.channel.exchange_unbind(TOPIC, before)


@pytest.mark.usefixtures("headway")
def test_keys_that_are_no_topics_stay_here(mqtt: int, client: Pika, word: str) -> None:
    """MQTT forbids wildcards in what is published, and empty topics; its clients hang up at such."""
    keys = [f"{word}.#", f"{word}.+", f"{word}.+.x", f"{word}.a+b"]
    queue = client.bound(TOPIC, f"{word}.#")
    with paho(mqtt, word) as reader:
        reader.subscribe(f"{word}/#", qos=1)
        for key in keys:
            client.put(key, b"odd", exchange=TOPIC)
        client.put("", b"odd", exchange=TOPIC)
        client.put(f"{word}.end", b"end", exchange=TOPIC)
        assert [message.payload for message in reader.wait(1)] == [b"end"]
        assert not reader.ended
    assert client.drain(queue) == [b"odd"] * len(keys) + [b"end"]


def test_the_brokers_own_topics_are_not_to_be_had_from_here(
    headway: BrokerProcess, amqp_broker: AmqpBroker, mqtt: int, client: Pika, word: str
) -> None:
    """Whether it says so or just does not pass them on."""
    with paho(mqtt, word) as reader, Raw(amqp_broker.port) as raw:
        reader.subscribe([(f"$SYS/{word}", 1), (f"{word}/#", 1)])
        raw.publish(TOPIC, f"$SYS.{word}", b"odd")
        raw.call(Basic.Qos(), object)
        client.put(f"{word}.end", b"end", exchange=TOPIC)
        assert reader.wait(1)[0].payload == b"end"


# -- what goes along ------------------------------------------------------------------------------------------------


def test_properties_of_amqp_in_mqtt(headway: BrokerProcess, mqtt: int, client: Pika, word: str) -> None:
    said: dict[str, Any] = {
        "content_type": "text/plain", "correlation_id": "corr-1", "reply_to": "answers",
        "headers": {"a": "1", "ä": "€"},
    }  # fmt: skip
    with paho(mqtt, word) as reader, paho(mqtt, f"{word}-old", 4) as old:
        for one in (reader, old):
            one.subscribe(f"{word}/x", qos=1)
        client.put(f"{word}.x", "ä", exchange=TOPIC, **said)
        client.put(f"{word}.x", b"plain", exchange=TOPIC)
        first, second = reader.wait(2)
        assert [message.payload.decode() for message in old.wait(2)] == ["ä", "plain"]
    found: Any = first.properties
    none: Any = second.properties
    assert (found.ContentType, found.CorrelationData, found.ResponseTopic) == ("text/plain", b"corr-1", "answers")
    assert sorted(found.UserProperty) == [("a", "1"), ("ä", "€")]
    assert not {"ContentType", "CorrelationData", "ResponseTopic", "UserProperty"} & set(none.json())


def test_properties_of_mqtt_in_amqp(headway: BrokerProcess, mqtt: int, client: Pika, word: str) -> None:
    queue = client.bound(TOPIC, f"{word}.x")
    said = properties(
        "PUBLISH", ContentType="text/plain", CorrelationData=b"corr-1", ResponseTopic="answers",
        UserProperty=[("a", "1"), ("ä", "€")],
    )  # fmt: skip
    with paho(mqtt, word) as writer:
        writer.publish(f"{word}/x", "ä", 1, properties=said)
        writer.publish(f"{word}/x", b"plain", 1)
    first, second = client.take(queue), client.take(queue)
    found = first.properties
    assert (found.content_type, found.correlation_id, found.reply_to) == ("text/plain", "corr-1", "answers")
    assert first.headers == {"a": "1", "ä": "€", "x-headway-reply-topic": True}
    assert (second.properties.content_type, second.properties.correlation_id) == (None, None)
    assert (second.properties.reply_to, second.body) == (None, b"plain")


def test_ask_here_and_answer_there(headway: BrokerProcess, mqtt: int, client: Pika, word: str) -> None:
    """Request and response across, with the words for it that each side has."""
    work = client.bound(TOPIC, f"{word}.work")
    with paho(mqtt, word) as asker:
        asker.subscribe(f"{word}/answers", qos=1)
        said = properties("PUBLISH", ResponseTopic=f"{word}/answers", CorrelationData=b"7")
        asker.publish(f"{word}/work", b"?", 1, properties=said)
        asked = client.take(work)
        key = asked.properties.reply_to.replace("/", ".")
        client.put(key, b"!", exchange=TOPIC, correlation_id=asked.properties.correlation_id)
        [answer] = asker.wait(1)
        found: Any = answer.properties
    assert (answer.payload, found.CorrelationData) == (b"!", b"7")


def test_retained_records(headway: BrokerProcess, mqtt: int, client: Pika, word: str) -> None:
    """MQTT keeps its own; a record from here is news to MQTT, and is not kept."""
    queue = client.bound(TOPIC, f"{word}.x")
    with paho(mqtt, word) as writer:
        writer.publish(f"{word}/x", b"kept", 1, retain=True)
        client.put(f"{word}.x", b"news", exchange=TOPIC)
        assert [client.take(queue).body, client.take(queue).body] == [b"kept", b"news"]
        writer.subscribe(f"{word}/x", qos=1)
        client.put(f"{word}.x", b"more", exchange=TOPIC)
        got = writer.wait(2)
        assert [(message.payload, message.retain) for message in got] == [(b"kept", True), (b"more", False)]
        writer.publish(f"{word}/x", b"", 1, retain=True)
