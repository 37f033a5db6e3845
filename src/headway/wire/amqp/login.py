"""A client's login: the responses of PLAIN and AMQPLAIN."""

from __future__ import annotations

from typing import NamedTuple

from headway.wire.amqp.primitives import malformed, read_bare_table

MECHANISMS = "PLAIN AMQPLAIN"
EXTERNAL = "EXTERNAL"
"""Offered to clients whose certificate says who they are."""


class Login(NamedTuple):
    user: str
    password: bytes


def read_login(mechanism: str, response: str | bytes) -> Login | None:
    """Reads the login of ``connection.start-ok``; None: the mechanism was not offered."""
    raw = response.encode() if isinstance(response, str) else response
    match mechanism:
        case "PLAIN":
            return _plain(raw)
        case "AMQPLAIN":
            return _table(raw)
    return None


def _plain(raw: bytes) -> Login:
    """Reads PLAIN (RFC 4616): authorization identity, which is ignored, user and password, separated by NUL."""
    parts = raw.split(b"\0", 2)
    if len(parts) != 3:
        raise malformed("has no user and password in its response")
    return Login(_user(parts[1]), parts[2])


def _table(raw: bytes) -> Login:
    table = read_bare_table(raw, "response")
    user, password = table.get("LOGIN"), table.get("PASSWORD")
    if not isinstance(user, str) or not isinstance(password, str | bytes):
        raise malformed("has no LOGIN and PASSWORD in its response")
    return Login(user, password.encode() if isinstance(password, str) else password)


def _user(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise malformed("has a user's name that is not UTF-8") from None
