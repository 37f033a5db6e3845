"""MQTT packets written out by hand from the specifications, and what they mean.

Bytes are pieces joined by ``raw``: hex for numbers, quoted text for strings.
"""

from __future__ import annotations

from struct import unpack
from typing import Any, NamedTuple

from headway.core.message.record import NO_PROPERTIES, Properties, Run
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import (
    NEVER,
    Auth,
    ConnAck,
    Connect,
    DisconnectPacket,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PublishRun,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    TopicRequest,
    UnsubAck,
    Unsubscribe,
    WillMessage,
)
from headway.wire.mqtt.properties import Fields


def raw(*pieces: str | bytes) -> bytes:
    """Hex text and bytes, joined."""
    return b"".join(bytes.fromhex(piece) if isinstance(piece, str) else piece for piece in pieces)


class Plain(NamedTuple):
    """A run, as something that can be compared."""

    topic: str
    payloads: tuple[bytes, ...]
    form: object = None
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


def plain(item: Any) -> Any:
    """An item of the decoder in a form that compares by value; runs keep their invariants."""
    if isinstance(item, Run):
        assert list(item.ends) == sorted(item.ends)
        assert item.ends[-1] == len(item.data)
        assert len(item.ends) == len(item.bodies)
        payloads = tuple(item.payload(index) for index in range(len(item)))
        return Plain(item.topic, payloads, item.form, item.qos, item.retain, item.properties)
    if isinstance(item, Publish):
        return ("publish", plain(item.run), item.qos, item.packet_id, item.dup, item.expiry_s, item.identifiers)
    if isinstance(item, PublishRun):
        return ("publishes", plain(item.run), unpack(f">{len(item.run)}H", item.packet_ids))
    return item


def publish(run: Plain, qos: int, packet_id: int, dup: bool = False, expiry_s: int | None = None,
            identifiers: tuple[int, ...] = ()) -> Any:
    return ("publish", run, qos, packet_id, dup, expiry_s, identifiers)


CONNECT_4 = raw("10 0d 0004", b"MQTT", "04 02 003c 0001", b"c")
CONNECT_5 = raw("10 0e 0004", b"MQTT", "05 02 003c 00 0001", b"c")
OPENING = {4: CONNECT_4, 5: CONNECT_5}
ACCEPT = {4: raw("20 02 00 00"), 5: raw("20 03 00 00 00")}


def open_decoder(version: int, role: str = "server", **options: Any) -> MqttDecoder:
    """A decoder of a connection that stands."""
    if role == "server":
        decoder = MqttDecoder(**options)
        (opening,) = decoder.feed(OPENING[version])
        assert opening.version == version
    else:
        decoder = MqttDecoder(role="client", version=version, **options)
        assert decoder.feed(ACCEPT[version]) == [ConnAck()]
    assert decoder.error is None
    return decoder


# (name, version, bytes, meaning): the very first packet of a connection.
CONNECTS = [
    ("3.1.1 plain", 4, CONNECT_4, Connect(4, "c", True, 60)),
    ("3.1.1 kept session", 4, raw("10 0d 0004", b"MQTT", "04 00 0000 0001", b"c"),
     Connect(4, "c", False, session_expiry_s=NEVER)),
    ("3.1.1 no client id", 4, raw("10 0c 0004", b"MQTT", "04 02 0000 0000"), Connect(4, "", True)),
    ("3.1.1 all", 4,
     raw("10 1d 0004", b"MQTT", "04 f6 000a 0001", b"c", "0003", b"w/t", "0002 00ff 0001", b"u", "0002", b"\0p"),
     Connect(4, "c", True, 10, WillMessage("w/t", b"\x00\xff", 2, True), "u", b"\0p")),
    ("3.1.1 will of QoS 1, not retained", 4,
     raw("10 13 0004", b"MQTT", "04 0e 0000 0001", b"c", "0001", b"w", "0001", b"x"),
     Connect(4, "c", True, will=WillMessage("w", b"x", 1))),
    ("3.1.1 user name alone", 4, raw("10 10 0004", b"MQTT", "04 82 0000 0001", b"c", "0001", b"u"),
     Connect(4, "c", True, username="u")),
    ("5 plain", 5, CONNECT_5, Connect(5, "c", True, 60)),
    ("5 kept without expiry ends at once", 5, raw("10 0e 0004", b"MQTT", "05 00 0000 00 0001", b"c"),
     Connect(5, "c", False)),
    ("5 password without user name", 5, raw("10 11 0004", b"MQTT", "05 42 0000 00 0001", b"c", "0001", b"p"),
     Connect(5, "c", True, password=b"p")),
    ("5 all properties", 5,
     raw("10 32 0004", b"MQTT", "05 02 0000 24 11 00000e10 21 0014 27 00010000 22 000a 19 01 17 00",
         "26 0001", b"k", "0001", b"v", "15 0001", b"m", "16 0002 00ff", "0001", b"c"),
     Connect(5, "c", True, session_expiry_s=3600, receive_max=20, max_packet_bytes=65536, topic_alias_max=10,
             request_response_info=True, request_problem_info=False, auth_method="m", auth_data=b"\x00\xff",
             user=(("k", "v"),))),
    ("5 will with all properties", 5,
     raw("10 3e 0004", b"MQTT", "05 2c 0000 00 0001", b"c",
         "29 18 00000005 01 01 02 0000003c 03 0003", b"txt", "08 0001", b"r", "09 0002 0102",
         "26 0001", b"a", "0001", b"b", "26 0001", b"a", "0001", b"c", "0001", b"w", "0001", b"x"),
     Connect(5, "c", False, will=WillMessage("w", b"x", 1, True, 5, 60, Properties(1, "txt", "r", b"\1\2",
                                                                           (("a", "b"), ("a", "c")))))),
]

# (name, version, bytes, meanings): what a client may send once it is connected.
FROM_CLIENT = [
    ("publish", 4, raw("30 06 0003", b"a/b", "78"), [Plain("a/b", (b"x",), "mqtt-3.1.1")]),
    ("publish, empty payload", 4, raw("30 05 0003", b"a/b"), [Plain("a/b", (b"",), "mqtt-3.1.1")]),
    ("publish, retained", 4, raw("31 06 0003", b"a/b", "78"), [Plain("a/b", (b"x",), retain=True)]),
    ("publish, QoS 1", 4, raw("32 08 0003", b"a/b", "0102 78"), [publish(Plain("a/b", (b"x",), qos=1), 1, 0x102)]),
    ("publish, QoS 2 again, retained", 4, raw("3d 08 0003", b"a/b", "ffff 78"),
     [publish(Plain("a/b", (b"x",), qos=2, retain=True), 2, 0xFFFF, True)]),
    ("publish, length of two bytes", 4, raw("30 83 01 0001", b"t", b"x" * 128),
     [Plain("t", (b"x" * 128,), "mqtt-3.1.1")]),
    ("publish, length of three bytes", 4, raw("30 83 80 01 0001", b"t", b"x" * 16384),
     [Plain("t", (b"x" * 16384,), "mqtt-3.1.1")]),
    ("publish, a topic beyond ASCII", 4, raw("30 08 0004", "é".encode(), b"/a", "7879"),
     [Plain("é/a", (b"xy",), "mqtt-3.1.1")]),
    ("publish, U+FEFF is a character", 4, raw("30 05 0003 efbbbf"), [Plain("\ufeff", (b"",), "mqtt-3.1.1")]),
    ("three of one size", 4, raw("30 04 0001", b"t1", "30 04 0001", b"t2", "30 04 0001", b"t3"),
     [Plain("t", (b"1", b"2", b"3"), "mqtt-3.1.1")]),
    ("empty neighbours", 4, raw("30 03 0001", b"t") * 3, [Plain("t", (b"", b"", b""), "mqtt-3.1.1")]),
    ("sizes that change", 4, raw("30 03 0001", b"t", "30 05 0001", b"t12", "30 05 0001", b"t34", "30 04 0001", b"t5"),
     [Plain("t", (b"", b"12", b"34", b"5"), "mqtt-3.1.1")]),
    ("topics that change", 4, raw("30 04 0001", b"t1", "30 04 0001", b"u2", "30 04 0001", b"t3"),
     [Plain("t", (b"1",), "mqtt-3.1.1"), Plain("u", (b"2",), "mqtt-3.1.1"), Plain("t", (b"3",), "mqtt-3.1.1")]),
    ("a topic that begins like its neighbour", 4, raw("30 04 0001", b"t1", "30 04 0002", b"t1", "30 05 0002", b"t12"),
     [Plain("t", (b"1",), "mqtt-3.1.1"), Plain("t1", (b"", b"2"), "mqtt-3.1.1")]),
    ("retained between live ones", 4, raw("30 04 0001", b"t1", "31 04 0001", b"t2", "30 04 0001", b"t3"),
     [Plain("t", (b"1",), "mqtt-3.1.1"), Plain("t", (b"2",), retain=True), Plain("t", (b"3",), "mqtt-3.1.1")]),
    ("puback", 4, raw("40 02 0102"), [PubAck(0x102)]),
    ("pubrec", 4, raw("50 02 0102"), [PubRec(0x102)]),
    ("pubrel", 4, raw("62 02 0102"), [PubRel(0x102)]),
    ("pubcomp", 4, raw("70 02 0102"), [PubComp(0x102)]),
    ("subscribe", 4, raw("82 0e 000a 0003", b"a/b", "01 0003", b"c/d", "02"),
     [Subscribe(10, (TopicRequest("a/b", 1), TopicRequest("c/d", 2)))]),
    ("unsubscribe", 4, raw("a2 0c 000a 0003", b"a/b", "0003", b"#/d"), [Unsubscribe(10, ("a/b", "#/d"))]),
    ("pingreq", 4, raw("c0 00"), [PingReq()]),
    ("disconnect", 4, raw("e0 00"), [DisconnectPacket()]),
    ("5 publish", 5, raw("30 07 0003", b"a/b", "00 78"), [Plain("a/b", (b"x",), "mqtt-5")]),
    ("5 publish run", 5, raw("30 05 0001", b"t", "00 31", "30 05 0001", b"t", "00 32", "30 04 0001", b"t", "00"),
     [Plain("t", (b"1", b"2", b""), "mqtt-5")]),
    ("5 publish, equal properties", 5,
     raw("30 07 0001", b"t", "02 01 01 31", "30 07 0001", b"t", "02 01 01 32", "30 07 0001", b"t", "02 01 00 33",
         "30 05 0001", b"t", "00 34"),
     [Plain("t", (b"1", b"2"), "mqtt-5", properties=Properties(1)),
      Plain("t", (b"3",), "mqtt-5", properties=Properties(0)), Plain("t", (b"4",), "mqtt-5")]),
    ("5 publish, all properties", 5,
     raw("32 24 0001", b"t", "0007 1d 01 01 02 0000000a 03 0001", b"j", "08 0001", b"r", "09 0002 0102",
         "26 0001", b"k", "0003", b"v\xc3\xa9", "78"),
     [publish(Plain("t", (b"x",), None, 1, False, Properties(1, "j", "r", b"\1\2", (("k", "vé"),))), 1, 7, False, 10)]),
    ("5 publish, expiry at QoS 0", 5, raw("30 0a 0001", b"t", "05 02 0000000a 78") * 2,
     [publish(Plain("t", (b"x", b"x")), 0, 0, False, 10)]),
    ("5 publish, alias set, used, moved", 5,
     raw("30 08 0001", b"t", "03 23 0001 31", "30 07 0000 03 23 0001 32", "30 07 0000 03 23 0001 33",
         "30 08 0001", b"u", "03 23 0001 34", "32 09 0000 0005 03 23 0001 35"),
     [Plain("t", (b"1",)), Plain("t", (b"2", b"3")), Plain("u", (b"4",)), publish(Plain("u", (b"5",), qos=1), 1, 5)]),
    ("5 puback, short", 5, raw("40 02 0102"), [PubAck(0x102)]),
    ("5 puback, code", 5, raw("40 03 0102 10"), [PubAck(0x102, 0x10)]),
    ("5 puback, properties", 5, raw("40 08 0102 80 04 1f 0001", b"r"), [PubAck(0x102, 0x80)]),
    ("5 pubrec, code", 5, raw("50 04 0102 97 00"), [PubRec(0x102, 0x97)]),
    ("5 pubrel, code", 5, raw("62 03 0102 92"), [PubRel(0x102, 0x92)]),
    ("5 pubcomp, user property", 5, raw("70 0b 0102 00 07 26 0001", b"k", "0001", b"v"), [PubComp(0x102)]),
    ("5 subscribe, options", 5,
     raw("82 15 000a 0a 0b 8001 26 0001", b"k", "0001", b"v", "0001", b"a", "2e 0001", b"b", "11"),
     [Subscribe(10, (TopicRequest("a", 2, True, True, 2), TopicRequest("b", 1, False, False, 1)), 128, (("k", "v"),))]),
    ("5 subscribe, shared", 5, raw("82 10 000a 00 000a", b"$share/g/t", "01"),
     [Subscribe(10, (TopicRequest("$share/g/t", 1),))]),
    ("5 unsubscribe", 5, raw("a2 06 000a 00 0001", b"a"), [Unsubscribe(10, ("a",))]),
    ("5 disconnect, short", 5, raw("e0 00"), [DisconnectPacket()]),
    ("5 disconnect with will", 5, raw("e0 01 04"), [DisconnectPacket(4)]),
    ("5 disconnect, properties", 5, raw("e0 0b 00 09 11 0000000a 1f 0001", b"r"),
     [DisconnectPacket(0, 10, "r")]),
    ("5 auth", 5, raw("f0 0a 18 08 15 0001", b"m", "16 0001", b"d"), [Auth(0x18, "m", b"d")]),
]

# (name, version, bytes, meanings): what a server may send once it has accepted.
FROM_SERVER = [
    ("suback", 4, raw("90 05 000a 00 02 80"), [SubAck(10, (0, 2, 0x80))]),
    ("unsuback", 4, raw("b0 02 000a"), [UnsubAck(10)]),
    ("pingresp", 4, raw("d0 00"), [PingResp()]),
    ("5 publish, identifiers", 5, raw("30 09 0001", b"t", "04 0b 01 0b 05 78"),
     [publish(Plain("t", (b"x",)), 0, 0, identifiers=(1, 5))]),
    ("5 suback", 5, raw("90 09 000a 04 1f 0001", b"r", "00 97"), [SubAck(10, (0, 0x97), "r")]),
    ("5 unsuback", 5, raw("b0 05 000a 00 00 11"), [UnsubAck(10, (0, 0x11))]),
    ("5 disconnect", 5, raw("e0 06 97 04 1f 0001", b"s"), [DisconnectPacket(0x97, None, "s")]),
    ("5 disconnect, moved", 5, raw("e0 06 9d 04 1c 0001", b"s"), [DisconnectPacket(0x9D, server_reference="s")]),
    ("5 auth done", 5, raw("f0 00"), [Auth()]),
]

CONNACKS = [
    ("accepted", 4, raw("20 02 01 00"), ConnAck(0, True)),
    ("refused", 4, raw("20 02 00 05"), ConnAck(5)),
    ("5 all properties", 5,
     raw("20 3f 00 00 3c 11 00000001 21 0002 24 01 25 00 27 00000003 12 0001", b"a", "22 0004 1f 0001", b"r",
         "26 0001", b"k", "0001", b"v", "28 00 29 01 2a 00 13 0005 1a 0001", b"i", "1c 0001", b"s", "15 0001", b"m",
         "16 0001", b"d"),
     ConnAck(0, False, Fields(
         session_expiry=1, receive_max=2, max_qos=1, retain_available=0, max_packet_bytes=3, assigned_client_id="a",
         topic_alias_max=4, reason_string="r", user=(("k", "v"),), wildcards_available=0, identifiers_available=1,
         shared_available=0, server_keep_alive=5, response_info="i", server_reference="s", auth_method="m",
         auth_data=b"d"))),
]

# (name, version, bytes, code, words of the error): the very first bytes of a connection.
BAD_CONNECTS = [
    ("another packet first", 0, raw("c0 00"), 0x82, "PINGREQ (packet 1) cannot come before CONNECT"),
    ("http", 0, b"GET / HTTP/1.1\r\n", 0x82, "HTTP"),
    ("tls", 0, raw("16 03 01 02 00 01"), 0x82, "TLS"),
    ("flags", 0, raw("11 00"), 0x81, "reserved flags"),
    ("3.1", 4, raw("10 0f 0006", b"MQIsdp", "03 02 003c 0001", b"c"), 0x84, "3.1"),
    ("level 6", 5, raw("10 0d 0004", b"MQTT", "06 02 003c 0001", b"c"), 0x84, "level 6"),
    ("another protocol", 4, raw("10 0d 0004", b"MQTX", "04 02 003c 0001", b"c"), 0x84, "MQTX"),
    ("reserved flag", 4, raw("10 0d 0004", b"MQTT", "04 03 003c 0001", b"c"), 0x81, "reserved connect flag"),
    ("will of QoS 3", 4, raw("10 13 0004", b"MQTT", "04 1e 0000 0001", b"c", "0001", b"w", "0001", b"x"),
     0x81, "QoS 3"),
    ("will retain without will", 4, raw("10 0d 0004", b"MQTT", "04 22 003c 0001", b"c"), 0x81, "no will"),
    ("will qos without will", 5, raw("10 0e 0004", b"MQTT", "05 0a 003c 00 0001", b"c"), 0x81, "no will"),
    ("3.1.1 password alone", 4, raw("10 10 0004", b"MQTT", "04 42 0000 0001", b"c", "0001", b"p"), 0x81, "password"),
    ("3.1.1 kept, no client id", 4, raw("10 0c 0004", b"MQTT", "04 00 0000 0000"), 0x85, "no client id"),
    ("trailing bytes", 4, raw("10 0e 0004", b"MQTT", "04 02 003c 0001", b"cX"), 0x81, "1 bytes too many"),
    ("too short", 4, raw("10 0c 0004", b"MQTT", "04 02 003c 0001"), 0x81, "within its client id"),
    ("empty", 0, raw("10 00"), 0x81, "protocol name"),
    ("client id not UTF-8", 4, raw("10 0d 0004", b"MQTT", "04 02 003c 0001 ff"), 0x81, "not UTF-8"),
    ("client id with a surrogate", 4, raw("10 0f 0004", b"MQTT", "04 02 003c 0003 eda080"), 0x81, "not UTF-8"),
    ("client id with NUL", 4, raw("10 0d 0004", b"MQTT", "04 02 003c 0001 00"), 0x81, "null character"),
    ("will topic with wildcard", 4, raw("10 13 0004", b"MQTT", "04 06 0000 0001", b"c", "0001", b"#", "0001", b"x"),
     0x90, "wildcard in its will topic"),
    ("5 receive maximum 0", 5, raw("10 11 0004", b"MQTT", "05 02 0000 03 21 0000 0001", b"c"), 0x82, "receive_max"),
    ("5 packet maximum 0", 5, raw("10 13 0004", b"MQTT", "05 02 0000 05 27 00000000 0001", b"c"), 0x82, "max_packet"),
    ("5 property twice", 5, raw("10 14 0004", b"MQTT", "05 02 0000 06 21 0001 21 0002 0001", b"c"), 0x82, "twice"),
    ("5 a flag of 2", 5, raw("10 10 0004", b"MQTT", "05 02 0000 02 17 02 0001", b"c"), 0x82, "0 or 1"),
    ("5 property of another packet", 5, raw("10 10 0004", b"MQTT", "05 02 0000 02 24 01 0001", b"c"), 0x81, "max_qos"),
    ("5 unknown property", 5, raw("10 10 0004", b"MQTT", "05 02 0000 02 7f 01 0001", b"c"),
     0x81, "unknown property 127"),
    ("5 properties too long", 5, raw("10 0e 0004", b"MQTT", "05 02 0000 09 0001", b"c"), 0x81, "within its properties"),
    ("5 auth data without method", 5, raw("10 12 0004", b"MQTT", "05 02 0000 04 16 0001 00 0001", b"c"),
     0x82, "method"),
    ("length of five bytes", 0, raw("10 ff ff ff ff 01"), 0x81, "remaining length"),
]

# (name, version, bytes, code, words of the error): once connected.
BAD_FROM_CLIENT = [
    ("connect again", 4, CONNECT_4, 0x82, "second time"),
    ("type 0", 4, raw("00 00"), 0x82, "nothing that a client sends"),
    ("connack", 4, raw("20 02 00 00"), 0x82, "nothing that a client sends"),
    ("auth in 3.1.1", 4, raw("f0 00"), 0x82, "nothing that a client sends"),
    ("QoS 3", 4, raw("36 08 0003", b"a/b", "0001 78"), 0x81, "QoS 3"),
    ("dup at QoS 0", 4, raw("38 06 0003", b"a/b", "78"), 0x81, "duplicate"),
    ("packet id 0", 4, raw("32 08 0003", b"a/b", "0000 78"), 0x82, "packet id 0"),
    ("no packet id", 4, raw("32 05 0003", b"a/b"), 0x81, "packet id"),
    ("no topic", 4, raw("30 00"), 0x81, "topic"),
    ("empty topic", 4, raw("30 03 0000 78"), 0x82, "empty topic"),
    ("topic past the end", 4, raw("30 04 0003", b"a/"), 0x81, "within its topic"),
    ("topic with +", 4, raw("30 05 0003", b"a/+"), 0x90, "wildcard"),
    ("topic with #", 4, raw("30 03 0001", b"#"), 0x90, "wildcard"),
    ("topic with NUL", 4, raw("30 04 0002", b"a\0"), 0x81, "null"),
    ("topic not UTF-8", 4, raw("30 04 0002 c328"), 0x81, "UTF-8"),
    ("length longer than needed", 4, raw("30 84 00 0001", b"tx"), 0x81, "remaining length"),
    ("puback id 0", 4, raw("40 02 0000"), 0x82, "packet id 0"),
    ("puback short", 4, raw("40 01 00"), 0x81, "packet id"),
    ("puback long", 4, raw("40 03 0001 00"), 0x81, "1 bytes too many"),
    ("pubrel flags", 4, raw("60 02 0001"), 0x81, "flags 0x0"),
    ("subscribe flags", 4, raw("80 06 0001 0001", b"a", "00"), 0x81, "flags 0x0"),
    ("subscribe to nothing", 4, raw("82 02 0001"), 0x82, "no topic filter"),
    ("subscribe id 0", 4, raw("82 06 0000 0001", b"a", "00"), 0x82, "packet id 0"),
    ("subscribe QoS 3", 4, raw("82 06 0001 0001", b"a", "03"), 0x81, "QoS 3"),
    ("subscribe 3.1.1 options", 4, raw("82 06 0001 0001", b"a", "04"), 0x81, "reserved bits"),
    ("subscribe without options", 4, raw("82 05 0001 0001", b"a"), 0x81, "subscription options"),
    ("unsubscribe from nothing", 4, raw("a2 02 0001"), 0x82, "no topic filter"),
    ("pingreq long", 4, raw("c0 01 00"), 0x81, "too many"),
    ("disconnect long", 4, raw("e0 01 00"), 0x81, "too many"),
    ("5 empty topic, no alias", 5, raw("30 04 0000 00 78"), 0x82, "empty topic"),
    ("5 no properties", 5, raw("30 03 0001", b"t"), 0x81, "property length"),
    ("5 property length longer than needed", 5, raw("30 05 0001", b"t", "80 00"), 0x81, "more bytes than needed"),
    ("5 property length past the end", 5, raw("30 05 0001", b"t", "02 01"), 0x81, "within its properties"),
    ("5 alias 0", 5, raw("30 07 0001", b"t", "03 23 0000"), 0x94, "alias 0"),
    ("5 alias over the limit", 5, raw("30 07 0001", b"t", "03 23 0009"), 0x94, "alias 9 (at most 8)"),
    ("5 alias unknown", 5, raw("30 06 0000 03 23 0002"), 0x82, "never gave a topic"),
    ("5 alias twice", 5, raw("30 0a 0001", b"t", "06 23 0001 23 0001"), 0x82, "twice"),
    ("5 identifier from a client", 5, raw("30 06 0001", b"t", "02 0b 01"), 0x82, "only a server"),
    ("5 response topic with wildcard", 5, raw("30 08 0001", b"t", "04 08 0001", b"+"),
     0x90, "wildcard in its response"),
    ("5 puback code", 5, raw("40 03 0001 01"), 0x82, "0x01"),
    ("5 subscribe retain handling 3", 5, raw("82 07 0001 00 0001", b"a", "30"), 0x82, "retain handling 3"),
    ("5 subscribe reserved bits", 5, raw("82 07 0001 00 0001", b"a", "40"), 0x81, "reserved bits"),
    ("5 subscribe identifier 0", 5, raw("82 09 0001 02 0b 00 0001", b"a", "00"), 0x82, "0 in the property"),
    ("5 subscribe two identifiers", 5, raw("82 0b 0001 04 0b 01 0b 02 0001", b"a", "00"), 0x82, "more than one"),
    ("5 shared and no local", 5, raw("82 10 0001 00 000a", b"$share/g/t", "04"), 0x82, "shared"),
    ("5 disconnect code of a server", 5, raw("e0 01 8e"), 0x82, "0x8E"),
    ("5 auth of a server", 5, raw("f0 01 00"), 0x82, "0x00"),
    ("5 auth without method", 5, raw("f0 02 18 00"), 0x82, "authentication method"),
]
