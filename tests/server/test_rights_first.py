"""A client without rights is told so whatever else it asks for: its options are not read, and nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from bench.wires.packets import encode_subscribe
from bench.wires.websocket import frame, request
from pamqp.commands import Basic, Channel, Connection, Exchange, Queue
from tests.passwords import cheap_hash
from tests.server import amqp_stage
from tests.server.amqp_stage import House, method
from tests.server.pretended import Socket
from tests.wire import openwire_frames as jms

from headway.core.consumer import request as options
from headway.core.message import TOPICS
from headway.server.amqp.peer import AmqpPeer
from headway.server.amqp1.peer import Amqp1Peer
from headway.server.amqp1.terminus import OPTION
from headway.server.mqtt.peer import MqttPeer
from headway.server.openwire.peer import OpenWirePeer
from headway.server.peers import named_queues as queue_arguments
from headway.server.protocols import PROTOCOLS
from headway.server.stomp.peer import StompPeer
from headway.server.transport import PlainStream
from headway.server.websocket import Rules, WebSocketStream
from headway.wire.amqp1.performatives import Attach, Begin, Open, SaslInit, Source, Target
from headway.wire.amqp1.replies import write
from headway.wire.amqp1.values import Symbol
from headway.wire.mqtt.packets import Connect, TopicRequest, encode_connect

PERMITTED = f"""
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[auth.users]
alice = "{cheap_hash("pw")}"
[[permission]]
user = "alice"
subscribe = ["open/#", "$queue/known"]
"""
BAD = "((("


class Row(NamedTuple):
    """What a client says that must not have it. ``told``: what the answer has."""

    protocol: str
    what: str
    said: bytes
    told: bytes = b"may not"


def stomp(destination: str, more: str = "") -> bytes:
    return f"SUBSCRIBE\nid:1\ndestination:{destination}\nselector:{BAD}\norder_by:{BAD}\n{more}\n\0".encode()


def consumer(destination: bytes, subscription: str | None = None) -> bytes:
    hints = f"/*+ order_by='{BAD}' nonsense='1' */ {BAD}"
    return jms.consumer_info(jms.consumer_id(), destination, selector=hints, subscription=subscription)


def attach(address: str, **more: Any) -> bytes:
    told = {Symbol(OPTION + name): BAD for name in ("order_by", "patience", "selector")}
    return write(0, Attach("link", 0, True, source=Source(address, **more), target=Target(), properties=told))


def consume(queue: str, **more: str) -> bytes:
    arguments = {"x-headway-order_by": BAD, "x-headway-selector": BAD, "x-headway-nonsense": "1", **more}
    return method(1, Basic.Consume(queue=queue, no_ack=True, arguments=arguments))


ROWS = [
    Row("mqtt", "topic", encode_subscribe(1, [TopicRequest("secret")], user=(("order_by", BAD), ("selector", BAD)))),
    Row("websocket", "topic", frame(encode_subscribe(1, [TopicRequest("secret")], user=(("selector", BAD),)))),
    Row("amqp", "topics", consume(TOPICS, **{"x-headway-topics": "secret"})),
    Row("amqp", "queue", consume("other")),
    Row("amqp", "declare", method(1, Queue.Declare(queue="new", arguments={"x-max-priority": BAD}))),
    Row("amqp", "declare exchange", method(1, Exchange.Declare(exchange="new", arguments={"alternate-exchange": 1}))),
    Row("amqp", "bind", method(1, Queue.Bind(queue="known", exchange=TOPICS, routing_key="secret",
                                             arguments={"from": BAD}))),
    Row("amqp1", "topic", attach("topic://secret")),
    Row("amqp1", "queue", attach("queue://other")),
    Row("amqp1", "exchange", attach(f"/exchanges/{TOPICS}/secret")),
    Row("amqp1", "durable", attach("topic://secret", durable=2, expiry_policy="never")),
    Row("stomp", "topic", stomp("/topic/secret")),
    Row("stomp", "topic with acks", stomp("/topic/secret", "ack:client\n")),
    Row("stomp", "queue", stomp("/queue/other")),
    Row("stomp", "existing queue", stomp("/amq/queue/other")),
    Row("stomp", "exchange", stomp(f"/exchange/{TOPICS}/secret")),
    Row("stomp", "durable", stomp("/topic/open", "durable:true\n")),
    Row("openwire", "topic", consumer(jms.topic("secret"))),
    Row("openwire", "queue", consumer(jms.queue("other"))),
    Row("openwire", "queues", consumer(jms.queue("other.*"))),
    Row("openwire", "virtual topic", consumer(jms.queue("Consumer.a.VirtualTopic.b"))),
    Row("openwire", "durable", consumer(jms.topic("open"), "s")),
]  # fmt: skip
PLAIN = b"\0alice\0right"
SASL = write(0, SaslInit("PLAIN", PLAIN))
AMQP1 = [b"AMQP\3\1\0\0", SASL[:5] + b"\1" + SASL[6:], b"AMQP\0\1\0\0",
         write(0, Open("c", None, 65_536, 255)) + write(0, Begin(None, 0, 9, 9, 9))]  # fmt: skip
MQTT = [encode_connect(Connect(5, "c", True, username="alice", password=b"right"))]
LOGINS: dict[str, tuple[Callable[..., Any], list[bytes]]] = {
    "mqtt": (MqttPeer, MQTT),
    "websocket": (MqttPeer, [request("/mqtt", "localhost", "mqtt")[0], *map(frame, MQTT)]),
    "amqp": (AmqpPeer, [
        b"AMQP\0\0\x09\1", method(0, Connection.StartOk({}, "PLAIN", "\0alice\0right")),
        method(0, Connection.TuneOk(0, 0, 0)), method(0, Connection.Open()), method(1, Channel.Open()),
    ]),
    "amqp1": (Amqp1Peer, AMQP1),
    "stomp": (StompPeer, [b"CONNECT\naccept-version:1.2\nhost:x\nlogin:alice\npasscode:right\nclient-id:c\n\n\0"]),
    "openwire": (OpenWirePeer, [jms.wire_format(), jms.connection_info("c")]),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.protocol}: {row.what}")
def test_a_client_without_rights_is_told_so_before_its_options_are_read(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(PERMITTED)
    monkeypatch.setattr(house.logins, "right_password", b"pw" if row.protocol == "openwire" else b"right")
    peer, said = LOGINS[row.protocol]
    sock = Socket()
    if row.protocol == "websocket":
        rules = Rules(("/mqtt",), None, {"mqtt": "mqtt"}, "mqtt")
        monkeypatch.setattr(amqp_stage, "PlainStream", lambda sock: WebSocketStream(
            PlainStream(sock), rules, PROTOCOLS, house.loop))  # fmt: skip
    connection = house.accept(sock, "mqtt" if peer is MqttPeer else "amqp", peer)
    for piece in said:
        sock.incoming.append(piece)
        house.run()
    assert connection.admitted, bytes(sock.taken)
    read: list[object] = []
    monkeypatch.setattr(options, "read_options", lambda *asked, **_: read.append(asked) or {})
    monkeypatch.setattr(queue_arguments, "_one_of", lambda *asked: read.append(asked))
    sock.taken.clear()
    sock.incoming.append(row.said)
    house.run()
    assert row.told in sock.taken
    assert not read
