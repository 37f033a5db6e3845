"""Packets that the decoder returns, one struct each.

Consecutive QoS 0 messages are a bare :class:`~headway.core.message.Run`; everything else is one of these structs. They
are the same for both protocol versions; fields that 3.1.1 lacks keep their defaults.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headway.core.message import NO_PROPERTIES, Properties, Run
from headway.wire.mqtt.primitives import write_binary, write_frame, write_text, write_varint
from headway.wire.mqtt.properties import Fields, UserProperties, write_message, write_properties

# -- packets -----------------------------------------------------------------------------------------------------------


NEVER = 0xFFFF_FFFF
"""Session expiry of a session that never expires."""

PACKET_NAMES = (
    "packet type 0", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE", "SUBACK",
    "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH",
)


class WillMessage(msgspec.Struct, frozen=True):
    """The message to publish if the client's connection breaks."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    delay_s: int = 0
    expiry_s: int | None = None
    properties: Properties = NO_PROPERTIES


class Connect(msgspec.Struct, frozen=True):
    """``session_expiry_s`` is also set for 3.1.1: 0 for a clean session, else NEVER."""

    version: int
    client_id: str
    clean_start: bool
    keep_alive_s: int = 0
    will: WillMessage | None = None
    username: str | None = None
    password: bytes | None = None
    session_expiry_s: int = 0
    receive_max: int = 65_535
    max_packet_bytes: int | None = None
    topic_alias_max: int = 0
    request_response_info: bool = False
    request_problem_info: bool = True
    auth_method: str | None = None
    auth_data: bytes | None = None
    user: UserProperties = ()
    is_bridge: bool = False


class Publish(msgspec.Struct, frozen=True):
    """Messages that need more than a run: of QoS 1 or 2, or with a request for a receipt (always one record), or with
    an expiry (``packet_id`` is 0 at QoS 0).

    The codec has no clock: ``expiry_s`` is the lifetime as published, and the server sets ``run.expires_s``.
    """

    run: Run
    qos: int = 0
    packet_id: int = 0
    dup: bool = False
    expiry_s: int | None = None
    identifiers: tuple[int, ...] = ()
    """Subscription identifiers; only a server sends them."""


class PublishRun(msgspec.Struct, frozen=True):
    """Consecutive messages of one topic at QoS 1, or at QoS 2, without properties and not to be retained, as a server
    reads them. ``packet_ids``: two bytes for each."""

    run: Run
    packet_ids: bytes


class Ack(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    code: int = 0


class PubAck(Ack, frozen=True, gc=False): ...
class PubRec(Ack, frozen=True, gc=False): ...
class PubRel(Ack, frozen=True, gc=False): ...
class PubComp(Ack, frozen=True, gc=False): ...


ACKS: dict[int, type[Ack]] = {0x40: PubAck, 0x50: PubRec, 0x62: PubRel, 0x70: PubComp}
"""By their first bytes."""


class AckRun(msgspec.Struct, frozen=True, gc=False):
    """Consecutive acknowledgements of one kind, without more than their packet ids, as a server reads them."""

    kind: type[Ack]
    packet_ids: bytes
    """Two bytes for each."""


class TopicRequest(msgspec.Struct, frozen=True, gc=False):
    """One filter of a SUBSCRIBE and its options. ``retain_handling``: 0 send retained, 1 if new, 2 never."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(msgspec.Struct, frozen=True):
    packet_id: int
    entries: tuple[TopicRequest, ...]
    identifier: int | None = None
    user: UserProperties = ()


class Unsubscribe(msgspec.Struct, frozen=True):
    packet_id: int
    filters: tuple[str, ...]
    user: UserProperties = ()


class PingReq(msgspec.Struct, frozen=True, gc=False):
    pass


class DisconnectPacket(msgspec.Struct, frozen=True):
    code: int = 0
    session_expiry_s: int | None = None
    reason: str | None = None
    server_reference: str | None = None
    user: UserProperties = ()


class Auth(msgspec.Struct, frozen=True):
    code: int = 0
    method: str | None = None
    data: bytes | None = None
    reason: str | None = None
    user: UserProperties = ()


# Packets that only a server sends.


class ConnAck(msgspec.Struct, frozen=True):
    code: int = 0
    session_present: bool = False
    fields: Fields = msgspec.field(default_factory=Fields)


class SubAck(msgspec.Struct, frozen=True):
    packet_id: int
    codes: tuple[int, ...]
    reason: str | None = None
    user: UserProperties = ()


class UnsubAck(msgspec.Struct, frozen=True):
    """``codes`` is empty in 3.1.1."""

    packet_id: int
    codes: tuple[int, ...] = ()
    reason: str | None = None
    user: UserProperties = ()


class PingResp(msgspec.Struct, frozen=True, gc=False):
    pass


Packet = (
    Connect | Publish | PublishRun | Ack | AckRun | Subscribe | Unsubscribe | PingReq | DisconnectPacket | Auth
    | ConnAck | SubAck | UnsubAck | PingResp
)
Item = Run | Packet


# -- requests ----------------------------------------------------------------------------------------------------------
#
# Encodes the packets of a client, all but PUBLISH and AUTH. The replies to them are in replies.py.


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
