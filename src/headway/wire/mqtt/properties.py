"""The properties of MQTT 5: :class:`Fields` has those of one packet, and says the number and type of each, and the
packets that may carry it. Reading and writing use the table that is made of this.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, NamedTuple, get_type_hints

import msgspec

from headway.core.message import NO_PROPERTIES, Properties
from headway.wire.common import KEPT, VALUES_MAX
from headway.wire.mqtt.codes import ReasonCode
from headway.wire.mqtt.primitives import (
    MqttReader,
    check_topic,
    malformed,
    too_many,
    violation,
    write_binary,
    write_text,
    write_varint,
)

UserProperties = tuple[tuple[str, str], ...]


class _Says(NamedTuple):
    """The number and type of a property, and the packets that may carry it."""

    number: int
    kind: str
    packets: str


_ANSWERS = "CONNACK PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK DISCONNECT AUTH"
_EVERY = f"{_ANSWERS} CONNECT PUBLISH WILL SUBSCRIBE UNSUBSCRIBE"


class Fields(msgspec.Struct):
    """The properties of one packet; None: absent.

    Kinds: flag is a byte of 0 or 1; u16+, u32+ and varint+ may not be 0."""

    payload_format: Annotated[int | None, _Says(1, "flag", "PUBLISH WILL")] = None
    message_expiry: Annotated[int | None, _Says(2, "u32", "PUBLISH WILL")] = None
    content_type: Annotated[str | None, _Says(3, "text", "PUBLISH WILL")] = None
    response_topic: Annotated[str | None, _Says(8, "topic", "PUBLISH WILL")] = None
    correlation_data: Annotated[bytes | None, _Says(9, "binary", "PUBLISH WILL")] = None
    identifiers: Annotated[tuple[int, ...], _Says(11, "varint+", "PUBLISH SUBSCRIBE")] = ()
    session_expiry: Annotated[int | None, _Says(17, "u32", "CONNECT CONNACK DISCONNECT")] = None
    assigned_client_id: Annotated[str | None, _Says(18, "text", "CONNACK")] = None
    server_keep_alive: Annotated[int | None, _Says(19, "u16", "CONNACK")] = None
    auth_method: Annotated[str | None, _Says(21, "text", "CONNECT CONNACK AUTH")] = None
    auth_data: Annotated[bytes | None, _Says(22, "binary", "CONNECT CONNACK AUTH")] = None
    request_problem_info: Annotated[int | None, _Says(23, "flag", "CONNECT")] = None
    will_delay: Annotated[int | None, _Says(24, "u32", "WILL")] = None
    request_response_info: Annotated[int | None, _Says(25, "flag", "CONNECT")] = None
    response_info: Annotated[str | None, _Says(26, "text", "CONNACK")] = None
    server_reference: Annotated[str | None, _Says(28, "text", "CONNACK DISCONNECT")] = None
    reason_string: Annotated[str | None, _Says(31, "text", _ANSWERS)] = None
    receive_max: Annotated[int | None, _Says(33, "u16+", "CONNECT CONNACK")] = None
    topic_alias_max: Annotated[int | None, _Says(34, "u16", "CONNECT CONNACK")] = None
    topic_alias: Annotated[int | None, _Says(35, "alias", "PUBLISH")] = None
    max_qos: Annotated[int | None, _Says(36, "flag", "CONNACK")] = None
    retain_available: Annotated[int | None, _Says(37, "flag", "CONNACK")] = None
    user: Annotated[UserProperties, _Says(38, "pair", _EVERY)] = ()
    max_packet_bytes: Annotated[int | None, _Says(39, "u32+", "CONNECT CONNACK")] = None
    wildcards_available: Annotated[int | None, _Says(40, "flag", "CONNACK")] = None
    identifiers_available: Annotated[int | None, _Says(41, "flag", "CONNACK")] = None
    shared_available: Annotated[int | None, _Says(42, "flag", "CONNACK")] = None

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


PROPERTY_TABLE = tuple(
    _Row(said.number, name, said.kind, frozenset(said.packets.split()))
    for name, hint in get_type_hints(Fields, include_extras=True).items() for said in hint.__metadata__
)  # fmt: skip
_BY_NUMBER = {row.number: row for row in PROPERTY_TABLE}
_USER = 38
LOGIN_PAIRS_MAX = 100


def read_properties(reader: MqttReader, packet: str) -> Fields:
    """Reads a property block with its length. ``packet`` is the name of the packet, or WILL.

    A packet has ``VALUES_MAX`` user properties at most, one before the login ``LOGIN_PAIRS_MAX``."""
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
    pairs_max = LOGIN_PAIRS_MAX if packet in ("CONNECT", "WILL") else VALUES_MAX
    identifiers: list[int] = []
    while block.pos < end:
        if block.data[block.pos] == _USER:
            block.pos = _read_pairs(block.data, block.pos, end, user, pairs_max)
            if len(user) > pairs_max:
                raise too_many("user properties", pairs_max)
            if block.pos == end:
                break
        number = block.varint("property identifier")
        row = _BY_NUMBER.get(number)
        if row is None:
            raise malformed(f"has an unknown property {number}")
        if packet not in row.packets:
            raise malformed(f"may not carry the property {row.name}" if packet != "WILL" else
                            f"may not carry the property {row.name} in its will")
        if row.kind == "pair":  # what is wrong with it?
            user.append((block.text("user property"), block.text("user property")))
            continue
        value = _read_value(block, row)
        if row.kind == "varint+":
            identifiers.append(value)
            if len(identifiers) > VALUES_MAX:
                raise too_many("subscription identifiers", VALUES_MAX)
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
    return tuple(pairs) if _read_pairs(data, at, end, pairs, VALUES_MAX) == end else None


def _read_pairs(data: bytes, at: int, end: int, pairs: list[tuple[str, str]], pairs_max: int) -> int:
    """Reads user properties from ``at`` on, until there are more than ``pairs_max``, or something else or malformed
    comes. Returns where that begins."""
    with suppress(IndexError, UnicodeDecodeError):
        while at < end and len(pairs) <= pairs_max:
            name_end = at + 3 + (data[at + 1] << 8 | data[at + 2])
            value_at = name_end + 2
            value_end = value_at + (data[name_end] << 8 | data[name_end + 1])
            if data[at] != _USER or value_end > end:
                break
            name, value = data[at + 3 : name_end].decode(), data[value_at:value_end].decode()
            if "\0" in name or "\0" in value:
                break
            pairs.append((name, value))
            at = value_end
    return at


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
