"""A connection is one client's socket. Bytes that come in go to its peer, the protocol's side of the connection.
Records that go out come straight from lanes.

There is no transport and no write buffer: the raw non-blocking socket is read and written when the loop says that it is
ready. A publisher is slowed down by not reading from it.
"""

from __future__ import annotations

import logging
import socket
from typing import Protocol

from headway.core.base import Reason, Refused
from headway.core.consumer import CloseChannel, Session, Subscription
from headway.core.log import PARTS, Pool, Tab
from headway.core.permission import Identity
from headway.server.connections.linger import Endings, Hangups, Lingering
from headway.server.connections.proxied import Announcement
from headway.server.connections.reassembly import STRANGER_BYTES, PartialPacket, Reassembly
from headway.server.connections.socket_outlet import OutletHost, SocketOutlet, ended
from headway.server.connections.turn_budget import CLOSED
from headway.server.loop import Pulse
from headway.server.transport import Buffer, ByteStream, StreamError, is_tls, lost, unwanted_tls

log = logging.getLogger("headway")

OUT_BYTES_MAX = 128 * 1024
"""A client with more unread answers than this is not read until it has taken some of them."""
AHEAD_BYTES, AHEAD_BYTES_MAX, AHEAD_OF_ALL_BYTES_MAX = 256 * 1024, 1024 * 1024, 16 * 1024 * 1024
"""How much is read of a publisher that is held back: at a look, until it goes on, and of all such publishers. Behind
what it published it may have said goodbye."""
_HAS_LEFT = (4, 5, 6, 7, 8, 9, 11)
"""States of TCP in which one side sends no more (linux/tcp_states.h): all but ESTABLISHED and those before it."""


class Host(OutletHost, Protocol):
    """The engine, as its connections see it."""

    lingering: Lingering
    reassembly: dict[Pool, Reassembly]
    strangers: Reassembly
    """The same for all connections that have not logged in."""
    read_bytes: int
    protocol_errors: int
    pulse: Pulse
    endings: Endings
    hangups: Hangups
    ahead_bytes: int
    """Bytes that were read of publishers that are held back."""
    work_left: int
    """Work that all connections together may still ask for in this turn."""

    def turn_soon(self, read_s: float = ...) -> None: ...
    def writable(self, session: Session) -> None: ...
    def say_soon(self, session: Session) -> None: ...
    def look_at(self, connection: Connection) -> None: ...
    def speaks(self, connection: Connection) -> None:
        """Notes that a client has said something, for the first time."""
    def has_left(self, connection: Connection) -> None:
        """Notes that a client has left before its login is answered, and what it said is still to be handled."""
    def closed(self, connection: Connection, reason: Reason, text: str) -> None: ...
    def go_on_later(self, connection: Connection, *, unserved: bool = False, waits: bool = False) -> None:
        """Lets a connection go on in a later turn. ``unserved``: nothing was left of this one when its bytes came.
        ``waits``: there was, and it could do nothing."""


class Peer(Protocol):
    """The protocol's side of a connection."""

    session: Session | None
    identity: Identity
    keep_alive_s: float
    closes_consumers: bool
    """Whether its protocol can close one consumer of a client."""

    def received(self, data: bytes) -> bool:
        """Handles new bytes, and earlier ones that were too much for one turn. Returns whether there is more to do."""
    def says_goodbye(self) -> bool:
        """Tells whether the client has said, behind what waits to be handled, that it leaves."""
    @property
    def buffered_bytes(self) -> int:
        """Bytes held of packets that have not come whole."""
    @property
    def has_more(self) -> bool:
        """Whether there is more to handle of what the client has said."""
    def partial_packet(self) -> PartialPacket: ...
    def unfinished(self) -> Buffer | None: ...
    def last_word(self, reason: Reason, text: str) -> bytes: ...
    def connection_lost(self, reason: Reason) -> None: ...
    def heartbeat(self, now: float) -> float: ...
    def paused(self, why: str) -> None:
        """Tells the client that it is not read any more, and why; without a reason, that it is read again."""
    def close_channel(self, effect: CloseChannel) -> None: ...
    def close_consumer(self, subscription: Subscription, text: str) -> None: ...
    def cancelled(self, subscription: Subscription, reason: Reason) -> None: ...
    def revoked(self, subscription: Subscription, reason: Reason, text: str) -> None: ...


class Connection(SocketOutlet):
    __slots__ = (
        "_ahead_bytes", "_begun", "_held_bytes", "_read_due", "_sent_all", "_tab", "address", "admitted", "client",
        "heard_s", "leaving", "listener", "opened_s", "partial_bytes", "peer_side", "pool", "read_bytes",
        "reading_paused_by", "reassembly", "unsent_bytes", "username",
    )  # fmt: skip
    host: Host

    def __init__(
        self, host: Host, stream: ByteStream, address: str, listener: str, pool: Pool, now: float
    ) -> None:
        super().__init__(host, stream, now)
        self.address = address
        self.listener = listener
        self.pool = pool
        self.reassembly = host.strangers
        self.partial_bytes = 0
        """Bytes held of partial packets, as last counted."""
        self.client = self.username = ""
        self.admitted = False
        """Whether the client was ever given a session. No state: it stays so after the end, whose record tells it."""
        self.read_bytes = min(STRANGER_BYTES, host.read_bytes)
        """Bytes that one read may bring. The peer adjusts this once it knows how many lanes the records go to."""
        self.reading_paused_by: dict[str, None] = {}
        """Reasons why nothing is read: ``publisher`` (the client has to slow down), ``password`` (its password is being
        checked), ``replies`` (it does not read its answers), ``journal`` (the journal does not have its session yet),
        ``turn`` (it has sent more than its budget for this turn), ``memory`` (its packet needs more memory than there
        is for now)."""
        self.leaving = False
        """The client has said that it leaves, or has sent all that it ever will. So it is not held back, until that is
        handled."""
        self._sent_all = False
        self._ahead_bytes = 0
        """Bytes that were read while the client was held back."""
        self._tab: Tab | None = None
        self._held_bytes = 0
        """The tab of the client that has logged in, and the bytes on it that the stream holds."""
        self._begun = False
        """Whether the client has said anything."""
        self._read_due = False
        """Whether the loop will read what is pending in the stream."""
        self.unsent_bytes = 0
        """Bytes that wait in the stream, as last counted."""
        self.opened_s = self.heard_s = now
        self.peer_side: Peer

    def __str__(self) -> str:
        return f"{self.client} ({self.address})" if self.admitted else self.address

    @property
    def closes_consumers(self) -> bool:
        return self.peer_side.closes_consumers

    def start(self, peer: Peer, announcement: Announcement | None = None) -> None:
        """Begins to read. ``announcement``: a proxy says first whose connection it is."""
        self.peer_side = peer
        if announcement is not None:
            announcement.read(self, self._begin)
        else:
            self._begin()

    def _begin(self) -> None:
        if self.stream.ready:
            self.opened()
        else:
            self.stream.open(self)

    def holds(self, size: int) -> None:
        """Notes how many bytes of a handshake the stream holds."""
        self.reassembly.holds(self, size)

    def opened(self) -> None:
        """The stream is ready."""
        self.host.loop.add_reader(self.sock, self._readable)
        self._after_read()

    def let_in(self) -> None:
        """The client has logged in."""
        self.admitted = True
        self.host.hangups.forget(self.sock)
        self.reassembly.remove(self, self.host.now())
        self.reassembly = self.host.reassembly[self.pool]
        self.resume_reading("memory")  # part of a packet behind its login may have waited for memory of strangers

    # -- in ---------------------------------------------------------------------------------------------------------

    def read_now(self) -> None:
        """Reads without having been called by the loop. If the connection was reset right behind some bytes, the loop
        has called only for these, and will not call again (uvloop)."""
        self._readable()

    def _readable(self) -> None:
        if not self.open or "end" in self.reading_paused_by:
            return  # a callback earlier in this turn has closed it, or has found it to be over
        try:
            data = self.stream.receive(self.reassembly.limit_of(self) if self.reassembly.waiting else self.read_bytes)
        except BlockingIOError:
            self._count_parts()
            self._after_read()
            return
        except OSError as error:
            self.end_soon(*ended(error), told=isinstance(error, StreamError) and error.polite)
            return
        if not data:
            self.end_soon(Reason.CLIENT_GONE)
            return
        if not self._begun:
            self._begun = True
            self.host.speaks(self)
            if is_tls(data):
                self.host.protocol_errors += 1
                self.close(Reason.PROTOCOL_ERROR, unwanted_tls(self.listener))
                return
        self.heard_s = began = self.host.pulse.begin()
        self._hand(data)
        self.host.pulse.end("read", began, self)
        self._after_read()

    def _after_read(self) -> None:
        """Has pending bytes read in the next turn, and sends what the stream says to the bytes that came."""
        stream = self.stream
        if stream.pending and not self._read_due:
            self._read_due = True
            self.host.loop.call_soon(self._read_pending)
        if stream.unsent and self.open:
            self._note_unsent()

    def _read_pending(self) -> None:
        """Reads bytes that the stream has and the kernel does not show."""
        self._read_due = False
        if not self.reading_paused_by:
            self._readable()

    def go_on(self) -> None:
        """Handles what was too much for one turn, unless there is another reason to wait."""
        if self.open and all(why == "turn" for why in self.reading_paused_by):
            self._hand(b"")

    def _hand(self, data: bytes) -> None:
        """Hands bytes to the peer. Stops reading while the peer has more to do than one turn allows."""
        more, work_left = False, self.host.work_left
        unserved = work_left <= 0 and "turn" not in self.reading_paused_by
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
            waits = not data and self.host.work_left == work_left > 0
            self.host.go_on_later(self, unserved=unserved, waits=waits)
            return
        if self.reading_paused_by:
            self.resume_reading("turn")
        if not self.open:
            return
        if error := self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.end_soon(Reason.CLIENT_GONE, lost(error))  # it came after the last bytes; no reader is called for it
            return
        reassembly = self.reassembly
        if (self.partial_bytes or self._held_bytes or self.stream.held_bytes or reassembly.reading
                or self.peer_side.buffered_bytes > reassembly.uncounted_bytes):  # fmt: skip
            self._count_parts()

    def _count_parts(self) -> None:
        """Counts what is held of packets that have not come whole, and what the stream holds, on the client's tab or as
        a stranger's."""
        reassembly, peer, held_bytes = self.reassembly, self.peer_side, self.stream.held_bytes
        if peer.session is not None:
            self._tab = self._tab or peer.session.tab
            size, held_bytes = held_bytes if held_bytes > reassembly.uncounted_bytes else 0, 0
            try:
                if size > self._held_bytes:
                    self._tab.check(size - self._held_bytes)
            except Refused as error:  # else one user's streams would use up what all clients may take up
                self.end_soon(error.reason, str(error), told=True)
            self._count_held(size)
        if self.partial_bytes or reassembly.reading or peer.buffered_bytes + held_bytes > reassembly.uncounted_bytes:
            reassembly.update(self, peer.partial_packet()._replace(stream_bytes=held_bytes), self.heard_s)

    def _count_held(self, size: int) -> None:
        if self._tab is not None and size != self._held_bytes:
            self._tab.add(PARTS, size - self._held_bytes)
            self._held_bytes = size

    def pause_reading(self, why: str) -> None:
        """Stops reading. The client's own socket fills up, and the client has to wait."""
        if self.open and not (self.leaving and why == "publisher"):
            if not self.reading_paused_by:
                self.host.loop.remove_reader(self.sock)
                if not self.admitted and why != "end":
                    self.host.hangups.watch(self.sock, self._hung_up)
            self.reading_paused_by[why] = None

    def resume_reading(self, why: str) -> None:
        """Drops one reason not to read, and reads again if there is no other."""
        if self.open and why in self.reading_paused_by:
            del self.reading_paused_by[why]
            if why == "publisher":
                self._count_ahead(0)
            if not self.reading_paused_by:
                self.heard_s = self.host.now()
                self.host.hangups.forget(self.sock)
                self.opened()
            elif "turn" in self.reading_paused_by:
                self.host.go_on_later(self)

    @property
    def has_unread(self) -> bool:
        """Whether the kernel has bytes of the client that were not read yet."""
        try:
            return bool(self.sock.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def _hung_up(self) -> None:
        """Ends a connection that is not read, and whose client has left before it has logged in. One that has said
        more behind its login may go on, to publish that, for as long as nobody else needs its place."""
        error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self.end_soon(Reason.CLIENT_GONE, lost(error))
            return
        if not self.has_unread and not self.peer_side.has_more and not self.stream.pending:
            self.end_soon(Reason.CLIENT_GONE, "the client left before its login was answered")
        else:
            self.host.has_left(self)

    def look_ahead(self) -> None:
        """Finds out whether a client that is held back has left, or wants to. Nobody would notice it otherwise, because
        nothing is read. Its queues would stay locked, and its goodbye unanswered.

        What it sent before is bounded by the buffers of both kernels, and is published then: it may be all that there
        will ever be of it. A connection that was reset, or whose host has vanished, ends at once."""
        error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self.end_soon(Reason.CLIENT_GONE, lost(error))
            return
        most = min(AHEAD_BYTES_MAX - self._ahead_bytes, AHEAD_OF_ALL_BYTES_MAX - self.host.ahead_bytes, AHEAD_BYTES)
        if most <= 0:
            left = self._has_left()
        else:
            try:
                data = self.stream.receive(most)
            except BlockingIOError:
                return
            except OSError as ending:
                self.end_soon(*ended(ending))
                return
            self._count_ahead(self._ahead_bytes + len(data))
            left = not data
            if data:
                self._hand(data)
        if self.open and (left or self.peer_side.says_goodbye()):
            self.leaving, self._sent_all = True, left
            ahead_bytes = self._ahead_bytes
            self.resume_reading("publisher")
            self._count_ahead(ahead_bytes)  # a goodbye does not let it publish more before it goes on

    def _count_ahead(self, size: int) -> None:
        self.pool.add_clients(size - self._ahead_bytes)
        self.host.ahead_bytes += size - self._ahead_bytes
        self._ahead_bytes = size

    def hold_back_again(self, *, held: bool) -> None:
        """Goes back to how it was, once a goodbye was handled that did not end the connection: it was a channel's."""
        if not self._sent_all:
            self.leaving = False
            if held:
                self.pause_reading("publisher")

    def _has_left(self) -> bool:
        """Tells whether the client will send no more: it has closed its side, which our kernel knows, or cannot know
        while its own buffer is full of what we do not read. The table of sockets tells of a client on this host."""
        try:
            state = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        except OSError:  # no socket of the internet
            return False
        return state in _HAS_LEFT or self.host.peer_sockets.of(self.sock).state in _HAS_LEFT

    # -- out --------------------------------------------------------------------------------------------------------

    def _on_writable(self) -> None:
        if not self.open:
            return
        began = self.host.pulse.begin()
        if self._may_write():
            session = self.peer_side.session
            if session is not None and session.outlet is self:
                self.host.writable(session)
            else:
                self.blocked = False
                self.send_out()
            self._complete()
            if len(self.out) < OUT_BYTES_MAX:
                self.resume_reading("replies")
        self.host.pulse.end("write", began, self)

    def _complete(self) -> None:
        """Tells the stream if no bytes follow for now, and no record is half sent."""
        if not self.open or self.blocked or self.out:
            return
        session = self.peer_side.session
        if session is None or (session.outlet is self and not session.rest and session.half_sent is None):
            self.stream.complete()
            if self.stream.unsent:
                self._note_unsent()

    def _count_unsent(self, size: int) -> None:
        self.pool.add_clients(size - self.unsent_bytes)
        self.unsent_bytes = size

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

    # -- the end ----------------------------------------------------------------------------------------------------

    def end_soon(self, reason: Reason, text: str = "", *, told: bool = False) -> None:
        """Ends the connection, with others in their order (linger.py); nothing is read until then. ``told``: the
        client is told why."""
        if self.open and not self.host.endings.end(self, reason, text, told=told):
            self.pause_reading("end")

    def end_now(self, reason: Reason, text: str, *, told: bool) -> None:
        if told:
            self.close_gracefully(reason, text)
        else:
            self.close(reason, text)

    def close(self, reason: Reason, text: str = "") -> None:
        """Closes the socket without a last word. ``text`` goes on record."""
        if self._end(reason, text):
            self.stream.close()

    def close_gracefully(self, reason: Reason, text: str, rest: Buffer | None = b"") -> None:
        """Finishes a half-sent record, tells the client why, and lets the socket linger until the client has read that.
        ``rest`` is the rest of a record whose session has ended already. If it is None it cannot be read, and nothing
        can be said in the middle of a record: the connection is closed at once, as is one whose stream is not ready."""
        if not self.open:
            return
        unfinished = self.peer_side.unfinished() if rest is not None and self.stream.ready else None
        if rest is None or unfinished is None:
            self.close(reason, text)
            return
        last_word = self.peer_side.last_word(reason, text)
        out, self.out = self.out, bytearray()
        if self._end(reason, text):
            words = self.stream.last_words((rest, unfinished, out, last_word))
            if words:
                self.host.lingering.close(self.sock, words, self.pool)
            else:
                self.stream.close()

    def _end(self, reason: Reason, text: str) -> bool:
        """Ends the connection and drops its peer, so that the two leave no reference cycle. Returns False if it had
        ended before."""
        if not self.open:
            return False
        self._become(CLOSED)
        self.host.loop.remove_reader(self.sock)
        self.host.loop.remove_writer(self.sock)
        self.host.hangups.forget(self.sock)
        self.reassembly.remove(self, self.host.now())
        self.stream.leaving(reason, text)
        if self.unsent_bytes:
            self._count_unsent(0)
        self._count_ahead(0)
        self._count_held(0)
        self.peer_side.connection_lost(reason)
        del self.peer_side
        self.host.closed(self, reason, text)
        return True
