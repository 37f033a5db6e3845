"""A reading tells since when a peer's application has read nothing, also while its kernel still takes bytes for it.

Theory of operation. What a peer on this host has read is known (peer_sockets.py). Of a remote one the window tells. A
receive buffer of a megabyte takes a quarter of a minute to fill, and until then a peer that has stopped acknowledges
all it is sent. But its *window* shrinks by what it acknowledges, as nobody makes room; the window of one that reads
stays about as wide as it was. So a peer reads nothing between two looks if

- its window has lost ``FILL_SHARE`` of the bytes that it has acknowledged, or more (not all of them: bytes in large
  segments take less memory than its kernel reckons with, and a new connection's window is still widened), or
- its window is closed, bytes wait for it, and it has acknowledged nothing.

Any other change says that it reads, or may do so; if in doubt, it reads. Its kernel makes room in lumps, so even one
that reads half of what comes reads nothing at some looks. How long it usually reads nothing is learnt as usual pauses
are. Until it has acknowledged more than its buffers hold, it was never seen to read, and nobody knows what is usual for
it: ``UNKNOWN_S`` counts.

A glance at a peer that does not lag takes 3 us. It comes once a second, after ``GLANCE_BYTES`` each, of which a send
counts ``SEND_BYTES`` besides what it takes; none while nothing is sent. All connections together have ``GLANCES_A_S``.
"""

from __future__ import annotations

from headway.core.policy import UsualPause
from headway.server.progress.small_pieces import FINE_BYTES
from headway.server.progress.tcp_info import TcpInfo

GLANCE_BYTES = 32 * 1024
SEND_BYTES = 4 * 1024
"""So a peer that is sent few and small records is glanced at, too."""
GLANCE_S = 1.0
GLANCES_A_S = 1000
FILL_SHARE = 0.55
"""A peer that reads nothing loses 0.61 with small pieces, and up to 1 with large ones; one that reads a fifth of what
comes loses 0.46 and less whenever its kernel has made room."""
STEP_BYTES = 16 * 1024
"""Less than this says nothing yet, unless nothing more comes for ``GLANCE_S``."""
LOOK_S = 0.1
"""Several consumers of one client are looked at at once."""
UNKNOWN_S = 4.2
READ_BYTES = 64 * 1024
"""A peer on this host that has read so much was seen to read."""
TIMES_WIDEST = 2
"""A buffer holds no more than so many times the widest window that it has offered."""


class Glances:
    """The glances of all connections together."""

    __slots__ = ("_left", "_since_s")

    def __init__(self) -> None:
        self._left, self._since_s = GLANCES_A_S, 0.0

    def take(self, now: float) -> bool:
        """Takes one. Returns False if there is none left in this second."""
        if now - self._since_s >= 1.0:
            self._left, self._since_s = GLANCES_A_S, now
        self._left -= 1
        return self._left >= 0


class Reading:
    """The reading of one peer. Times are seconds on the broker's clock."""

    __slots__ = (
        "_acked_bytes", "_began_s", "_exact", "_looked_s", "_read_bytes", "_still", "_unread", "_usual", "_widest",
        "_window", "read_s",
    )  # fmt: skip

    def __init__(self, now: float) -> None:
        self.read_s = now
        """When the peer may have read last."""
        self._began_s = now
        """When it may have stopped already: it read between this look and the next."""
        self._acked_bytes = self._window = self._widest = 0
        self._read_bytes = -1
        self._exact = False
        """At the last look it was known what it has read."""
        self._looked_s = float("-inf")
        self._still = False
        """At the last look it had read nothing since the look before."""
        self._unread = False
        """At the last look something was unread."""
        self._usual = UsualPause()

    def glance_due(self, now: float) -> bool:
        return now - self._looked_s >= GLANCE_S

    def look(self, info: TcpInfo, now: float) -> None:
        """Takes in what the kernel knows now."""
        taken, opened, passed_s = info.acked_bytes - self._acked_bytes, info.window - self._window, now - self._looked_s
        if passed_s < LOOK_S:
            return
        unread = info.unsent_bytes > 0
        if info.exact:
            still, unread = info.read_bytes <= self._read_bytes, unread or info.unread_bytes > 0
        elif 0 < taken < STEP_BYTES and opened <= 0 and passed_s < GLANCE_S:
            return
        else:
            still = -opened >= FILL_SHARE * taken if taken else unread and info.window_closed and opened <= 0
            unread = unread or max(self._widest, info.window) - info.window >= STEP_BYTES
        if not still:
            if self._still:
                self._usual.note(now - self.read_s, now, began_s=self._began_s)
            self._began_s, self.read_s = max(self._looked_s, self._began_s), now
        elif not self._unread:  # what is unread has come since the last look
            self._began_s, self.read_s = max(self._looked_s, self._began_s), now
        self._acked_bytes, self._window, self._looked_s = info.acked_bytes, info.window, now
        self._widest, self._read_bytes = max(self._widest, info.window), max(self._read_bytes, info.read_bytes)
        self._exact, self._still, self._unread = info.exact, still, unread

    @property
    def known_pause_s(self) -> float:
        """Returns for how long it usually reads nothing, as was seen of a peer on this host; else 0."""
        return self._usual.seconds(self.read_s) if self._exact else 0.0

    @property
    def usual_pause_s(self) -> float:
        """Returns for how long it usually reads nothing."""
        usual_s = self._usual.seconds(self.read_s)
        if self._exact:
            seen_to_read = self._read_bytes > READ_BYTES
        else:
            seen_to_read = self._acked_bytes > max(FINE_BYTES, TIMES_WIDEST * self._widest)
        return usual_s if seen_to_read else max(usual_s, UNKNOWN_S)
