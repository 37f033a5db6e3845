"""The link to a broker: one connection at a time, over TCP, TLS or WebSocket, that reads no more than its user has room
for.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from headway.client.broker_address import BrokerAddress
from headway.core.base import HeadwayError
from headway.core.message import Run
from headway.wire.mqtt.codes import ReasonCode
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import (
    ConnAck,
    Connect,
    DisconnectPacket,
    Item,
    Publish,
    SubAck,
    TopicRequest,
    UnsubAck,
    encode_ack,
    encode_connect,
    encode_disconnect,
    encode_pingreq,
    encode_subscribe,
    encode_unsubscribe,
)

if TYPE_CHECKING:
    import aiohttp


# -- errors ------------------------------------------------------------------------------------------------------------
#
# Errors of a link.


class LinkError(HeadwayError):
    """The broker cannot be reached, does not let the client in, or has ended the connection."""

    def __init__(self, text: str, *, retry_after_s: float = 0.0, final: bool = False) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s
        """The time for which the broker has shut the client out."""
        self.final = final
        """The broker would give the same answer again."""


# -- receiver ----------------------------------------------------------------------------------------------------------
#
# The user of a link, as the link knows it.


Pairs = Sequence[tuple[str, str]]
"""User properties."""


class Receiver(Protocol):
    def room(self) -> int:
        """Returns how many records may come now; 0: nothing more is to be read."""

    def received(self, runs: Sequence[Run]) -> None:
        """Takes records, in order. Each run has the properties that its records share."""

    def granted(self, number: int, refusal: str, user: Pairs) -> None:
        """SUBACK came; ``refusal`` is empty if the subscription was granted."""

    def ended(self, number: int) -> None:
        """UNSUBACK came."""

    def lost(self, why: str) -> None:
        """The connection is over, and not because of ``Link.close``."""


# -- streams -----------------------------------------------------------------------------------------------------------
#
# Streams of bytes to a broker, over TCP, TLS and WebSocket, that can be told to stop reading. What is not read then
# fills the kernel's buffers, and waits in the broker.


READ_BYTES = 64 * 1024
LINGER_S = 1.0
"""For so long a stream that is closed tries to send what it has."""
LOST = "the connection was lost"


class Reader(Protocol):
    """Reads what comes by a stream."""

    def came(self, data: bytes) -> None: ...

    def broke(self, why: str) -> None:
        """The stream has ended, and not because it was closed here."""


class Stream(ABC):
    @abstractmethod
    def write(self, data: bytes) -> None:
        """Sends bytes, in order, when there is room for them."""

    @abstractmethod
    def read(self, on: bool) -> None:
        """Goes on reading, or stops."""

    @abstractmethod
    def close(self) -> None:
        """Sends what was written, and ends. The reader hears no more."""

    @abstractmethod
    async def closed(self) -> None:
        """Returns when a stream that was closed has ended."""


async def open_stream(address: BrokerAddress, reader: Reader) -> Stream:
    """Connects. Raises OSError, or ValueError for a name that cannot be one."""
    if address.websocket_path is not None:
        return await _open_websocket(address, reader)
    loop = asyncio.get_running_loop()
    name = None if address.tls is None else address.host
    _, stream = await loop.create_connection(
        lambda: _SocketStream(reader), address.host, address.port, ssl=address.tls, server_hostname=name
    )
    return stream


class _SocketStream(asyncio.BufferedProtocol, Stream):
    """A socket, in TLS or not, that is read into one buffer."""

    def __init__(self, reader: Reader) -> None:
        self._reader: Reader | None = reader
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._ended = asyncio.get_running_loop().create_future()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._reader is not None:
            self._reader.came(bytes(self._buffer[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.broke(LOST)

    # What the link calls.

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def read(self, on: bool) -> None:
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def close(self) -> None:
        self._reader = None
        if not self._ended.done():
            self._transport.close()
            asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)

    async def closed(self) -> None:
        await asyncio.wait([self._ended], timeout=LINGER_S)
        if not self._ended.done():
            self._transport.abort()


async def _open_websocket(address: BrokerAddress, reader: Reader) -> Stream:
    import aiohttp  # takes a while, and few need it

    scheme, host = "ws" if address.tls is None else "wss", address.host
    place = f"{scheme}://{f'[{host}]' if ':' in host else host}:{address.port}{address.websocket_path}"
    session = aiohttp.ClientSession()
    try:
        socket = await session.ws_connect(
            place, protocols=("mqtt",), ssl=address.tls or True, max_msg_size=0,
            timeout=aiohttp.ClientWSTimeout(ws_close=LINGER_S),
        )  # fmt: skip
    except aiohttp.WSServerHandshakeError as error:
        await session.close()
        raise OSError(f"the WebSocket handshake was refused ({error.status})") from None
    except aiohttp.ClientError as error:
        await session.close()
        raise OSError(str(error)) from error
    except BaseException:
        await session.close()
        raise
    return _WebSocketStream(session, socket, reader)


class _WebSocketStream(Stream):
    """A WebSocket of aiohttp, which reads ahead no more than a few frames of those that nobody asked for yet."""

    def __init__(self, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse, reader: Reader) -> None:
        self._session = session
        self._socket = socket
        self._reader: Reader | None = reader
        self._reads = asyncio.Event()
        self._reads.set()
        self._out: asyncio.Queue[bytes | None] = asyncio.Queue()
        """Bytes to be sent; None: the end."""
        self._sending = asyncio.create_task(self._send())
        self._receiving = asyncio.create_task(self._receive())

    async def _receive(self) -> None:
        import aiohttp

        while True:
            await self._reads.wait()
            message = await self._socket.receive()
            if self._reader is None:
                return
            if message.type is not aiohttp.WSMsgType.BINARY:
                break
            self._reader.came(message.data)
        reader, self._reader = self._reader, None
        reader.broke(LOST)

    async def _send(self) -> None:
        try:
            while (data := await self._out.get()) is not None:
                await self._socket.send_bytes(data)
            await self._socket.close()
        except OSError:
            pass  # what reads tells of it
        finally:
            self._receiving.cancel()
            await self._session.close()

    def write(self, data: bytes) -> None:
        self._out.put_nowait(data)

    def read(self, on: bool) -> None:
        if on:
            self._reads.set()
        else:
            self._reads.clear()

    def close(self) -> None:
        if self._reader is not None or not self._sending.done():
            self._reader = None
            self._out.put_nowait(None)
            asyncio.get_running_loop().call_later(LINGER_S, self._sending.cancel)

    async def closed(self) -> None:
        await asyncio.wait([self._sending], timeout=LINGER_S)
        self._sending.cancel()
        await asyncio.wait([self._sending, self._receiving])


# -- dialogue ----------------------------------------------------------------------------------------------------------
#
# A client's side of MQTT 5 on one connection: what it writes, and what it makes of what comes. No I/O and no clock.
#
# Rules:
# - The broker's own codec reads and writes the packets, many records in one call.
# - What comes is handled in order, so an answer comes behind all that was sent before it. Of what has come, no more is
#   handled than the receiver has room for; the rest waits here, and the link reads nothing meanwhile.
# - A record of QoS 1 is acknowledged when the receiver has it. QoS 2 is never asked for.
# - The first DISCONNECT, refusal or error is the last thing that is read: it is ``over``.


KEEP_ALIVE_S = 60
NEVER_RETAINED = 2
PUBACK = 4
PACKET_IDS = 65_535
RETRY_AFTER = "retry-after-s"
FINAL = frozenset({0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C})
"""Codes of CONNACK for whom the broker does not know, or does not let in."""


class Dialogue:
    def __init__(self, receiver: Receiver, place: str) -> None:
        """``place``: the broker's address, for messages."""
        self._receiver = receiver
        self._place = place
        self._decoder = MqttDecoder(role="client", version=5)
        self._number = 0
        """The number of the last SUBSCRIBE or UNSUBSCRIBE."""
        self.out = bytearray()
        """Bytes for the broker."""
        self.greeted = False
        """The broker has let the client in."""
        self.keep_alive_s = KEEP_ALIVE_S
        """The client says something at least so often; 0: it need not."""
        self.over: LinkError | None = None

    # -- what is asked ------------------------------------------------------------------------------------------------

    def connect(self, client_id: str, user: str | None, password: str | None, receive_max: int) -> None:
        """Asks to be let in, with a session that begins anew and ends with the connection."""
        raw = None if password is None else password.encode()
        self.out += encode_connect(
            Connect(5, client_id, True, KEEP_ALIVE_S, username=user, password=raw, receive_max=receive_max)
        )

    def subscribe(self, filter: str, qos: int, user: Pairs) -> int:
        """Asks for records, but for no retained ones. Returns the number that the answer will have."""
        request = TopicRequest(filter, qos, retain_handling=NEVER_RETAINED)
        self.out += encode_subscribe(self._next(), [request], user=tuple(user))
        return self._number

    def unsubscribe(self, filter: str) -> int:
        self.out += encode_unsubscribe(self._next(), [filter])
        return self._number

    def ping(self) -> None:
        self.out += encode_pingreq()

    def goodbye(self) -> None:
        """Ends the dialogue: nothing that comes is read any more."""
        self.out += encode_disconnect()
        self.over = self.over or LinkError(f"{self._place}: the connection was closed here")

    def _next(self) -> int:
        self._number = self._number % PACKET_IDS + 1
        return self._number

    # -- what comes ---------------------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Packets have come that were not handled yet."""
        return self._decoder.waits and self.over is None

    def take(self, data: bytes, packets_max: int) -> None:
        """Handles what has come, at most so many packets of it. Records that differ in nothing but their payloads count
        as one; those of a view differ in their offsets."""
        decoder = self._decoder
        if self.over is not None:
            return
        runs: list[Run] = []
        for item in decoder.feed(data, packets_max):
            if type(item) is Run:
                runs.append(item)
            elif type(item) is Publish:
                self._add(item, runs)
            else:
                self._hand_over(runs)
                if self.over is None:
                    self._answered(item)
            if self.over is not None:
                return
        self._hand_over(runs)
        if decoder.error is not None and not decoder.waits and self.over is None:
            self.over = LinkError(f"{self._place}: {decoder.error}")

    def _add(self, item: Publish, runs: list[Run]) -> None:
        runs.append(item.run)
        if item.qos == 1:
            self._hand_over(runs)
            self.out += encode_ack(PUBACK, item.packet_id)
        elif item.qos:
            self.over = LinkError(f"{self._place}: a record came at QoS 2, which nobody asked for")

    def _hand_over(self, runs: list[Run]) -> None:
        if runs:
            self._receiver.received(runs.copy())
            runs.clear()

    def _answered(self, item: Item) -> None:
        if type(item) is SubAck:
            refused = next((code for code in item.codes if code >= 0x80), None)
            refusal = "" if refused is None else item.reason or _name(refused)
            self._receiver.granted(item.packet_id, refusal, item.user)
        elif type(item) is UnsubAck:
            self._receiver.ended(item.packet_id)
        elif type(item) is ConnAck:
            self._greet(item)
        elif type(item) is DisconnectPacket:
            self.over = LinkError(item.reason or _name(item.code))

    def _greet(self, answer: ConnAck) -> None:
        fields = answer.fields
        if answer.code:
            retry_after_s = float(dict(fields.user).get(RETRY_AFTER, "0"))
            text = f"{self._place} refused: {fields.reason_string or _name(answer.code)}"
            self.over = LinkError(text, retry_after_s=retry_after_s, final=answer.code in FINAL)
            return
        self.greeted = True
        if fields.server_keep_alive is not None:
            self.keep_alive_s = fields.server_keep_alive


def _name(code: int) -> str:
    return ReasonCode(code).name.replace("_", " ").lower()


# -- link --------------------------------------------------------------------------------------------------------------
#
# The link: connections to a broker on an asyncio loop, one at a time.
#
# Theory of operation. A stream brings bytes; the dialogue makes records and answers of them, some at a time, as many as
# the receiver has room for. While something waits in the dialogue, or the receiver has no room, the stream reads
# nothing: what is not read waits in the broker. Between two portions the loop's other tasks get their turn.


PACKETS_MAX = 512
"""Packets that are handled before other tasks of the loop get their turn: some milliseconds."""


class Link:
    def __init__(self, address: BrokerAddress, client_id: str, receive_max: int, receiver: Receiver) -> None:
        self._address = address
        self._client_id = client_id
        self._receive_max = receive_max
        self._receiver = receiver
        self._connection: _Connection | None = None

    async def connect(self, timeout_s: float) -> None:
        """Connects. Raises LinkError."""
        self.close()
        connection = self._connection = _Connection(self._address, self._receiver)
        try:
            async with asyncio.timeout(timeout_s):
                await connection.open(self._client_id, self._receive_max)
        except (OSError, ValueError) as error:  # TimeoutError is an OSError
            self.close()
            text = f"no answer within {timeout_s:g} s" if isinstance(error, TimeoutError) else str(error)
            raise LinkError(f"{self._address}: {text}") from error
        except BaseException:
            self.close()
            raise

    def subscribe(self, filter: str, qos: int, user: Pairs) -> int | None:
        """Sends SUBSCRIBE. Returns its number; None if there is no connection."""
        return self._ask(lambda dialogue: dialogue.subscribe(filter, qos, user))

    def unsubscribe(self, filter: str) -> int | None:
        return self._ask(lambda dialogue: dialogue.unsubscribe(filter))

    def _ask(self, question: Callable[[Dialogue], int]) -> int | None:
        connection = self._connection
        if connection is None or connection.dialogue.over is not None:
            return None
        number = question(connection.dialogue)
        connection.flush()
        return number

    def go_on(self) -> None:
        """Reads on, or reads no more, as the receiver has room."""
        if self._connection is not None:
            self._connection.steer()

    def close(self) -> None:
        """Says goodbye, if there is a connection, and forgets it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def end(self) -> None:
        """Closes, and returns when what was to be said has been sent, or cannot be."""
        connection = self._connection
        self.close()
        if connection is not None:
            await connection.closed()


class _Connection:
    def __init__(self, address: BrokerAddress, receiver: Receiver) -> None:
        self.dialogue = Dialogue(receiver, str(address))
        self._address = address
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._stream: Stream | None = None
        self._closing: Stream | None = None
        """The stream that was closed."""
        self._closed = False
        self._greeted: asyncio.Future[None] = self._loop.create_future()
        self._reads = True
        self._next: asyncio.Handle | None = None
        """The call that handles more of what has come."""
        self._pulse: asyncio.TimerHandle | None = None
        self._said = False
        """Something was sent since the last beat of the pulse."""

    async def open(self, client_id: str, receive_max: int) -> None:
        """Connects, and waits until the broker lets the client in. Raises LinkError, OSError, ValueError."""
        stream = await open_stream(self._address, self)
        if self._closed:  # at once
            stream.close()
            await self._greeted
        self._stream = stream
        self.dialogue.connect(client_id, self._address.user, self._address.password, receive_max)
        self.flush()
        await self._greeted

    def flush(self) -> None:
        """Sends what the dialogue has written."""
        if self.dialogue.out and self._stream is not None:
            self._stream.write(bytes(self.dialogue.out))
            self.dialogue.out.clear()
            self._said = True

    # -- reading ------------------------------------------------------------------------------------------------------

    def came(self, data: bytes) -> None:
        dialogue = self.dialogue
        dialogue.take(data, min(self._receiver.room(), PACKETS_MAX))
        self.flush()
        if dialogue.over is not None:
            self._is_over(dialogue.over)
            return
        if dialogue.greeted and not self._greeted.done():
            self._greeted.set_result(None)
            self._beat()
        self.steer()

    def steer(self) -> None:
        """Goes on with what waits, reads on, or stops reading."""
        room, waits = self._receiver.room() > 0, self.dialogue.waits
        if waits and room and self._next is None:
            self._next = self._loop.call_soon(self._go_on)
        reads = room and not waits
        if reads != self._reads and self._stream is not None:
            self._reads = reads
            self._stream.read(reads)

    def _go_on(self) -> None:
        self._next = None
        if self._stream is not None:
            self.came(b"")

    def _beat(self) -> None:
        """Says something if nothing else was said: a connection that is silent is ended by the broker."""
        if not self._said:
            self.dialogue.ping()
            self.flush()
        self._said = False
        if self.dialogue.keep_alive_s:
            self._pulse = self._loop.call_later(self.dialogue.keep_alive_s / 2, self._beat)

    # -- the end ------------------------------------------------------------------------------------------------------

    def broke(self, why: str) -> None:
        self._is_over(LinkError(why if self._greeted.done() else f"{self._address}: {why}"))

    def _is_over(self, error: LinkError) -> None:
        if self._closed:
            return
        if self._greeted.done():
            self.close()
            self._receiver.lost(str(error))
        else:
            self._greeted.set_exception(error)
            self.close()

    def close(self) -> None:
        self._closed = True
        self._greeted.cancel()
        for call in (self._next, self._pulse):
            if call is not None:
                call.cancel()
        if self._stream is not None and self.dialogue.over is None:
            self.dialogue.goodbye()
            self.flush()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
            self._closing = stream

    async def closed(self) -> None:
        """Returns when a connection that was closed has ended."""
        if self._closing is not None:
            await self._closing.closed()
