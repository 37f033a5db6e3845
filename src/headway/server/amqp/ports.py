"""Ports: what the parts of AMQP's side of a connection know of each other."""

from __future__ import annotations

from abc import ABC
from math import inf
from typing import Protocol

from pamqp import base, commands

from headway.core.base import HeadwayError, ProtocolError, Reason, Refused
from headway.server.amqp.states import PublishMode
from headway.server.config import ListenerTable
from headway.server.connections import Connection, HoldingReplies
from headway.server.engine import Engine
from headway.server.peers import OPEN, BasePeer
from headway.wire.amqp.codes import AMQP_0_9_1, ReplyCode, Version
from headway.wire.amqp.decoder import AmqpDecoder
from headway.wire.amqp.replies import write_close_connection, write_method
from headway.wire.amqp.scan import Item

# -- faults ------------------------------------------------------------------------------------------------------------
#
# Faults of a client in AMQP's terms: a code and a text, for one channel or for the whole connection.


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


# -- ports -------------------------------------------------------------------------------------------------------------


HANDSHAKE_BYTES_MAX = 64 * 1024
"""Limit of a client's bytes before its login is known."""
CHANNEL_MAX = 2047
FRAME_BYTES_MAX = 131_072
SILENCE = 2 / 1.5
"""Factor for the keep-alive: AMQP lets a client miss two heartbeats, and the engine allows one and a half."""


class ClientSide(BasePeer[Item], ABC):
    """The peer, as its handshake and its channels know it. ``pending_replies`` has confirms, and every reply of a
    transactional channel."""

    __slots__ = (
        "cancels", "channel_max", "frame_bytes_max", "message_bytes_max", "pending_declares", "tells_blocked",
        "version",
    )  # fmt: skip

    decoder: AmqpDecoder
    pending_declares: HoldingReplies
    """Replies to declarations."""

    def __init__(self, engine: Engine, connection: Connection, listener: ListenerTable) -> None:
        super().__init__(engine, connection, listener, AmqpDecoder(HANDSHAKE_BYTES_MAX))
        self.version: Version = AMQP_0_9_1
        self.channel_max = CHANNEL_MAX
        self.frame_bytes_max = FRAME_BYTES_MAX
        self.message_bytes_max = listener.packet_bytes_max
        self.cancels = False
        """The client understands basic.cancel from the server."""
        self.tells_blocked = False
        """The client understands connection.blocked."""

    def say(self, channel: int, command: base.Frame) -> None:
        self.connection.out += write_method(self.version, channel, command)

    def tuned(self, channel_max: int, frame_bytes_max: int, heartbeat_s: float) -> None:
        self.channel_max, self.frame_bytes_max = channel_max, frame_bytes_max
        self.decoder.frame_bytes_max = frame_bytes_max
        self.heartbeat_s = heartbeat_s
        self.keep_alive_s = heartbeat_s * SILENCE or inf

    def opened(self, name: str) -> None:
        """Begins the session at the end of the handshake. Raises ProtocolError."""
        self.connection.client = name
        try:
            self.session = self.connect(name, f"amqp-{self.version.name}", self.username)
        except Refused as error:
            self.engine.refused(self.connection, str(error))
            if error.reason in (Reason.NOT_AUTHORIZED, Reason.USER_LIMIT):
                text = f"access to vhost '/' refused: {error}"
                self.end_with(write_close_connection(self.version, ReplyCode.NOT_ALLOWED, text), error.reason, text)
                return
            raise connection_fault(ReplyCode.RESOURCE_ERROR, str(error)) from error
        self.message_bytes_max = self.decoder.message_bytes_max = self.message_bytes_allowed
        self.become(OPEN)
        self.say(0, commands.Connection.OpenOk())
        self.engine.connected(self.connection)


class ChannelSide(Protocol):
    """A channel, as its publisher knows it."""

    peer: ClientSide
    number: int
    mode: PublishMode
    reply_queue: str

    @property
    def gone(self) -> bool: ...
