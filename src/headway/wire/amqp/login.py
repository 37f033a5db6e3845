"""A client's login: the responses of PLAIN and AMQPLAIN."""

from __future__ import annotations

from headway.wire.amqp.primitives import malformed, read_bare_table
from headway.wire.sasl import PLAIN, Login, read_plain

AMQPLAIN = "AMQPLAIN"
MECHANISMS = f"{PLAIN} {AMQPLAIN}"


def read_login(mechanism: str, response: str | bytes) -> Login | None:
    """Reads the login of ``connection.start-ok``; None: the mechanism was not offered."""
    raw = response.encode() if isinstance(response, str) else response
    if mechanism == PLAIN:
        return read_plain(raw, malformed)
    return _table(raw) if mechanism == AMQPLAIN else None


def _table(raw: bytes) -> Login:
    table = read_bare_table(raw, "response")
    user, password = table.get("LOGIN"), table.get("PASSWORD")
    if not isinstance(user, str) or not isinstance(password, str | bytes):
        raise malformed("has no LOGIN and PASSWORD in its response")
    return Login(user, password.encode() if isinstance(password, str) else password)
