"""Reads and writes the data types of MQTT.

:class:`MqttReader` reads the body of one complete packet; a read beyond its end, bad UTF-8 and an overlong integer are
:class:`ProtocolError`. Writers are plain functions that return bytes.
"""

from __future__ import annotations

from headway.core.base import ProtocolError, Reason, Refused
from headway.wire.common import BytesReader
from headway.wire.mqtt.codes import ReasonCode

VARINT_MAX = 268_435_455
PACKET_BYTES_MAX = VARINT_MAX + 5
"""The longest packet that the protocol allows."""
TEXT_BYTES_MAX = 65_535

_TOPIC_CACHE_ENTRIES = 8192
_TOPIC_CACHE_BYTES = 256


def malformed(text: str) -> ProtocolError:
    """Returns the error for bytes that do not parse."""
    return ProtocolError(text, reason=Reason.MALFORMED, code=ReasonCode.MALFORMED_PACKET)


def violation(text: str, code: int = ReasonCode.PROTOCOL_ERROR) -> ProtocolError:
    """Returns the error for bytes that parse, but that the protocol does not allow."""
    return ProtocolError(text, reason=Reason.PROTOCOL_ERROR, code=code)


def too_many(what: str, most: int) -> ProtocolError:
    """Returns the error for a packet that lists more than the broker reads at once."""
    text = f"has more than {most} {what}"
    return ProtocolError(text, reason=Reason.PACKET_TOO_LARGE, code=ReasonCode.PACKET_TOO_LARGE)


class MqttReader(BytesReader):
    """Reads the body of one packet in order."""

    __slots__ = ()
    malformed = staticmethod(malformed)

    def u32(self, what: str) -> int:
        at = self.take(4, what)
        return int.from_bytes(self.data[at : at + 4], "big")

    def varint(self, what: str) -> int:
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.u8(what)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift:
                    raise malformed(f"writes its {what} in more bytes than needed")
                return value
        raise malformed(f"has more than four bytes of {what}")

    def binary(self, what: str) -> bytes:
        size = self.u16(what)
        at = self.take(size, what)
        return self.data[at : at + size]

    def text(self, what: str) -> str:
        return read_text(self.binary(what), what)

    def rest(self) -> bytes:
        at, self.pos = self.pos, self.end
        return self.data[at : self.end]

    def more(self) -> bool:
        return self.pos < self.end

    def finish(self) -> None:
        """Raises unless all bytes were read."""
        if self.pos != self.end:
            raise malformed(f"has {self.end - self.pos} bytes too many")


def read_text(raw: bytes, what: str) -> str:
    """Returns an MQTT string: well-formed UTF-8 without U+0000."""
    if b"\0" in raw:
        raise malformed(f"has a null character in its {what}")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise malformed(f"has bytes in its {what} that are not UTF-8 (at {error.start})") from error


def read_topic(raw: bytes, what: str = "topic") -> str:
    """Returns a topic name: text, not empty, without wildcards."""
    topic = _topics.get(raw)
    if topic is not None:
        return topic
    topic = read_text(raw, what)
    check_topic(topic, what)
    if len(raw) <= _TOPIC_CACHE_BYTES:
        if len(_topics) >= _TOPIC_CACHE_ENTRIES:
            _topics.clear()
        _topics[raw] = topic
    return topic


_topics: dict[bytes, str] = {}
"""A cache of valid topic names by their bytes, for all connections, so that equal topics are one string, whose hash is
cached, too. It has at most _TOPIC_CACHE_ENTRIES names of _TOPIC_CACHE_BYTES."""


def check_topic(topic: str, what: str) -> None:
    if not topic:
        raise violation(f"has an empty {what}")
    if "+" in topic or "#" in topic:
        raise violation(f"has a wildcard in its {what} {topic[:64]!r}", ReasonCode.TOPIC_INVALID)


def write_varint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    if value > VARINT_MAX:
        raise Refused(Reason.PACKET_TOO_LARGE, f"{value} bytes are more than an MQTT packet can hold")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes([value]) for value in range(0x80)]


def write_binary(raw: bytes) -> bytes:
    if len(raw) > TEXT_BYTES_MAX:
        raise Refused(Reason.PACKET_TOO_LARGE, f"an MQTT field of {len(raw)} bytes (at most {TEXT_BYTES_MAX})")
    return len(raw).to_bytes(2, "big") + raw


def write_text(text: str) -> bytes:
    return write_binary(text.encode())


def write_frame(first: int, *parts: bytes) -> bytes:
    """Writes a packet from its first byte and the parts of its body."""
    body = b"".join(parts)
    return b"".join((bytes((first,)), write_varint(len(body)), body))
