"""AMQP's side of a connection, and to which channel everything is for.

Rules:
- What a client does wrong on a channel closes the channel; what breaks the protocol closes the connection. Both are
  told why, with the specification's code; everything before the fault still counts.
- A session is the connection: it begins with ``connection.open``, and nothing of it outlives its socket but the queues
  that are not its alone.
- After we close a channel, whatever comes on it is left unread until the client has said that it knows.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from pamqp import base, commands

from headway.core.base import ProtocolError, Reason, Refused
from headway.core.consumer import CloseChannel, ConnectRequest, Session, Subscription
from headway.core.message import Run
from headway.server.amqp.channel import AmqpChannel
from headway.server.amqp.consuming import cancelled
from headway.server.amqp.faults import ChannelFault, code_of, connection_fault, fault_of
from headway.server.amqp.handshake import CHANNEL_MAX, FRAME_BYTES_MAX, Handshake
from headway.server.amqp.promises import Promises
from headway.server.connections import ITEMS_MAX, Answers, Connection, Part, Share, Words
from headway.wire.amqp.acks import Acks
from headway.wire.amqp.codes import Code
from headway.wire.amqp.decoder import Decoder
from headway.wire.amqp.items import Access, Heartbeat, Item, Method, Opening, Oversize, Publish
from headway.wire.amqp.replies import (
    HEARTBEAT,
    write_access_ok,
    write_blocked,
    write_close_channel,
    write_close_connection,
    write_method,
)
from headway.wire.amqp.versions import AMQP_0_9_1, Version

if TYPE_CHECKING:
    from headway.server.config import ListenerTable
    from headway.server.engine import Engine

HANDSHAKE_BYTES_MAX = 64 * 1024
"""Nobody may have us keep more than this before we know who it is."""
PARTS_MAX = 2
"""So many of the largest messages may have come in part, on all of a connection's channels together."""
READS_PER_POOL = 4
READ_BYTES_MIN = 4096
SILENCE = 2 / 1.5
"""Two heartbeats may be missed; the engine allows one and a half."""
_INDEXES: dict[type, int] = {Publish: 60 << 16 | 40, Oversize: 60 << 16 | 40, Acks: 60 << 16 | 80}


class AmqpPeer:
    """One client's protocol state. ``session`` is None until ``connection.open`` is granted."""

    __slots__ = (
        "_beat_s", "_closing", "_decoder", "_doing", "_final", "_handshake", "_heartbeat_s", "_held",
        "_taken_bytes", "answers", "cancels", "channel_max", "channels", "connection", "engine", "frame_bytes_max",
        "keep_alive_s", "listener", "message_bytes_max", "promises", "session", "share", "tells_blocked", "username",
        "version",
    )  # fmt: skip

    def __init__(self, engine: Engine, connection: Connection, listener: ListenerTable) -> None:
        self.engine = engine
        self.connection = connection
        self.listener = listener
        self.session: Session | None = None
        self.version: Version = AMQP_0_9_1
        self.keep_alive_s = inf
        self.channels: dict[int, AmqpChannel] = {}
        self.channel_max = CHANNEL_MAX
        self.frame_bytes_max = FRAME_BYTES_MAX
        self.message_bytes_max = listener.packet_bytes_max
        self.cancels = False
        """The client understands that a server cancels a consumer."""
        self.username = ""
        self.tells_blocked = False
        """... and that it is told when it is not read."""
        self.answers = Answers(connection, engine.keeper)
        """Confirms."""
        self.promises = Promises(self)
        """That something is declared, or is no more."""
        self._handshake = Handshake(self)
        self._decoder = Decoder(HANDSHAKE_BYTES_MAX)
        self._closing = False
        self._final = b""
        """Our last word, if it has been decided on."""
        self._held: list[Item] = []
        """Decoded, and not handled yet."""
        self._doing: Item = Heartbeat()
        self.share = Share()
        self._heartbeat_s = 0.0
        self._beat_s = 0.0
        self._taken_bytes = 0

    # -- bytes ------------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> bool:
        engine, share = self.engine, self.share
        share.left = granted = engine.share()
        if data or not self._held:
            self._held += self._decoder.feed(data, ITEMS_MAX if granted else 0)
        self._handle()
        engine.work_left -= granted - share.left
        self._after()
        return self._has_more and not self._handshake.checking

    @property
    def _has_more(self) -> bool:
        """Something has come that is not handled yet."""
        left = bool(self._held) or self.share.under_way is not None or self._decoder.waits
        return left and self.connection.open

    def _after(self) -> None:
        error = self._decoder.error
        if self._decoder.buffered_bytes > PARTS_MAX * self._decoder.message_bytes_max:
            error = connection_fault(Code.RESOURCE_ERROR, "parts of too many messages on too many channels")
        if error is not None and not self._has_more and self.connection.open:
            self._break_off(error, 0)
        elif self.session is None:
            self.connection.send_out()
        else:
            self.engine.broker.fanout.again[self.session] = None

    def write(self, frame: bytes) -> None:
        self.connection.out += frame

    def say(self, channel: int, command: base.Frame) -> None:
        self.connection.out += write_method(self.version, channel, command)

    def _handle(self) -> None:
        """As much as its share allows."""
        items, share, at, room = self._held, self.share, 0, False
        handshake, promises, connection = self._handshake, self.promises, self.connection
        while share.left > 0 and not handshake.checking and connection.open:
            try:
                if share.under_way is not None:
                    share.go_on()
                    if share.under_way is not None:
                        break
                    continue
                if at == len(items):
                    break
                item = items[at]
                if type(item) is Publish:
                    if self.must_wait or not (room or self._has_room(item.run)):
                        break  # what it brought goes on when it is read again
                    room = True
                if promises.waiting and promises.hold_up(item):
                    break
                self._doing = item
                at += 1
                share.left -= 1
                self._one(item)
            except (ChannelFault, ProtocolError) as fault:
                self._blame(self._doing, fault)
            except Refused as refusal:
                if refusal.reason is Reason.CLIENT_MEMORY and self.session is not None:
                    self.engine.limited(self.session, str(refusal))
                self._blame(self._doing, fault_of(refusal))
        del items[:at]

    @property
    def must_wait(self) -> bool:
        """The client is to slow down: it publishes nothing more for now."""
        return self.session is not None and bool(self.session.paused_by)

    def _has_room(self, run: Run) -> bool:
        """Asked of the first message that a read has brought."""
        broker = self.engine.broker
        if self.session is None or run.exchange not in broker.registry.router.exchanges.by_name:
            return True  # that is another mistake
        return not broker.must_wait(self.session, run, self.engine.now())

    def _blame(self, item: Item, fault: ChannelFault | ProtocolError) -> None:
        """Tell the client what of it went wrong."""
        method = item.command.index if type(item) is Method else _INDEXES.get(type(item), 0)
        number: int = getattr(item, "channel", 0)
        code = Code(fault.code) if fault.code else Code.SYNTAX_ERROR
        if number in self.channels and (isinstance(fault, ChannelFault) or code.is_soft):
            self._close_channel(number, code, str(fault), method)
        else:
            self._break_off(connection_fault(code, str(fault)), method)

    def _one(self, item: Item) -> None:
        if type(item) is Publish or type(item) is Acks:
            channel = self._channel(item.channel)
            if channel is not None:
                if type(item) is Publish:
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
                    self.write(write_access_ok(number))
            case Oversize(number, _, size):
                if self._channel(number) is not None:
                    text = f"a message of {size} bytes (at most {self.message_bytes_max})"
                    raise ChannelFault(Code.CONTENT_TOO_LARGE, text)
            case Heartbeat():
                return

    def _channel(self, number: int) -> AmqpChannel | None:
        """The channel; None: we closed it, and the client did not know yet."""
        if self.session is None:
            raise connection_fault(Code.COMMAND_INVALID, "the connection is not open yet")
        channel = self.channels.get(number)
        if channel is None:
            raise connection_fault(Code.CHANNEL_ERROR, f"channel {number} is not open")
        return None if channel.closing else channel

    # -- the connection ---------------------------------------------------------------------------------------------

    def _connection_method(self, command: base.Frame) -> None:
        if isinstance(command, commands.Connection.Close):
            self.say(0, commands.Connection.CloseOk())
            said = f": {command.reply_code} {command.reply_text}".rstrip()
            self.end_with(b"", Reason.NORMAL, f"the client said goodbye{said}")
        elif self.session is None:
            self._handshake.handle(command)
        elif isinstance(command, commands.Connection.UpdateSecret):
            self.say(0, commands.Connection.UpdateSecretOk())
        else:
            raise connection_fault(Code.COMMAND_INVALID, f"{command.name} is not expected now")

    def tuned(self, channel_max: int, frame_bytes_max: int, heartbeat_s: float) -> None:
        self.channel_max, self.frame_bytes_max = channel_max, frame_bytes_max
        self._decoder.frame_bytes_max = frame_bytes_max
        self._heartbeat_s = heartbeat_s
        self.keep_alive_s = heartbeat_s * SILENCE or inf

    def opened(self, name: str) -> None:
        """The handshake is over: there is a session."""
        self.connection.client = name
        request = ConnectRequest(
            name, self.connection.listener, credit=self.listener.in_flight_max, username=self.username,
            protocol=f"amqp-{self.version.name}",
        )  # fmt: skip
        try:
            self.session = self.engine.broker.connect(request, self.connection, self.engine.now())
        except Refused as error:
            self.engine.refused(self.connection, str(error))
            raise connection_fault(Code.RESOURCE_ERROR, str(error)) from error
        pool = self.session.pool
        share_bytes = int(pool.memory_limit * pool.client_share)
        self.message_bytes_max = self._decoder.message_bytes_max = min(self.listener.packet_bytes_max, share_bytes)
        self.say(0, commands.Connection.OpenOk())
        self.engine.connected(self.connection)

    def checked(self) -> None:
        """A password was; on with what came meanwhile."""
        self.connection.go_on()
        self.engine.turn_soon()

    # -- channels ---------------------------------------------------------------------------------------------------

    def _open_channel(self, number: int) -> None:
        if self.session is None:
            raise connection_fault(Code.COMMAND_INVALID, "the connection is not open yet")
        if number > self.channel_max:
            raise connection_fault(Code.CHANNEL_ERROR, f"channel {number} (at most {self.channel_max})")
        if number in self.channels:
            raise connection_fault(Code.CHANNEL_ERROR, f"channel {number} is open already")
        self.channels[number] = AmqpChannel(self, self.session, number)
        self.say(number, commands.Channel.OpenOk())

    def _channel_method(self, number: int, command: base.Frame) -> None:
        if isinstance(command, commands.Channel.CloseOk):
            if number not in self.channels or not self.channels[number].closing:
                raise connection_fault(Code.CHANNEL_ERROR, f"channel {number} is not being closed")
            del self.channels[number]
            return
        channel = self.channels.get(number)
        if isinstance(command, commands.Channel.Close) and channel is not None:
            # Both may close it at once: then ours has its answer still to come, and theirs gets one too.
            if not channel.closing:
                channel.close()
                del self.channels[number]
            self.say(number, commands.Channel.CloseOk())
            return
        channel = self._channel(number)
        if channel is not None:
            channel.handle(command)

    def _close_channel(self, number: int, code: Code, text: str, method: int) -> None:
        """The client's fault, or a verdict."""
        channel = self.channels[number]
        channel.close()
        channel.closing = True
        self._decoder.forget(number)
        self.write(write_close_channel(self.version, number, code, text, method))

    # -- what the broker wants ----------------------------------------------------------------------------------------

    def close_channel(self, effect: CloseChannel) -> None:
        channel = self.channels.get(effect.channel.number)
        if channel is not None and channel.core is effect.channel and not channel.closing:
            self._close_channel(channel.number, code_of(effect.reason), effect.text, 0)
            self._after()

    def close_consumer(self, subscription: Subscription, text: str) -> None:
        """Ask the client to close; one that cannot be asked, or polls, has its channel closed."""
        channel = self.channels.get(subscription.channel.number)
        if channel is None or channel.core is not subscription.channel or channel.closing or subscription.ended:
            return
        if self.cancels and not subscription.request.polling:
            self.engine.broker.queues.cancel(subscription, self.engine.now())
            cancelled(channel, subscription)
        else:
            self._close_channel(channel.number, Code.RESOURCE_ERROR, text, 0)
        self._after()

    def cancelled(self, subscription: Subscription) -> None:
        """The consumer's queue is gone."""
        channel = self.channels.get(subscription.channel.number)
        if channel is not None and channel.core is subscription.channel and not channel.closing:
            cancelled(channel, subscription)
            self._after()

    def paused(self, why: str) -> None:
        """The client is not read, for it publishes faster than others can take; without a reason it is again."""
        if self.tells_blocked and self.session is not None:
            if why:
                self.write(write_blocked(why))
            else:
                self.say(0, commands.Connection.Unblocked())
            self._after()

    def beat(self, now: float) -> float:
        """Let the client know that we are there, if nothing else has. Returns when to be called again."""
        if not self._heartbeat_s or self.session is None:
            return inf
        if self.connection.taken_bytes != self._taken_bytes:
            self._taken_bytes, self._beat_s = self.connection.taken_bytes, now
        elif now - self._beat_s >= self._heartbeat_s / 2 and not self.connection.out and not self.connection.blocked:
            self._beat_s = now
            self.write(HEARTBEAT)
            self._after()
            self.engine.turn_soon()
            return now  # as soon as may be, or its own bytes would be taken for somebody else's, and put off the next
        return min(now + self._heartbeat_s / 8, self._beat_s + self._heartbeat_s / 2)

    def pace(self, lanes: int) -> None:
        """Each lane has a copy of what is published to it: with many, less is read at once (see mqtt.py)."""
        if self.session is None:
            return  # it is gone, and its last transaction is done without it
        share = self.session.pool.memory_limit // READS_PER_POOL // max(1, lanes)
        self.connection.read_bytes = max(READ_BYTES_MIN, min(self.engine.read_bytes, share))

    # -- the end ----------------------------------------------------------------------------------------------------

    def _break_off(self, error: ProtocolError, method: int) -> None:
        """The client broke the protocol: tell it, and end the connection."""
        self.engine.protocol_error(self.connection, error)
        code = Code(error.code) if error.code else Code.SYNTAX_ERROR
        self.end_with(write_close_connection(self.version, code, str(error), method), error.reason, str(error))

    def end_with(self, word: bytes, reason: Reason, text: str) -> None:
        """Say this, and no more; ``text`` is for the record."""
        self._final, self._closing = word, True
        self.connection.say_goodbye(reason, text)

    @property
    def buffered_bytes(self) -> int:
        return self._decoder.buffered_bytes

    def part(self) -> Part:
        decoder = self._decoder
        if decoder.waits:
            return Part(0, 0, decoder.frames)  # it is not read before that is looked at
        return Part(decoder.buffered_bytes, decoder.missing_bytes, decoder.frames)

    def unfinished(self) -> Words | None:
        session = self.session
        if session is None or session.outlet is not self.connection:
            return b""
        return self.engine.broker.unfinished(session)

    def last_word(self, reason: Reason, text: str) -> bytes:
        if self._closing or self.session is None:
            return self._final
        return write_close_connection(self.version, code_of(reason), text)

    def connection_lost(self, reason: Reason) -> None:
        self._handshake.over()
        session, self.session = self.session, None
        if session is None:
            return
        for channel in self.channels.values():
            if not channel.closing:
                channel.close()
        self.channels.clear()
        under_way, self.share.under_way = self.share.under_way, None
        if under_way is not None:  # nothing is left half deleted
            self.engine.broker.registry.chores.begin(under_way, self.engine.now())
        self.engine.broker.disconnect(session, self.connection, reason, self.engine.now(), will=False)
