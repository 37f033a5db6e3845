"""One message in the words of no protocol, and per protocol a client that sends such and reads such, for tests of what
is kept on the way from one protocol to another."""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from proton import Message
from proton.utils import BlockingConnection
from tests.interop.amqp_pika import Pika
from tests.interop.amqp_pika import properties as amqp_properties
from tests.interop.jms_client import NON_PERSISTENT, PERSISTENT, Jms
from tests.interop.pahos import Paho
from tests.interop.pahos import properties as mqtt_properties
from tests.interop.process import BrokerProcess
from tests.interop.stomps import Client
from tests.interop.waiting import PATIENCE_S, until

TEXT, BYTES = "text/plain", "application/octet-stream"


class Place(NamedTuple):
    """A topic, in words with dots, or a queue."""

    name: str
    is_topic: bool


class Note(NamedTuple):
    """None: not said, or the protocol has no word for it."""

    body: bytes
    headers: dict[str, object]
    content_type: str | None = None
    correlation: str | None = None
    reply_to: Place | None = None
    id: str | None = None
    kind: str | None = None
    priority: int | None = None
    durable: bool | None = None
    lifetime_ms: int | None = None
    time_ms: int | None = None


Next = Callable[[], Note]


class Speaker(Protocol):
    """A client of one protocol."""

    unsaid: frozenset[str]
    """Fields of a note that it cannot send."""
    unheard: frozenset[str]
    """Fields that it cannot be told, nor as a text among its headers."""
    types: tuple[type, ...]
    """Of the values of its headers; those of other types come as texts."""

    def listen(self, place: Place) -> Next: ...
    def send(self, place: Place, note: Note) -> Note:
        """Returns the note as it was sent: some clients choose ids and times by themselves."""
        ...

    def close(self) -> None: ...


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


class Mqtt:
    """Its QoS says what is durable; what others say of priority comes among the user properties."""

    unsaid = frozenset({"id", "kind", "priority", "time_ms", "reply to a queue"})
    unheard = frozenset({"id", "kind", "time_ms", "reply to a queue"})
    types = (str,)

    def __init__(self, broker: BrokerProcess, _jms: Jms) -> None:
        self.paho = Paho(broker.ports["mqtt"] or 0, "notes")

    def close(self) -> None:
        self.paho.close()

    def listen(self, place: Place) -> Next:
        topic = place.name.replace(".", "/")
        self.paho.subscribe(topic, qos=1)
        return lambda: self._read(until(lambda: [one for one in self.paho.messages if one.topic == topic])[0])

    def _read(self, message: Any) -> Note:
        about = message.properties
        user = dict(getattr(about, "UserProperty", []))
        user.pop("timestamp_in_ms", None)
        correlation, reply_to = getattr(about, "CorrelationData", None), getattr(about, "ResponseTopic", None)
        priority, expiry_s = user.pop("priority", None), getattr(about, "MessageExpiryInterval", None)
        return Note(
            message.payload, user, getattr(about, "ContentType", None), correlation and correlation.decode(),
            reply_to and Place(reply_to.replace("/", "."), is_topic=True), priority=priority and int(priority),
            durable=message.qos > 0, lifetime_ms=expiry_s and expiry_s * 1000,
        )  # fmt: skip

    def send(self, place: Place, note: Note) -> Note:
        about = mqtt_properties("PUBLISH")
        if note.content_type:
            about.ContentType = note.content_type
        if note.headers:
            about.UserProperty = list(note.headers.items())
        if note.correlation:
            about.CorrelationData = note.correlation.encode()
        if note.reply_to:
            about.ResponseTopic = note.reply_to.name.replace(".", "/")
        if note.lifetime_ms:
            about.MessageExpiryInterval = note.lifetime_ms // 1000
        self.paho.publish(place.name.replace(".", "/"), note.body, int(bool(note.durable)), properties=about)
        return note


class Amqp:
    """0-9-1. A reply address is a queue's name, or a topic by the broker's header for that. What others keep in headers
    is seen, and left out here. pika writes no real number, and reads none as what it is."""

    unsaid = unheard = frozenset({"float"})
    types = (str, int, bool, bytes)
    REPLY_TOPIC = "x-headway-reply-topic"

    def __init__(self, broker: BrokerProcess, _jms: Jms) -> None:
        self.pika = Pika(broker.ports["amqp"] or 0)

    def close(self) -> None:
        self.pika.close()

    def listen(self, place: Place) -> Next:
        if place.is_topic:
            queue = self.pika.bound("amq.topic", place.name)
        else:
            queue = self.pika.queue(place.name, exclusive=False, durable=True)
        return lambda: self._read(self.pika.take(queue))

    def _read(self, delivery: Any) -> Note:
        about = delivery.properties
        headers = {
            name: value for name, value in delivery.headers.items()
            if not name.startswith("x-headway-kept-") and name != "timestamp_in_ms"
            and (name != "real" or isinstance(value, str))
        }  # fmt: skip
        is_topic = headers.pop(self.REPLY_TOPIC, False)
        return Note(
            delivery.body, headers, about.content_type, about.correlation_id,
            about.reply_to and Place(about.reply_to, is_topic), about.message_id, about.type, about.priority,
            about.delivery_mode == 2, about.expiration and int(about.expiration),
            about.timestamp and about.timestamp * 1000,
        )  # fmt: skip

    def send(self, place: Place, note: Note) -> Note:
        headers = note.headers | ({self.REPLY_TOPIC: True} if note.reply_to and note.reply_to.is_topic else {})
        about = amqp_properties(
            content_type=note.content_type, correlation_id=note.correlation, message_id=note.id, type=note.kind,
            reply_to=note.reply_to and note.reply_to.name, priority=note.priority, headers=headers,
            delivery_mode=2 if note.durable else 1, expiration=note.lifetime_ms and str(note.lifetime_ms),
            timestamp=note.time_ms and note.time_ms // 1000,
        )  # fmt: skip
        self.pika.out.basic_publish("amq.topic" if place.is_topic else "", place.name, note.body, about)
        return note


class Amqp1:
    unsaid = unheard = frozenset[str]()
    types = (str, int, bool, bytes, float)

    def __init__(self, broker: BrokerProcess, _jms: Jms) -> None:
        self.proton = BlockingConnection(f"amqp://127.0.0.1:{broker.ports['amqp']}", timeout=PATIENCE_S)

    def close(self) -> None:
        self.proton.close()

    @staticmethod
    def _address(place: Place) -> str:
        return f"{'topic' if place.is_topic else 'queue'}://{place.name}"

    def listen(self, place: Place) -> Next:
        receiver = self.proton.create_receiver(self._address(place))
        return lambda: self._read(receiver.receive())

    def _read(self, message: Message) -> Note:
        told, body, to = message.properties or {}, message.body, message.reply_to
        headers = {name: bytes(value) if isinstance(value, memoryview) else value for name, value in told.items()}
        return Note(
            body.encode() if isinstance(body, str) else bytes(body), headers, message.content_type,
            message.correlation_id, to and Place(to.split("://")[-1].replace("/", "."), to.startswith("topic:")),
            message.id, message.subject, message.priority, message.durable, _whole((message.ttl or 0) * 1000) or None,
            _whole((message.creation_time or 0) * 1000) or None,
        )  # fmt: skip

    def send(self, place: Place, note: Note) -> Note:
        said = {
            "content_type": note.content_type, "correlation_id": note.correlation, "id": note.id, "subject": note.kind,
            "reply_to": note.reply_to and self._address(note.reply_to), "priority": note.priority,
            "durable": note.durable, "ttl": note.lifetime_ms and note.lifetime_ms / 1000,
            "creation_time": note.time_ms and note.time_ms / 1000, "properties": note.headers,
        }  # fmt: skip
        body = note.body.decode() if note.content_type == TEXT else note.body
        sender = self.proton.create_sender(self._address(place))
        sender.send(Message(body, **{name: value for name, value in said.items() if value is not None}))
        sender.close()
        return note


class Stomp:
    unsaid = unheard = frozenset[str]()
    types = (str,)

    def __init__(self, broker: BrokerProcess, _jms: Jms) -> None:
        self.client = Client(broker.ports["stomp"] or 0, auto_decode=False)
        self.known = 0

    def close(self) -> None:
        self.client.leave()

    @staticmethod
    def _destination(place: Place) -> str:
        return f"/{'topic' if place.is_topic else 'queue'}/{place.name}"

    def listen(self, place: Place) -> Next:
        self.known += 1
        id = str(self.known)
        self.client.subscribe(self._destination(place), id=id)
        messages = self.client.heard.messages
        return lambda: self._read(*until(lambda: [one for one in messages if one[0]["subscription"] == id])[0])

    def _read(self, headers: dict[str, str], body: Any) -> Note:
        left = dict(headers)
        for name in ("destination", "subscription", "message-id", "content-length", "redelivered", "expires"):
            left.pop(name, None)
        number = {name: int(left.pop(name)) for name in ("priority", "expiration", "timestamp") if name in left}
        to = left.pop("reply-to", None)
        return Note(
            body, left, left.pop("content-type", None), left.pop("correlation-id", None),
            to and Place(to.split("/", 2)[2], to.startswith("/topic/")), left.pop("amqp-message-id", None),
            left.pop("type", None), number.get("priority"), left.pop("persistent", "false") == "true",
            number.get("expiration"), number.get("timestamp"),
        )  # fmt: skip

    def send(self, place: Place, note: Note) -> Note:
        said = {
            "content-type": note.content_type, "correlation-id": note.correlation, "amqp-message-id": note.id,
            "type": note.kind, "reply-to": note.reply_to and self._destination(note.reply_to),
            "priority": note.priority, "persistent": note.durable and "true", "expiration": note.lifetime_ms,
            "timestamp": note.time_ms,
        }  # fmt: skip
        more = {name: str(value) for name, value in said.items() if value is not None}
        self.client.send(self._destination(place), note.body, **more, **note.headers)  # type: ignore[arg-type]
        return note


class OpenWire:
    """The client itself gives each message an id and its time. A type of message stands for a content type. When a
    message expires is a time, which nobody knows unless its publisher told his own."""

    unsaid = frozenset({"bytes"})
    unheard = frozenset({"lifetime without a time"})
    types = (str, int, bool, bytes, float)
    JAVA = {str: "string", bool: "boolean", float: "double"}  # noqa: RUF012
    PYTHON: dict[str, Callable[[str], object]] = {  # noqa: RUF012
        "String": str, "Integer": int, "Long": int, "Double": float, "Boolean": "true".__eq__,
        "byte[]": b64decode,
    }  # fmt: skip

    def __init__(self, broker: BrokerProcess, jms: Jms) -> None:
        self.jms = jms
        self.connection = jms.connect(f"tcp://127.0.0.1:{broker.ports['openwire']}")
        self.session = jms.session(self.connection)
        self.producer = jms.producer(self.session)

    def close(self) -> None:
        self.jms.do("close", self.connection)

    def listen(self, place: Place) -> Next:
        consumer = self.jms.consumer(self.session, Amqp1._address(place))
        return lambda: self._read(self.jms.got(consumer))

    def _read(self, message: Any) -> Note:
        told = {name: value.split(":", 1) for name, value in message.properties.items()}
        text, to = message.kind == "text", message.reply_to
        return Note(
            message.body.encode() if text else b64decode(message.body or ""),
            {name: self.PYTHON[kind](value) for name, (kind, value) in told.items()}, TEXT if text else BYTES,
            message.correlation, to and Place(to.split("://")[1], to.startswith("topic:")), message.id, message.type,
            message.priority, message.mode == PERSISTENT,
            message.expiration and round(message.expiration - time.time() * 1000), message.timestamp or None,
        )  # fmt: skip

    def send(self, place: Place, note: Note) -> Note:
        text = note.content_type == TEXT
        java = {
            name: f"{self.JAVA.get(type(value)) or ('int' if abs(value) < 2**31 else 'long')}:"  # type: ignore[arg-type]
            f"{str(value).lower() if isinstance(value, bool) else value}" for name, value in note.headers.items()
        }  # fmt: skip
        id = self.jms.send(
            self.producer, self.session, note.body.decode() if text else b64encode(note.body).decode(),
            Amqp1._address(place), kind="text" if text else "bytes", properties=java,
            mode=PERSISTENT if note.durable else NON_PERSISTENT, priority=4 if note.priority is None else note.priority,
            lifetime_ms=note.lifetime_ms or 0, correlation=note.correlation, type=note.kind,
            reply_to=note.reply_to and Amqp1._address(note.reply_to),
        )  # fmt: skip
        return note._replace(id=id, time_ms=None)


SPEAKERS: dict[str, Callable[[BrokerProcess, Jms], Speaker]] = {
    "MQTT": Mqtt, "AMQP 0-9-1": Amqp, "AMQP 1.0": Amqp1, "STOMP": Stomp, "OpenWire": OpenWire,
}  # fmt: skip
