"""Decodes one AMQP client's bytes, frame by frame: methods to ``pamqp`` commands, acks to batches, messages to runs.

Theory of operation. The decoder itself finds the ends of frames, for a frame may have come only in part. A complete
message begins a run at its ``basic.publish`` (scan.py). A message that has come in part, or has several body frames, is
put together per channel. Properties are not read but passed on as they came; code that needs one reads it
(properties.py).

Rules:
- Errors are ``ProtocolError`` with the specification's reply code; all errors of the decoder end the connection (0-9-1,
  4.2). The text names the frame by the offset of its first byte in the client's stream.
- The sizes of the reads make no difference, except to the number of messages in a run and of acks in a batch.
- A frame longer than ``frame_bytes_max`` is refused when its length is read, before it is buffered. Each channel has at
  most one incomplete message, of at most ``message_bytes_max``.
"""

from __future__ import annotations

import struct

from pamqp import base, commands

from headway.core.base import ProtocolError, Reason
from headway.core.message import Run, topic_of
from headway.wire.amqp.codes import AMQP_0_9_1, HEADER_BYTES, ReplyCode, Version, version_asked
from headway.wire.amqp.primitives import AmqpReader
from headway.wire.amqp.replies import FROM_CLIENT, read_arguments
from headway.wire.amqp.scan import (
    ACK,
    ACK_FRAME_BYTES,
    CONTENT,
    FRAME_END,
    FRAME_OVERHEAD,
    HEADER_BYTES_MIN,
    PROPERTIES_AT,
    Access,
    Address,
    Heartbeat,
    Item,
    Method,
    Opening,
    Oversize,
    PublishedRun,
    extend_run,
    find_whole,
    read_acks,
)
from headway.wire.common import Remembered
from headway.wire.decoder import FrameDecoder
from headway.wire.dialect import pieces_work

FRAME_BYTES_MIN = 4096
"""The largest frame that both sides must be able to take, and the limit until one has been agreed on (0-9-1, 4.2.3)."""
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
CONNECTION = 10
ACCESS_REQUEST = 30 << 16 | 10
CHANNEL_CLOSE_OK = 20 << 16 | 41
PUBLISH = 60 << 16 | 40
METHOD_WORK, PUBLISH_WORK, SHARE_BYTES = 7, 5, 64
"""Extra units of a turn's work (server/connections/turn_budget.py): for a method, for the first message of a run, and
one for each so many bytes of a method."""
PUBLISHES_BYTES_MAX = 1_000_000
"""The arguments of more than a thousand routing keys are remembered."""
ADDRESS_BYTES, CONTENT_BYTES = 500, 500
"""The memory of an address that is remembered, besides four times its text, and of a message that has begun."""
"""Different publish frames whose arguments are cached."""
_FRAME = struct.Struct(">BHI")
_FRAME_HEADER_BYTES = 7


class _Content:
    """An incomplete message."""

    __slots__ = ("address", "body", "number", "properties", "waiting")

    def __init__(self, address: Address, number: int) -> None:
        self.address = address
        self.number = number
        self.properties: bytes | None = None
        self.waiting = 0
        self.body: bytearray | None = bytearray()
        """Received part of the body; None: the body is skipped."""


class AmqpDecoder(FrameDecoder[Item]):
    """``frame_bytes_max`` is set anew once ``connection.tune`` has been answered; ``message_bytes_max`` may be changed
    between feeds."""

    __slots__ = (
        "_begun", "_contents", "_publishes", "frame_bytes_max", "message_bytes_max", "version",
    )  # fmt: skip

    def __init__(self, message_bytes_max: int) -> None:
        super().__init__()
        self.message_bytes_max = message_bytes_max
        self.frame_bytes_max = FRAME_BYTES_MIN
        self.version: Version | None = None
        self._contents: dict[int, _Content] = {}
        self._begun = 0
        """Number of messages that came in parts, counted below zero: ``packets`` numbers all else."""
        self._publishes = Remembered[bytes, Address](PUBLISHES_BYTES_MAX)

    @property
    def buffered_bytes(self) -> int:
        """Bytes held of incomplete frames and messages."""
        if not self._contents:
            return len(self.tail.data)
        return len(self.tail.data) + sum(len(content.body or b"") for content in self._contents.values())

    @property
    def overhead_bytes(self) -> int:
        if not self._contents:
            return 0
        return sum(CONTENT_BYTES + len(content.properties or b"") for content in self._contents.values())

    @property
    def missing_bytes(self) -> int:
        """Bytes still to come of incomplete frames and messages."""
        waiting = sum(content.waiting for content in self._contents.values() if content.body is not None)
        return max(waiting, self.tail.missing_bytes)

    @property
    def oldest(self) -> int:
        return next((content.number for content in self._contents.values() if content.body), self.packets)

    def forget(self, channel: int) -> None:
        """Drops the channel's incomplete message, and skips the rest of it: the broker closes the channel."""
        content = self._contents.get(channel)
        if content is not None:
            content.body = None

    def _frames(self, data: bytes, pos: int, items: list[Item], items_max: int) -> int:
        n = len(data)
        if self.version is None and items_max:
            if n < HEADER_BYTES and b"AMQP".startswith(data[:4]):
                self.tail.need_bytes = n + 1  # a byte that is wrong is told as soon as it is there
                return 0
            self.version = version_asked(data[:HEADER_BYTES])
            items.append(Opening(self.version))
            if self.version is None:
                self._done = True
                return n
            pos = HEADER_BYTES
        try:
            while n - pos >= _FRAME_HEADER_BYTES and len(items) + self.extra_work < items_max:
                kind, channel, size = _FRAME.unpack_from(data, pos)
                if kind not in (METHOD, HEADER, BODY, HEARTBEAT):
                    raise _fault(ReplyCode.FRAME_ERROR, f"is of the unknown type {kind}")
                if size + FRAME_OVERHEAD > self.frame_bytes_max:
                    raise _fault(
                        ReplyCode.FRAME_ERROR, f"has {size + FRAME_OVERHEAD} bytes (at most {self.frame_bytes_max})"
                    )
                end = pos + size + FRAME_OVERHEAD
                if end > n:
                    self.tail.need_bytes = end - pos
                    return pos
                if data[end - 1] != FRAME_END[0]:
                    raise _fault(ReplyCode.FRAME_ERROR, f"ends with 0x{data[end - 1]:02x} instead of 0xce")
                if kind == METHOD:
                    pos = self._method(data, pos, end, channel, items)
                    continue
                if kind == HEARTBEAT:
                    if channel:
                        raise _fault(ReplyCode.FRAME_ERROR, f"is a heartbeat on channel {channel}")
                    items.append(Heartbeat())
                    self.packets += 1
                else:
                    self._content(kind, channel, data[pos + _FRAME_HEADER_BYTES : end - 1], items)
                pos = end
        except ProtocolError as error:
            self._fail(pos, error)
            self._contents.clear()
            return n
        self.tail.need_bytes = _FRAME_HEADER_BYTES
        return pos

    # -- methods ----------------------------------------------------------------------------------------------------

    def _method(self, data: bytes, pos: int, end: int, channel: int, items: list[Item]) -> int:
        """Decodes the method frame at ``data[pos:end]`` and the frames that belong to it; returns their end."""
        version = self.version or AMQP_0_9_1
        if end - pos < FRAME_OVERHEAD + 4:
            raise _fault(ReplyCode.SYNTAX_ERROR, "is a method without class and method ids")
        given = int.from_bytes(data[pos + 7 : pos + 11], "big")
        if channel in self._contents:
            if given != CHANNEL_CLOSE_OK:
                text = f"is a method on channel {channel}, in the middle of a message"
                raise _fault(ReplyCode.UNEXPECTED_FRAME, text)
            del self._contents[channel]  # the broker closed the channel, and the client gave up the message
        if (given >> 16 == CONNECTION) != (channel == 0):
            which = "for the connection, and on" if channel else "for a channel, and on"
            raise _fault(ReplyCode.COMMAND_INVALID, f"is a method {which} channel {channel}")
        if given == PUBLISH:
            return self._publish(data, pos, end, channel, items)
        if given == ACK and end - pos == ACK_FRAME_BYTES:
            stop, acks = read_acks(data, pos, channel)
            items.append(acks)
            self.packets += len(acks.tags)
            return stop
        self.packets += 1
        if given == ACCESS_REQUEST and version.has_tickets:
            items.append(Access(channel))
            return end
        kind: type[base.Frame] | None = commands.INDEX_MAPPING.get(version.to_091(given))
        if kind is None:
            raise _fault(ReplyCode.NOT_IMPLEMENTED, f"is the unknown method {given & 0xFFFF} of class {given >> 16}")
        if kind not in FROM_CLIENT:
            raise _fault(ReplyCode.COMMAND_INVALID, f"({kind.name}) is what only servers say")
        try:
            command = read_arguments(kind, AmqpReader(data, pos + 11, end - 1), version)
        except ProtocolError as error:
            raise _fault(ReplyCode.SYNTAX_ERROR, f"({kind.name}) {error}") from None
        items.append(Method(channel, command))
        self.extra_work += METHOD_WORK + (end - pos) // SHARE_BYTES
        return end

    def _publish(self, data: bytes, pos: int, end: int, channel: int, items: list[Item]) -> int:
        address = self._address(data[pos + 11 : end - 1])
        payload_bytes_max = min(self.message_bytes_max, self.frame_bytes_max - FRAME_OVERHEAD)
        whole = find_whole(data, pos, end, payload_bytes_max, self.frame_bytes_max)
        if whole is None:
            self._begun -= 1
            self._contents[channel] = _Content(address, self._begun)
            self.extra_work += 1
            return end
        properties = data[end + PROPERTIES_AT : whole.header_end - 1]
        stop, ends, bodies = extend_run(data, pos, whole, payload_bytes_max)
        run = Run(address.topic, data[pos : pos + ends[-1]], ends, bodies, exchange=address.exchange)
        items.append(PublishedRun(channel, address, properties, run))
        self.packets += len(ends)
        self.extra_work += PUBLISH_WORK + pieces_work(ends)
        return stop

    def _address(self, arguments: bytes) -> Address:
        """Reads the arguments of a publish frame; equal frames are read once."""
        address = self._publishes.get(arguments)
        if address is None:
            try:
                command = read_arguments(commands.Basic.Publish, AmqpReader(arguments), AMQP_0_9_1)
            except ProtocolError as error:
                raise _fault(ReplyCode.SYNTAX_ERROR, f"(Basic.Publish) {error}") from None
            assert isinstance(command, commands.Basic.Publish)
            key = command.routing_key
            address = Address(command.exchange, key, command.mandatory, command.immediate, topic_of(key))
            self._publishes.keep(arguments, address, ADDRESS_BYTES + 4 * len(arguments))
            self.remembered_bytes = self._publishes.bytes
        return address

    def remember_less(self) -> bool:
        self._publishes.clear()
        self.remembered_bytes = 0
        return True

    # -- messages in parts ------------------------------------------------------------------------------------------

    def _content(self, kind: int, channel: int, payload: bytes, items: list[Item]) -> None:
        content = self._contents.get(channel)
        if content is None or (kind == HEADER) != (content.properties is None):
            what = "header" if kind == HEADER else "body"
            raise _fault(ReplyCode.UNEXPECTED_FRAME, f"is a content {what} on channel {channel} that nothing asks for")
        if kind == HEADER:
            if len(payload) < HEADER_BYTES_MIN - FRAME_OVERHEAD or payload[:4] != CONTENT:
                raise _fault(ReplyCode.UNEXPECTED_FRAME, "is no content header of class basic")
            content.waiting = int.from_bytes(payload[4:12], "big")
            content.properties = payload[12:]
            if content.waiting > self.message_bytes_max and content.body is not None:
                content.body = None
                items.append(Oversize(channel, content.address, content.waiting))
        else:
            if len(payload) > content.waiting:
                text = f"brings {len(payload)} bytes of a body that lacks {content.waiting}"
                raise _fault(ReplyCode.FRAME_ERROR, text)
            content.waiting -= len(payload)
            if content.body is not None:
                content.body += payload
        if content.waiting:
            self.extra_work += 1
            return
        del self._contents[channel]
        self.packets += 1
        address, body = content.address, content.body
        if body is None:
            self.extra_work += 1
        else:
            self.extra_work += PUBLISH_WORK
            run = Run(address.topic, bytes(body), [len(body)], [0], exchange=address.exchange)
            items.append(PublishedRun(channel, address, content.properties or b"", run))


def _fault(code: ReplyCode, text: str) -> ProtocolError:
    return ProtocolError(text, reason=Reason.MALFORMED, code=code)
