"""JMS beside the other protocols: messages go both ways, with properties, headers and reply addresses."""

from __future__ import annotations

from contextlib import closing

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from tests.interop.amqp_pika import Pika
from tests.interop.amqp_pika import properties as amqp_properties
from tests.interop.jms_client import PERSISTENT, Jms, needs_jms
from tests.interop.openwire_fixtures import broker, connection, fresh
from tests.interop.pahos import paho
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until

__all__ = ["broker", "connection"]
pytestmark = needs_jms


def test_queues_are_shared_with_amqp(jms: Jms, connection: str, broker: BrokerProcess) -> None:
    there = fresh()
    name = there.removeprefix("queue://")
    session = jms.session(connection)
    pika = Pika(broker.ports["amqp"])
    try:
        sent = jms.send(
            jms.producer(session), session, "from JMS", there, properties={"n": "int:5", "s": "string:é"}, priority=7,
            correlation="c", type="t", reply_to="queue://back", mode=PERSISTENT,
        )  # fmt: skip
        pika.channel.queue_declare(name, durable=True)
        method, got, body = until(lambda: _got(pika, name))
        assert (body, got.headers["n"], got.headers["s"]) == (b"from JMS", 5, "é")
        assert (got.message_id, got.correlation_id, got.type, got.reply_to) == (sent, "c", "t", "back")
        assert (got.priority, got.delivery_mode, got.content_type) == (7, 2, "text/plain")
        pika.channel.basic_ack(method.delivery_tag)
        facts = amqp_properties(
            headers={"n": 5, "s": "é", "truth": True}, content_type="application/json", message_id="abc", type="t",
            correlation_id="c", reply_to="back", timestamp=1_700_000_000, priority=3, delivery_mode=2,
        )  # fmt: skip
        pika.channel.basic_publish("", name, b'{"a": 1}', facts)
        pika.channel.basic_publish("", name, b"\xff\x00", amqp_properties())
        consumer = jms.consumer(session, there)
        text, raw = jms.got(consumer), jms.got(consumer)
        assert (text.kind, text.body, text.id, text.type, text.correlation) == ("text", '{"a": 1}', "ID:abc", "t", "c")
        assert text.properties == {"n": "Integer:5", "s": "String:é", "truth": "Boolean:true"}
        assert (text.reply_to, text.timestamp, text.priority, text.mode) == ("queue://back", 1_700_000_000_000, 3, 2)
        assert (raw.kind, raw.body, raw.id[:10]) == ("bytes", "/wA=", "ID:headway")
    finally:
        pika.close()


def _got(pika: Pika, name: str) -> tuple[object, object, bytes] | None:
    found = pika.channel.basic_get(name)
    return None if found[0] is None else found


def test_topics_are_shared_with_mqtt(jms: Jms, connection: str, broker: BrokerProcess) -> None:
    there = fresh("topic")
    topic = there.removeprefix("topic://").replace(".", "/")
    session = jms.session(connection)
    consumer = jms.consumer(session, there)
    with paho(broker.ports["mqtt"], "of jms") as client:
        client.subscribe(topic)
        jms.send(jms.producer(session), session, "from JMS", there, properties={"n": "int:5"}, correlation="c",
                 reply_to="topic://of.replies")  # fmt: skip
        (got,) = client.wait(1)
        told = got.properties
        assert (got.topic, got.payload, told.ContentType) == (topic, b"from JMS", "text/plain")
        assert (told.CorrelationData, told.ResponseTopic) == (b"c", "of/replies")
        assert ("n", "5") in told.UserProperty
        assert jms.got(consumer).body == "from JMS"
        facts = mqtt.Properties(PacketTypes.PUBLISH)
        facts.UserProperty = [("who", "mqtt")]
        facts.PayloadFormatIndicator = 1
        facts.ResponseTopic = "of/replies"
        client.publish(topic, "héllo", properties=facts)
        client.publish(topic, b"\x01\x02")
        text, raw = jms.got(consumer), jms.got(consumer)
        assert (text.kind, text.body, text.properties) == ("text", "héllo", {"who": "String:mqtt"})
        assert text.reply_to == "topic://of.replies"
        assert (raw.kind, raw.body, raw.destination) == ("bytes", "AQI=", there)


def test_each_queue_that_is_deleted_is_told_in_the_words_of_jms(
    jms: Jms, connection: str, broker: BrokerProcess
) -> None:
    """The consumer of two goes on with the other one, and is closed when that is gone, too."""
    one, other = fresh(), fresh()
    session = jms.session(connection)
    consumer = jms.consumer(session, f"{one},{other}")
    with closing(Pika(broker.ports["amqp"])) as pika:
        pika.channel.queue_delete(one.removeprefix("queue://"))
        until(lambda: f"{one} was deleted" in str(jms.faults(connection)), what="it is told")
        jms.send(jms.producer(session), session, "here", other)
        assert jms.got(consumer).body == "here"
        pika.channel.queue_delete(other.removeprefix("queue://"))
        until(lambda: f"{other} was deleted" in str(jms.faults(connection)), what="it is told")
