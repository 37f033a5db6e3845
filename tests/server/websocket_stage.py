"""A WebSocket stream over a kernel that takes as little as a test likes, in a pretended loop."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence

from bench.wires.websocket import Frames, request

from headway.core.base import Reason
from headway.server.protocols import PROTOCOLS
from headway.server.transport import Buffer, PlainStream
from headway.server.websocket import Rules, WebSocketStream

RULES = Rules(("/mqtt", "/"), None, {"mqtt": "mqtt"})
FILLER = b"\xd0\x00"


class Kernel(PlainStream):
    """A socket that takes ``room`` bytes, and from which ``incoming`` is read."""

    def __init__(self, room: int = 1 << 40) -> None:
        super().__init__(socket.socket())
        self.room = room
        self.wire = b""
        self.incoming: list[bytes] = []
        self.ended = False

    def send(self, views: Sequence[Buffer]) -> int:
        data = b"".join(views)[: self.room]
        if not data:
            raise BlockingIOError
        self.room -= len(data)
        self.wire += data
        return len(data)

    def send_pieces(self, data: Buffer, piece_bytes: int) -> int:
        try:
            return self.send([data])
        except BlockingIOError:
            return 0

    def receive(self, size: int) -> bytes:
        if not self.incoming:
            raise BlockingIOError
        return self.incoming.pop(0)

    def acknowledged(self, wire_bytes: int) -> int:
        return wire_bytes

    def close(self) -> None:
        self.ended = True
        super().close()


class House:
    """The connection that waits for the stream."""

    def __init__(self) -> None:
        self.open = False
        self.address = "192.0.2.1:50000"
        self.said: list[tuple[Reason, str]] = []

    def holds(self, size: int) -> None: ...

    def opened(self) -> None:
        self.open = True

    def close(self, reason: Reason, text: str = "") -> None:
        self.said.append((reason, text))


class Loop:
    """Calls the reader when it is told to."""

    def __init__(self) -> None:
        self.reader = lambda: None

    def add_reader(self, _sock, reader) -> None:
        self.reader = reader

    def remove_reader(self, _sock) -> None:
        self.reader = lambda: None

    def call_soon(self, call, *args) -> None:
        call(*args)


def opened(room: int = 1 << 40, behind: bytes = b"") -> tuple[WebSocketStream, Kernel]:
    """A stream after its handshake, whose answer is not on the wire any more."""
    kernel, loop, house = Kernel(), Loop(), House()
    stream = WebSocketStream(kernel, RULES, PROTOCOLS, loop)  # type: ignore[arg-type]
    stream.open(house)
    kernel.incoming = [request("/mqtt", "localhost", "mqtt")[0] + behind]
    loop.reader()
    assert house.open, house.said
    assert stream.ready
    assert kernel.wire.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    kernel.wire, kernel.room = b"", room
    return stream, kernel


def read(stream: WebSocketStream, kernel: Kernel) -> bytes:
    """Everything that there is to receive."""
    got = b""
    while kernel.incoming or stream.pending:
        with contextlib.suppress(BlockingIOError):
            got += stream.receive(1 << 20)
    return got


def frames(kernel: Kernel) -> Frames:
    made = Frames()
    made.feed(kernel.wire)
    return made


def offer(stream: WebSocketStream, views: Sequence[Buffer]) -> int:
    try:
        return stream.send(views)
    except BlockingIOError:
        return 0
