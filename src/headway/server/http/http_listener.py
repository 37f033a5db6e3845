"""The HTTP listener: accepts connections and gives each to an HTTP protocol; with TLS, once its handshake is done.

asyncio's own server reads up to 256 KiB of each connection in each turn, which may be a hundred requests of each.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from headway.core.base import Reason
from headway.server.config import TlsContext
from headway.server.http.http_connection import StreamTransport
from headway.server.loop import Pulse
from headway.server.transport import Acceptor, AcceptShare, ByteStream, Handshakes, PlainStream, TlsHandshake, TlsStream

log = logging.getLogger("headway")

BACKLOG = 256
ACCEPTS_A_TURN = 8
"""An HTTP connection takes ten times as long to make as others do."""
HANDSHAKES_MAX = 256
HANDSHAKE_S = 10.0
NAME = "admin"
LIMIT = "the limit of the admin API"


class HttpListener:
    def __init__(
        self, sock: socket.socket, handshakes: Handshakes, pulse: Pulse,
        factory: Callable[[], asyncio.BaseProtocol], tls: TlsContext | None,
    ) -> None:  # fmt: skip
        """``sock`` is bound; ``factory`` makes the HTTP protocol of a connection."""
        self.tls = tls
        """Certificates for new connections; None: this is HTTP in clear."""
        self.handshakes = handshakes
        self.loop = handshakes.loop
        self.factory = factory
        self.entering: set[_Entering] = set()
        """Connections whose handshake is under way."""
        host, port = sock.getsockname()[:2]
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        share = AcceptShare(self.loop, most=ACCEPTS_A_TURN)
        self._acceptor = Acceptor(sock, self.loop, pulse, self.url, self._welcome, share)
        self._acceptor.open(BACKLOG)

    def close(self) -> None:
        self._acceptor.close()
        for one in list(self.entering):
            one.close(Reason.SHUTDOWN)

    def _welcome(self, sock: socket.socket, address: str) -> None:
        if self.tls is None:
            self.begin(PlainStream(sock), None)
        else:
            _Entering(self, sock, address, self.tls).begin()

    def begin(self, stream: ByteStream, tls: object) -> None:
        """Gives a stream that is ready to an HTTP protocol."""
        try:
            StreamTransport(self.loop, stream, self.factory, tls)
        except OSError:  # it is gone already
            stream.close()


class _Entering:
    """A connection whose handshake is under way."""

    def __init__(self, listener: HttpListener, sock: socket.socket, address: str, tls: TlsContext) -> None:
        self._listener = listener
        self.address = address
        self._tls = tls
        handshake = TlsHandshake(sock, tls, listener.handshakes, LIMIT, HANDSHAKES_MAX, listener.url)
        self._stream = TlsStream(handshake)

    def begin(self) -> None:
        self._listener.entering.add(self)
        text = f"the client did not finish {self._stream.stage} within {HANDSHAKE_S:.0f} s"
        self._deadline = self._listener.loop.call_later(HANDSHAKE_S, self.close, Reason.CONNECT_TIMEOUT, text)
        self._stream.open(self)

    def holds(self, size: int) -> None:
        """``HANDSHAKES_MAX`` is limit enough."""

    def opened(self) -> None:
        self._over()
        self._listener.begin(self._stream, self._tls.ssl)

    def close(self, reason: Reason, text: str = "") -> None:
        self._over()
        self._listener.loop.remove_reader(self._stream.sock)
        self._listener.loop.remove_writer(self._stream.sock)
        self._stream.close()
        level = logging.DEBUG if reason is Reason.SHUTDOWN else logging.INFO
        log.log(level, "(%s, %s) not admitted, %s: %s", NAME, self.address, reason, text)

    def _over(self) -> None:
        self._listener.entering.discard(self)
        self._deadline.cancel()
