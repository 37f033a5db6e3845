"""Encodes the packets of a client, all but PUBLISH and AUTH. The replies to them are in replies.py."""

from __future__ import annotations

from collections.abc import Sequence

from headway.wire.mqtt.packets import Connect, DisconnectPacket, TopicRequest, WillMessage
from headway.wire.mqtt.primitives import write_binary, write_frame, write_text, write_varint
from headway.wire.mqtt.properties import Fields, UserProperties, write_message, write_properties


def encode_connect(connect: Connect) -> bytes:
    """Encodes a CONNECT, in its ``version``."""
    will = connect.will
    flags = connect.clean_start << 1
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
    flags |= (connect.password is not None) << 6 | (connect.username is not None) << 7
    parts = [write_text("MQTT"), bytes((connect.version, flags)), connect.keep_alive_s.to_bytes(2, "big")]
    if connect.version == 5:
        parts.append(write_properties(_connect_fields(connect)))
    parts.append(write_text(connect.client_id))
    if will is not None:
        parts.append(_will(will, connect.version))
    if connect.username is not None:
        parts.append(write_text(connect.username))
    if connect.password is not None:
        parts.append(write_binary(connect.password))
    return write_frame(0x10, *parts)


def _connect_fields(connect: Connect) -> Fields:
    return Fields(
        session_expiry=connect.session_expiry_s or None,
        receive_max=None if connect.receive_max == 65_535 else connect.receive_max,
        max_packet_bytes=connect.max_packet_bytes,
        topic_alias_max=connect.topic_alias_max or None,
        request_response_info=1 if connect.request_response_info else None,
        request_problem_info=None if connect.request_problem_info else 0,
        auth_method=connect.auth_method,
        auth_data=connect.auth_data,
        user=connect.user,
    )


def _will(will: WillMessage, version: int) -> bytes:
    properties = b""
    if version == 5:
        own = write_properties(Fields(message_expiry=will.expiry_s, will_delay=will.delay_s or None))
        block = own[1:] + write_message(will.properties)
        properties = write_varint(len(block)) + block
    return properties + write_text(will.topic) + write_binary(will.payload)


def encode_subscribe(
    packet_id: int,
    entries: Sequence[TopicRequest | str],
    *,
    version: int = 5,
    identifier: int | None = None,
    user: UserProperties = (),
) -> bytes:
    parts = [packet_id.to_bytes(2, "big")]
    if version == 5:
        identifiers = () if identifier is None else (identifier,)
        parts.append(write_properties(Fields(identifiers=identifiers, user=user)))
    for item in entries:
        entry = TopicRequest(item) if isinstance(item, str) else item
        options = entry.qos | entry.no_local << 2 | entry.retain_as_published << 3 | entry.retain_handling << 4
        parts.append(write_text(entry.filter) + bytes((options,)))
    return write_frame(0x82, *parts)


def encode_unsubscribe(
    packet_id: int, filters: Sequence[str], *, version: int = 5, user: UserProperties = ()
) -> bytes:
    properties = write_properties(Fields(user=user)) if version == 5 else b""
    return write_frame(0xA2, packet_id.to_bytes(2, "big"), properties, *map(write_text, filters))


def encode_ack(kind: int, packet_id: int, code: int = 0) -> bytes:
    """Encodes a PUBACK, PUBREC, PUBREL or PUBCOMP (``kind`` 4 to 7). A ``code`` needs version 5."""
    first = kind << 4 | (2 if kind == 6 else 0)
    return write_frame(first, packet_id.to_bytes(2, "big"), bytes((code,)) if code else b"")


def encode_pingreq() -> bytes:
    return b"\xc0\x00"


def encode_disconnect(disconnect: DisconnectPacket | None = None, *, version: int = 5) -> bytes:
    """Encodes a DISCONNECT; version 4 has neither code nor properties."""
    if version == 4 or disconnect is None or disconnect == DisconnectPacket():
        return b"\xe0\x00"
    fields = Fields(
        session_expiry=disconnect.session_expiry_s, reason_string=disconnect.reason, user=disconnect.user,
        server_reference=disconnect.server_reference,
    )
    return write_frame(0xE0, bytes((disconnect.code,)), write_properties(fields))
