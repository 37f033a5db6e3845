"""Packets of MQTT as a client writes them: for the load driver and the tests. Most are the codec's own."""

from __future__ import annotations

from headway.core.message import NO_PROPERTIES, Properties
from headway.wire.mqtt.packets import (
    NEVER,
    Auth,
    Connect,
    encode_ack,
    encode_connect,
    encode_disconnect,
    encode_pingreq,
    encode_subscribe,
    encode_unsubscribe,
)
from headway.wire.mqtt.primitives import write_frame, write_text, write_varint
from headway.wire.mqtt.properties import Fields, write_message, write_properties

__all__ = [
    "connect", "encode_ack", "encode_auth", "encode_connect", "encode_disconnect", "encode_pingreq", "encode_publish",
    "encode_subscribe", "encode_unsubscribe",
]


def connect(client_id: str, version: int = 5, *, keep: bool = False, keep_alive_s: int = 0) -> bytes:
    """Encodes a plain CONNECT; ``keep`` asks for a session that never expires."""
    return encode_connect(
        Connect(version, client_id, not keep, keep_alive_s, session_expiry_s=NEVER if keep else 0)
    )


def encode_publish(
    topic: str,
    payload: bytes,
    *,
    version: int = 5,
    qos: int = 0,
    packet_id: int = 0,
    retain: bool = False,
    dup: bool = False,
    properties: Properties = NO_PROPERTIES,
    expiry_s: int | None = None,
    alias: int | None = None,
    identifiers: tuple[int, ...] = (),
) -> bytes:
    """Encodes a PUBLISH. With an ``alias`` the topic may be empty. Only servers send ``identifiers``."""
    first = 0x30 | dup << 3 | qos << 1 | retain
    head = write_text(topic) + (packet_id.to_bytes(2, "big") if qos else b"")
    if version == 4:
        return write_frame(first, head, payload)
    block = b"" if expiry_s is None else b"\x02" + expiry_s.to_bytes(4, "big")
    if alias is not None:
        block += b"\x23" + alias.to_bytes(2, "big")
    block += b"".join([b"\x0b" + write_varint(identifier) for identifier in identifiers])
    block += write_message(properties)
    return write_frame(first, head, write_varint(len(block)), block, payload)


def encode_auth(auth: Auth) -> bytes:
    fields = Fields(auth_method=auth.method, auth_data=auth.data, reason_string=auth.reason, user=auth.user)
    return write_frame(0xF0, bytes((auth.code,)), write_properties(fields))
