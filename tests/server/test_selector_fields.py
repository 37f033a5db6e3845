"""Selectors on every header field of JMS and on properties, of messages that came by every protocol."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from datetime import UTC, datetime
from struct import pack

import pyarrow as pa
import pytest
from bench.wires.packets import connect, encode_publish
from pamqp.commands import Basic, Channel, Connection, Queue
from tests.server.amqp_frames import OPENING, START_OK
from tests.server.amqp_stage import WALL_S, Client, House, message, method
from tests.server.greedy_stage import Greedy
from tests.server.pretended import Socket
from tests.server.test_amqp1_greedy import begin, sender
from tests.wire import openwire_frames as frames

from headway.core.message import Properties
from headway.core.selector import BadSelector, compile_selector
from headway.server.amqp.peer import AmqpPeer
from headway.server.amqp1.peer import Amqp1Peer
from headway.server.mqtt.peer import MqttPeer
from headway.server.openwire.peer import OpenWirePeer
from headway.server.stomp.peer import StompPeer
from headway.store.rows import ROWS, runs
from headway.wire.amqp1 import values as writing
from headway.wire.amqp1.performatives import Attach, Flow, Open, Source, Target
from headway.wire.amqp1.replies import frame, write
from headway.wire.amqp1.values import Described
from headway.wire.openwire.codes import Type
from headway.wire.openwire.maps import write_map

MARK = b"the message itself"
AT_MS, LIFETIME_MS = int(WALL_S + 1000) * 1000, 600_000
AT = datetime.fromtimestamp(AT_MS // 1000, UTC)
ID = "ID:c:1:2:7"
MQTT = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n'
TYPED_PROPERTIES: dict[str, object] = {"text": "5", "number": 5, "fraction": 1.5, "truth": True}
TEXTS = (("text", "5"), ("number", "5"), ("fraction", "1.5"), ("truth", "true"))
GROUP = (("JMSXGroupID", "g"), ("JMSXGroupSeq", "3"))


def by_openwire(house: House) -> None:
    one = Greedy(house, OpenWirePeer, frames.wire_format() + frames.connection_info("sender"))
    one.say(frames.message(
        Type.TEXT_MESSAGE, frames.topic("t.a"), pack(">i", len(MARK)) + MARK, write_map(TYPED_PROPERTIES),
        producer=frames.producer_id(), expires_ms=AT_MS + LIFETIME_MS, timestamp_ms=AT_MS, group="g", group_sequence=3,
        correlation="co", priority=9, reply_to=frames.topic("r.a"), type_text="ty",
    ))  # fmt: skip


def by_amqp(house: House) -> None:
    tuned, opened = method(0, Connection.TuneOk(0, 0, 0)), method(0, Connection.Open())
    one = Greedy(house, AmqpPeer, OPENING, method(0, START_OK), tuned, opened, method(1, Channel.Open()))
    headers = {**TYPED_PROPERTIES, "JMSXGroupID": "g", "JMSXGroupSeq": 3}
    one.say(b"".join(message(
        1, "t.a", MARK, "amq.topic", headers=headers, delivery_mode=2, priority=9, correlation_id="co", reply_to="r.a",
        expiration=str(LIFETIME_MS), message_id=ID, timestamp=AT, message_type="ty", user_id="guest", app_id="app",
    )))  # fmt: skip


def by_amqp1(house: House) -> None:
    one = Greedy(house, Amqp1Peer, b"AMQP\0\1\0\0" + write(0, Open("sender", None, 65_536, 255)), begin(0))
    one.say(sender(0, "topic://t.a") + write(0, Flow(0, 1 << 30, 0, 1 << 30, echo=True)))
    nothing, text = writing.NULL, writing.string
    head = writing.described(0x70, writing.list_of([writing.TRUE, writing.ubyte(9), writing.uint(LIFETIME_MS)]))
    about = writing.described(0x73, writing.list_of([
        text(ID), nothing, nothing, text("ty"), text("topic://r.a"), text("co"), nothing, nothing, nothing,
        writing.timestamp(AT), text("g"), writing.uint(3),
    ]))  # fmt: skip
    properties = writing.described(
        0x74, writing.map_of([(text(name), writing.value(value)) for name, value in TYPED_PROPERTIES.items()])
    )
    fields = [writing.uint(0), writing.uint(0), writing.binary(b"t"), writing.uint(0), writing.boolean(True)]
    content = frame(0, 0x14, fields)[8:] + head + about + properties + writing.described(0x75, writing.binary(MARK))
    one.say((8 + len(content)).to_bytes(4, "big") + b"\2\0\0\0" + content)


def by_stomp(house: House) -> None:
    headers = {
        "destination": "/topic/t.a", "type": "ty", "correlation-id": "co", "priority": "9", "persistent": "true",
        "timestamp": str(AT_MS), "expiration": str(LIFETIME_MS), "amqp-message-id": ID, "reply-to": "/topic/r.a",
        **dict(TEXTS), **dict(GROUP),
    }  # fmt: skip
    head = "".join(f"{name}:{value}\n" for name, value in headers.items())
    one = Greedy(house, StompPeer, b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
    one.say(f"SEND\n{head}\n".encode() + MARK + b"\0")


def by_mqtt(house: House) -> None:
    sock = Socket()
    house.accept(sock, "mqtt", MqttPeer)
    properties = Properties(response_topic="r/a", correlation_data=b"co", user=(("priority", "9"), *TEXTS, *GROUP))
    sock.incoming += [connect("sender"), encode_publish("t/a", MARK, qos=1, packet_id=1, properties=properties)]
    house.run()


def by_http(house: House) -> None:
    told = {
        "content_type": None, "response_topic": "r/a", "correlation_data": b"co", "qos": 1, "retain": False,
        "user": [("priority", "9"), *TEXTS, *GROUP],
    }  # fmt: skip
    table = pa.table({"topic": ["t/a"], "key": [None], "properties": [told], "payload": [MARK]}, schema=ROWS)
    out = io.BytesIO()
    with pa.ipc.new_stream(out, ROWS) as stream:
        stream.write_table(table)
    writer = Socket()
    connection = house.accept(writer, "mqtt", MqttPeer)
    writer.incoming.append(connect("writer"))
    house.run()
    ((_, run),) = runs(out.getvalue())
    session = connection.peer_side.session
    assert session is not None
    house.broker.intake.publish_some(session, [run], house.now(), 1)
    house.turn_soon()
    house.run()


SENDERS: dict[str, Callable[[House], None]] = {
    "OpenWire": by_openwire, "AMQP": by_amqp, "AMQP 1.0": by_amqp1, "STOMP": by_stomp, "MQTT": by_mqtt, "HTTP": by_http,
}  # fmt: skip
ALL = frozenset(SENDERS)
FULL, WITH_TYPES = ALL - {"MQTT", "HTTP"}, frozenset({"OpenWire", "AMQP", "AMQP 1.0"})
"""Protocols that have all of the fields; those whose properties have types."""
WITHOUT_TYPES, NONE = ALL - WITH_TYPES, frozenset[str]()
TABLE = {
    "JMSDestination = 'topic://t.a'": ALL,
    "JMSDeliveryMode = 'PERSISTENT'": ALL,
    "JMSDeliveryMode <> 'PERSISTENT'": NONE,
    f"JMSMessageID = '{ID}'": FULL,
    "JMSMessageID LIKE 'ID:%'": ALL,
    f"JMSTimestamp = {AT_MS}": FULL,
    "JMSTimestamp = 0": ALL - FULL,
    f"JMSExpiration = {AT_MS + LIFETIME_MS}": FULL,
    "JMSExpiration = 0": ALL - FULL,
    "JMSCorrelationID = 'co'": ALL,
    "JMSType = 'ty'": FULL,
    "JMSType IS NULL": ALL - FULL,
    "JMSPriority = 9": ALL,
    "JMSPriority BETWEEN 8 AND 9": ALL,
    "JMSReplyTo LIKE '%://r.a'": ALL,
    "JMSReplyTo IS NULL": NONE,
    "JMSXGroupID = 'g'": ALL,
    "JMSXGroupSeq = 3": ALL,
    "JMSXUserID = 'guest' AND JMSXAppID = 'app'": {"AMQP"},
    "text = '5'": ALL,
    "text = 5": NONE,
    "text <> 5": NONE,
    "text > 4": NONE,
    "text IN (5)": NONE,
    "text BETWEEN 4 AND 6": NONE,
    "text + 0 = 5": NONE,
    "number = 5": WITH_TYPES,
    "number > 4 AND number IN (5) AND number + 1 = 6": WITH_TYPES,
    "number = '5'": WITHOUT_TYPES,
    "number = text": WITHOUT_TYPES,
    "fraction = 1.5": WITH_TYPES,
    "truth": WITH_TYPES,
    "truth = TRUE": WITH_TYPES,
    "truth = 'true'": WITHOUT_TYPES,
    "convert_string_expressions:text = 5": ALL,
}


def jms_consumer(house: House, name: str, selector: str | None, to: bytes = frames.topic("t.a")) -> Greedy:
    one = Greedy(house, OpenWirePeer, frames.wire_format() + frames.connection_info(name))
    one.say(frames.consumer_info(frames.consumer_id(), to, selector=selector))
    one.sock.taken.clear()
    return one


@pytest.mark.parametrize("by", SENDERS)
def test_selector_of_a_jms_consumer_wants_what_its_application_would(by: str) -> None:
    house = House(MQTT)
    other = jms_consumer(house, "other", None)
    picky = {selector: jms_consumer(house, f"c{number}", selector) for number, selector in enumerate(TABLE)}
    SENDERS[by](house)
    assert other.sock.taken.count(MARK) == 1
    assert {selector: one.sock.taken.count(MARK) for selector, one in picky.items()} == wanted_of(by)


@pytest.mark.parametrize("by", SENDERS)
def test_selector_wants_the_same_of_what_waits_in_a_queue(by: str) -> None:
    house = House(MQTT)
    queues = {selector: f"work{number}" for number, selector in enumerate(TABLE)}
    house_queues(house, *queues.values())
    SENDERS[by](house)
    assert {house.stats(name).records for name in queues.values()} == {1}
    for selector, name in queues.items():
        one = jms_consumer(house, f"late {name}", None, frames.topic("none"))
        one.say(frames.consumer_info(frames.consumer_id(value=3), frames.queue(name), selector=selector))
    assert {selector: house.stats(name).unacknowledged for selector, name in queues.items()} == wanted_of(by)


def wanted_of(by: str) -> dict[str, bool]:
    return {selector: by in senders for selector, senders in TABLE.items()}


def house_queues(house: House, *names: str) -> None:
    """Makes queues of what is sent to the topic."""
    client = Client(house)
    for name in names:
        client.declare(name)
        client.say(Queue.Bind(queue=name, exchange="amq.topic", routing_key="t.a"))


def test_selector_tells_messages_of_one_sender_apart_by_what_only_the_id_says() -> None:
    """They are one run, and have one properties but for the number and the time."""
    house = House()
    one = jms_consumer(house, "one", "JMSMessageID = 'ID:c:1:2:8' OR JMSTimestamp = 2000")
    sender = Greedy(house, OpenWirePeer, frames.wire_format() + frames.connection_info("sender"))
    sender.say(b"".join(
        frames.message(Type.BYTES_MESSAGE, frames.topic("t.a"), b"body %d" % number, producer=frames.producer_id(),
                       sequence=number, timestamp_ms=2000 if number == 9 else 1000)
        for number in (6, 7, 8, 9)
    ))  # fmt: skip
    assert [number for number in (6, 7, 8, 9) if b"body %d" % number in one.sock.taken] == [8, 9]


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("text = 5", ALL), ("number = 5 AND number = '5'", ALL), ("truth", ALL), ("JMSType = 'ty'", FULL),
        ("JMSPriority > 8 AND JMSCorrelationID = 'co'", ALL), (f"JMSTimestamp = {AT_MS}", FULL),
    ],
)  # fmt: skip
@pytest.mark.parametrize("by", SENDERS)
def test_selector_of_a_stomp_consumer_takes_texts_for_numbers_as_with_activemq(
    selector: str, wanted: frozenset[str], by: str
) -> None:
    house = House(MQTT)
    one = Greedy(house, StompPeer, b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
    one.say(f"SUBSCRIBE\nid:1\ndestination:/topic/t.a\nselector:{selector}\n\n\0".encode())
    SENDERS[by](house)
    assert one.sock.taken.count(MARK) == (by in wanted)


@pytest.mark.parametrize(
    ("selector", "wanted"), [("text = 5", NONE), ("number = 5", WITH_TYPES), ("JMSType = 'ty'", FULL)]
)
@pytest.mark.parametrize("protocol", ["AMQP", "AMQP 1.0"])
@pytest.mark.parametrize("by", SENDERS)
def test_selectors_of_amqp_consumers_know_types_as_those_of_jms(
    selector: str, wanted: frozenset[str], protocol: str, by: str
) -> None:
    house = House(MQTT)
    if protocol == "AMQP":
        client = Client(house)
        client.declare("mine")
        client.say(Queue.Bind(queue="mine", exchange="amq.topic", routing_key="t.a"))
        client.say(Basic.Consume(queue="mine", arguments={"x-headway-selector": selector}))
        taken = client.sock.taken
    else:
        one = Greedy(house, Amqp1Peer, b"AMQP\0\1\0\0" + write(0, Open("reader", None, 65_536, 255)), begin(0))
        source = Source("topic://t.a", filter={"s": Described("apache.org:selector-filter:string", selector)})
        one.say(write(0, Attach("r", 0, True, 0, source=source, target=Target())))
        one.say(write(0, Flow(0, 1 << 30, 0, 1 << 30, 0, 0, 100)))
        taken = one.sock.taken
    SENDERS[by](house)
    assert taken.count(MARK) == (by in wanted)


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ("JMSTypo = 'x'", "there is no header field JMSTypo; did you mean JMSType?"),
        ("JMSRedelivered = TRUE", "JMSRedelivered differs from one delivery to the next; a selector cannot use it"),
        ("JMSXDeliveryCount > 1", "JMSXDeliveryCount differs from one delivery to the next"),
        ("JMSPriority = 'high'", "a number compared with a text is never true"),
        ("JMSType = 5", "a text compared with a number is never true"),
    ],
)
def test_selector_that_can_match_nothing_is_refused(selector: str, text: str) -> None:
    with pytest.raises(BadSelector, match=re.escape(text)):
        compile_selector(selector)
