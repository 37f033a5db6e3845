"""The HTTPS listener: accepts connections and gives each to an HTTP protocol once its TLS handshake is done."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from headway.core.base import Reason
from headway.server.config import TlsContext
from headway.server.http.stream_transport import StreamTransport
from headway.server.transport import Handshakes, TlsHandshake, TlsStream

log = logging.getLogger("headway")

BACKLOG = 256
ACCEPTS_PER_TURN = 16
HANDSHAKES_MAX = 256
HANDSHAKE_S = 10.0
RETRY_S = 0.5
NAME = "admin"
LIMIT = "the limit of the admin API"


class HttpsListener:
    def __init__(
        self, sock: socket.socket, handshakes: Handshakes, factory: Callable[[], asyncio.BaseProtocol], tls: TlsContext
    ) -> None:
        """``sock`` is bound; ``factory`` makes the HTTP protocol of a connection."""
        self.sock = sock
        self.tls = tls
        """Certificates for new connections."""
        self.handshakes = handshakes
        self.loop = handshakes.loop
        self.factory = factory
        self.entering: set[_Entering] = set()
        """Connections whose handshake is under way."""
        sock.listen(BACKLOG)
        self.loop.add_reader(sock, self._accept)

    @property
    def url(self) -> str:
        host, port = self.sock.getsockname()[:2]
        return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"

    def close(self) -> None:
        self.loop.remove_reader(self.sock)
        self.sock.close()
        for one in list(self.entering):
            one.close(Reason.SHUTDOWN)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self.sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("cannot accept on %s: %s", self.url, error.strerror)
                self.loop.remove_reader(self.sock)
                self.loop.call_later(RETRY_S, self._accept_again)
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _Entering(self, sock, f"{address[0]}:{address[1]}").begin()

    def _accept_again(self) -> None:
        if self.sock.fileno() >= 0:
            self.loop.add_reader(self.sock, self._accept)


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
