"""The link: connections to a broker on an asyncio loop, one at a time.

Theory of operation. A stream brings bytes; the dialogue makes records and answers of them, some at a time, as many as
the receiver has room for. While something waits in the dialogue, or the receiver has no room, the stream reads nothing:
what is not read waits in the broker. Between two portions the loop's other tasks get their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headway.client.broker_address import BrokerAddress
from headway.client.link.dialogue import Dialogue
from headway.client.link.errors import LinkError
from headway.client.link.receiver import Pairs, Receiver
from headway.client.link.streams import Stream, open_stream

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
