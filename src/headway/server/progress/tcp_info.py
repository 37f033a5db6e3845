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
_INFO_BYTES = 232
"""The part of the structure up to tcpi_snd_wnd (Linux 5.4 and newer; older kernels tell less)."""


class TcpInfo:
    """The part of the kernel's figures of a connection that is read here."""

    __slots__ = (
        "acked_bytes", "complete", "heard_ms", "probes", "resent_bytes", "resent_segments", "retransmits", "segment",
        "sent_bytes", "sent_segments", "tried_s", "twice_segments", "unacked", "unread_bytes", "unsent_bytes", "window",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, peer: PeerSocket = REMOTE) -> None:
        """Raises OSError."""
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        self.retransmits, self.probes = info[2], info[3]
        (timeout_us,) = struct.unpack_from("=I", info, 8)
        self.tried_s = timeout_us / 1e6 * (1 - 0.5**self.retransmits)
        """For so long, at least, our kernel has sent the same segment again, in ever longer steps."""
        self.complete = len(info) == _INFO_BYTES
        self.heard_ms = 0
        """Milliseconds since the last acknowledgement came."""
        self.unacked = 0
        """Segments that were sent and are not acknowledged."""
        self.sent_segments = self.resent_segments = self.twice_segments = 0
        """Segments sent; of these, sent again; of these, those that the peer's host says it had already."""
        self.segment = self.acked_bytes = self.sent_bytes = self.resent_bytes = self.window = self.unsent_bytes = 0
        if self.complete:
            (self.segment,) = struct.unpack_from("=I", info, 16)
            (self.unacked,) = struct.unpack_from("=I", info, 24)
            (self.heard_ms,) = struct.unpack_from("=I", info, 56)
            (self.resent_segments,) = struct.unpack_from("=I", info, 100)
            (self.acked_bytes,) = struct.unpack_from("=Q", info, 120)
            (self.unsent_bytes,) = struct.unpack_from("=I", info, 144)
            (self.sent_segments,) = struct.unpack_from("=I", info, 156)
            self.sent_bytes, self.resent_bytes = struct.unpack_from("=QQ", info, 200)
            (self.twice_segments,) = struct.unpack_from("=I", info, 216)
            (self.window,) = struct.unpack_from("=I", info, 228)
        self.unread_bytes = peer.unread_bytes()
        """Bytes that have come and that its application has not read; None: nobody knows."""

    @property
    def exact(self) -> bool:
        """Tells whether it is known how much the peer's application has read."""
        return self.unread_bytes is not None

    @property
    def read_bytes(self) -> int:
        """Returns how many bytes the application has read, or all that are acknowledged if nobody knows."""
        return self.acked_bytes - (self.unread_bytes or 0)

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
