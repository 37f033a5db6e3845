"""A client's login in SASL: the mechanisms, and the response of PLAIN."""

from __future__ import annotations

from typing import NamedTuple

from headway.wire.amqp1.values import malformed

PLAIN, ANONYMOUS, EXTERNAL = "PLAIN", "ANONYMOUS", "EXTERNAL"


class Login(NamedTuple):
    user: str
    password: bytes


def read_plain(raw: bytes) -> Login:
    """Reads PLAIN (RFC 4616): authorization identity, which is ignored, user and password, separated by NUL."""
    parts = raw.split(b"\0", 2)
    if len(parts) != 3:
        raise malformed("has no user and password in its response")
    try:
        return Login(parts[1].decode(), parts[2])
    except UnicodeDecodeError:
        raise malformed("has a user's name that is not UTF-8") from None
