"""Streams of bytes to a broker, over TCP, TLS and WebSocket, that can be told to stop reading. What is not read then
fills the kernel's buffers, and waits in the broker."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol, cast

from headway.client.broker_address import BrokerAddress

if TYPE_CHECKING:
    import aiohttp

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
