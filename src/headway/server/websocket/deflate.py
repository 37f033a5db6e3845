"""Compression of WebSocket messages (``permessage-deflate``, RFC 7692), once for all consumers.

Theory of operation. With context takeover each connection has a window of its own, and the same record is compressed
anew for each. Without it a message is compressed by itself. So the same bytes of a lane give the same message for every
consumer, and are compressed once: ``SharedDeflate`` keeps what it has compressed for a while, and finds it again by the
bytes. (Comparing them costs a hundredth of compressing them.)

Rules:
- ``server_no_context_takeover`` and ``client_no_context_takeover`` are agreed on, or there is no compression.
- What is kept counts in the pool, and is ``KEPT_BYTES`` at most.
- Compression is limited to ``BYTES_PER_S``, so that it never holds up the loop. Beyond that, bytes go out as they are.
- What a client compressed is decompressed as it comes, a bounded part at a time: a bomb costs what its bytes would
  cost in clear. In the middle of a message zlib's memory counts as bytes that its client has sent; between two there
  is none.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from headway.core.log import Pool
from headway.server.websocket.frames import BINARY, COMPRESSED, FINAL, header

NAME = "permessage-deflate"
ANSWER = f"{NAME}; server_no_context_takeover; client_no_context_takeover"
PIECE_BYTES = 32 * 1024
"""Bytes of one compressed message: deflate looks back no further."""
PIECE_BYTES_MIN = 128
"""Fewer bytes are not worth it."""
LEVEL = 1
KEPT_BYTES = 1024 * 1024
KEPT_SHARE = 1 / 16
BYTES_PER_S = 24 * 1024 * 1024
BURST_BYTES = 512 * 1024
_TAIL = b"\x00\x00\xff\xff"
INFLATE_BYTES = 44 * 1024
"""The memory that zlib takes up in the middle of a message: its state, and a window of 32 KiB."""
_KEY_BYTES = 24
_WINDOWS = {str(bits) for bits in range(8, 16)}


def accepts(offer: str) -> bool:
    """Returns whether an element of Sec-WebSocket-Extensions is an offer that can be granted."""
    name, *parameters = [part.strip() for part in offer.split(";")]
    if name != NAME:
        return False
    seen: set[str] = set()
    for parameter in parameters:
        key, has_value, value = parameter.partition("=")
        key, value = key.strip(), value.strip().strip('"')
        if key in seen:
            return False
        seen.add(key)
        if key == "client_max_window_bits":
            if has_value and value not in _WINDOWS:
                return False
        elif key == "server_max_window_bits":
            if value != "15":
                return False  # what is compressed once for all has the largest window
        elif key not in ("server_no_context_takeover", "client_no_context_takeover") or has_value:
            return False
    return True


class Compressed(NamedTuple):
    source: bytes
    frame: bytes
    """Empty: compressed it was no smaller."""


class SharedDeflate:
    """Frames that a listener has compressed of late, by their bytes."""

    __slots__ = ("_allowed_bytes", "_clock", "_kept", "_kept_bytes", "_pool", "_refilled_s", "compressed_bytes",
                 "found_bytes")  # fmt: skip

    def __init__(self, pool: Pool, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._clock = clock
        self._kept: OrderedDict[tuple[int, bytes, bytes], Compressed] = OrderedDict()
        self._kept_bytes = 0
        self._allowed_bytes = float(BURST_BYTES)
        self._refilled_s = clock()
        self.compressed_bytes = self.found_bytes = 0
        """Bytes that were compressed, and bytes for which it was done before."""

    def frame(self, source: bytes) -> bytes | None:
        """Returns a frame with these bytes compressed; None: it is not worth it, or there was enough of it for now."""
        size = len(source)
        middle = size // 2
        key = (size, source[:_KEY_BYTES] + source[-_KEY_BYTES:], source[middle : middle + _KEY_BYTES])
        found = self._kept.get(key)
        if found is not None and found.source == source:
            self.found_bytes += size
            return found.frame or None
        if not self._take(size):
            return None
        self.compressed_bytes += size
        deflater = zlib.compressobj(LEVEL, zlib.DEFLATED, -15, 9)
        payload = (deflater.compress(source) + deflater.flush(zlib.Z_SYNC_FLUSH))[: -len(_TAIL)]
        frame = header(len(payload), FINAL | COMPRESSED | BINARY) + payload if len(payload) < size else b""
        self._keep(key, Compressed(source, frame))
        return frame or None

    def _take(self, size: int) -> bool:
        now = self._clock()
        self._allowed_bytes = min(BURST_BYTES, self._allowed_bytes + (now - self._refilled_s) * BYTES_PER_S)
        self._refilled_s = now
        if size > self._allowed_bytes:
            return False
        self._allowed_bytes -= size
        return True

    def _keep(self, key: tuple[int, bytes, bytes], one: Compressed) -> None:
        before = self._kept_bytes
        replaced = self._kept.pop(key, None)
        if replaced is not None:
            self._kept_bytes -= _size(replaced)
        self._kept[key] = one
        self._kept_bytes += _size(one)
        most = min(KEPT_BYTES, int(self._pool.memory_limit * KEPT_SHARE))
        while self._kept_bytes > most:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= _size(oldest)
        self._pool.add_memory(self._kept_bytes - before)


def _size(one: Compressed) -> int:
    return len(one.source) + len(one.frame)


class Inflater:
    """Decompresses the messages of one client, as they come."""

    __slots__ = ("_ends", "_inflate", "_left", "more")

    def __init__(self) -> None:
        self._inflate: zlib._Decompress | None = None
        """None between messages, for no context is taken over."""
        self._left = b""
        """Compressed bytes that have come and are not decompressed yet."""
        self._ends = False
        """Whether the message has come whole."""
        self.more = False
        """Whether there is more to be had without further bytes."""

    @property
    def buffered_bytes(self) -> int:
        return 0 if self.done else INFLATE_BYTES + len(self._left)

    @property
    def done(self) -> bool:
        """Whether the last message has been decompressed to its end."""
        return self._inflate is None

    def feed(self, data: bytes | bytearray, room: int, *, last: bool) -> bytes:
        """Returns up to ``room`` bytes. ``last``: the message ends with this data. Raises zlib.error."""
        if self._inflate is None:
            self._inflate, self._ends = zlib.decompressobj(-15), False
        self._ends = self._ends or last
        got = self._inflate.decompress(self._left + data + (_TAIL if last else b""), room)
        self._left = self._inflate.unconsumed_tail
        self.more = bool(self._left) or len(got) == room
        if self._ends and not self.more:
            self._inflate = None
        return got
