"""MQTT 5 reason codes, and the code of each :class:`~headway.core.base.errors.Reason`."""

from __future__ import annotations

from enum import IntEnum

from headway.core.base import Reason


class ReasonCode(IntEnum):
    """All reason codes of MQTT 5. Codes below 0x80 mean success."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_ERROR = 0x83
    UNSUPPORTED_VERSION = 0x84
    CLIENT_ID_NOT_VALID = 0x85
    BAD_USER_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTH_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    FILTER_INVALID = 0x8F
    TOPIC_INVALID = 0x90
    PACKET_ID_IN_USE = 0x91
    PACKET_ID_NOT_FOUND = 0x92
    RECEIVE_MAX_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAX_CONNECT_TIME = 0xA0
    IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARDS_NOT_SUPPORTED = 0xA2


CONNACK_CODES = frozenset(
    {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F}
)
PUBACK_CODES = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
"""Codes of PUBACK and PUBREC."""
PUBREL_CODES = frozenset({0x00, 0x92})
"""Codes of PUBREL and PUBCOMP."""
SUBACK_CODES = frozenset({0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2})
UNSUBACK_CODES = frozenset({0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91})
CLIENT_DISCONNECT_CODES = frozenset({0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, *range(0x93, 0x9A)})
SERVER_DISCONNECT_CODES = frozenset(
    {0x00, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, *range(0x93, 0xA3)}
)
CLIENT_AUTH_CODES = frozenset({0x18, 0x19})
SERVER_AUTH_CODES = frozenset({0x00, 0x18})

_CODE_OF = {
    Reason.NORMAL: ReasonCode.SUCCESS,
    Reason.CLIENT_GONE: ReasonCode.UNSPECIFIED_ERROR,
    Reason.KEEP_ALIVE: ReasonCode.KEEP_ALIVE_TIMEOUT,
    Reason.TAKEN_OVER: ReasonCode.SESSION_TAKEN_OVER,
    Reason.SHUTDOWN: ReasonCode.SERVER_SHUTTING_DOWN,
    Reason.ADMIN: ReasonCode.ADMINISTRATIVE_ACTION,
    Reason.INTERNAL_ERROR: ReasonCode.UNSPECIFIED_ERROR,
    Reason.PROTOCOL_ERROR: ReasonCode.PROTOCOL_ERROR,
    Reason.MALFORMED: ReasonCode.MALFORMED_PACKET,
    Reason.PACKET_TOO_LARGE: ReasonCode.PACKET_TOO_LARGE,
    Reason.NOT_AUTHORIZED: ReasonCode.NOT_AUTHORIZED,
    Reason.CONNECT_TIMEOUT: ReasonCode.UNSPECIFIED_ERROR,
    Reason.CREDIT_EXCEEDED: ReasonCode.RECEIVE_MAX_EXCEEDED,
    Reason.SUBSCRIPTION_ENDED: ReasonCode.ADMINISTRATIVE_ACTION,
}

_CONNACK_INSTEAD: dict[int, int] = {
    ReasonCode.SERVER_SHUTTING_DOWN: ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.ADMINISTRATIVE_ACTION: ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.TOPIC_ALIAS_INVALID: ReasonCode.PROTOCOL_ERROR,
}

_CONNACK_3_1_1: dict[int, int] = {
    ReasonCode.SUCCESS: 0,
    ReasonCode.UNSUPPORTED_VERSION: 1,
    ReasonCode.CLIENT_ID_NOT_VALID: 2,
    ReasonCode.BAD_USER_OR_PASSWORD: 4,
    ReasonCode.NOT_AUTHORIZED: 5,
    ReasonCode.BANNED: 5,
    ReasonCode.BAD_AUTH_METHOD: 5,
}

_CLOSE_SILENTLY = frozenset({
    ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR, ReasonCode.PACKET_TOO_LARGE, ReasonCode.TOPIC_INVALID,
})  # fmt: skip


def find_code(reason: Reason) -> ReasonCode:
    """Returns the code of a reason. All reasons of slow consumers have the code *quota exceeded*."""
    return _CODE_OF.get(reason, ReasonCode.QUOTA_EXCEEDED)


def connack_code(code: int) -> int:
    """Returns ``code`` if a CONNACK of MQTT 5 may carry it, else the closest code that it may carry."""
    if code in CONNACK_CODES:
        return code
    return _CONNACK_INSTEAD.get(code, ReasonCode.UNSPECIFIED_ERROR)


def connack_code_3_1_1(code: int) -> int | None:
    """Returns the return code of a 3.1.1 CONNACK; None: that version closes the connection without a CONNACK."""
    if code in _CLOSE_SILENTLY:
        return None
    return _CONNACK_3_1_1.get(code, 3)
