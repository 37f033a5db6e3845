"""Reads and writes the data types of OpenWire: numbers, Java's texts, optional fields.

Texts are in Java's *modified* UTF-8: NUL has two bytes, and a character beyond U+FFFF is two surrogates of three bytes
each. Most texts have neither, and are plain UTF-8.
"""

from __future__ import annotations

from struct import Struct

from headway.core.base import ProtocolError, Reason
from headway.wire.partial import BytesReader

TEXT_BYTES_MAX = 65_535
_I32, _I64 = Struct(">i"), Struct(">q")
ABSENT = b"\0"
"""An optional field that is not there."""


def malformed(text: str) -> ProtocolError:
    """Returns the error for bytes that do not parse."""
    return ProtocolError(text, reason=Reason.MALFORMED)


class OpenWireReader(BytesReader):
    """Reads the body of one frame in order."""

    __slots__ = ()
    malformed = staticmethod(malformed)

    def flag(self, what: str) -> bool:
        return self.data[self.take(1, what)] != 0

    def i32(self, what: str) -> int:
        number: int = _I32.unpack_from(self.data, self.take(4, what))[0]
        return number

    def i64(self, what: str) -> int:
        number: int = _I64.unpack_from(self.data, self.take(8, what))[0]
        return number

    def text(self, what: str) -> str | None:
        """Reads an optional text with a length of two bytes."""
        return self.utf(what) if self.data[self.take(1, what)] else None

    def utf(self, what: str) -> str:
        size = self.u16(what)
        at = self.take(size, what)
        return read_utf(self.data[at : at + size], what)

    def binary(self, what: str) -> bytes | None:
        """Reads optional bytes with a length of four bytes."""
        if not self.flag(what):
            return None
        size = self.i32(what)
        if size < 0:
            raise malformed(f"has a negative length of its {what}")
        at = self.take(size, what)
        return self.data[at : at + size]


def read_utf(raw: bytes, what: str = "text") -> str:
    """Returns a text in modified UTF-8; a surrogate without its other half becomes a question mark."""
    try:
        if b"\xed" not in raw and b"\xc0" not in raw:
            return raw.decode()
        text = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise malformed(f"has a {what} that is no modified UTF-8") from None
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\ufffd", "?")


def utf(text: str) -> bytes:
    """Returns a text in modified UTF-8."""
    raw = text.encode(errors="replace")
    if b"\0" not in raw and (text.isascii() or max(text) <= "\uffff"):
        return raw
    halves = text.encode("utf-16-be", "replace")
    units = "".join(chr(halves[at] << 8 | halves[at + 1]) for at in range(0, len(halves), 2))
    return units.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def i32(number: int) -> bytes:
    return _I32.pack(number)


def i64(number: int) -> bytes:
    return _I64.pack(number)


def flag(truth: bool) -> bytes:
    return b"\1" if truth else b"\0"


def short_utf(text: str) -> bytes:
    """Writes a text with its length in two bytes; what is too long is cut off."""
    raw = utf(text)
    if len(raw) > TEXT_BYTES_MAX:
        raw = utf(read_utf(raw[: TEXT_BYTES_MAX - 6].rsplit(b"\xed", 1)[0].decode(errors="ignore").encode()))
    return len(raw).to_bytes(2, "big") + raw


def optional_text(text: str | None) -> bytes:
    return ABSENT if text is None else b"\1" + short_utf(text)


def optional_binary(raw: bytes | None) -> bytes:
    return ABSENT if raw is None else b"\1" + i32(len(raw)) + raw
