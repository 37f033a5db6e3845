"""Connections: one client's socket. Bytes in go to its peer (the protocol's side), records out come straight from
lanes.

There is no transport and no write buffer: reading and writing are done on the raw non-blocking socket when the loop
says it is ready. Not reading is how a publisher is slowed down.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from headway.core.base import Reason, moved
from headway.core.consumer import Outlet, PeerState
from headway.core.log import Pool, SpillHandle
from headway.server.connections.linger import Buffer, Lingering
from headway.server.connections.reassembly import PartialPacket, Reassembly
from headway.server.connections.states import BROKEN, CLOSED, MOVES, OPEN, ConnectionState

if TYPE_CHECKING:
    from headway.core.consumer import CloseChannel, Session, Subscription
    from headway.server.loop import Pulse

log = logging.getLogger("headway")

TCP_INFO_BYTES = 232
"""struct tcp_info of linux/tcp.h, up to tcpi_snd_wnd (Linux 5.4 and newer; an older one tells less)."""
OUT_BYTES_MAX = 128 * 1024
"""More than this of answers is not kept for a client that does not read them; it is not read either, then."""
UNCOUNTED_BYTES = 1024
"""So much of a packet that has not come whole is part of what any connection takes up."""
FIRST_READ_BYTES = 16 * 1024


class Host(Protocol):
    """What a connection needs of the engine that runs it."""

    loop: asyncio.AbstractEventLoop
    lingering: Lingering
    reassembly: dict[Pool, Reassembly]
    read_bytes: int
    pulse: Pulse

    def now(self) -> float: ...
    def turn_soon(self, read_s: float | None = None) -> None: ...
    def writable(self, session: Session) -> None: ...
    def say_soon(self, session: Session) -> None: ...
    def look_at(self, connection: Connection) -> None: ...
    def closed(self, connection: Connection, reason: Reason, text: str) -> None: ...
    def go_on_later(self, connection: Connection) -> None: ...


class Peer(Protocol):
    """The protocol's side of a connection."""

    session: Session | None
    keep_alive_s: float

    def received(self, data: bytes) -> bool:
        """Handle what came, and what came before and was too much for one turn. Returns whether there is more."""
    @property
    def buffered_bytes(self) -> int:
        """It has sent of a packet that has not come whole."""
    def partial_packet(self) -> PartialPacket: ...
    def unfinished(self) -> Buffer | None: ...
    def last_word(self, reason: Reason, text: str) -> bytes: ...
    def connection_lost(self, reason: Reason) -> None: ...
    def heartbeat(self, now: float) -> float: ...
    def paused(self, why: str) -> None:
        """The client is not read any more, and why; without a reason it is read again."""
    def close_channel(self, effect: CloseChannel) -> None: ...
    def close_consumer(self, subscription: Subscription, text: str) -> None: ...
    def cancelled(self, subscription: Subscription) -> None: ...


class Connection(Outlet):
    __slots__ = (
        "_writing", "address", "admitted", "client", "heard_s", "host", "listener", "open", "opened_s",
        "partial_bytes", "peer_side", "pool", "read_bytes", "reading_paused_by", "reassembly", "sock", "state",
        "username",
    )  # fmt: skip

    def __init__(
        self, host: Host, sock: socket.socket, address: str, listener: str, pool: Pool, now: float
    ) -> None:
        super().__init__(now)
        self.host = host
        self.sock = sock
        self.address = address
        self.listener = listener
        self.pool = pool
        self.reassembly = host.reassembly[pool]
        self.partial_bytes = 0
        """It has sent of packets that are not whole, as last counted."""
        self.state = OPEN
        """Is set by ``_become`` alone."""
        self.open = True
        """The connection is not closed."""
        self.client = self.username = ""
        """Who it says it is."""
        self.admitted = False
        self.read_bytes = min(FIRST_READ_BYTES, host.read_bytes)
        """At most so much is read at once; how much that may be, its peer says once it is known what becomes of it."""
        self.reading_paused_by: dict[str, None] = {}
        """Why nothing is read from it: ``publisher`` (it is to slow down), ``password`` (one is being checked),
        ``replies`` (it does not read what it is answered), ``journal`` (its session is not kept yet), ``turn`` (what
        came is more than it may ask for at once, and is not done yet), ``memory`` (its packet needs more than there is
        for now)."""
        self.opened_s = self.heard_s = now
        self.peer_side: Peer
        self._writing = False
        """The loop says when the socket is writable."""

    def _become(self, state: ConnectionState) -> None:
        self.state = moved(MOVES, self.state, state)
        self.open = state is not CLOSED

    def __str__(self) -> str:
        return f"{self.client} ({self.address})" if self.admitted else self.address

    def start(self, peer: Peer) -> None:
        self.peer_side = peer
        self.host.loop.add_reader(self.sock, self._readable)

    # -- in ---------------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        if not self.open:
            return  # somebody else who was called before has ended it
        try:
            data = self.sock.recv(self.reassembly.limit_of(self) if self.reassembly.waiting else self.read_bytes)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(Reason.CLIENT_GONE, lost(error.errno))
            return
        if not data:
            self.close(Reason.CLIENT_GONE)
            return
        self.heard_s = began = self.host.pulse.begin()
        self._hand(data)
        self.host.pulse.end("read", began, self)

    def go_on(self) -> None:
        """With what was too much for one turn, unless there is a reason to wait."""
        if self.open and all(why == "turn" for why in self.reading_paused_by):
            self._hand(b"")

    def _hand(self, data: bytes) -> None:
        """To the peer. While it has more to do than one turn allows, nothing is read."""
        more = False
        try:
            more = self.peer_side.received(data)
        except Exception:  # a bug of ours, whatever it is: it is put on record, and ends this connection alone
            log.exception("what %s sent could not be handled; its connection is closed", self.address)
            self.close_gracefully(Reason.INTERNAL_ERROR, "internal error")
        if self.blocked and len(self.out) > OUT_BYTES_MAX:
            self.pause_reading("replies")
            self.host.look_at(self)
        if data:
            self.host.turn_soon(self.heard_s)
        if more:
            self.pause_reading("turn")
            self.host.go_on_later(self)
            return
        if self.reading_paused_by:
            self.resume_reading("turn")
        if not self.open:
            return
        if error := self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.close(Reason.CLIENT_GONE, lost(error))  # behind its last bytes: the loop calls no reader a second time
        elif self.partial_bytes or self.reassembly.reading or self.peer_side.buffered_bytes > UNCOUNTED_BYTES:
            self.reassembly.update(self, self.peer_side.partial_packet(), self.heard_s)

    def pause_reading(self, why: str) -> None:
        """Stop reading: the client's own socket fills, and it has to wait."""
        if self.open:
            if not self.reading_paused_by:
                self.host.loop.remove_reader(self.sock)
            self.reading_paused_by[why] = None

    def resume_reading(self, why: str) -> None:
        """That is no reason any more; read again if there is no other."""
        if self.open and why in self.reading_paused_by:
            del self.reading_paused_by[why]
            if not self.reading_paused_by:
                self.heard_s = self.host.now()
                self.host.loop.add_reader(self.sock, self._readable)
            elif "turn" in self.reading_paused_by:
                self.host.go_on_later(self)

    # -- out --------------------------------------------------------------------------------------------------------

    def send(self, views: Sequence[bytes | bytearray | memoryview], total: int) -> int:
        try:
            return self.sock.send(views[0]) if len(views) == 1 else self.sock.sendmsg(views)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._broken(error)
            return 0

    def send_file(self, handle: SpillHandle, start: int, count: int) -> int:
        if handle.fd < 0:
            piece = handle.read(start, start + count)
            return self.send([piece], len(piece))
        try:
            taken = os.sendfile(self.sock.fileno(), handle.fd, handle.offset + start, count)
        except BlockingIOError:
            return 0
        except ConnectionError as error:
            self._broken(error)
            return 0
        if not taken:
            raise OSError(errno.EIO, "the file ends before the record does")
        return taken

    def _broken(self, error: OSError) -> None:
        """Found while writing; the closing is left to the loop, for we may be in the middle of a flush."""
        if self.state is OPEN:
            self._become(BROKEN)
            self.host.loop.call_soon(self.close, Reason.CLIENT_GONE, lost(error.errno))

    def wait_writable(self) -> None:
        if self.state is OPEN and not self._writing:
            self._writing = True
            self.host.loop.add_writer(self.sock, self._on_writable)

    def _on_writable(self) -> None:
        if not self.open:
            return
        began = self.host.pulse.begin()
        self._writing = False
        self.host.loop.remove_writer(self.sock)
        session = self.peer_side.session
        if session is not None and session.outlet is self:
            self.host.writable(session)
        else:
            self.blocked = False
            self.send_out()
        if len(self.out) < OUT_BYTES_MAX:
            self.resume_reading("replies")
        self.host.pulse.end("write", began, self)

    def send_out(self) -> None:
        """Send replies while there is no session to do it (before CONNECT is granted)."""
        if self.open and self.out and not self.blocked:
            total = len(self.out)
            taken = self.send([self.out], total)
            del self.out[:taken]
            self.took(taken, total, self.host.now())

    def out_soon(self) -> None:
        """There is something to say that no turn brought about."""
        session = self.peer_side.session if self.open else None
        if session is not None and session.outlet is self:
            self.host.say_soon(session)

    def peer(self) -> PeerState:
        """Asked of the kernel: does the far side confirm what it gets, and is its window (all but) closed?"""
        try:
            info = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        except OSError:
            return PeerState()
        retransmits, probes = info[2], info[3]
        closed = probes > 0
        if len(info) == TCP_INFO_BYTES:
            (segment,) = struct.unpack_from("=I", info, 16)
            busy, window_limited = struct.unpack_from("=QQ", info, 168)
            (window,) = struct.unpack_from("=I", info, 228)
            # Less than a segment fits, or the window is what forbade sending most of the time.
            closed = closed or window < segment or window_limited * 2 > busy
        return PeerState(retransmitting=retransmits > 0 and not closed, window_closed=closed)

    # -- the end ----------------------------------------------------------------------------------------------------

    def close(self, reason: Reason, text: str = "") -> None:
        """The socket is gone, or is to go without a word. ``text`` is for the record."""
        if self._end(reason, text):
            self.sock.close()

    def close_gracefully(self, reason: Reason, text: str, rest: Buffer | None = b"") -> None:
        """Finish what is half sent, tell the client why, and close once it has heard (or will not). ``rest`` is of a
        record whose session has gone already; None: it cannot be had, and no word can be said in the middle of a
        record."""
        if not self.open:
            return
        unfinished = self.peer_side.unfinished() if rest is not None else None
        if rest is None or unfinished is None:
            self.close(reason, text)
            return
        last_word = self.peer_side.last_word(reason, text)
        out, self.out = self.out, bytearray()
        if self._end(reason, text):
            words = [view for view in (rest, unfinished, out, last_word) if view]
            if words:
                self.host.lingering.close(self.sock, words, self.pool)
            else:
                self.sock.close()

    def _end(self, reason: Reason, text: str) -> bool:
        """Nobody calls its peer from here on: they would keep each other."""
        if not self.open:
            return False
        self._become(CLOSED)
        self.host.loop.remove_reader(self.sock)
        self.host.loop.remove_writer(self.sock)
        self.reassembly.remove(self, self.host.now())
        self.peer_side.connection_lost(reason)
        del self.peer_side
        self.host.closed(self, reason, text)
        return True


def lost(number: int | None) -> str:
    """What became of a connection, of which the system says only this."""
    return f"the connection was lost: {os.strerror(number).lower()}" if number else ""
