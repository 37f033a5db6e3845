"""A socket outlet is a client's socket as the core sees it: it takes bytes, and the kernel tells how the peer does."""

from __future__ import annotations

import asyncio
import socket
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import Protocol

from headway.core.base import Reason, moved
from headway.core.consumer import Outlet, Pace, PeerState
from headway.core.log import SpillHandle
from headway.server.connections.turn_budget import BROKEN, CLOSED, MOVES, OPEN, ConnectionState
from headway.server.progress import (
    BURST_BYTES,
    FINE_BYTES,
    GLANCE_BYTES,
    NEW_S,
    NO_PROGRESS,
    NO_ROOM,
    ROOM_BYTES,
    SEND_BYTES,
    SMALL_BYTES,
    STILL_S,
    TRIED_BYTES,
    Glances,
    PeerProgress,
    PeerSocket,
    PeerSockets,
    PieceBudget,
    Reading,
    Room,
    RoomLooks,
    SmallPieces,
    Steadiness,
    TcpInfo,
)
from headway.server.transport import Buffer, ByteStream, StreamError, first_bytes, lost

FRUGAL_BYTES = 4096
"""Our kernel takes no more for a steady peer while it has so much that it cannot send yet."""
HELD_BYTES = 1
"""Our kernel takes no more for a peer whose host answers nothing, as soon as it has a byte that it cannot send yet."""
CRAMPED_BYTES = 4096
"""A small receive buffer has room for pieces of this size as soon as it is read from. Our kernel would wait for room
for larger ones (RFC 9293, 3.8.6.2.1), or send them and have them dropped, and then try ever more seldom: a client that
reads once in a while would get little."""
SYSTEMS_BYTES = 0
"""Stands for the system's own limit (net.ipv4.tcp_notsent_lowat), by default none."""


class OutletHost(Protocol):
    """The engine, as outlets see it."""

    loop: asyncio.AbstractEventLoop
    pieces: PieceBudget
    glances: Glances
    peer_sockets: PeerSockets
    room_looks: RoomLooks

    def now(self) -> float: ...


class SocketOutlet(Outlet):
    __slots__ = (
        "_cramped", "_far_end", "_frugal", "_held", "_progress", "_reading", "_room", "_sends_all", "_small",
        "_steadiness", "_unglanced_bytes", "_writing", "host", "open", "sock", "state", "stream",
    )  # fmt: skip

    def __init__(self, host: OutletHost, stream: ByteStream, now: float) -> None:
        super().__init__(now)
        self.host = host
        self.stream = stream
        self.sock = stream.sock
        """The kernel's socket, for the loop and for the kernel's figures."""
        self.state = OPEN
        """Set by ``_become`` alone."""
        self.open = True
        """Whether the connection is not closed yet."""
        self._writing = False
        """Whether the loop will say when the socket is writable."""
        self._small = SmallPieces(host.pieces, now)
        self._far_end: PeerSocket | None = None
        """The peer's socket; None: nobody has looked for it yet."""
        self._progress = NO_PROGRESS
        """Measures how the peer takes bytes, once a consumer of its has lagged."""
        self._reading: Reading | None = None
        """Measures since when the peer reads nothing; None: it was sent little yet, and did not lag."""
        self._unglanced_bytes = GLANCE_BYTES
        """When so many more are sent, it is looked at, so that its reading is known if it lags later."""
        self._steadiness: Steadiness | None = None
        """Finds out whether the peer reads steadily; None: nobody wants fresh records."""
        self._room = NO_ROOM
        """Limits what is on its way to a peer on this host, once somebody has looked."""
        self._frugal = False
        """Whether our kernel takes little that it cannot send at once."""
        self._cramped = False
        """Whether the peer's receive buffer is small, and has no room for all that our kernel would send at once."""
        self._held = False
        """Whether our kernel takes no more, because the peer's host answers nothing."""
        self._sends_all = False
        """Whether a short burst is sent as it is: as far as is known, there is room, and it need not be in pieces. Each
        look at the peer makes that unknown."""

    def _become(self, state: ConnectionState) -> None:
        self.state = moved(MOVES, self.state, state)
        self.open = state is not CLOSED
        if not self.open:
            self._room.end()

    @abstractmethod
    def close(self, reason: Reason, text: str = "") -> None: ...

    def end_soon(self, reason: Reason, text: str = "") -> None:
        """Closes the socket as soon as there is time for it."""
        self.close(reason, text)

    @abstractmethod
    def _count_unsent(self, size: int) -> None:
        """Counts what the stream has taken and the kernel has not."""

    @abstractmethod
    def _on_writable(self) -> None:
        """Called by the loop. Calls ``_may_write`` first."""

    def send(self, views: Sequence[Buffer], total: int) -> int:
        stream = self.stream
        try:
            if self._sends_all and total < BURST_BYTES:
                taken = stream.send(views)
            else:
                taken = self._send_with_care(views, total)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._broken(error)
            return 0
        if stream.unsent:
            self._note_unsent()
        self._unglanced_bytes -= taken + SEND_BYTES
        if self._unglanced_bytes < 0:
            self._glance()
        return taken

    def _send_with_care(self, views: Sequence[Buffer], total: int) -> int:
        """Sends as much as there is room for, in pieces that suit the peer."""
        stream, room, small = self.stream, self._room, self._small
        if room.limited and (room_bytes := min(self._look_for_room(), stream.portion_bytes)) < total:
            if room_bytes < 1:
                return 0
            views, total = [first_bytes(views, int(room_bytes))], int(room_bytes)
        if (small.left_bytes > 0 or (total >= BURST_BYTES and self._may_be_slow())) and self._sends_small(total):
            taken = stream.send_pieces(first_bytes(views, TRIED_BYTES), SMALL_BYTES)
            small.left_bytes -= taken
            return taken
        if self._cramped:
            return stream.send_pieces(first_bytes(views, TRIED_BYTES), CRAMPED_BYTES)
        small.left_bytes = 0
        self._sends_all = not room.limited
        return stream.send(views)

    @property
    def far_end(self) -> PeerSocket:
        """The peer's socket, if that is on this host."""
        if self._far_end is None:
            self._far_end = self.host.peer_sockets.of(self.sock)
            self._far_end.receipt()  # it may not be there
            self._cramped, self._sends_all = self._far_end.cramped, False
        return self._far_end

    def _look(self) -> TcpInfo:
        """Asks the kernel. Raises OSError."""
        return TcpInfo(self.sock, self.far_end)

    def _glance(self) -> None:
        """Looks, not too often, at how a peer reads that need not lag."""
        now, self._unglanced_bytes = self.host.now(), GLANCE_BYTES
        if (self._reading is None or self._reading.glance_due(now)) and self.host.glances.take(now):
            with suppress(OSError):  # the connection may be over
                info = self._look()
                if info.complete:
                    self._take_in(info, now)
                    self._hold(info.unanswered)

    def _may_be_slow(self) -> bool:
        """Tells whether a burst comes to a peer of which nobody knows how fast it reads; then small pieces begin."""
        if self._progress.has_pace or self.far_end.near:
            return False
        now, small = self.host.now(), self._small
        if not small.may_begin(now):
            return False
        small.begin(now, self.taken_bytes, NEW_S)
        return True

    def _sends_small(self, total: int) -> bool:
        """Tells whether small pieces are due, and there are some left."""
        now, small = self.host.now(), self._small
        if not small.due(now) or self.far_end.near:
            return False
        if small.tried:
            try:
                info = TcpInfo(self.sock)
            except OSError:
                return False
            if info.window >= ROOM_BYTES and 2 * self.stream.acknowledged(info.acked_bytes) > self.taken_bytes:
                return False  # it reads
        return small.take(total, now)

    def send_file(self, handle: SpillHandle, start: int, count: int) -> int:
        if handle.fd < 0 or self._small.left_bytes > 0 or self._cramped or self.room_bytes < count:
            most_bytes = TRIED_BYTES if self._cramped else FINE_BYTES
            count = int(min(count, most_bytes, max(self.room_bytes, FRUGAL_BYTES)))
            piece = handle.read(start, start + count)
            return self.send([piece], len(piece))
        try:
            taken = self.stream.send_file(handle, start, count)
        except BlockingIOError:
            return 0
        except ConnectionError as error:
            self._broken(error)
            return 0
        if self.stream.unsent:
            self._note_unsent()
        return taken

    def _broken(self, error: OSError) -> None:
        """Handles a failed write. The loop closes the connection later: this may be in the middle of a flush."""
        if self.state is OPEN:
            self._become(BROKEN)
            self.host.loop.call_soon(self.end_soon, *ended(error))

    def wait_writable(self) -> None:
        if self.state is OPEN and not self._writing:
            self._writing = True
            if self.room_bytes < 1 and not self.stream.unsent:
                self._look_again()
            else:
                self.host.loop.add_writer(self.sock, self._on_writable)

    def _note_unsent(self) -> None:
        self._count_unsent(self.stream.unsent)
        self.wait_writable()

    def freshen(self, *, soon: bool = False) -> None:
        if self.far_end.near:
            now, room = self.host.now(), self._local_room()
            if room.freshen(now):
                with suppress(OSError):  # the connection may be over
                    self._take_in(self._look(), now)
        elif self._steadiness is None and not soon:
            self._steadiness = Steadiness()

    def _local_room(self) -> Room:
        if self._room is NO_ROOM:
            self._room = Room(self.host.room_looks)
        return self._room

    @property
    def room_bytes(self) -> float:
        return self._room.bytes(self.taken_bytes) if self._room.limited else inf

    def _look_for_room(self) -> float:
        """Returns how much more may be on its way. Asks the kernel if there is no room as far as is known."""
        now, room = self.host.now(), self._room
        if room.bytes(self.taken_bytes) <= 0 and room.look_due(now):
            with suppress(OSError):  # the connection may be over
                self._take_in(self._look(), now)
        return self.room_bytes

    def _take_in(self, info: TcpInfo, now: float) -> Reading:
        """Learns how the peer reads. Returns it."""
        self._sends_all = False
        if self._reading is None:
            self._reading = Reading(now)
        self._reading.look(info, now)
        if info.exact:
            self._local_room().look(info, now, self._reading, self.taken_bytes, self.stream.unsent, self.blocked)
        else:
            self._room.end()
            self._room = NO_ROOM
        return self._reading

    def _look_again(self) -> None:
        """Looks for room in a while; then it is as if the socket was writable."""
        self.host.loop.call_later(self._room.look_s, self._when_there_may_be_room)

    def _when_there_may_be_room(self) -> None:
        if self.state is OPEN and self._writing:
            if self.stream.unsent or self._look_for_room() > 0:
                self._on_writable()
            else:
                self._look_again()

    def _be_frugal(self, frugal: bool) -> None:
        """Keeps little in our kernel, or as much as there is room for. Then records leave it as soon as they come, and
        the peer's kernel grows its buffer for many small segments; so they are joined here (Nagle)."""
        if frugal is not self._frugal:
            self._frugal = frugal
            self.stream.be_frugal(frugal)
            self._limit_unsent()
            with suppress(OSError):  # the connection may be over
                self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, not frugal)

    def _hold(self, held: bool) -> None:
        """Lets no more wait in our kernel, or lets it wait there again. What a dead peer is sent waits in its lane
        then, where it counts, and where newer records may replace it."""
        if held is not self._held:
            self._held = held
            self._limit_unsent()

    def _limit_unsent(self) -> None:
        unsent_bytes = HELD_BYTES if self._held else FRUGAL_BYTES if self._frugal else SYSTEMS_BYTES
        with suppress(OSError):  # the connection may be over
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, unsent_bytes)

    def _may_write(self) -> bool:
        """Sends what is unsent. Returns whether there is room for more."""
        stream = self.stream
        if stream.unsent:
            try:
                if stream.flush():
                    self.progress_s = self.host.now()
            except OSError as error:
                self._broken(error)
            self._count_unsent(stream.unsent)
            if stream.unsent:
                return False
        self._writing = False
        self.host.loop.remove_writer(self.sock)
        return True

    @property
    def blocked_since_s(self) -> float:
        """Returns since when bytes have waited and the peer has taken none; ``inf``: none wait."""
        return self._progress.stands_since_s(self.progress_s) if self.blocked else inf

    def pace(self, now: float) -> Pace:
        """Asks the kernel how far the peer is. Small pieces are sent to a peer that stands still."""
        try:
            info = self._look()
        except OSError:
            return super().pace(now)
        if not info.complete:
            return super().pace(now)
        if self._progress is NO_PROGRESS:
            self._progress = PeerProgress()
        progress, acknowledged_bytes = self._progress, self.stream.acknowledged(info.read_bytes)
        progress.note_pieces(info.exact or self._small.fill(acknowledged_bytes, progress.held_bytes(info)))
        progress.look(info, now, self.progress_s, self.blocked)
        reading = self._take_in(info, now)
        if self._steadiness is not None and not info.exact:
            small = self._small.left_bytes > 0  # its buffer holds less of small pieces
            unsent_bytes = 0 if small else info.unsent_bytes
            self._steadiness.look(now, info.acked_bytes, unsent_bytes)
            self._be_frugal(self._steadiness.steady)
        since, silent = self.blocked_since_s, progress.silent_s < inf
        self._hold(silent)
        if now - since > STILL_S and not (progress.has_pace or info.exact):
            if self._small.left_bytes <= 0:
                progress.change_over(info)
            self._small.begin(now, self.taken_bytes)
            self._sends_all = False
        usual_pause_s = max(progress.usual_pause_s, reading.known_pause_s)
        unacknowledged_bytes = max(0, self.taken_bytes - acknowledged_bytes)
        if not self.blocked:
            return Pace(inf, usual_pause_s, unacknowledged_bytes)
        unread_pause_s = reading.usual_pause_s
        if silent:  # no pause of its application explains that
            since, usual_pause_s, unread_pause_s = min(since, progress.silent_s), 0.0, 0.0
        return Pace(since, usual_pause_s, unacknowledged_bytes, progress.lump_bytes(), reading.read_s, unread_pause_s)

    def seen_bytes(self) -> int:
        """Asks the kernel. What the peer's window has lost of its width lies in the peer's buffer, unread."""
        try:
            info = self._look()
        except OSError:
            return super().seen_bytes()
        if not info.complete:
            return super().seen_bytes()
        return max(0, self.stream.acknowledged(info.acked_bytes) - self._progress.unread_bytes(info))

    def peer(self) -> PeerState:
        """Asks the kernel whether the far side acknowledges what it gets, and whether its window is (nearly) closed."""
        try:
            info = self._look()
        except OSError:
            return PeerState()
        return self._progress.state(info)


def ended(error: OSError) -> tuple[Reason, str]:
    """Returns the reason and the words for an error that ended a connection."""
    if isinstance(error, StreamError):
        return error.reason, str(error)
    return Reason.CLIENT_GONE, lost(error.errno)
