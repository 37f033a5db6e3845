"""Versions of STOMP, and how they write headers.

- 1.0 escapes nothing. 1.1 escapes the backslash, the line feed and the colon; 1.2 the carriage return, too.
- CONNECT and CONNECTED are never escaped, for 1.0 clients send and read them as well (1.2, "Value Encoding").
- Any other sequence that begins with a backslash is an error from 1.1 on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from headway.core.base import ProtocolError, Reason
from headway.core.message import Run

# -- faults ------------------------------------------------------------------------------------------------------------
#
# Faults of a client, with the short heading that an ERROR frame has beside the text.


BAD_COMMAND = "Bad command"
BAD_DESTINATION = "Invalid destination"
UNKNOWN_DESTINATION = "Unknown destination"
NO_DESTINATION = "Missing destination"
NO_HEADER = "Missing header"
BAD_HEADER = "Invalid header"
BAD_FRAME = "Invalid frame"


class StompFault(ProtocolError):
    """``heading`` is in RabbitMQ's words where it has some, which clients look for."""

    def __init__(self, heading: str, text: str, reason: Reason = Reason.PROTOCOL_ERROR) -> None:
        super().__init__(text, reason=reason)
        self.heading = heading


# -- versions ----------------------------------------------------------------------------------------------------------


class Version(IntEnum):
    V1_0 = 0
    V1_1 = 1
    V1_2 = 2

    def __str__(self) -> str:
        return f"1.{int(self)}"


V1_0, V1_1, V1_2 = Version
OFFERED = ",".join(map(str, Version))
_ESCAPES = {
    V1_0: {},
    V1_1: {"\\": "\\\\", "\n": "\\n", ":": "\\c"},
    V1_2: {"\\": "\\\\", "\n": "\\n", ":": "\\c", "\r": "\\r"},
}
_TABLES = {version: str.maketrans(escapes) for version, escapes in _ESCAPES.items()}
_MEANT = {version: {escape: char for char, escape in escapes.items()} for version, escapes in _ESCAPES.items()}
_UNSAFE_1_0 = re.compile(r"[\r\n\0]")
_ESCAPE = re.compile(r"\\.?", re.DOTALL)


def agreed(accepted: str | None) -> Version | None:
    """Returns the highest version that a client accepts; without a header it is one of 1.0. None: there is none."""
    if accepted is None:
        return V1_0
    names = {name.strip() for name in accepted.split(",")}
    return max((version for version in Version if str(version) in names), default=None)


def escaped(text: str, version: Version) -> str:
    """Escapes a header's name or value. What 1.0 has no way to say is written as a space."""
    if version is V1_0:
        return _UNSAFE_1_0.sub(" ", text)
    return text.translate(_TABLES[version]).replace("\0", " ")


def unescaped(text: str, version: Version) -> str:
    """Raises :class:`StompFault`."""
    if version is V1_0 or "\\" not in text:
        return text
    meant = _MEANT[version]

    def one(found: re.Match[str]) -> str:
        char = meant.get(found[0])
        if char is None:
            text = f"a header has {found[0]!r}, which STOMP {version} does not know"
            raise StompFault(BAD_HEADER, text, Reason.MALFORMED)
        return char

    return _ESCAPE.sub(one, text)


def written(command: str, headers: Mapping[str, str], version: Version, body: bytes = b"") -> bytes:
    """Writes a frame."""
    head = "".join(header_line(name, value, version) for name, value in headers.items())
    return f"{command}\n{head}\n".encode() + body + b"\0"


def header_line(name: str, value: str, version: Version) -> str:
    return f"{escaped(name, version)}:{escaped(value, version)}\n"


# -- items -------------------------------------------------------------------------------------------------------------
#
# Items that the decoder finds in a client's bytes.


Headers = Mapping[str, str]
"""Headers as the client means them, unescaped; the first of each name."""


class Connect(NamedTuple):
    """CONNECT or STOMP. ``version`` None: the client accepts none of ours."""

    headers: Headers
    version: Version | None


class Frame(NamedTuple):
    """Any other frame but SEND."""

    command: str
    headers: Headers


class Acks(NamedTuple):
    """Neighbouring ACK frames that name a delivery and nothing else that matters: no receipt, no transaction."""

    ids: tuple[int, ...]


class Sent(NamedTuple):
    """Neighbouring SEND frames that differ in their bodies alone. Of the run only bodies are set, and where it goes, if
    the destination alone says that."""

    headers: Headers
    run: Run


Item = Connect | Frame | Acks | Sent


# -- replies -----------------------------------------------------------------------------------------------------------
#
# Frames that the broker sends besides messages.


HEARTBEAT = b"\n"
MESSAGE_CHARS_MAX = 200


def connected(version: Version, session: str, server: str, heart_beat: tuple[int, int]) -> bytes:
    every, wanted = heart_beat
    headers = {"version": str(version), "session": session, "server": server, "heart-beat": f"{every},{wanted}"}
    return written("CONNECTED", headers, V1_0)  # which escapes nothing


def receipt(receipt_id: str, version: Version, told: Mapping[str, str] | None = None) -> bytes:
    return written("RECEIPT", {"receipt-id": receipt_id, **(told or {})}, version)


def error(text: str, version: Version | None, receipt_id: str | None = None, heading: str = "") -> bytes:
    """Returns an ERROR frame, after which the connection ends. ``version`` None: none could be agreed on."""
    headers: Mapping[str, str] = {"message": heading or text[:MESSAGE_CHARS_MAX], "content-type": "text/plain"}
    if version is None:
        headers = {**headers, "version": OFFERED}
    if receipt_id is not None:
        headers = {**headers, "receipt-id": receipt_id}
    body = f"{text}\n".encode("utf-8", "replace")
    return written("ERROR", {**headers, "content-length": str(len(body))}, V1_0 if version is None else version, body)
