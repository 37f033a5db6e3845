"""Reads the bodies of all packets except PUBLISH into structs.

Each function gets a reader at the end of the fixed header of one complete packet, and must read all of it: bytes left
over are malformed. The decoder has checked the first byte (type and flags).
"""

from __future__ import annotations

from collections.abc import Callable

from headway.wire.common import VALUES_MAX
from headway.wire.mqtt import codes, packets
from headway.wire.mqtt.codes import ReasonCode
from headway.wire.mqtt.packets import NEVER, Packet
from headway.wire.mqtt.primitives import MqttReader, malformed, read_topic, too_many, violation
from headway.wire.mqtt.properties import Fields, read_properties

BRIDGE = 0x80
"""The bit in the protocol level by which mosquitto and others say that the client is the bridge of another broker."""
Body = Callable[[MqttReader, int], Packet]
"""Reads the body of a packet, in a version."""


def read_level(reader: MqttReader) -> tuple[bytes, int]:
    """Reads the protocol name and level at the start of a CONNECT."""
    return reader.binary("protocol name"), reader.u8("protocol level")


def check_level(name: bytes, level: int) -> None:
    """Raises ProtocolError if the level is not supported."""
    if name == b"MQTT" and level & ~BRIDGE in (4, 5):
        return
    if name == b"MQIsdp":
        raise violation("asks for MQTT 3.1; supported are 3.1.1 and 5", ReasonCode.UNSUPPORTED_VERSION)
    if name == b"MQTT":
        text = f"asks for protocol level {level}; supported are 4 (3.1.1) and 5"
        raise violation(text, ReasonCode.UNSUPPORTED_VERSION)
    raise violation(f"names the protocol {name[:16]!r} instead of b'MQTT'", ReasonCode.UNSUPPORTED_VERSION)


def version_of(name: bytes, level: int) -> int:
    """Returns the version in which a client is answered, be it with a refusal. Versions after 5 will know the form of
    5's CONNACK; all others, and bridges that try a level which they can do without, know that of 3.1.1."""
    return 5 if name == b"MQTT" and (level & ~BRIDGE == 5 or 5 < level < BRIDGE) else 4


def read_connect(reader: MqttReader, version: int, *, is_bridge: bool = False) -> packets.Connect:
    """Reads a CONNECT from the end of the protocol level on."""
    flags = reader.u8("connect flags")
    _check_connect_flags(flags, version)
    clean = bool(flags & 0x02)
    keep_alive = reader.u16("keep alive")
    fields = read_properties(reader, "CONNECT") if version == 5 else Fields()
    if fields.auth_data is not None and fields.auth_method is None:
        raise violation("has authentication data without an authentication method")
    client_id = reader.text("client id")
    will = _read_will(reader, version, flags) if flags & 0x04 else None
    username = reader.text("user name") if flags & 0x80 else None
    password = reader.binary("password") if flags & 0x40 else None
    reader.finish()
    if version == 4:
        if not client_id and not clean:
            raise violation("has no client id for the session it wants kept", ReasonCode.CLIENT_ID_NOT_VALID)
        expiry = 0 if clean else NEVER
    else:
        expiry = fields.session_expiry or 0
    return packets.Connect(
        version=version,
        client_id=client_id,
        clean_start=clean,
        keep_alive_s=keep_alive,
        will=will,
        username=username,
        password=password,
        session_expiry_s=expiry,
        receive_max=fields.receive_max or 65_535,
        max_packet_bytes=fields.max_packet_bytes,
        topic_alias_max=fields.topic_alias_max or 0,
        request_response_info=fields.request_response_info == 1,
        request_problem_info=fields.request_problem_info != 0,
        auth_method=fields.auth_method,
        auth_data=fields.auth_data,
        user=fields.user,
        is_bridge=is_bridge,
    )


def _check_connect_flags(flags: int, version: int) -> None:
    if flags & 0x01:
        raise malformed("sets the reserved connect flag")
    if flags & 0x18 == 0x18:
        raise malformed("has a will of QoS 3")
    if not flags & 0x04 and flags & 0x38:
        raise malformed("has the QoS or retain flag of a will, but no will")
    if version == 4 and flags & 0xC0 == 0x40:
        raise malformed("has a password without a user name")


def _read_will(reader: MqttReader, version: int, flags: int) -> packets.WillMessage:
    fields = read_properties(reader, "WILL") if version == 5 else Fields()
    topic = read_topic(reader.binary("will topic"), "will topic")
    payload = reader.binary("will payload")
    return packets.WillMessage(
        topic, payload, flags >> 3 & 3, bool(flags & 0x20), fields.will_delay or 0, fields.message_expiry,
        fields.message(),
    )


def _packet_id(reader: MqttReader) -> int:
    packet_id = reader.u16("packet id")
    if not packet_id:
        raise violation("has the packet id 0")
    return packet_id


def _check_code(code: int, allowed: frozenset[int]) -> int:
    if code not in allowed:
        raise violation(f"has the reason code 0x{code:02X}, which it may not carry")
    return code


def _codes(reader: MqttReader, allowed: frozenset[int]) -> tuple[int, ...]:
    """Reads one code per filter, to the end of the packet."""
    found = tuple(_check_code(code, allowed) for code in reader.rest())
    if not found:
        raise malformed("has no reason code")
    return found


def _ack(kind: type[packets.Ack], packet: str, allowed: frozenset[int]) -> Body:
    """Returns the reader of an acknowledgement, which may have only these codes."""

    def read(reader: MqttReader, version: int) -> Packet:
        packet_id = _packet_id(reader)
        code = 0
        if version == 5 and reader.more():
            code = _check_code(reader.u8("reason code"), allowed)
            if reader.more():
                read_properties(reader, packet)
        reader.finish()
        return kind(packet_id, code)

    return read


def _empty(packet: Packet) -> Body:
    """Returns the reader of a packet without a body."""

    def read(reader: MqttReader, version: int) -> Packet:
        reader.finish()
        return packet

    return read


def _filter(reader: MqttReader, version: int) -> str:
    filter_ = reader.text("topic filter")
    if not filter_:
        raise malformed("has a topic filter without a character")
    if version == 5 and filter_.startswith("$share/"):
        group, _, shared = filter_[len("$share/") :].partition("/")
        if not group or not shared or "+" in group or "#" in group:
            raise malformed(f"has the topic filter {filter_[:60]!a}, which is not $share/GROUP/FILTER")
    return filter_


def _subscribe(reader: MqttReader, version: int) -> Packet:
    packet_id = _packet_id(reader)
    fields = read_properties(reader, "SUBSCRIBE") if version == 5 else Fields()
    entries: list[packets.TopicRequest] = []
    while reader.more():
        filter_ = _filter(reader, version)
        options = reader.u8("subscription options")
        if options & (0xC0 if version == 5 else 0xFC):
            raise malformed("sets reserved bits of its subscription options")
        if options & 0x03 == 0x03:
            raise malformed("asks for QoS 3")
        if options & 0x30 == 0x30:
            raise violation("has the retain handling 3")
        no_local = bool(options & 0x04)
        if no_local and filter_.startswith("$share/"):
            raise violation("asks for a shared subscription without its own messages (no local)")
        retain_as_published, retain_handling = bool(options & 0x08), options >> 4 & 0x03
        entries.append(packets.TopicRequest(filter_, options & 0x03, no_local, retain_as_published, retain_handling))
        if len(entries) > VALUES_MAX:
            raise too_many("topic filters", VALUES_MAX)
    if not entries:
        raise violation("names no topic filter")
    identifier = fields.identifiers[0] if fields.identifiers else None
    return packets.Subscribe(packet_id, tuple(entries), identifier, fields.user)


def _unsubscribe(reader: MqttReader, version: int) -> Packet:
    packet_id = _packet_id(reader)
    fields = read_properties(reader, "UNSUBSCRIBE") if version == 5 else Fields()
    filters: list[str] = []
    while reader.more():
        filters.append(_filter(reader, version))
        if len(filters) > VALUES_MAX:
            raise too_many("topic filters", VALUES_MAX)
    if not filters:
        raise violation("names no topic filter")
    return packets.Unsubscribe(packet_id, tuple(filters), fields.user)


def _disconnect(allowed: frozenset[int]) -> Body:
    def read(reader: MqttReader, version: int) -> Packet:
        code, fields = 0, Fields()
        if version == 5 and reader.more():
            code = _check_code(reader.u8("reason code"), allowed)
            if reader.more():
                fields = read_properties(reader, "DISCONNECT")
        reader.finish()
        return packets.DisconnectPacket(
            code, fields.session_expiry, fields.reason_string, fields.server_reference, fields.user
        )

    return read


def _auth(allowed: frozenset[int]) -> Body:
    def read(reader: MqttReader, version: int) -> Packet:
        code, fields = 0, Fields()
        if reader.more():
            code = reader.u8("reason code")
            if reader.more():
                fields = read_properties(reader, "AUTH")
        reader.finish()
        _check_code(code, allowed)
        if fields.auth_method is None and code:
            raise violation("has no authentication method")
        return packets.Auth(code, fields.auth_method, fields.auth_data, fields.reason_string, fields.user)

    return read


def _connack(reader: MqttReader, version: int) -> Packet:
    flags = reader.u8("connack flags")
    if flags > 1:
        raise malformed("sets reserved connack flags")
    code = _check_code(reader.u8("reason code"), codes.CONNACK_CODES if version == 5 else frozenset(range(6)))
    fields = read_properties(reader, "CONNACK") if version == 5 else Fields()
    reader.finish()
    if flags and code:
        raise violation("speaks of a session that is present, and refuses")
    return packets.ConnAck(code, bool(flags), fields)


def _suback(reader: MqttReader, version: int) -> Packet:
    packet_id = _packet_id(reader)
    fields = read_properties(reader, "SUBACK") if version == 5 else Fields()
    allowed = codes.SUBACK_CODES if version == 5 else frozenset({0, 1, 2, 0x80})
    return packets.SubAck(packet_id, _codes(reader, allowed), fields.reason_string, fields.user)


def _unsuback(reader: MqttReader, version: int) -> Packet:
    packet_id = _packet_id(reader)
    if version == 4:
        reader.finish()
        return packets.UnsubAck(packet_id)
    fields = read_properties(reader, "UNSUBACK")
    return packets.UnsubAck(packet_id, _codes(reader, codes.UNSUBACK_CODES), fields.reason_string, fields.user)


_ACKS: dict[int, Body] = {
    4: _ack(packets.PubAck, "PUBACK", codes.PUBACK_CODES), 5: _ack(packets.PubRec, "PUBREC", codes.PUBACK_CODES),
    6: _ack(packets.PubRel, "PUBREL", codes.PUBREL_CODES), 7: _ack(packets.PubComp, "PUBCOMP", codes.PUBREL_CODES),
}  # fmt: skip
FROM_CLIENT: dict[int, Body] = _ACKS | {
    8: _subscribe, 10: _unsubscribe, 12: _empty(packets.PingReq()), 14: _disconnect(codes.CLIENT_DISCONNECT_CODES),
    15: _auth(codes.CLIENT_AUTH_CODES),
}
FROM_SERVER: dict[int, Body] = _ACKS | {
    2: _connack, 9: _suback, 11: _unsuback, 13: _empty(packets.PingResp()),
    14: _disconnect(codes.SERVER_DISCONNECT_CODES), 15: _auth(codes.SERVER_AUTH_CODES),
}
"""Readers by packet type. The decoder reads CONNECT and PUBLISH itself."""
