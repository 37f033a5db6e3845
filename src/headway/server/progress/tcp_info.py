"""The kernel's figures of a connection, and of its far end if that is on this host.

Source: struct tcp_info in linux/tcp.h.
"""

from __future__ import annotations

import socket
import struct

from headway.server.progress.peer_sockets import REMOTE, PeerSocket

SILENT_MS = 1000
SILENT_TRIES = 3
FEW_LOST, LOST_ONE_OF = 2, 500
"""A line loses packets if more segments were lost than a few, and than one of so many."""
_INFO = struct.Struct("=8xI4xI4xI28xI40xI16xQ16xI8xI40xQQI8xI")
"""The part of the structure up to tcpi_snd_wnd (Linux 5.4 and newer; older kernels tell less, and _TIMEOUT all the
same)."""
_TIMEOUT = struct.Struct("=8xI")
_NOTHING = (0,) * 11


class TcpInfo:
    """The part of the kernel's figures of a connection that is read here.

    ``tried_s``: for so long, at least, our kernel has sent the same segment again, in ever longer steps. ``heard_ms``:
    milliseconds since the last acknowledgement came. ``unacked``: segments that were sent and are not acknowledged.
    ``sent_segments``: segments sent; ``resent_segments``: of these, sent again; ``twice_segments``: of these, those
    that the peer's host says it had already. ``exact``: it is known how much the peer's application has read.
    ``read_bytes``: bytes that it has read, and ``unread_bytes``: those that have come and it has not read; all that
    are acknowledged, and none, if nobody knows."""

    __slots__ = (
        "acked_bytes", "complete", "exact", "heard_ms", "probes", "read_bytes", "resent_bytes", "resent_segments",
        "retransmits", "segment", "sent_bytes", "sent_segments", "tried_s", "twice_segments", "unacked", "unread_bytes",
        "unsent_bytes", "window",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, peer: PeerSocket = REMOTE) -> None:
        """Raises OSError."""
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
        self.retransmits, self.probes = info[2], info[3]
        self.complete = len(info) == _INFO.size
        figures: tuple[int, ...] = _INFO.unpack(info) if self.complete else (*_TIMEOUT.unpack_from(info), *_NOTHING)
        timeout_us, self.segment, self.unacked, self.heard_ms, self.resent_segments, self.acked_bytes, \
            self.unsent_bytes, self.sent_segments, self.sent_bytes, self.resent_bytes, self.twice_segments, \
            self.window = figures  # fmt: skip
        self.tried_s = timeout_us / 1e6 * (1 - 0.5**self.retransmits)
        receipt = peer.receipt()
        self.exact = receipt is not None
        self.unread_bytes, self.read_bytes = receipt or (0, self.acked_bytes)

    @property
    def unanswered(self) -> bool:
        """Tells whether the peer's host has answered none of the last tries of our kernel."""
        return max(self.probes, self.retransmits) >= SILENT_TRIES and self.heard_ms >= SILENT_MS

    @property
    def lost_bytes(self) -> float:
        """Returns how many bytes had to be sent again. A kernel also sends some again whose acknowledgement is late, as
        that of a reader which does not read: what the peer's host had already was not lost."""
        return self.resent_bytes * max(0.0, 1 - self.twice_segments / max(1, self.resent_segments))

    @property
    def loses(self) -> bool:
        """Tells whether the line has lost more than a segment now and then."""
        return self.resent_segments - self.twice_segments > max(FEW_LOST, self.sent_segments / LOST_ONE_OF)

    @property
    def window_closed(self) -> bool:
        """Tells whether the peer has no room for a whole segment."""
        return self.complete and self.window < self.segment
