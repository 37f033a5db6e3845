"""Listeners: sockets that accept connections, up to their limit, and survive whatever goes wrong with it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

from headway.server.config import ListenerTable, TlsContext
from headway.server.connections import Announcement, Connection, Peer, is_trusted
from headway.server.engine import Engine
from headway.server.loop import descriptors_for_clients, lowest_free_descriptor
from headway.server.peers import Choice, Undecided
from headway.server.protocols import PROTOCOLS, SUBPROTOCOLS, peer_of
from headway.server.transport import (
    NO_FILES_LEFT,
    Acceptor,
    ByteStream,
    PlainStream,
    TlsHandshake,
    TlsStream,
    bound,
    with_options,
)
from headway.server.websocket import CompressedStream, Rules, SharedDeflate, WebSocketStream, unmasking

log = logging.getLogger("headway")

BACKLOG = 4096


class Listener:
    """The listening socket of one ``[listeners.NAME]``. Raises OSError if the address cannot be had."""

    def __init__(
        self, engine: Engine, name: str, table: ListenerTable, tls: TlsContext | None = None,
        passed: socket.socket | None = None,
    ) -> None:  # fmt: skip
        """``passed``: a socket that listens already, in place of one at the address of the table."""
        self.engine = engine
        self.name = name
        self.table = table
        self._scheme = table.url.kind
        self._tables = {name: table.speaking(name) for name in self._scheme.protocols}
        self._peers: dict[str, Callable[[Engine, Connection, ListenerTable], Peer]] = {
            name: peer_of(name) for name in self._scheme.protocols
        }
        codecs = {name: PROTOCOLS[name] for name in self._scheme.protocols}
        self._choice = Choice(codecs, self._scheme.owner, self._speaking)
        origins = None if table.origins is None else tuple(table.origins)
        self._rules = Rules(
            table.paths, origins, SUBPROTOCOLS, name, tls is not None, table.compression,
            tuple(table.trusted_given or ()),
        )  # fmt: skip
        if self._scheme.websocket:
            unmasking()
        pool = engine.broker.registry.pool_of(name)
        self._shared = SharedDeflate(pool, engine.now) if table.compression else None
        """Frames that were compressed of late; None: nothing is compressed."""
        self.tls = tls
        """Certificates for new connections; None: the listener is without TLS."""
        sock = bound(table.url.host, table.url.port) if passed is None else with_options(passed)
        host, port = sock.getsockname()[:2]
        self.url = str(table.url._replace(host=host, port=port))
        """The address, with the port that was free where the config asks for any."""
        self._files_max = descriptors_for_clients()
        self._acceptor = Acceptor(
            sock, engine.loop, engine.pulse, self.url, self._welcome, engine.accepting, self._files_max,
            self._free_descriptor,
        )
        engine.readiness.ask(self.trouble)

    def open(self) -> None:
        self._acceptor.open(BACKLOG)

    def renew(self, tls: TlsContext | None) -> None:
        """Takes other certificates for new connections."""
        if self.tls is not None and tls is not None:
            self.tls = tls

    def close(self) -> None:
        self._acceptor.close()

    def trouble(self) -> str:
        """Returns why no further client is accepted; empty: it would be."""
        where = f"listeners.{self.name}"
        connections = self.engine.connections
        full = connections.by_listener[self.name] >= self.table.connections_max
        if full and not connections.strangers[self.name]:
            return f"{where} has its {self.table.connections_max} connections already"
        if self._acceptor.paused:
            return f"{where} cannot accept connections: {self._acceptor.paused}"
        try:
            left = lowest_free_descriptor() < self._files_max
        except OSError:
            left = False
        left = left or any(connections.strangers.values())
        return "" if left else f"{where} cannot accept connections: {NO_FILES_LEFT}"

    def _welcome(self, sock: socket.socket, address: str) -> None:
        engine = self.engine
        host, _, _ = address.rpartition(":")
        if self.table.proxy_protocol and not is_trusted(host, self.table.proxies):
            self._refuse(sock, address, "takes the PROXY protocol from trusted_proxies only")
            return
        here = engine.connections.by_listener[self.name]
        if here >= self.table.connections_max:
            full = f"has its {here} connections already"
            if not engine.connections.make_room(self.name, host, f"listeners.{self.name} {full}", engine.now()):
                self._refuse(sock, address, full)
                return
        # The kernel doubles the size, to have room for its own bookkeeping.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, engine.settings.server.send_buffer_bytes // 2)
        pool = engine.broker.registry.pool_of(self.name)
        connection = Connection(engine, self._stream(sock), address, self.name, pool, engine.now())
        engine.connections.add(connection, connection.opened_s + self.table.connect_timeout_s)
        announcement = Announcement(sock, engine.loop) if self.table.proxy_protocol else None
        connection.start(self._peer(connection), announcement)

    def _free_descriptor(self) -> bool:
        return self.engine.connections.make_room("", "", NO_FILES_LEFT, self.engine.now())

    def _refuse(self, sock: socket.socket, address: str, why: str) -> None:
        self.engine.connections_refused += 1
        fields = {"listener": self.name, "address": address, "why": why}
        if self.engine.ends.strangers_lines.has("refused"):
            log.info("refused %s: listeners.%s %s", address, self.name, why, extra={"fields": fields})
        sock.close()

    def _peer(self, connection: Connection) -> Peer:
        if len(self._tables) > 1:
            return Undecided(self.engine, connection, self._choice)
        return self._speaking(self._scheme.protocols[0], connection)

    def _speaking(self, protocol: str, connection: Connection) -> Peer:
        return self._peers[protocol](self.engine, connection, self._tables[protocol])

    def _stream(self, sock: socket.socket) -> ByteStream:
        stream: ByteStream = PlainStream(sock)
        if self.tls is not None:
            limit, most = f"listeners.{self.name}.handshakes_max", self.table.handshakes_max
            stream = TlsStream(TlsHandshake(sock, self.tls, self.engine.handshakes, limit, most, self.url))
        if self._scheme.websocket:
            loop, shared = self.engine.loop, self._shared
            if shared is not None:
                stream = CompressedStream(stream, self._rules, PROTOCOLS, loop, shared)
            else:
                stream = WebSocketStream(stream, self._rules, PROTOCOLS, loop)
        return stream
