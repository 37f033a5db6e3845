"""Packets that the decoder returns, one struct each.

Consecutive QoS 0 messages are a bare :class:`~headway.core.message.Run`; everything else is one of these structs. They
are the same for both protocol versions; fields that 3.1.1 lacks keep their defaults.
"""

from __future__ import annotations

import msgspec

from headway.core.message import NO_PROPERTIES, Properties, Run
from headway.wire.mqtt.properties import Fields, UserProperties

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
