"""SASL: mechanisms of a client's login, and the response of PLAIN."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headway.core.base import ProtocolError

PLAIN, ANONYMOUS = "PLAIN", "ANONYMOUS"
EXTERNAL = "EXTERNAL"
"""Offered to clients whose certificate says who they are."""


class Login(NamedTuple):
    user: str
    password: bytes


def read_plain(raw: bytes, malformed: Callable[[str], ProtocolError]) -> Login:
    """Reads PLAIN (RFC 4616): authorization identity, which is ignored, user and password, separated by NUL.
    ``malformed`` makes the protocol's error for bytes that do not parse."""
    parts = raw.split(b"\0", 2)
    if len(parts) != 3:
        raise malformed("has no user and password in its response")
    try:
        return Login(parts[1].decode(), parts[2])
    except UnicodeDecodeError:
        raise malformed("has a user's name that is not UTF-8") from None
