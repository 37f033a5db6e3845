"""The HTTPS listener: accepts connections and gives each to an HTTP protocol once its TLS handshake is done."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from headway.core.base import Reason
from headway.server.config import TlsContext
from headway.server.http.stream_transport import StreamTransport
from headway.server.loop import Pulse
from headway.server.transport import Acceptor, Handshakes, TlsHandshake, TlsStream

log = logging.getLogger("headway")

BACKLOG = 256
HANDSHAKES_MAX = 256
HANDSHAKE_S = 10.0
NAME = "admin"
LIMIT = "the limit of the admin API"


class HttpsListener:
    def __init__(
        self, sock: socket.socket, handshakes: Handshakes, pulse: Pulse,
        factory: Callable[[], asyncio.BaseProtocol], tls: TlsContext,
    ) -> None:  # fmt: skip
        """``sock`` is bound; ``factory`` makes the HTTP protocol of a connection."""
        self.tls = tls
        """Certificates for new connections."""
        self.handshakes = handshakes
        self.loop = handshakes.loop
        self.factory = factory
        self.entering: set[_Entering] = set()
        """Connections whose handshake is under way."""
        host, port = sock.getsockname()[:2]
        self.url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._acceptor = Acceptor(sock, self.loop, pulse, self.url, self._welcome)
        self._acceptor.open(BACKLOG)

    def close(self) -> None:
        self._acceptor.close()
        for one in list(self.entering):
            one.close(Reason.SHUTDOWN)

    def _welcome(self, sock: socket.socket, address: str) -> None:
        _Entering(self, sock, address).begin()


class _Entering:
    """A connection whose handshake is under way."""

    def __init__(self, listener: HttpsListener, sock: socket.socket, address: str) -> None:
        self._listener = listener
        self.address = address
        handshake = TlsHandshake(sock, listener.tls, listener.handshakes, LIMIT, HANDSHAKES_MAX, listener.url)
        self._stream = TlsStream(handshake)

    def begin(self) -> None:
        self._listener.entering.add(self)
        text = f"the client did not finish {self._stream.stage} within {HANDSHAKE_S:.0f} s"
        self._deadline = self._listener.loop.call_later(HANDSHAKE_S, self.close, Reason.CONNECT_TIMEOUT, text)
        self._stream.open(self)

    def opened(self) -> None:
        self._over()
        try:
            StreamTransport(self._listener.loop, self._stream, self._listener.factory, self._listener.tls.ssl)
        except OSError:  # it is gone already
            self._stream.close()

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
