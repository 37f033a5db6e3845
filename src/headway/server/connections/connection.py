"""A connection is one client's socket. Bytes that come in go to its peer, the protocol's side of the connection.
Records that go out come straight from lanes.

There is no transport and no write buffer: the raw non-blocking socket is read and written when the loop says that it is
ready. A publisher is slowed down by not reading from it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Protocol

from headway.core.base import Reason, moved
from headway.core.consumer import Outlet, Pace, PeerState
from headway.core.log import Pool, SpillHandle
from headway.server.connections.linger import Buffer, Lingering
from headway.server.connections.peer_progress import (
    FINE_BYTES,
    NEW_S,
    ROOM_BYTES,
    SMALL_BYTES,
    STILL_S,
    TRIED_BYTES,
    PeerProgress,
    PieceBudget,
    TcpInfo,
)
from headway.server.connections.reassembly import PartialPacket, Reassembly
from headway.server.connections.states import BROKEN, CLOSED, MOVES, OPEN, ConnectionState

if TYPE_CHECKING:
    from headway.core.consumer import CloseChannel, Session, Subscription
    from headway.server.loop import Pulse

log = logging.getLogger("headway")

OUT_BYTES_MAX = 128 * 1024
"""A client with more unread answers than this is not read until it has taken some of them."""
UNCOUNTED_BYTES = 1024
"""A partial packet up to this size is not counted on its own: every connection may take up that much."""
FIRST_READ_BYTES = 16 * 1024


class Host(Protocol):
    """The engine, as its connections see it."""

    loop: asyncio.AbstractEventLoop
    lingering: Lingering
    reassembly: dict[Pool, Reassembly]
    read_bytes: int
    pulse: Pulse
    pieces: PieceBudget

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
        """Handles new bytes, and earlier ones that were too much for one turn. Returns whether there is more to do."""
    @property
    def buffered_bytes(self) -> int:
        """Bytes held of packets that have not come whole."""
    def partial_packet(self) -> PartialPacket: ...
    def unfinished(self) -> Buffer | None: ...
    def last_word(self, reason: Reason, text: str) -> bytes: ...
    def connection_lost(self, reason: Reason) -> None: ...
    def heartbeat(self, now: float) -> float: ...
    def paused(self, why: str) -> None:
        """Tells the client that it is not read any more, and why; without a reason, that it is read again."""
    def close_channel(self, effect: CloseChannel) -> None: ...
    def close_consumer(self, subscription: Subscription, text: str) -> None: ...
    def cancelled(self, subscription: Subscription) -> None: ...


class Connection(Outlet):
    __slots__ = (
        "_fine_bytes", "_fine_until_s", "_progress", "_writing", "address", "admitted", "client", "heard_s", "host",
        "listener", "open", "opened_s", "partial_bytes", "peer_side", "pool", "read_bytes", "reading_paused_by",
        "reassembly", "sock", "state", "username",
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
        """Bytes held of partial packets, as last counted."""
        self.state = OPEN
        """Set by ``_become`` alone."""
        self.open = True
        """Whether the connection is not closed yet."""
        self.client = self.username = ""
        self.admitted = False
        """Whether the client was ever given a session. No state: it stays so after the end, whose record tells it."""
        self.read_bytes = min(FIRST_READ_BYTES, host.read_bytes)
        """Bytes that one read may bring. The peer adjusts this once it knows how many lanes the records go to."""
        self.reading_paused_by: dict[str, None] = {}
        """Reasons why nothing is read: ``publisher`` (the client has to slow down), ``password`` (its password is being
        checked), ``replies`` (it does not read its answers), ``journal`` (the journal does not have its session yet),
        ``turn`` (it has sent more than its budget for this turn), ``memory`` (its packet needs more memory than there
        is for now)."""
        self.opened_s = self.heard_s = now
        self.peer_side: Peer
        self._writing = False
        """Whether the loop will say when the socket is writable."""
        self._fine_until_s = now + NEW_S
        self._fine_bytes = FINE_BYTES
        """So many bytes are still to be sent in small pieces; see peer_progress.py."""
        self._progress: PeerProgress | None = None
        """Measures how the peer takes bytes; None: none of its consumers has lagged yet."""

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
            return  # a callback earlier in this turn has closed it
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
        """Handles what was too much for one turn, unless there is another reason to wait."""
        if self.open and all(why == "turn" for why in self.reading_paused_by):
            self._hand(b"")

    def _hand(self, data: bytes) -> None:
        """Hands bytes to the peer. Stops reading while the peer has more to do than one turn allows."""
        more = False
        try:
            more = self.peer_side.received(data)
        except Exception:  # a bug of ours is logged, and ends this connection alone
            log.exception("input from %s could not be handled; its connection is closed", self.address)
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
            self.close(Reason.CLIENT_GONE, lost(error))  # it came after the last bytes; no reader is called for it
        elif self.partial_bytes or self.reassembly.reading or self.peer_side.buffered_bytes > UNCOUNTED_BYTES:
            self.reassembly.update(self, self.peer_side.partial_packet(), self.heard_s)

    def pause_reading(self, why: str) -> None:
        """Stops reading. The client's own socket fills up, and the client has to wait."""
        if self.open:
            if not self.reading_paused_by:
                self.host.loop.remove_reader(self.sock)
            self.reading_paused_by[why] = None

    def resume_reading(self, why: str) -> None:
        """Drops one reason not to read, and reads again if there is no other."""
        if self.open and why in self.reading_paused_by:
            del self.reading_paused_by[why]
            if not self.reading_paused_by:
                self.heard_s = self.host.now()
                self.host.loop.add_reader(self.sock, self._readable)
            elif "turn" in self.reading_paused_by:
                self.host.go_on_later(self)

    # -- out --------------------------------------------------------------------------------------------------------

    def send(self, views: Sequence[bytes | bytearray | memoryview], total: int) -> int:
        if self._fine_bytes > 0:
            if self._sends_small(total):
                return self._send_small(b"".join(views))
            self._fine_bytes = 0
        try:
            return self.sock.send(views[0]) if len(views) == 1 else self.sock.sendmsg(views)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._broken(error)
            return 0

    def _sends_small(self, total: int) -> bool:
        """Tells whether small pieces are due, and there are some left; see peer_progress.py."""
        now = self.host.now()
        if now > self._fine_until_s:
            return False
        if self._fine_until_s < inf and self._fine_bytes <= FINE_BYTES - TRIED_BYTES:
            try:
                info = TcpInfo(self.sock)
            except OSError:
                return False
            if info.window >= ROOM_BYTES and 2 * info.acked_bytes > self.taken_bytes:
                return False  # it reads
        return self.host.pieces.take(total, now)

    def _send_small(self, data: bytes) -> int:
        """Sends small pieces, which the peer's kernel frees one by one."""
        view, taken = memoryview(data), 0
        try:
            while taken < min(len(data), TRIED_BYTES):
                piece = view[taken : taken + SMALL_BYTES]
                count = self.sock.send(piece, socket.MSG_EOR)
                taken += count
                if count < len(piece):
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            self._broken(error)
            return 0
        self._fine_bytes -= taken
        return taken

    def send_file(self, handle: SpillHandle, start: int, count: int) -> int:
        if handle.fd < 0 or self._fine_bytes > 0:
            count = min(count, FINE_BYTES)
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
        """Handles a failed write. The loop closes the connection later: this may be in the middle of a flush."""
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
        """Sends replies while there is no session that would do it (before the client is let in)."""
        if self.open and self.out and not self.blocked:
            total = len(self.out)
            taken = self.send([self.out], total)
            del self.out[:taken]
            self.took(taken, total, self.host.now())

    def out_soon(self) -> None:
        """Has replies sent that came up outside a turn."""
        session = self.peer_side.session if self.open else None
        if session is not None and session.outlet is self:
            self.host.say_soon(session)

    @property
    def blocked_since_s(self) -> float | None:
        """Returns since when bytes have waited and the peer has taken none; None: none wait."""
        if not self.blocked:
            return None
        return self.progress_s if self._progress is None else self._progress.stands_since_s(self.progress_s)

    def pace(self, now: float) -> Pace:
        """Asks the kernel how far the peer is. Small pieces are sent to a peer that stands still."""
        try:
            info = TcpInfo(self.sock)
        except OSError:
            return super().pace(now)
        if not info.complete:
            return super().pace(now)
        if self._progress is None:
            self._progress = PeerProgress()
        progress = self._progress
        progress.look(info, now, self.progress_s)
        since = self.blocked_since_s
        if since is not None and now - since > STILL_S and not progress.has_pace:
            self._fine_bytes, self._fine_until_s = FINE_BYTES, inf
        unacknowledged_bytes = max(0, self.taken_bytes - info.acked_bytes)
        return Pace(since, progress.usual_pause_s, unacknowledged_bytes, progress.lump_bytes())

    def peer(self) -> PeerState:
        """Asks the kernel whether the far side acknowledges what it gets, and whether its window is (nearly) closed."""
        try:
            info = TcpInfo(self.sock)
        except OSError:
            return PeerState()
        return (self._progress or PeerProgress()).state(info)

    # -- the end ----------------------------------------------------------------------------------------------------

    def close(self, reason: Reason, text: str = "") -> None:
        """Closes the socket without a last word. ``text`` goes on record."""
        if self._end(reason, text):
            self.sock.close()

    def close_gracefully(self, reason: Reason, text: str, rest: Buffer | None = b"") -> None:
        """Finishes a half-sent record, tells the client why, and lets the socket linger until the client has read that.
        ``rest`` is the rest of a record whose session has ended already. If it is None it cannot be read, and nothing
        can be said in the middle of a record: the connection is closed at once."""
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
        """Ends the connection and drops its peer, so that the two leave no reference cycle. Returns False if it had
        ended before."""
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
    """Words an error of the operating system that ended a connection."""
    return f"the connection was lost: {os.strerror(number).lower()}" if number else ""
