"""Figures: the plain numbers on one consumer that a meter makes a sample of."""

from __future__ import annotations

import math

import msgspec

ANY_LUMP_BYTES = 1e12


class Figures(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The figures on one consumer at one look that a sample is made of."""

    position_bytes: int
    end_bytes: int
    lag_records: int
    flows_since_s: float = -math.inf
    """The time since when records have come without a long pause, as far as that is known."""
    oldest_time_s: float = math.inf
    """The time when the oldest waiting record was appended. As with all times below, ``inf`` is never: none waits."""
    empties: int = 0
    """How often all that waited in the queue was taken by it and the other members."""
    blocked_since: float = math.inf
    """The time when the client last took a byte; never: the socket is writable."""
    moved_since: float = math.inf
    """The time of its last acknowledgement, while its window is full and the socket writable."""
    usual_pause: float = 0.0
    """Seconds for which the client usually stands still in between."""
    unread_since: float = math.inf
    """The time since when the client has read nothing; never: no longer than it took no byte."""
    unread_pause: float = 0.0
    """Seconds for which the client usually reads nothing; no less than ``usual_pause`` counts."""
    unacknowledged_bytes: int = 0
    """Bytes before the position that have not reached the client."""
    lump_bytes: float = 0.0
    """Bytes that the client may have read unseen; ``ANY_LUMP_BYTES``: what it has acknowledged tells too little, for
    now, to say anything about its pace."""
    connection_bytes: int | None = None
    """Bytes that have reached the client over a connection that it shares with others, where nothing but the connection
    holds it up; None: it has a connection, or a window, for itself."""
    part: float = 1.0
    """The consumer's part of what its connection has taken."""
    connected: bool = True
    credit_exhausted_since: float = math.inf
    """The time when the client's window became full; never: it has room."""
    oldest_unacked_s: float = math.inf
    """The time when the oldest record in flight was sent; never: there is none."""
    patient_until: float = -math.inf
    """The end of the patience that the client asked for."""
    excused: bool = False
    """The client takes nothing because of what it holds until then."""
    user_full: bool = False
    """The consumer is sent no more, because its user has as many bytes in flight as its limit permits."""
    acknowledged: int = 0
    """Records that the client has acknowledged, while its window is full; less if that is not known."""
    unacknowledged_since: float = math.inf
    """The time since when it acknowledges nothing, though it has before, and its window is full or it holds more than
    usual (holding.py)."""
    ack_pause: float = 0.0
    """Seconds for which it usually acknowledges nothing of what it holds."""
    in_flight: int = 0
    prefetch: int = 0
    held_bytes: int = 0
    pool_share: float = 0.0
    slow_fraction: float = 0.0
    peer_window_closed: bool = False
    retransmitting: bool = False

    def moved(self, now: float) -> float:
        """Returns when the client last took something."""
        since = self.blocked_since if self.blocked else self.moved_since
        return since if since < math.inf else now

    def unread(self) -> float:
        """Returns since when the client has read nothing; never: it is not known to have stopped."""
        return min(self.blocked_since, self.unread_since) if self.blocked else math.inf

    @property
    def blocked(self) -> bool:
        """Tells whether bytes wait that the socket does not take."""
        return self.blocked_since < math.inf

    @property
    def credit_exhausted(self) -> bool:
        """Tells whether the client's window is full."""
        return self.credit_exhausted_since < math.inf

    @property
    def waiting_bytes(self) -> int:
        return self.end_bytes - self.position_bytes

    @property
    def record_bytes(self) -> float:
        """The mean size of the waiting records; 0: none wait."""
        return self.waiting_bytes / self.lag_records if self.lag_records else 0.0
