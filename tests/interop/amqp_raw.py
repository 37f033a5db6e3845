"""An AMQP client that does exactly as it is told, in any version: says what no well-behaved client says, and reads when
it likes. Commands are those of ``pamqp``, as 0-9-1 numbers them, in every version."""

from __future__ import annotations

import socket
import struct
import time
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, TypeVar

from pamqp import base, commands, encode, header
from pamqp.commands import Basic, Channel, Connection, Queue
from tests.interop.waiting import PATIENCE_S, received

C = TypeVar("C")

HEADERS = {"0-9-1": b"AMQP\x00\x00\x09\x01", "0-9": b"AMQP\x01\x01\x00\x09", "0-8": b"AMQP\x01\x01\x08\x00"}
VERSIONS = tuple(HEADERS)
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
CAPABILITIES = (
    "authentication_failure_close", "basic.nack", "connection.blocked", "consumer_cancel_notify",
    "exchange_exchange_bindings", "publisher_confirms",
)  # fmt: skip

_OWN: dict[str, dict[int, int]] = {
    "0-9-1": {},
    "0-9": {Basic.Recover.index: 60 << 16 | 102, Basic.RecoverOk.index: 60 << 16 | 101},
    "0-8": {Connection.Close.index: 10 << 16 | 60, Connection.CloseOk.index: 10 << 16 | 61},
}
"""How older versions number what 0-9-1 numbers otherwise."""


class Content(NamedTuple):
    """A message as it arrived. ``method``: deliver, get-ok or return."""

    method: Any
    properties: Basic.Properties
    body: bytes


class Access(NamedTuple):
    """Answer to ``access.request``."""

    ticket: int


class Heartbeat(NamedTuple):
    pass


def frame(kind: int, channel: int, payload: bytes, end: bytes = b"\xce", *, size: int | None = None) -> bytes:
    """Any frame, right or wrong."""
    return struct.pack(">BHI", kind, channel, len(payload) if size is None else size) + payload + end


def method(index: tuple[int, int], arguments: bytes = b"", channel: int = 1) -> bytes:
    """The frame of any method: class and method id, and whatever follows."""
    return frame(METHOD, channel, struct.pack(">HH", *index) + arguments)


def content_header(size: int, channel: int = 1, properties: Basic.Properties | None = None) -> bytes:
    return frame(HEADER, channel, header.ContentHeader(0, size, properties).marshal())


class Raw:
    """Logs in and opens channel 1, and with ``connect=False`` says nothing. It never acknowledges by itself."""

    peer: ClassVar[dict[str, str]] = {"product": "raw"}

    def __init__(
        self,
        port: int,
        version: str = "0-9-1",
        *,
        connect: bool = True,
        user: tuple[str, str] = ("guest", "guest"),
        frame_max: int = 0,
        channel_max: int = 0,
        heartbeat: int = 0,
        receive_buffer: int | None = None,
    ) -> None:
        self.version = version
        self.sock = socket.socket()
        if receive_buffer is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.inbox: list[tuple[int, Any]] = []
        """Channel and command, Content, Access or Heartbeat."""
        self.ended = False
        self.read_bytes = 0
        self.frame_max = 4096
        self.ticket = 0
        self._to = _OWN[version]
        self._from = {old: new for new, old in self._to.items()}
        self._tail = b""
        self._parts: dict[int, tuple[Any, list[Any]]] = {}
        if connect:
            self.greet()
            self.log_in(*user)
            self.tune(frame_max, channel_max, heartbeat)
            self.open()
            self.open_channel()
            if version != "0-9-1":
                self.access()

    def __enter__(self) -> Raw:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Vanish without a word."""
        self.sock.close()

    # -- the beginning, step by step --------------------------------------------------------------------------------

    def greet(self, opening: bytes | None = None) -> Connection.Start:
        self.send(opening or HEADERS[self.version])
        return self.expect(Connection.Start, 0)

    def log_in(
        self, user: str = "guest", password: str = "guest", *, capabilities: tuple[str, ...] = CAPABILITIES
    ) -> None:
        able: dict[str, Any] = dict.fromkeys(capabilities, True)
        self.do(Connection.StartOk({**self.peer, "capabilities": able}, "PLAIN", f"\0{user}\0{password}"), 0)

    def tune(self, frame_max: int = 0, channel_max: int = 0, heartbeat: int = 0) -> Connection.Tune:
        """Zero: what the server says, and no heartbeats."""
        offer = self.expect(Connection.Tune, 0)
        self.frame_max = frame_max or offer.frame_max or 131_072
        self.do(Connection.TuneOk(channel_max or offer.channel_max, self.frame_max, heartbeat), 0)
        return offer

    def open(self, vhost: str = "/") -> None:
        self.call(Connection.Open(virtual_host=vhost), Connection.OpenOk, 0)

    def open_channel(self, channel: int = 1) -> None:
        self.call(Channel.Open(), Channel.OpenOk, channel)

    def access(self, channel: int = 1) -> int:
        """Ask for a ticket; it goes along with all that has room for one."""
        self.send(method((30, 10), encode.short_string("/data") + b"\x1d", channel))
        self.ticket = self.expect(Access, channel).ticket
        return self.ticket

    # -- out --------------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def encode(self, command: base.Frame, channel: int = 1) -> bytes:
        arguments = command.marshal()
        if command.attributes()[:1] == ["ticket"]:
            arguments = self.ticket.to_bytes(2, "big") + arguments[2:]
        if isinstance(command, Basic.Consume) and self.version == "0-8":  # no arguments there
            assert not command.arguments
            arguments = arguments[:-4]
        index = self._to.get(command.index, command.index)
        return frame(METHOD, channel, index.to_bytes(4, "big") + arguments)

    def content(
        self, command: base.Frame, body: bytes = b"", channel: int = 1, properties: Basic.Properties | None = None
    ) -> bytes:
        most = self.frame_max - 8
        parts = [frame(BODY, channel, body[at : at + most]) for at in range(0, len(body), most)]
        return b"".join((self.encode(command, channel), content_header(len(body), channel, properties), *parts))

    def do(self, command: base.Frame, channel: int = 1) -> None:
        self.send(self.encode(command, channel))

    def call(self, command: base.Frame, answer: type[C], channel: int = 1) -> C:
        self.do(command, channel)
        return self.expect(answer, channel)

    def publish(
        self, exchange: str, routing_key: str, *bodies: bytes, channel: int = 1, mandatory: bool = False, **more: Any
    ) -> None:
        """Messages, in one write; ``more`` are properties."""
        command = Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
        properties = Basic.Properties(**more)
        self.send(b"".join(self.content(command, body, channel, properties) for body in bodies))

    def declare(self, queue: str = "", channel: int = 1, **more: Any) -> str:
        """One that goes with the connection unless told otherwise; its name."""
        more.setdefault("exclusive", True)
        return str(self.call(Queue.Declare(queue=queue, **more), Queue.DeclareOk, channel).queue)

    def sync(self, channel: int = 1) -> Raw:
        """What was said before on the channel has been carried out, and what became due by it has come."""
        for _ in range(2):
            self.call(Basic.Qos(), Basic.QosOk, channel)
        return self

    # -- in ---------------------------------------------------------------------------------------------------------

    def read(self, seconds: float = 0.0) -> bool:
        """Take in what has come, waiting so long for it. False when nothing came (or nothing more can)."""
        data = None if self.ended else received(self.sock, seconds)
        if not data:
            self.ended |= data is not None
            return False
        self.read_bytes += len(data)
        data = self._tail + data
        at = 0
        while len(data) - at >= 7:
            kind, channel, size = struct.unpack_from(">BHI", data, at)
            end = at + 7 + size
            if data[at : at + 4] == b"AMQP" or len(data) <= end:
                break
            assert data[end] == 0xCE, data[at : end + 1]
            assert size + 8 <= max(self.frame_max, 4096), (kind, size)
            self._take(kind, channel, data[at + 7 : end])
            at = end + 1
        self._tail = data[at:]
        return True

    def _take(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == HEARTBEAT:
            assert (channel, payload) == (0, b"")
            self.inbox.append((0, Heartbeat()))
        elif kind == METHOD:
            assert channel not in self._parts, "a method within a content"
            item = self._command(payload)
            if isinstance(item, Basic.Deliver | Basic.GetOk | Basic.Return):
                self._parts[channel] = item, []
            else:
                self.inbox.append((channel, item))
        else:
            command, parts = self._parts[channel]
            assert (kind == HEADER) == (not parts)
            if kind == HEADER:
                parts.append(header.ContentHeader())
                parts[0].unmarshal(payload)
            else:
                parts.append(payload)
            body = b"".join(parts[1:])
            if len(body) >= parts[0].body_size:
                assert len(body) == parts[0].body_size
                del self._parts[channel]
                self.inbox.append((channel, Content(command, parts[0].properties, body)))

    def _command(self, payload: bytes) -> Any:
        index = int.from_bytes(payload[:4], "big")
        if index == 30 << 16 | 11:
            return Access(int.from_bytes(payload[4:], "big"))
        command = commands.INDEX_MAPPING[self._from.get(index, index)]()
        if not (self.version == "0-8" and isinstance(command, Channel.OpenOk)):  # it has no argument there
            command.unmarshal(payload[4:])
        return command

    def expect(self, kind: type[C], channel: int = 1, seconds: float = PATIENCE_S) -> C:
        """The next of a kind on a channel; what else comes stays in the inbox."""
        deadline = time.monotonic() + seconds
        looked = 0
        while True:
            for index in range(looked, len(self.inbox)):
                where, item = self.inbox[index]
                if where == channel and isinstance(item, kind):
                    del self.inbox[index]
                    return item
            looked = len(self.inbox)
            if not self.read(deadline - time.monotonic()) and (self.ended or time.monotonic() > deadline):
                shown = [(where, getattr(item, "name", item), vars_of(item)) for where, item in self.inbox[:5]]
                raise AssertionError(f"no {kind.__name__}: {'the end' if self.ended else f'{seconds:g} s'}, {shown}")

    def contents(self, count: int, channel: int = 1) -> list[Content]:
        return [self.expect(Content, channel) for _ in range(count)]

    def bodies(self, count: int, channel: int = 1) -> list[bytes]:
        return [content.body for content in self.contents(count, channel)]

    def get(self, queue: str, channel: int = 1, *, no_ack: bool = False) -> Content | None:
        self.do(Basic.Get(queue=queue, no_ack=no_ack), channel)
        answer: Any = self.expect(object, channel)
        return answer if isinstance(answer, Content) else None

    def wait_end(self, seconds: float = PATIENCE_S) -> None:
        """Read until the broker closes."""
        deadline = time.monotonic() + seconds
        while not self.ended:
            assert self.read(deadline - time.monotonic()) or self.ended, "the connection is still open"

    def channel_closed(self, channel: int = 1) -> Channel.Close:
        """The broker closes the channel; that is granted, and the connection goes on."""
        close = self.expect(Channel.Close, channel)
        self.do(Channel.CloseOk(), channel)
        return close

    def connection_closed(self) -> Connection.Close:
        """The broker closes the connection; that is granted, and the broker hangs up."""
        close = self.expect(Connection.Close, 0)
        self.do(Connection.CloseOk(), 0)
        self.wait_end()
        return close

    def raw_end(self) -> bytes:
        """What the broker says, not read as frames, up to its hanging up."""
        self.wait_end()
        return self._tail


def vars_of(item: Any) -> dict[str, Any]:
    return dict(item) if isinstance(item, base.Frame) else {}
