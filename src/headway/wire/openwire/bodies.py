"""Bodies of messages: JMS's five types, and the payloads and content types that they are elsewhere.

A text and bytes are plain payloads, for consumers of all protocols. The body of a map, a stream or an object is Java's
own; it stays as it is, and its content type says what it is. A body that the client has compressed is inflated if it is
a text or bytes; else the encoding says ``deflate``.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.wire.openwire.codes import Type
from headway.wire.openwire.inflation import Inflation
from headway.wire.openwire.primitives import i32, malformed, read_utf, utf

TEXT, BYTES = "text/plain", "application/octet-stream"
NULL_TEXT = "text/plain; jms=null"
"""A TextMessage without a text, which is not an empty one."""
_CONTENT_TYPES = {
    Type.MESSAGE: "application/x-jms-message", Type.MAP_MESSAGE: "application/x-jms-map",
    Type.STREAM_MESSAGE: "application/x-jms-stream", Type.OBJECT_MESSAGE: "application/x-java-serialized-object",
}  # fmt: skip
_KINDS = {content_type: kind for kind, content_type in _CONTENT_TYPES.items()}
DEFLATE = "deflate"
_TEXTUAL = ("text/", "application/json", "application/xml", "application/sql", "application/javascript")


class Body(NamedTuple):
    """A payload, and what it is."""

    payload: bytes
    content_type: str
    encoding: str | None = None


class Content(NamedTuple):
    """A body as JMS has it; ``raw`` None: there is none."""

    kind: Type
    raw: bytes | None
    compressed: bool = False


def inflation_of(kind: int, raw: bytes | None, bytes_max: int) -> Inflation | None:
    """Returns how a compressed body is inflated; None: it stays as it is."""
    if kind == Type.TEXT_MESSAGE and raw is not None:
        return Inflation(raw, bytes_max)
    if kind == Type.BYTES_MESSAGE and raw:
        return Inflation(raw[4:], bytes_max)
    return None


def read_inflated(kind: int, raw: bytes, inflated: bytes) -> Body:
    """Returns the payload of a message that came as ``raw``. Raises :class:`ProtocolError`."""
    if kind == Type.BYTES_MESSAGE:
        inflated = inflated[: int.from_bytes(raw[:4], "big")]  # the client deflates zeros behind it
    return read_body(kind, inflated, compressed=False)


def read_body(kind: int, raw: bytes | None, *, compressed: bool) -> Body:
    """Returns the payload of a message; a text or bytes are not compressed. Raises :class:`ProtocolError`."""
    if kind == Type.TEXT_MESSAGE:
        if raw is None:
            return Body(b"", NULL_TEXT)
        if len(raw) < 4 or int.from_bytes(raw[:4], "big") != len(raw) - 4:
            raise malformed("is a text whose length is not that of its body")
        text = raw[4:]
        if b"\xed" in text or b"\xc0" in text:
            text = read_utf(text).encode()
        return Body(text, TEXT)
    if kind == Type.BYTES_MESSAGE:
        return Body(raw or b"", BYTES)
    return Body(raw or b"", _CONTENT_TYPES[Type(kind)], DEFLATE if compressed and raw else None)


def kind_of(content_type: str | None, encoding: str | None, payload_format: int | None) -> Type:
    """Returns the type that a payload with these properties has in JMS. A text has to be UTF-8, too."""
    if content_type is None:
        return Type.TEXT_MESSAGE if payload_format == 1 else Type.BYTES_MESSAGE
    kind = _KINDS.get(content_type)
    if kind is not None:
        return kind
    textual = content_type.startswith(_TEXTUAL) or content_type.endswith(("+json", "+xml")) or payload_format == 1
    return Type.TEXT_MESSAGE if textual and not encoding else Type.BYTES_MESSAGE


def write_content(kind: Type, payload: bytes, content_type: str | None, encoding: str | None) -> Content:
    """Returns a payload as the body of a message of this type."""
    if kind is Type.TEXT_MESSAGE:
        if content_type == NULL_TEXT and not payload:
            return Content(kind, None)
        if payload.isascii() and b"\0" not in payload:
            return Content(kind, i32(len(payload)) + payload)
        try:
            raw = utf(payload.decode())
        except UnicodeDecodeError:
            return Content(Type.BYTES_MESSAGE, payload)
        return Content(kind, i32(len(raw)) + raw)
    if kind is Type.BYTES_MESSAGE:
        return Content(kind, payload or None)
    return Content(kind, payload or None, encoding == DEFLATE)
