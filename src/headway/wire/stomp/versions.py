"""Versions of STOMP, and how they write headers.

- 1.0 escapes nothing. 1.1 escapes the backslash, the line feed and the colon; 1.2 the carriage return, too.
- CONNECT and CONNECTED are never escaped, for 1.0 clients send and read them as well (1.2, "Value Encoding").
- Any other sequence that begins with a backslash is an error from 1.1 on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum

from headway.core.base import Reason
from headway.wire.stomp.faults import BAD_HEADER, StompFault


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
