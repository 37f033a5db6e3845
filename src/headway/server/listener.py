"""Listeners: sockets that accept connections, up to their limit, and survive whatever goes wrong with it."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable

from headway.core.log import Pool
from headway.server.config import ListenerTable, TlsContext
from headway.server.connections import Announcement, Connection, Peer, is_trusted
from headway.server.engine import Engine
from headway.server.protocols import PROTOCOLS, SUBPROTOCOLS, peer_of
from headway.server.transport import ByteStream, PlainStream, TlsHandshake, TlsStream, bound
from headway.server.websocket import CompressedStream, Rules, SharedDeflate, WebSocketStream

log = logging.getLogger("headway")

BACKLOG = 4096
ACCEPTS_PER_TURN = 64
PEERS: dict[str, Callable[[Engine, Connection, ListenerTable], Peer]] = {name: peer_of(name) for name in PROTOCOLS}
RETRY_S = 0.5
_OF_ONE = {
    errno.ECONNABORTED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EPERM, errno.EPROTO, errno.ENOPROTOOPT,
    errno.EOPNOTSUPP, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH,
}  # fmt: skip
"""Errors of one connection that was lost, or not let through by a firewall, before it was accepted (accept(2))."""
_NO_FILES = {errno.EMFILE, errno.ENFILE}


class Listener:
    """The listening socket of one ``[listeners.NAME]``. Raises OSError if the address cannot be had."""

    def __init__(self, engine: Engine, name: str, table: ListenerTable, tls: TlsContext | None = None) -> None:
        self.engine = engine
        self.name = name
        self.table = table
        self._scheme = table.url.kind
        origins = None if table.origins is None else tuple(table.origins)
        self._rules = Rules(
            table.paths, origins, SUBPROTOCOLS, name, tls is not None, table.compression,
            tuple(table.trusted_given or ()),
        )  # fmt: skip
        pool = engine.broker.registry.pool_of(name)
        self._shared = SharedDeflate(pool, engine.now) if table.compression else None
        """Frames that were compressed of late; None: nothing is compressed."""
        self.tls = tls
        """Certificates for new connections; None: the listener is without TLS."""
        self.sock = bound(table.url.host, table.url.port)

    @property
    def url(self) -> str:
        host, port = self.sock.getsockname()[:2]
        return str(self.table.url._replace(host=host, port=port))

    def open(self) -> None:
        self.sock.listen(BACKLOG)
        self.engine.loop.add_reader(self.sock, self._accept)

    def renew(self, tls: TlsContext | None) -> None:
        """Takes other certificates for new connections."""
        if self.tls is not None and tls is not None:
            self.tls = tls

    def close(self) -> None:
        self.engine.loop.remove_reader(self.sock)
        self.sock.close()

    def _accept(self) -> None:
        began = self.engine.pulse.begin()
        self._accept_some()
        self.engine.pulse.end("accept", began)

    def _accept_some(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self.sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OF_ONE:
                    continue
                self._pause(error)
                return
            self._welcome(sock, f"{address[0]}:{address[1]}")

    def _pause(self, error: OSError) -> None:
        """Accepts nobody for a moment: whatever is wrong would be so again at once."""
        advice = " (raise it: ulimit -n)" if error.errno in _NO_FILES else ""
        log.error("cannot accept on %s: %s%s", self.url, error.strerror, advice)
        self.engine.loop.remove_reader(self.sock)
        self.engine.loop.call_later(RETRY_S, self._accept_again)

    def _accept_again(self) -> None:
        if self.sock.fileno() >= 0:
            self.engine.loop.add_reader(self.sock, self._accept)

    def _welcome(self, sock: socket.socket, address: str) -> None:
        engine = self.engine
        here = engine.connections.by_listener[self.name]
        if here >= self.table.connections_max:
            engine.connections_refused += 1
            log.info("refused %s: listeners.%s has its %d connections already", address, self.name, here)
            sock.close()
            return
        if self.table.proxy_protocol and not is_trusted(address.rpartition(":")[0], self.table.proxies):
            engine.connections_refused += 1
            log.info("refused %s: listeners.%s takes the PROXY protocol from trusted_proxies only", address, self.name)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel doubles the size, to have room for its own bookkeeping.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, engine.settings.server.send_buffer_bytes // 2)
        pool = engine.broker.registry.pool_of(self.name)
        connection = Connection(engine, self._stream(sock, pool), address, self.name, pool, engine.now())
        engine.connections.add(connection, connection.opened_s + self.table.connect_timeout_s)
        announcement = Announcement(sock, engine.loop) if self.table.proxy_protocol else None
        connection.start(PEERS[self._scheme.protocol](engine, connection, self.table), announcement)

    def _stream(self, sock: socket.socket, pool: Pool) -> ByteStream:
        stream: ByteStream = PlainStream(sock)
        if self.tls is not None:
            limit, most = f"listeners.{self.name}.handshakes_max", self.table.handshakes_max
            stream = TlsStream(TlsHandshake(sock, self.tls, self.engine.handshakes, limit, most, self.url))
        if self._scheme.websocket:
            filler = PROTOCOLS[self._scheme.protocol].filler
            loop, shared = self.engine.loop, self._shared
            if shared is not None:
                stream = CompressedStream(stream, self._rules, filler, loop, pool, shared)
            else:
                stream = WebSocketStream(stream, self._rules, filler, loop, pool)
        return stream
