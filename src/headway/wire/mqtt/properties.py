"""The properties of MQTT 5: a table has the number and type of each property, and the packets that may carry it.

:class:`Fields` has the properties of one packet. Reading and writing use the same table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from headway.core.message import NO_PROPERTIES, Properties
from headway.wire.common import KEPT
from headway.wire.mqtt.codes import ReasonCode
from headway.wire.mqtt.primitives import (
    MqttReader,
    check_topic,
    malformed,
    violation,
    write_binary,
    write_text,
    write_varint,
)

UserProperties = tuple[tuple[str, str], ...]


class Fields(msgspec.Struct):
    """The properties of one packet; None: absent."""

    payload_format: int | None = None
    message_expiry: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    identifiers: tuple[int, ...] = ()
    session_expiry: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive: int | None = None
    auth_method: str | None = None
    auth_data: bytes | None = None
    request_problem_info: int | None = None
    will_delay: int | None = None
    request_response_info: int | None = None
    response_info: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_max: int | None = None
    topic_alias_max: int | None = None
    topic_alias: int | None = None
    max_qos: int | None = None
    retain_available: int | None = None
    user: UserProperties = ()
    max_packet_bytes: int | None = None
    wildcards_available: int | None = None
    identifiers_available: int | None = None
    shared_available: int | None = None

    def message(self) -> Properties:
        """Returns the properties that belong to the message, and go to its consumers; without its lifetime."""
        if (
            self.payload_format is None and self.content_type is None and self.response_topic is None
            and self.correlation_data is None and not self.user
        ):
            return NO_PROPERTIES
        return Properties(
            self.payload_format, self.content_type, self.response_topic, self.correlation_data, self.user
        )


class _Row(NamedTuple):
    number: int
    name: str
    kind: str
    packets: frozenset[str]


def _row(number: int, name: str, kind: str, packets: str) -> _Row:
    return _Row(number, name, kind, frozenset(packets.split()))


_ANSWERS = "CONNACK PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK DISCONNECT AUTH"
_EVERY = f"{_ANSWERS} CONNECT PUBLISH WILL SUBSCRIBE UNSUBSCRIBE"

# Kinds: flag is a byte of 0 or 1; u16+, u32+ and varint+ may not be 0.
PROPERTY_TABLE = (
    _row(1, "payload_format", "flag", "PUBLISH WILL"),
    _row(2, "message_expiry", "u32", "PUBLISH WILL"),
    _row(3, "content_type", "text", "PUBLISH WILL"),
    _row(8, "response_topic", "topic", "PUBLISH WILL"),
    _row(9, "correlation_data", "binary", "PUBLISH WILL"),
    _row(11, "identifiers", "varint+", "PUBLISH SUBSCRIBE"),
    _row(17, "session_expiry", "u32", "CONNECT CONNACK DISCONNECT"),
    _row(18, "assigned_client_id", "text", "CONNACK"),
    _row(19, "server_keep_alive", "u16", "CONNACK"),
    _row(21, "auth_method", "text", "CONNECT CONNACK AUTH"),
    _row(22, "auth_data", "binary", "CONNECT CONNACK AUTH"),
    _row(23, "request_problem_info", "flag", "CONNECT"),
    _row(24, "will_delay", "u32", "WILL"),
    _row(25, "request_response_info", "flag", "CONNECT"),
    _row(26, "response_info", "text", "CONNACK"),
    _row(28, "server_reference", "text", "CONNACK DISCONNECT"),
    _row(31, "reason_string", "text", _ANSWERS),
    _row(33, "receive_max", "u16+", "CONNECT CONNACK"),
    _row(34, "topic_alias_max", "u16", "CONNECT CONNACK"),
    _row(35, "topic_alias", "alias", "PUBLISH"),
    _row(36, "max_qos", "flag", "CONNACK"),
    _row(37, "retain_available", "flag", "CONNACK"),
    _row(38, "user", "pair", _EVERY),
    _row(39, "max_packet_bytes", "u32+", "CONNECT CONNACK"),
    _row(40, "wildcards_available", "flag", "CONNACK"),
    _row(41, "identifiers_available", "flag", "CONNACK"),
    _row(42, "shared_available", "flag", "CONNACK"),
)
_BY_NUMBER = {row.number: row for row in PROPERTY_TABLE}
_USER = 38


def read_properties(reader: MqttReader, packet: str) -> Fields:
    """Reads a property block with its length. ``packet`` is the name of the packet, or WILL."""
    size = reader.varint("property length")
    fields = Fields()
    if not size:
        return fields
    end = reader.pos + size
    if end > reader.end:
        raise malformed("ends within its properties")
    block = MqttReader(reader.data, reader.pos, end)
    reader.pos = end
    user: list[tuple[str, str]] = []
    identifiers: list[int] = []
    while block.pos < end:
        number = block.varint("property identifier")
        row = _BY_NUMBER.get(number)
        if row is None:
            raise malformed(f"has an unknown property {number}")
        if packet not in row.packets:
            raise malformed(f"may not carry the property {row.name}" if packet != "WILL" else
                            f"may not carry the property {row.name} in its will")
        if row.kind == "pair":
            user.append((block.text("user property"), block.text("user property")))
            continue
        value = _read_value(block, row)
        if row.kind == "varint+":
            identifiers.append(value)
        elif getattr(fields, row.name) is not None:
            raise violation(f"has the property {row.name} twice")
        else:
            setattr(fields, row.name, value)
    if user:
        fields.user = tuple(user)
    if identifiers:
        if len(identifiers) > 1 and packet == "SUBSCRIBE":
            raise violation("has more than one subscription identifier")
        fields.identifiers = tuple(identifiers)
    return fields


def read_user(data: bytes, at: int, end: int) -> UserProperties | None:
    """Reads a block that has user properties and no others, as the blocks of most messages. None: it is none such, or
    malformed, and :func:`read_properties` reads it or says what is wrong."""
    pairs: list[tuple[str, str]] = []
    try:
        while at < end:
            name_end = at + 3 + (data[at + 1] << 8 | data[at + 2])
            value_at = name_end + 2
            value_end = value_at + (data[name_end] << 8 | data[name_end + 1])
            if data[at] != _USER or value_end > end:
                return None
            name, value = data[at + 3 : name_end].decode(), data[value_at:value_end].decode()
            if "\0" in name or "\0" in value:
                return None
            pairs.append((name, value))
            at = value_end
    except (IndexError, UnicodeDecodeError):
        return None
    return tuple(pairs)


def _read_value(block: MqttReader, row: _Row) -> Any:
    kind, name = row.kind, row.name
    if kind == "text":
        return block.text(name)
    if kind == "binary":
        return block.binary(name)
    if kind == "topic":
        topic = block.text(name)
        check_topic(topic, name)
        return topic
    if kind == "flag":
        value = block.u8(name)
        if value > 1:
            raise violation(f"has {value} in the property {name} (0 or 1)")
        return value
    if kind == "varint+":
        value = block.varint(name)
    elif kind.startswith("u32"):
        value = block.u32(name)
    else:
        value = block.u16(name)
    if not value and kind in ("u16+", "u32+", "varint+"):
        raise violation(f"has 0 in the property {name}")
    if not value and kind == "alias":
        raise violation("has the topic alias 0", ReasonCode.TOPIC_ALIAS_INVALID)
    return value


def write_properties(fields: Fields) -> bytes:
    """Writes the property block of ``fields``, with its length in front."""
    parts: list[bytes] = []
    for row in PROPERTY_TABLE:
        value = getattr(fields, row.name)
        if value is None or value == ():
            continue
        if row.kind == "pair":
            parts.append(write_user(value))
            continue
        number = bytes((row.number,))
        if row.kind == "varint+":
            parts.extend(number + write_varint(identifier) for identifier in value)
        else:
            parts.append(number + _write_value(row.kind, value))
    block = b"".join(parts)
    return write_varint(len(block)) + block


def _write_value(kind: str, value: Any) -> bytes:
    if kind in ("text", "topic"):
        return write_text(value)
    if kind == "binary":
        return write_binary(value)
    if kind == "flag":
        return bytes((value,))
    return int(value).to_bytes(4 if kind.startswith("u32") else 2, "big")


def write_user(pairs: UserProperties) -> bytes:
    """Writes user properties, without the length of a block."""
    return b"".join([b"\x26" + write_text(name) + write_text(value) for name, value in pairs])


def write_message(properties: Properties) -> bytes:
    """Writes the properties of a message, without the length of a block. User properties keep their order; the order of
    the others does not matter."""
    if properties is NO_PROPERTIES:
        return b""
    parts: list[bytes] = []
    if properties.payload_format is not None:
        parts.append(bytes((1, properties.payload_format)))
    if properties.content_type is not None:
        parts.append(b"\x03" + write_text(properties.content_type))
    if properties.response_topic is not None:
        parts.append(b"\x08" + write_text(properties.response_topic))
    if properties.correlation_data is not None:
        parts.append(b"\x09" + write_binary(properties.correlation_data))
    if properties.user:
        user = properties.user
        if properties.native is not None:
            user = tuple(pair for pair in user if not pair[0].startswith(KEPT))
        parts.append(write_user(user))
    return b"".join(parts)
