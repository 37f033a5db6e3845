"""The greeting of a STOMP client: its CONNECT, its login, and CONNECTED.

A client that gives no login comes in where the listener lets anonymous clients in. Two clients may have the same
``client-id``: neither is thrown out, and the second one is numbered. A durable subscription has one consumer at a time.
"""

from __future__ import annotations

import secrets
from functools import partial
from math import inf

from headway import __version__
from headway.core.base import Reason, Refused
from headway.server.logins import Refusal
from headway.server.peers import OPEN, PeerPart
from headway.server.stomp.ports import ClientSide
from headway.wire.stomp.items import Connect, Headers
from headway.wire.stomp.replies import connected
from headway.wire.stomp.versions import OFFERED

NAME_CHARS_MAX = 200
BEAT_MS_MIN = 1000
"""The broker sends and expects heart-beats no more often."""
BEAT_MS_MAX = 86_400_000


class Greeting(PeerPart[ClientSide]):
    __slots__ = ()

    def begin(self, item: Connect) -> None:
        peer, headers = self._peer, item.headers
        if item.version is None:
            text = f"Supported versions are {OFFERED}"
            peer.end_with_error(text, Reason.PROTOCOL_ERROR, "Version mismatch", agreed=False)
            return
        peer.version = item.version
        certified, login = peer.connection.stream.user, headers.get("login")
        name = headers.get("client-id", "")
        peer.client_id = name[:NAME_CHARS_MAX] if name.isprintable() else ""
        peer.username = peer.connection.username = certified or login or ""
        peer.connection.client = peer.client_id
        password = headers.get("passcode", "").encode()
        peer.log_in(login or None, password, partial(self._checked, headers), wanted="a login and a passcode")

    def _checked(self, headers: Headers, refusal: Refusal | None) -> None:
        if refusal is None:
            self._admit(headers)
        else:
            self._deny(refusal.text)

    def _deny(self, text: str, reason: Reason = Reason.NOT_AUTHORIZED) -> None:
        peer = self._peer
        peer.engine.refused(peer.connection, text)
        peer.end_with_error(text, reason, "Bad CONNECT")

    def _admit(self, headers: Headers) -> None:
        peer = self._peer
        engine, connection = peer.engine, peer.connection
        every_ms, wanted_ms = _beats(headers.get("heart-beat", "0,0"))
        sends = max(wanted_ms, BEAT_MS_MIN) if wanted_ms else 0
        hears = max(every_ms, BEAT_MS_MIN) if every_ms else 0
        if fault := peer.listener.beat_fault(hears / 1000):
            self._deny(f"{fault} (heart-beat)", Reason.NOT_ALLOWED)
            return
        wanted = peer.client_id or f"stomp-{connection.address}"
        name = connection.client = peer.free_name(wanted)
        try:
            session = peer.connect(name, f"stomp-{peer.version}", peer.username)
        except Refused as error:
            self._deny(str(error), error.reason)
            return
        peer.become(OPEN)
        peer.opened(session, sends / 1000, hears / 1000 if hears else inf)
        peer.write(connected(peer.version, _session_id(wanted), f"Headway/{__version__}", (sends, hears)))
        engine.connected(connection)


def _session_id(wanted: str) -> str:
    """Returns an id of the session for the client. It does not say whether another client has the name, too."""
    return f"{wanted}/{secrets.token_hex(4)}"


def _beats(text: str) -> tuple[int, int]:
    """Returns how often the client can send something, and how often it wants to hear something, in milliseconds; 0:
    not at all."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() and len(part) <= 9 for part in parts):
        return 0, 0
    return min(int(parts[0]), BEAT_MS_MAX), min(int(parts[1]), BEAT_MS_MAX)
