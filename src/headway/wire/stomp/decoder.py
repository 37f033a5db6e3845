"""Decodes one STOMP client's bytes, frame by frame.

Theory of operation. A frame's head ends with an empty line. Its body has ``content-length`` bytes, or goes on to the
first NUL. Neighbouring SEND frames with the same head become one run: their head is compared as bytes and parsed once.
Heads are remembered, so a publisher that says the same of all its messages has its head parsed once.

Rules:
- The version is agreed on by CONNECT, whatever the peer does with it: frames behind it are read as that version has it.
- Line ends between frames are heart-beats; they bring no item, and neither does a stray NUL. A carriage return before a
  line feed is part of the line end, in every version: no client of an older one ends its values with one.
- A head has ``HEAD_BYTES_MAX`` bytes and ``HEADERS_MAX`` headers at most, a frame ``packet_bytes_max``, and the first
  frame ``CONNECT_BYTES_MAX``. What is larger is refused before it is buffered.
- A body that is not SEND's is skipped. Neighbouring ACK frames without a receipt or a transaction are one item.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from headway.core.base import ProtocolError, Reason
from headway.wire.common import Remembered
from headway.wire.decoder import ALL, Decoder
from headway.wire.dialect import pieces_work, same_frames
from headway.wire.stomp.destinations import destinations_of, plain_run
from headway.wire.stomp.versions import (
    BAD_COMMAND,
    BAD_FRAME,
    NO_DESTINATION,
    V1_0,
    V1_2,
    Acks,
    Connect,
    Frame,
    Headers,
    Item,
    Sent,
    StompFault,
    Version,
    agreed,
    unescaped,
)

CONNECT_BYTES_MAX = 16 * 1024
HEAD_BYTES_MAX = 64 * 1024
HEADERS_MAX = 500
HEADER_BYTES = 200
"""The memory of a header that is remembered, besides its text."""
RUN_MAX, UNEVEN_MAX = 4096, 1024
"""Frames of one run; of one whose frames were read one by one."""
COMMANDS = frozenset({
    "CONNECT", "STOMP", "SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "DISCONNECT",
})  # fmt: skip
FRAME_WORK, HEAD_SHARE_BYTES = 2, 32
"""Extra units of a turn's work: for a frame other than SEND, and one for so many bytes of a head that is not known
yet."""
_COMMAND_BYTES_MAX = 32
_ACKS = {
    header: re.compile(
        rb"ACK\n(?:subscription:[^\n\\\0]*\n)?" + header + rb":(\d{1,18})\n(?:subscription:[^\n\\\0]*\n)?\n\0[\r\n]*"
    )
    for header in (b"id", b"message-id")
}
"""ACK frames as most clients write them, by the header that names the delivery."""
_EOLS = re.compile(rb"[\r\n\0]+")
_EMPTY_LINE = re.compile(rb"\n\r?\n")


class _Head:
    """A head, parsed. ``body_bytes``: the size of the body; -1: it goes on to the first NUL."""

    __slots__ = ("body_bytes", "command", "headers")

    def __init__(self, command: str, headers: Headers, body_bytes: int) -> None:
        self.command = command
        self.headers = headers
        self.body_bytes = body_bytes


class StompDecoder(Decoder[Item]):
    __slots__ = ("_bytes", "_connecting", "_heads", "_in_body", "packet_bytes_max", "version")

    def __init__(self, packet_bytes_max: int) -> None:
        super().__init__()
        self.packet_bytes_max = packet_bytes_max
        self.version: Version = V1_0
        self._connecting = True
        """Whether the first frame is still to come."""
        self._in_body = False
        """Whether the bytes that are kept end within a body of unknown size."""
        self._heads = Remembered[bytes, _Head]()

    @property
    def _limit(self) -> int:
        return min(CONNECT_BYTES_MAX, self.packet_bytes_max) if self._connecting else self.packet_bytes_max

    @property
    def unknown_bytes(self) -> int:
        """A head, and a body without a content-length, may be as large as a frame."""
        held = len(self.tail.data)
        return max(0, self._limit - held) if held and not self.tail.need_bytes else 0

    def feed(self, data: bytes | bytearray | memoryview, items_max: int = ALL) -> list[Item]:
        tail = self.tail.data
        if self._in_body and self.error is None and tail and data and b"\0" not in bytes(data):
            if len(tail) + len(data) > self._limit:
                self.error = self._too_large(len(tail) + len(data))
                tail.clear()
            else:
                tail += data  # a body of unknown size is not looked through again with each read
            self.extra_work = 0
            return []
        return super().feed(data, items_max)

    def _scan(self, data: bytes, pos: int, items: list[Item], items_max: int) -> int:
        self._in_body = False
        self.tail.need_bytes = 0
        try:
            return self._frames(data, pos, items, items_max)
        except ProtocolError as error:
            self.error = error
        except UnicodeDecodeError:
            self.error = _bad("a frame's head is not UTF-8")
        return len(data)

    def _frames(self, data: bytes, pos: int, items: list[Item], items_max: int) -> int:
        n = len(data)
        while len(items) + self.extra_work < items_max:
            pos = _between(data, pos)
            if pos >= n:
                return pos
            if data.startswith(b"ACK\n", pos) and not self._connecting:
                after = self._acks(data, pos, items)
                if after > pos:
                    pos = after
                    continue
            body_at = _head_end(data, pos)
            if body_at < 0:
                self._check_part(data, pos, n)
                return pos
            raw = data[pos:body_at]
            head = self._heads.get(raw) or self._parse(raw)
            if head.command == "SEND":
                at = self._sent(data, pos, body_at, raw, head, items)
            else:
                end = self._body_end(data, pos, body_at, head.body_bytes)
                at = end + 1 if end >= 0 else -1
                if at > 0:
                    items.append(self._item(head))
                    self.extra_work += FRAME_WORK
                    self.packets += 1
            if at < 0:
                return pos
            pos = at
        return pos

    # -- heads ------------------------------------------------------------------------------------------------------

    def _check_part(self, data: bytes, pos: int, n: int) -> None:
        """Checks the part of a head that has come. Raises ProtocolError."""
        if n - pos > min(HEAD_BYTES_MAX, self._limit):
            raise _bad(f"a frame's head has more than {min(HEAD_BYTES_MAX, self._limit)} bytes",
                       Reason.PACKET_TOO_LARGE)
        line = data.find(b"\n", pos)
        if line < 0 and n - pos > _COMMAND_BYTES_MAX:
            raise _unknown(_text(data[pos : pos + 32]))
        if line >= 0 and _text(data[pos:line]).rstrip("\r") not in COMMANDS:
            raise _unknown(_text(data[pos:line]))

    def _parse(self, raw: bytes) -> _Head:
        if len(raw) > min(HEAD_BYTES_MAX, self._limit):
            raise _bad(f"a frame's head has {len(raw)} bytes (at most {min(HEAD_BYTES_MAX, self._limit)})",
                       Reason.PACKET_TOO_LARGE)
        if b"\0" in raw:
            raise _bad("a frame ends within its head")
        command, *lines = raw.decode().replace("\r\n", "\n").split("\n")
        if command not in COMMANDS:
            raise _unknown(command)
        lines = [line for line in lines if line]
        if len(lines) > HEADERS_MAX:
            raise _bad(f"a frame has {len(lines)} headers (at most {HEADERS_MAX})", Reason.PACKET_TOO_LARGE)
        escapes = command not in ("CONNECT", "STOMP")
        headers = _headers(lines, self.version if escapes else V1_0)
        head = _Head(command, headers, _length(headers))
        self.extra_work += len(raw) // HEAD_SHARE_BYTES
        if escapes and "receipt" not in headers:
            self._heads.keep(raw, head, HEADER_BYTES * (2 + len(headers)) + 2 * len(raw))
            self.remembered_bytes = self._heads.bytes
        return head

    def remember_less(self) -> bool:
        self._heads.clear()
        self.remembered_bytes = 0
        return True

    def _item(self, head: _Head) -> Item:
        if head.command in ("CONNECT", "STOMP"):
            if not self._connecting:
                raise _bad("a second CONNECT came", Reason.PROTOCOL_ERROR)
            version = agreed(head.headers.get("accept-version"))
            self._connecting = False
            self.version = V1_0 if version is None else version
            return Connect(head.headers, version)
        if self._connecting:
            raise _bad(f"{head.command} came before CONNECT", Reason.PROTOCOL_ERROR)
        return Frame(head.command, head.headers)

    def _acks(self, data: bytes, pos: int, items: list[Item]) -> int:
        """Reads neighbouring ACK frames that are as most clients write them. Returns the position behind them."""
        match = _ACKS[b"id" if self.version is V1_2 else b"message-id"].match
        ids: list[int] = []
        while len(ids) < RUN_MAX and (found := match(data, pos)) is not None:
            ids.append(int(found[1]))
            pos = found.end()
        if ids:
            items.append(Acks(tuple(ids)))
            self.packets += len(ids)
        return pos

    # -- bodies -----------------------------------------------------------------------------------------------------

    def _body_end(self, data: bytes, pos: int, body_at: int, body_bytes: int) -> int:
        """Returns the position of the NUL behind a body; -1: it has not come. Raises ProtocolError."""
        if body_bytes < 0:
            end = data.find(b"\0", body_at)
            if end < 0:
                if len(data) - pos > self._limit:
                    raise self._too_large(len(data) - pos)
                self._in_body = True
            elif end - pos > self._limit:
                raise self._too_large(end - pos)
            return end
        end = body_at + body_bytes
        if end - pos > self._limit:
            raise self._too_large(end - pos)
        if end >= len(data):
            self.tail.need_bytes = end + 1 - pos
            return -1
        if data[end]:
            raise _bad(f"content-length is {body_bytes}, and there is no NUL behind so many bytes")
        return end

    def _sent(self, data: bytes, pos: int, body_at: int, raw: bytes, head: _Head, items: list[Item]) -> int:
        """Reads neighbouring SEND frames with one head. Returns the position behind them; -1: the first is not whole.
        """
        if self._connecting:
            raise _bad("SEND came before CONNECT", Reason.PROTOCOL_ERROR)
        destination = head.headers.get("destination")
        if destination is None:
            raise StompFault(NO_DESTINATION, "SEND has no destination")
        end = self._body_end(data, pos, body_at, head.body_bytes)
        if end < 0:
            return -1
        alone, found = "receipt" in head.headers, destinations_of(destination)
        ends = _even(data, pos, end, raw, 1 if alone else RUN_MAX)
        if head.body_bytes >= 0 or (len(ends) > 1 and _each_ends_once(data, pos, ends)):
            size = end - body_at
            bodies: Sequence[int] = range(ends[0] - size, ends[-1] - size + 1, ends.step)
            stop = pos + ends[-1]
            run = plain_run(found, data[pos:stop], ends, bodies)
        else:
            ups, starts = [end - pos], [body_at - pos]
            at = _behind(data, end)
            while not alone and len(ups) < UNEVEN_MAX and data.startswith(raw, at):
                end = self._body_end(data, at, at + len(raw), -1)
                if end < 0:
                    self._in_body = False  # it is looked at again, behind this run
                    break
                ups.append(end - pos)
                starts.append(at + len(raw) - pos)
                at = _behind(data, end)
            stop = pos + ups[-1]
            run = plain_run(found, data[pos:stop], ups, starts)
            self.extra_work += pieces_work(ups)
        items.append(Sent(head.headers, run))
        self.packets += len(run)
        return stop + 1

    def _too_large(self, size: int) -> StompFault:
        return _bad(f"a frame of {size} bytes or more (at most {self._limit})", Reason.PACKET_TOO_LARGE)


def _between(data: bytes, pos: int) -> int:
    """Returns the position behind the line ends at ``pos``."""
    found = _EOLS.match(data, pos)
    return pos if found is None else found.end()


def _behind(data: bytes, end: int) -> int:
    """Returns the position of the frame behind a NUL."""
    return _between(data, end + 1)


def _even(data: bytes, pos: int, end: int, raw: bytes, most: int) -> range:
    """Returns the ends of the bodies of neighbouring frames with this head, counted from ``pos``; ``end`` is that of
    the first. They have one size, so nothing is done per frame."""
    size = _behind(data, end) - pos
    count = (same_frames(data, raw, pos, size, data[end : pos + size]) - pos) // size if most > 1 else 1
    first = end - pos
    return range(first, first + (max(1, min(count, most)) - 1) * size + 1, size)


def _each_ends_once(data: bytes, pos: int, ends: range) -> bool:
    """Tells whether the frames with these ends, the first of which has no NUL in its body, have none either."""
    gap = ends.step - ends[0]  # the NUL, and line ends or more NULs behind it
    return data.count(0, pos, pos + ends[-1]) == (len(ends) - 1) * data.count(0, pos + ends[0], pos + ends[0] + gap)


def _head_end(data: bytes, pos: int) -> int:
    """Returns the position behind the empty line of a head; -1: it has not come, or the head is too large. No further
    is looked, for each of a thousand frames would look through all of the read."""
    found = _EMPTY_LINE.search(data, pos, pos + HEAD_BYTES_MAX + 1)
    return -1 if found is None else found.end()


def _headers(lines: Iterable[str], version: Version) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name:
            raise _bad(f"the header {line[:60]!a} has no {'name' if colon else 'colon'}")
        name, value = unescaped(name, version), unescaped(value, version)
        if version is V1_0:
            name, value = name.strip(), value.strip()
        headers.setdefault(name, value)
    return headers


def _length(headers: Headers) -> int:
    text = headers.get("content-length")
    if text is None:
        return -1
    text = text.strip()
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise _bad(f"content-length {text[:30]!a} is no number")
    return int(text)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _unknown(command: str) -> StompFault:
    return StompFault(BAD_COMMAND, f"{command[:32]!a} is no command of a STOMP client")


def _bad(text: str, reason: Reason = Reason.MALFORMED) -> StompFault:
    return StompFault(BAD_FRAME, text, reason)
