"""Faults of a client in AMQP's terms: a code and a text, for one channel or for the whole connection."""

from __future__ import annotations

from headway.core.base import HeadwayError, ProtocolError, Reason, Refused
from headway.wire.amqp.codes import ReplyCode

_CODES = {
    Reason.NOT_FOUND: ReplyCode.NOT_FOUND,
    Reason.RESOURCE_LOCKED: ReplyCode.RESOURCE_LOCKED,
    Reason.PRECONDITION_FAILED: ReplyCode.PRECONDITION_FAILED,
    Reason.NOT_AUTHORIZED: ReplyCode.ACCESS_REFUSED,
    Reason.NOT_ALLOWED: ReplyCode.NOT_ALLOWED,
    Reason.PROTOCOL_ERROR: ReplyCode.PRECONDITION_FAILED,
}
"""Reply codes by reason of refusal. Every other reason means that a resource is short: 506."""


class ChannelFault(HeadwayError):
    """A fault that closes the channel, but not the connection."""

    def __init__(self, text: str, code: ReplyCode = ReplyCode.PRECONDITION_FAILED) -> None:
        super().__init__(text)
        self.code = code


def fault_of(error: Refused) -> ChannelFault | ProtocolError:
    """Returns the exception that the specification demands for a refusal."""
    code = _CODES.get(error.reason, ReplyCode.RESOURCE_ERROR)
    if code.is_soft or code is ReplyCode.RESOURCE_ERROR:
        return ChannelFault(str(error), code)
    return connection_fault(code, str(error))


def connection_fault(code: ReplyCode, text: str) -> ProtocolError:
    return ProtocolError(text, reason=Reason.PROTOCOL_ERROR, code=code)


def code_of(reason: Reason) -> ReplyCode:
    """Returns the reply code for closing a connection or channel without a fault of the client."""
    match reason:
        case Reason.SHUTDOWN | Reason.ADMIN | Reason.TAKEN_OVER | Reason.KEEP_ALIVE | Reason.CONNECT_TIMEOUT:
            return ReplyCode.CONNECTION_FORCED
        case Reason.NOT_AUTHORIZED:
            return ReplyCode.ACCESS_REFUSED
        case Reason.INTERNAL_ERROR:
            return ReplyCode.INTERNAL_ERROR
    return ReplyCode.RESOURCE_ERROR
