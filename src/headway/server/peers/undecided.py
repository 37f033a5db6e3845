"""Undecided: stands in for the peer of a connection until it is known which protocol it speaks.

A listener may take several protocols. The handshake of a WebSocket says which one a client means. Elsewhere its first
bytes do (``Codec.opens``), and they are kept until then: ``FIRST_BYTES_MAX`` at most. First bytes that are nobody's go
to the protocol that owns the listener's scheme, which has an answer of its own for them. Without an owner the
connection ends. A client that says nothing has the listener's time to log in, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from headway.core.base import ProtocolError, Reason
from headway.core.consumer import Session
from headway.core.permission import NOBODY
from headway.server.connections import Connection, PartialPacket, Peer
from headway.server.engine import Engine
from headway.server.peers.login_side import QuietPeer
from headway.wire.codec import Codec

FIRST_BYTES_MAX = 64
SHOWN_BYTES = 16


class Choice:
    """The protocols among which a listener's connections choose. ``owner``: see above; empty: there is none."""

    def __init__(
        self, codecs: Mapping[str, Codec], owner: str, make: Callable[[str, Connection], Peer]
    ) -> None:
        self._codecs = codecs
        self._owner = owner
        self.make = make

    def of(self, data: bytes) -> str | None:
        """Returns the protocol of these first bytes; None: too few have come to tell. Raises ProtocolError."""
        unsure = False
        for name, codec in self._codecs.items():
            answer = codec.opens(data)
            if answer:
                return name
            unsure = unsure or answer is None
        if unsure and len(data) <= FIRST_BYTES_MAX:
            return None
        if self._owner:
            return self._owner
        shown = ascii(data[:SHOWN_BYTES])[1:]
        known = ", ".join(self._codecs)
        raise ProtocolError(f"the first bytes, {shown}, are of no protocol that is spoken here ({known})")


class Undecided(QuietPeer):
    """The stand-in. It has no session, so nothing is asked of it but to read."""

    __slots__ = ("_came", "_choice", "_connection", "_engine")

    session: Session | None = None
    identity = NOBODY
    keep_alive_s = inf

    def __init__(self, engine: Engine, connection: Connection, choice: Choice) -> None:
        self._engine = engine
        self._connection = connection
        self._choice = choice
        self._came = b""

    def received(self, data: bytes) -> bool:
        connection, choice = self._connection, self._choice
        self._came += data
        try:
            name = connection.stream.protocol or choice.of(self._came)
        except ProtocolError as error:
            self._engine.protocol_error(connection, error)
            connection.close_gracefully(error.reason, str(error))
            return False
        if name is None:
            return False
        came, self._came = self._came, b""
        connection.peer_side = peer = choice.make(name, connection)
        del self._connection
        return peer.received(came)

    @property
    def buffered_bytes(self) -> int:
        return len(self._came)

    def partial_packet(self) -> PartialPacket:
        return PartialPacket(len(self._came), 0, 0)

    def unfinished(self) -> bytes:
        return b""

    def last_word(self, reason: Reason, text: str) -> bytes:
        return b""

    def connection_lost(self, reason: Reason) -> None:
        del self._connection
