"""AMQP's side of a connection: it hands each item to its channel.

Rules:
- An error on a channel closes the channel; breaking the protocol closes the connection. The client is told why, with
  the specification's code. Everything before the fault still counts.
- The session is the connection: it begins with ``connection.open`` and ends with the socket. Only queues that are not
  exclusive outlive it.
- After the broker has closed a channel, items on it are ignored until the client has confirmed that.
"""

from __future__ import annotations

from typing import Any

from pamqp import base, commands

from headway.core.base import HeadwayError, ProtocolError, Reason, Refused, moved
from headway.core.consumer import Channel, CloseChannel, Session, Subscription
from headway.core.permission import Identity
from headway.server.amqp import consuming, declaring
from headway.server.amqp.channel import CHANNEL_BYTES, AmqpChannel
from headway.server.amqp.consuming import cancelled
from headway.server.amqp.ports import (
    CHANNEL_MAX,
    FRAME_BYTES_MAX,
    ChannelFault,
    ClientSide,
    code_of,
    connection_fault,
    fault_of,
)
from headway.server.amqp.states import HANDSHAKE_MOVES, Expected
from headway.server.config import ListenerTable
from headway.server.connections import Connection, HoldingReplies
from headway.server.engine import Engine
from headway.server.logins import SCRAM, Refusal
from headway.server.peers import OPEN, SaslLogin, Unconfirmed
from headway.wire.amqp import replies
from headway.wire.amqp.codes import OFFERED, ReplyCode, Version
from headway.wire.amqp.decoder import FRAME_BYTES_MIN
from headway.wire.amqp.replies import MECHANISMS, read_login, write_close_connection, write_start
from headway.wire.amqp.scan import Access, AckBatch, Heartbeat, Item, Method, Opening, Oversize, PublishedRun
from headway.wire.common import EXTERNAL, Login

# -- handshake ---------------------------------------------------------------------------------------------------------
#
# The handshake: protocol header, login, limits, vhost. Its end is the beginning of the session.
#
# While the client's password is being checked (in a thread, because that is slow on purpose) nothing is read from it,
# and nothing that it has sent is handled.


HEARTBEAT_S = 60
NAME_CHARS_MAX = 200


class Handshake(SaslLogin[ClientSide]):
    __slots__ = ("_client", "_expected", "_newest", "_renewals", "_told")

    def __init__(self, peer: ClientSide) -> None:
        super().__init__(peer)
        self._client = ""
        self._told = False
        """Whether the client understands a refusal in words."""
        self._renewals = 0
        """The new tokens that are not answered yet. One of them is checked, and after it the newest."""
        self._newest: bytes | None = None
        self._expected = Expected.HEADER
        """Set by ``_expect`` alone."""

    def begin(self, version: Version | None) -> None:
        peer = self._peer
        if version is None:
            fault = connection_fault(ReplyCode.FRAME_ERROR, "asked for a protocol that is not spoken here")
            peer.engine.protocol_error(peer.connection, fault)
            peer.end_with(OFFERED, Reason.PROTOCOL_ERROR, str(fault))
            return
        peer.version = version
        self._expect(Expected.START_OK)
        more = [EXTERNAL] if peer.connection.stream.user else []
        if peer.engine.logins.scram() is not None:
            more.append(SCRAM)
        peer.write(write_start(version, " ".join([MECHANISMS, *more])))

    def handle(self, command: base.Frame) -> None:
        if command.name != self._expected:
            raise connection_fault(ReplyCode.COMMAND_INVALID, f"{command.name} before {self._expected}")
        match command:
            case commands.Connection.StartOk():
                self._start(command)
            case commands.Connection.SecureOk():
                if self._scram is not None:
                    self._prove(self._scram, _raw(command.response))
                else:
                    self._admit()  # the client has seen the server's proof
            case commands.Connection.TuneOk():
                self._tune(command)
            case commands.Connection.Open():
                self._open(command)

    def _expect(self, expected: Expected) -> None:
        self._expected = moved(HANDSHAKE_MOVES, self._expected, expected)

    # -- login ------------------------------------------------------------------------------------------------------

    def _start(self, command: commands.Connection.StartOk) -> None:
        peer = self._peer
        about = command.client_properties or {}
        abilities = about.get("capabilities")
        able = abilities if isinstance(abilities, dict) else {}
        peer.cancels = bool(able.get("consumer_cancel_notify"))
        peer.tells_blocked = bool(able.get("connection.blocked"))
        name = about.get("connection_name")
        if isinstance(name, str) and name.isprintable():
            self._client = name[:NAME_CHARS_MAX]
        self._told = bool(able.get("authentication_failure_close"))
        certified = peer.connection.stream.user
        if command.mechanism == SCRAM and not certified and (scram := peer.engine.logins.scram()) is not None:
            peer.connection.client = self._client
            self._converse(scram, _raw(command.response))
            return
        external = bool(certified) and command.mechanism == EXTERNAL
        login = Login(certified, b"") if external else read_login(command.mechanism, command.response)
        if login is None:
            raise connection_fault(ReplyCode.COMMAND_INVALID, f"mechanism {command.mechanism!r} is not offered here")
        peer.username = peer.connection.username = certified or login.user
        peer.connection.client = self._client
        self._log_in(login)

    def _refuse(self, text: str) -> None:
        peer = self._peer
        peer.engine.refused(peer.connection, text)
        word = write_close_connection(peer.version, ReplyCode.ACCESS_REFUSED, text) if self._told else b""
        peer.end_with(word, Reason.NOT_AUTHORIZED, text)

    def renew(self, secret: str | bytes | None) -> None:
        """Takes a new token in the place of the one that the client came in by; any other secret changes nothing. While
        one is checked, only the newest of those that come waits, so nobody fills the queue of all logins."""
        peer, token = self._peer, _raw(secret)
        if peer.identity.until_s is None or not peer.engine.logins.is_token(token):
            peer.say(0, commands.Connection.UpdateSecretOk())
            return
        self._renewals += 1
        if self._renewals > 1:
            self._newest = token
        else:
            self._check_newer(token)

    def _check_newer(self, token: bytes) -> None:
        peer = self._peer
        found = peer.engine.logins.check(peer.attempt(peer.username, token), peer.is_wanted)
        peer.engine.spawn(peer.answer(found, self._renewed))

    def _renewed(self, found: Identity | Refusal) -> None:
        """Lets the connection go on for as long as the new token is valid, or ends it."""
        peer = self._peer
        if isinstance(found, Identity) and found.user == peer.identity.user:
            peer.identity = found
            if peer.session is not None:
                peer.engine.permissions.renewed(peer.session, found, peer.engine.now())
                peer.engine.turn_soon()
            peer.engine.ends_with(peer.connection, found)
            newest, self._newest = self._newest, None
            answered = 1 if newest is None else self._renewals - 1
            self._renewals -= answered
            for _ in range(answered):
                peer.say(0, commands.Connection.UpdateSecretOk())
            peer.connection.out_soon()
            if newest is not None:
                self._check_newer(newest)
        else:
            text = found.text if isinstance(found, Refusal) else "the new token is of another user"
            self._told = True
            self._refuse(text)

    # -- SCRAM ------------------------------------------------------------------------------------------------------

    def _proven(self, answer: bytes) -> None:
        """Shows the proof in one more challenge, to which the client's response is empty: AMQP has no other place."""
        self._challenge(answer)

    def _challenge(self, message: bytes) -> None:
        self._expect(Expected.SECURE_OK)
        self._peer.say(0, commands.Connection.Secure(message.decode()))

    # -- limits and vhost -------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        self._expect(Expected.TUNE_OK)
        heartbeat_s = int(self._peer.listener.offers_beat(HEARTBEAT_S))
        self._peer.say(0, commands.Connection.Tune(CHANNEL_MAX, FRAME_BYTES_MAX, heartbeat_s))

    def _tune(self, command: commands.Connection.TuneOk) -> None:
        frame_max, channel_max = command.frame_max or FRAME_BYTES_MAX, command.channel_max or CHANNEL_MAX
        if not FRAME_BYTES_MIN <= frame_max <= FRAME_BYTES_MAX:
            text = f"frame_max {frame_max} (from {FRAME_BYTES_MIN} to {FRAME_BYTES_MAX})"
            raise connection_fault(ReplyCode.NOT_ALLOWED, text)
        if channel_max > CHANNEL_MAX:
            raise connection_fault(ReplyCode.NOT_ALLOWED, f"channel_max {channel_max} (at most {CHANNEL_MAX})")
        heartbeat_s = float(command.heartbeat or 0)
        if fault := self._peer.listener.beat_fault(heartbeat_s):
            raise connection_fault(ReplyCode.NOT_ALLOWED, fault)
        self._peer.tuned(channel_max, frame_max, heartbeat_s)
        self._expect(Expected.OPEN)

    def _open(self, command: commands.Connection.Open) -> None:
        if command.virtual_host not in ("/", ""):
            raise connection_fault(ReplyCode.NOT_ALLOWED, f"there is no vhost '{command.virtual_host}', only '/'")
        self._peer.opened(self._name())

    def _name(self) -> str:
        """Returns the name by which operators know the client: its connection's name, numbered if it is taken."""
        wanted = self._client or f"amqp-{self._peer.connection.address}"
        return self._peer.free_name(wanted)


def _raw(response: str | bytes | None) -> bytes:
    return response.encode() if isinstance(response, str) else response or b""


# -- peer --------------------------------------------------------------------------------------------------------------


PARTS_MAX, HEADERS_BYTES_MAX = 2, 1024 * 1024
"""Limits of partial messages on all channels of a connection together: of their bodies, and of their headers if that is
more than this, in messages of the largest size."""
_INDEXES: dict[type, int] = {PublishedRun: 60 << 16 | 40, Oversize: 60 << 16 | 40, AckBatch: 60 << 16 | 80}


class AmqpPeer(ClientSide):
    __slots__ = ("_closing_channels", "_doing", "_handshake", "channels")

    heartbeat_word = replies.HEARTBEAT
    closes_consumers = True
    publishes = looked_at = frozenset({PublishedRun})
    faults = (ChannelFault, ProtocolError, Refused)

    def __init__(self, engine: Engine, connection: Connection, listener: ListenerTable) -> None:
        super().__init__(engine, connection, listener)
        self.channels: dict[int, AmqpChannel] = {}
        """Channels that are open."""
        self.pending_declares = HoldingReplies(connection, engine.journal)
        self._handshake = Handshake(self)
        self._closing_channels = Unconfirmed()
        """Numbers of channels that the broker has closed and the client has not confirmed."""
        self._doing: Item = Heartbeat()

    # -- items --------------------------------------------------------------------------------------------------------

    @property
    def broken(self) -> ProtocolError | None:
        decoder, most = self.decoder, PARTS_MAX * self.decoder.message_bytes_max
        if decoder.buffered_bytes > most or decoder.overhead_bytes > max(most, HEADERS_BYTES_MAX):
            return connection_fault(ReplyCode.RESOURCE_ERROR, "parts of too many messages on too many channels")
        return self.decoder.error

    def holds_up(self, item: Item) -> bool:
        if not self.pending_declares.waiting or (type(item) is Method and type(item.command) in declaring.METHODS):
            return False
        return self.pending_declares.hold()

    def blame(self, fault: HeadwayError) -> None:
        item = self._doing
        if isinstance(fault, Refused):
            self.note_limit(fault)
            fault = fault_of(fault)
        assert isinstance(fault, ChannelFault | ProtocolError)
        method = item.command.index if type(item) is Method else _INDEXES.get(type(item), 0)
        number: int = getattr(item, "channel", 0)
        code = ReplyCode(fault.code) if fault.code else ReplyCode.SYNTAX_ERROR
        if number in self.channels and (isinstance(fault, ChannelFault) or code.is_soft):
            self._close_channel(number, code, str(fault), method)
        else:
            self.break_off(connection_fault(code, str(fault)), method)

    def one(self, item: Item) -> None:
        self._doing = item
        if type(item) is PublishedRun or type(item) is AckBatch:
            channel = self._channel(item.channel)
            if channel is not None:
                if type(item) is PublishedRun:
                    channel.publish(item)
                else:
                    channel.acknowledge(item.tags, multiple=item.multiple)  # type: ignore[union-attr]
            return
        match item:
            case Method(0, command):
                self._connection_method(command)
            case Method(number, commands.Channel.Open()):
                self._open_channel(number)
            case Method(number, command):
                self._channel_method(number, command)
            case Opening(version):
                self._handshake.begin(version)
            case Access(number):
                if self._channel(number) is not None:
                    self.write(replies.write_access_ok(number))
            case Oversize(number, _, size):
                if self._channel(number) is not None:
                    text = f"a message of {size} bytes (at most {self.message_bytes_max})"
                    raise ChannelFault(text, ReplyCode.CONTENT_TOO_LARGE)
            case Heartbeat():
                return

    def _channel(self, number: int) -> AmqpChannel | None:
        """Returns an open channel; None: the broker has closed it, and the client did not know yet. Raises
        ProtocolError."""
        channel = self.channels.get(number)
        if channel is None and number not in self._closing_channels:
            if self.state is not OPEN:
                raise connection_fault(ReplyCode.COMMAND_INVALID, "the connection is not open yet")
            raise connection_fault(ReplyCode.CHANNEL_ERROR, f"channel {number} is not open")
        return channel

    def is_goodbye(self, item: Item) -> bool:
        return type(item) is Method and isinstance(item.command, commands.Channel.Close | commands.Connection.Close)

    # -- the connection -----------------------------------------------------------------------------------------------

    def _connection_method(self, command: base.Frame) -> None:
        if isinstance(command, commands.Connection.Close):
            self.say(0, commands.Connection.CloseOk())
            said = f": {command.reply_code} {command.reply_text}".rstrip()
            self.end_with(b"", Reason.NORMAL, f"the client said goodbye{said}")
        elif self.state is not OPEN:
            self._handshake.handle(command)
        elif isinstance(command, commands.Connection.UpdateSecret):
            self._handshake.renew(command.new_secret)
        else:
            raise connection_fault(ReplyCode.COMMAND_INVALID, f"{command.name} is not expected now")

    # -- channels -----------------------------------------------------------------------------------------------------

    def _open_channel(self, number: int) -> None:
        if self.session is None:
            raise connection_fault(ReplyCode.COMMAND_INVALID, "the connection is not open yet")
        if number > self.channel_max:
            raise connection_fault(ReplyCode.CHANNEL_ERROR, f"channel {number} (at most {self.channel_max})")
        if number in self.channels or number in self._closing_channels:
            raise connection_fault(ReplyCode.CHANNEL_ERROR, f"channel {number} is open already")
        self.session.tab.check(CHANNEL_BYTES)
        self.channels[number] = AmqpChannel(self, self.session, number)
        self.say(number, commands.Channel.OpenOk())

    def _channel_method(self, number: int, command: base.Frame) -> None:
        if isinstance(command, commands.Channel.CloseOk):
            if number not in self._closing_channels:
                raise connection_fault(ReplyCode.CHANNEL_ERROR, f"channel {number} is not being closed")
            self._closing_channels.remove(number)
            return
        channel = self._channel(number)
        if isinstance(command, commands.Channel.Close):
            # Both sides may close it at once: then each of them confirms the other's close.
            if channel is not None:
                del self.channels[number]
                channel.close()
            self.say(number, commands.Channel.CloseOk())
        elif channel is not None:
            do = METHODS.get(type(command))
            if do is None:
                raise connection_fault(ReplyCode.COMMAND_INVALID, f"{command.name} is not expected now")
            do(channel, command)

    def _close_channel(self, number: int, code: ReplyCode, text: str, method: int) -> None:
        """Closes a channel for a fault of the client, or for a verdict."""
        channel = self.channels.pop(number)
        self._closing_channels.add(number)
        channel.close()
        self.decoder.forget(number)
        self.write(replies.write_close_channel(self.version, number, code, text, method))

    def _channel_of(self, core: Channel) -> AmqpChannel | None:
        """Returns the channel that belongs to the core's; None: it is not open any more."""
        channel = self.channels.get(core.number)
        return channel if channel is not None and channel.core is core else None

    # -- requests of the broker ---------------------------------------------------------------------------------------

    def close_channel(self, effect: CloseChannel) -> None:
        channel = self._channel_of(effect.channel)
        if channel is not None:
            self._close_channel(channel.number, code_of(effect.reason), effect.text, 0)
            self.after()

    def close_consumer(self, subscription: Subscription, text: str) -> None:
        self._end_consumer(subscription, ReplyCode.RESOURCE_ERROR, text)

    def revoked(self, subscription: Subscription, reason: Reason, text: str) -> None:
        self._end_consumer(subscription, code_of(reason), text)

    def _end_consumer(self, subscription: Subscription, code: ReplyCode, text: str) -> None:
        """Cancels a consumer. If the client does not understand that, or polls, its channel is closed."""
        channel = self._channel_of(subscription.channel)
        if channel is None or subscription.ended:
            return
        if self.cancels and not subscription.request.polling:
            self.engine.broker.queues.cancel(subscription, self.engine.now())
            cancelled(channel, subscription)
        else:
            self._close_channel(channel.number, code, text, 0)
        self.after()

    def cancelled(self, subscription: Subscription, reason: Reason) -> None:
        """Tells the client that a consumer's queue is gone, its lease is over, or its query answered."""
        channel = self._channel_of(subscription.channel)
        if channel is not None:
            cancelled(channel, subscription)
            self.after()

    def paused(self, why: str) -> None:
        """Tells the client that it is blocked, because others cannot take what it publishes, or no longer blocked."""
        if self.tells_blocked and self.state is OPEN:
            if why:
                self.write(replies.write_blocked(why))
            else:
                self.say(0, commands.Connection.Unblocked())
            self.after()

    # -- the end ------------------------------------------------------------------------------------------------------

    def break_off(self, error: ProtocolError, method: int = 0) -> None:
        self.engine.protocol_error(self.connection, error)
        code = ReplyCode(error.code) if error.code else ReplyCode.SYNTAX_ERROR
        self.end_with(replies.write_close_connection(self.version, code, str(error), method), error.reason, str(error))

    def last_word(self, reason: Reason, text: str) -> bytes:
        if self.state is not OPEN:
            return self._final
        return replies.write_close_connection(self.version, code_of(reason), text)

    def over(self) -> None:
        self._handshake.over()
        self.pending_declares.over()

    def leave(self, session: Session, reason: Reason) -> None:
        for channel in self.channels.values():
            channel.close()
        self.channels.clear()
        self.finish_without(session)  # so that nothing is left half deleted
        super().leave(session, reason)


def _nothing(channel: AmqpChannel, command: base.Frame) -> None:
    """Ignores a reply of the client."""


METHODS: dict[type, Any] = {
    **declaring.METHODS,
    **consuming.METHODS,
    commands.Channel.Flow: AmqpChannel.flow,
    commands.Channel.FlowOk: _nothing,
    commands.Basic.CancelOk: _nothing,
    commands.Confirm.Select: AmqpChannel.confirm,
    commands.Tx.Select: AmqpChannel.tx_select,
    commands.Tx.Commit: AmqpChannel.tx_commit,
    commands.Tx.Rollback: AmqpChannel.tx_rollback,
}
"""Handlers of the methods of channels."""
