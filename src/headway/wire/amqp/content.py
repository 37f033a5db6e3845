"""The content of a message on one channel: a header frame, and body frames of at most so many bytes."""

from __future__ import annotations

from headway.wire.amqp.scan import FRAME_END, FRAME_OVERHEAD


class Content:
    """Writes contents in frames of at most ``frame_bytes_max`` bytes; 0: no limit."""

    __slots__ = ("_body", "_header", "most")

    def __init__(self, channel: int, frame_bytes_max: int) -> None:
        number = channel.to_bytes(2, "big")
        self._header = b"\x02" + number
        self._body = b"\x03" + number
        self.most = frame_bytes_max - FRAME_OVERHEAD if frame_bytes_max else 0xFFFF_FFFF
        """The largest part of a body that fits into a frame."""

    def header_lead(self, header_bytes: int) -> bytes:
        """Returns the bytes before a header."""
        return self._header + header_bytes.to_bytes(4, "big")

    def header(self, header: bytes) -> bytes:
        """Returns the header frame. ``header``: class, weight, size of the body, properties."""
        return self.header_lead(len(header)) + header + FRAME_END

    def body_lead(self, body_bytes: int) -> bytes:
        """Returns the bytes before a body that fits into one frame."""
        return self._body + body_bytes.to_bytes(4, "big")

    def body(self, body: bytes) -> bytes:
        """Returns the body in as many frames as it needs; an empty body needs none."""
        most = self.most
        if len(body) <= most:
            return self.body_lead(len(body)) + body + FRAME_END if body else b""
        parts = [body[at : at + most] for at in range(0, len(body), most)]
        return b"".join([b"".join((self.body_lead(len(part)), part, FRAME_END)) for part in parts])
