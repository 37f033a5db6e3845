"""What a client did wrong, as AMQP has it: a code and a text, for one channel or for the whole connection."""

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
"""Why a command was refused. All else is want of something: 506."""


class ChannelFault(HeadwayError):
    """The channel is to be closed; the connection lives on."""

    def __init__(self, code: ReplyCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def fault_of(error: Refused) -> ChannelFault | ProtocolError:
    """The refusal as the exception the specification asks for."""
    code = _CODES.get(error.reason, ReplyCode.RESOURCE_ERROR)
    if code.is_soft or code is ReplyCode.RESOURCE_ERROR:
        return ChannelFault(code, str(error))
    return connection_fault(code, str(error))


def connection_fault(code: ReplyCode, text: str) -> ProtocolError:
    return ProtocolError(text, reason=Reason.PROTOCOL_ERROR, code=code)


def code_of(reason: Reason) -> ReplyCode:
    """With what a connection or channel is closed that did nothing against the protocol."""
    match reason:
        case Reason.SHUTDOWN | Reason.ADMIN | Reason.TAKEN_OVER | Reason.KEEP_ALIVE | Reason.CONNECT_TIMEOUT:
            return ReplyCode.CONNECTION_FORCED
        case Reason.INTERNAL_ERROR:
            return ReplyCode.INTERNAL_ERROR
    return ReplyCode.RESOURCE_ERROR
