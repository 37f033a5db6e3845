"""Decodes one client's bytes, frame by frame: performatives to tuples, whole messages to runs.

Theory of operation. A protocol header comes first; behind the SASL layer another one follows. Frames have their size in
front. A message that has come whole in one transfer begins a run (scan.py); one that comes in several frames is put
together per link.

Rules:
- Errors are ``ProtocolError`` with an error condition, and all errors of the decoder end the connection. The text names
  the frame by the offset of its first byte in the client's stream.
- A message that has no form is the fault of its sender alone: it is an item (``Lost``), and the link goes on.
- A frame longer than ``frame_bytes_max`` is refused when its size is read. Each link has at most one incomplete
  message, of at most ``message_bytes_max``; what comes beyond that is skipped.
- A message that is resumed is skipped: the broker says of every link that it knows no unsettled message, and what is
  resumed in spite of that has to be ignored (2.7.5).
- The sizes of the reads make no difference, except to the number of messages in a run.
"""

from __future__ import annotations

from headway.core.base import ProtocolError, Reason
from headway.wire.amqp1.items import Empty, Frame, Item, Layer, Lost, Opening, SaslFrame
from headway.wire.amqp1.performatives import FRAMES, SASL_FRAMES, Attach, Detach, End, Transfer, build, descriptor_of
from headway.wire.amqp1.scan import HEADER_BYTES, Fields, extend, is_transfer, read_transfer, whole_message
from headway.wire.amqp1.values import Condition, Described, malformed, read
from headway.wire.decoder import FrameDecoder

FRAME_BYTES_MIN = 512
"""The largest frame that both sides must be able to take (2.8.19), and the limit of the SASL layer (5.3.1)."""
PROTOCOL = b"AMQP"
RUN_MAX = 1024
"""Messages of one run."""
PARTIAL_MAX = 256
"""Links of a connection that may have an incomplete message at once."""
PARTIAL_BYTES, HEAD_BYTE_BYTES = 500, 10
"""The memory of an incomplete message besides its body; that of a byte of its first transfer, which is kept as read."""
FRAME_WORK, SHARE_BYTES = 3, 8
"""A performative takes the time of so many small items besides itself, and of one for so many bytes."""
TRANSFER_WORK, JOINED_A_UNIT = 9, 2
"""Extra units of a turn's work: for a transfer that is read by itself; and one for so many of its run that were only
compared with it."""
_LAYERS = {0: Layer.AMQP, 2: Layer.TLS, 3: Layer.SASL}


class _Partial:
    """An incomplete message of a link. ``body`` None: it is skipped. ``kept_bytes``: the memory of all but its body."""

    __slots__ = ("body", "first", "frames", "kept_bytes", "number", "text")

    def __init__(self, first: Transfer, head_bytes: int, number: int) -> None:
        self.first = first
        self.kept_bytes = PARTIAL_BYTES + HEAD_BYTE_BYTES * head_bytes
        self.number = number
        self.frames = 0
        self.body: bytearray | None = bytearray()
        self.text = ""


class Amqp1Decoder(FrameDecoder[Item]):
    """``frame_bytes_max`` is what the broker said in its open; ``message_bytes_max`` may be changed between feeds."""

    __slots__ = ("_begun", "_partial", "frame_bytes_max", "layer", "message_bytes_max")

    def __init__(self, message_bytes_max: int, frame_bytes_max: int = FRAME_BYTES_MIN) -> None:
        super().__init__()
        self.message_bytes_max = message_bytes_max
        self.frame_bytes_max = frame_bytes_max
        self.layer: Layer | None = None
        """The layer whose frames come now; None: a protocol header comes."""
        self._partial: dict[tuple[int, int], _Partial] = {}
        self._begun = 0
        """Number of messages that came in parts, counted below zero: ``packets`` numbers all else."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes held of incomplete frames and messages."""
        return len(self.tail.data) + sum(len(one.body or b"") for one in self._partial.values())

    @property
    def overhead_bytes(self) -> int:
        return sum(one.kept_bytes for one in self._partial.values())

    @property
    def unknown_bytes(self) -> int:
        """The size of a message is known only at its end."""
        return sum(self.message_bytes_max - len(one.body) for one in self._partial.values() if one.body is not None)

    @property
    def oldest(self) -> int:
        return next((one.number for one in self._partial.values() if one.body), self.packets)

    def forget(self, channel: int, handle: int | None = None) -> None:
        """Drops the incomplete message of a link that has ended, or of all links of a session."""
        for key in [key for key in self._partial if key[0] == channel and handle in (None, key[1])]:
            del self._partial[key]

    def skip(self, channel: int, handle: int | None = None) -> None:
        """Skips the rest of the incomplete message of a link that the broker has ended, or of all links of a session:
        the client does not know yet, and goes on with it."""
        for key, one in self._partial.items():
            if key[0] == channel and handle in (None, key[1]):
                one.body = None

    def _frames(self, data: bytes, pos: int, items: list[Item], items_max: int) -> int:
        n = len(data)
        try:
            while n - pos >= HEADER_BYTES and len(items) + self.extra_work < items_max:
                if self.layer is None or (self.layer is Layer.SASL and data.startswith(PROTOCOL, pos)):
                    pos = self._opening(data, pos, items)
                    if self._done:
                        return n
                    continue
                size = int.from_bytes(data[pos : pos + 4], "big")
                if size > self.frame_bytes_max:
                    text = f"has {size} bytes (at most {self.frame_bytes_max})"
                    raise _fault(Condition.FRAMING_ERROR, text)
                if size < HEADER_BYTES:
                    raise _fault(Condition.FRAMING_ERROR, f"says that it has {size} bytes, fewer than its header")
                if size > n - pos:
                    self.tail.need_bytes = size
                    return pos
                pos = self._frame(data, pos, pos + size, items)
            if self.layer is None and pos == 0 and 0 < n < HEADER_BYTES and not PROTOCOL.startswith(data[:4]):
                self._opening(data, 0, items)
                return n
        except ProtocolError as error:
            self._fail(pos, error)
            self._partial.clear()
            return n
        # A byte of the first header that is wrong is told as soon as it is there.
        self.tail.need_bytes = n + 1 if self.layer is None else HEADER_BYTES
        return pos

    def _opening(self, data: bytes, pos: int, items: list[Item]) -> int:
        header = data[pos : pos + HEADER_BYTES]
        layer = Layer.UNKNOWN
        if header[:4] == PROTOCOL and header[5:] == b"\1\0\0":
            layer = _LAYERS.get(header[4], Layer.UNKNOWN)
        items.append(Opening(layer))
        self.layer = layer
        self._done = layer in (Layer.UNKNOWN, Layer.TLS)
        return pos + HEADER_BYTES

    def _frame(self, data: bytes, pos: int, end: int, items: list[Item]) -> int:
        """Decodes the frame at ``data[pos:end]``, and those that belong to its run; returns their end."""
        offset, kind = data[pos + 4], data[pos + 5]
        at = pos + 4 * offset
        if offset < 2 or at > end:
            raise _fault(Condition.FRAMING_ERROR, f"begins its body at word {offset}")
        if (kind == 1) != (self.layer is Layer.SASL):
            raise _fault(Condition.FRAMING_ERROR, f"is of type {kind}, which is not expected now")
        if kind > 1:
            raise _fault(Condition.FRAMING_ERROR, f"is of the unknown type {kind}")
        channel = int.from_bytes(data[pos + 6 : pos + 8], "big")
        if at == end:
            if kind:
                raise _fault(Condition.FRAMING_ERROR, "of SASL is empty")
            items.append(Empty())
            self.packets += 1
            return end
        if not kind and is_transfer(data, at, end):
            return self._transfer(data, pos, at, end, channel, items)
        self.extra_work += FRAME_WORK + (end - at) // SHARE_BYTES
        value, stop = read(data, at, end)
        number = descriptor_of(value.descriptor) if isinstance(value, Described) else 0
        if number not in (SASL_FRAMES if kind else FRAMES):
            raise _fault(Condition.NOT_ALLOWED, f"has the performative 0x{number:02x}, which no client says here")
        if stop != end:
            raise malformed(f"has {end - stop} bytes behind its performative")
        performative = build(value)
        self.packets += 1
        if kind:
            items.append(SaslFrame(performative))
            return end
        if isinstance(performative, Detach | Attach):
            self.forget(channel, performative.handle)
        elif isinstance(performative, End):
            self.forget(channel)
        items.append(Frame(channel, performative))
        return end

    # -- messages -----------------------------------------------------------------------------------------------------

    def _transfer(self, data: bytes, pos: int, at: int, end: int, channel: int, items: list[Item]) -> int:
        self.extra_work += TRANSFER_WORK
        fields = read_transfer(data, at, end)
        transfer = fields.transfer
        key = (channel, transfer.handle)
        partial = self._partial.get(key)
        if partial is None:
            if transfer.delivery_id is None:
                raise _fault(Condition.INVALID_FIELD, "begins a message without a delivery id")
            if transfer.aborted or (transfer.resume and not transfer.more):
                items.append(_lost(channel, transfer, 1, aborted=True))
                return end
            if not transfer.more:
                return self._whole(data, pos, end, channel, fields, items)
            if len(self._partial) >= PARTIAL_MAX:
                text = f"begins a message while those of {PARTIAL_MAX} other links are incomplete"
                raise _fault(Condition.RESOURCE_LIMIT_EXCEEDED, text)
            self._begun -= 1
            partial = self._partial[key] = _Partial(transfer, fields.payload_at - pos, self._begun)
            if transfer.resume:
                partial.body = None
        self._continue(data, end, channel, fields, partial, items)
        return end

    def _whole(self, data: bytes, pos: int, end: int, channel: int, fields: Fields, items: list[Item]) -> int:
        transfer = fields.transfer
        if end - fields.payload_at > self.message_bytes_max:
            items.append(_lost(channel, transfer, 1, self._too_large(end - fields.payload_at)))
            return end
        try:
            item, done, alike = extend(data, pos, end, channel, fields, RUN_MAX)
        except ProtocolError as error:
            items.append(_lost(channel, transfer, 1, f"the message {error}"))
            return end
        items.append(item)
        self.packets += item.frames
        self.extra_work += TRANSFER_WORK * alike + item.frames // JOINED_A_UNIT
        return done

    def _continue(self, data: bytes, end: int, channel: int, fields: Fields, partial: _Partial,
                  items: list[Item]) -> None:  # fmt: skip
        transfer, first = fields.transfer, partial.first
        if transfer.delivery_id is not None and transfer.delivery_id != first.delivery_id:
            raise _fault(Condition.INVALID_FIELD, "begins a message within another one of the same link")
        partial.frames += 1
        if transfer.settled and not first.settled:
            partial.first = first = first._replace(settled=True)
        if partial.body is not None:
            partial.body += data[fields.payload_at : end]
            if len(partial.body) > self.message_bytes_max:
                partial.text, partial.body = self._too_large(len(partial.body)), None
        if transfer.more and not transfer.aborted:
            self.extra_work += 1
            return
        del self._partial[(channel, transfer.handle)]
        self.packets += 1
        if transfer.aborted or partial.body is None:
            aborted = bool(transfer.aborted or first.resume)
            items.append(_lost(channel, first, partial.frames, partial.text, aborted=aborted))
            return
        try:
            items.append(whole_message(channel, first, bytes(partial.body), partial.frames))
        except ProtocolError as error:
            items.append(_lost(channel, first, partial.frames, f"the message {error}"))

    def _too_large(self, size: int) -> str:
        return f"the message has {size} bytes or more (at most {self.message_bytes_max})"


def _lost(channel: int, first: Transfer, frames: int, text: str = "", *, aborted: bool = False) -> Lost:
    settled = bool(first.settled)
    return Lost(channel, first.handle, first.delivery_id or 0, settled, frames, aborted, text)


def _fault(condition: Condition, text: str) -> ProtocolError:
    return ProtocolError(text, reason=Reason.PROTOCOL_ERROR, code=condition)
