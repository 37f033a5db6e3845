"""Faults of a client in the terms of AMQP 1.0: a condition and a text, for a link, for a session or for all."""

from __future__ import annotations

from headway.core.base import HeadwayError, ProtocolError, Reason, Refused
from headway.wire.amqp1.codes import Condition

_CONDITIONS = {
    Reason.NOT_FOUND: Condition.NOT_FOUND,
    Reason.RESOURCE_LOCKED: Condition.RESOURCE_LOCKED,
    Reason.PRECONDITION_FAILED: Condition.PRECONDITION_FAILED,
    Reason.NOT_AUTHORIZED: Condition.UNAUTHORIZED_ACCESS,
    Reason.NOT_ALLOWED: Condition.NOT_ALLOWED,
    Reason.PROTOCOL_ERROR: Condition.INVALID_FIELD,
    Reason.MALFORMED: Condition.DECODE_ERROR,
}
"""Conditions by reason of refusal. Every other reason means that a resource is short."""


class LinkFault(HeadwayError):
    """A fault that ends a link, but not its session."""

    def __init__(self, condition: Condition, text: str) -> None:
        super().__init__(text)
        self.condition = condition


class SessionFault(LinkFault):
    """A fault that ends a session, but not the connection."""


def link_fault(error: HeadwayError) -> LinkFault:
    if isinstance(error, LinkFault):
        return error
    reason = error.reason if isinstance(error, Refused | ProtocolError) else Reason.INTERNAL_ERROR
    return LinkFault(_CONDITIONS.get(reason, Condition.RESOURCE_LIMIT_EXCEEDED), str(error))


def end_condition(reason: Reason) -> Condition:
    """Returns the condition for the end of a connection that is not the client's fault, or is for its slowness."""
    match reason:
        case Reason.SHUTDOWN | Reason.ADMIN | Reason.TAKEN_OVER | Reason.CONNECT_TIMEOUT:
            return Condition.CONNECTION_FORCED
        case Reason.NOT_AUTHORIZED:
            return Condition.UNAUTHORIZED_ACCESS
        case Reason.INTERNAL_ERROR:
            return Condition.INTERNAL_ERROR
        case Reason.TOO_LARGE_FOR_CLIENT:
            return Condition.MESSAGE_SIZE_EXCEEDED
    return Condition.RESOURCE_LIMIT_EXCEEDED


def connection_fault(condition: Condition, text: str) -> ProtocolError:
    return ProtocolError(text, reason=Reason.PROTOCOL_ERROR, code=condition)
