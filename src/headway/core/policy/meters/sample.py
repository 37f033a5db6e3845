"""Samples: the measurements of one consumer at one instant. A meter takes them (meter.py), policies judge them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

RATE_WINDOW_S = 1.0
"""Rates are measured over the last second, or up to a quarter of a second more."""
RATE_WINDOW_MIN_S = 0.25
"""A rate over less time than this is noise, and no rate floor applies to it."""
AHEAD = 1.1
"""A consumer takes more than is offered if it drains so many times as much: rates of a second or two are not exact."""
PAUSES = 3.0
"""A consumer that stands still for fewer of its usual pauses is not late."""


class Sample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The measurements of one consumer at one instant. Times in seconds, rates in bytes per second, shares 0 to 1.

    The defaults describe an idle consumer.
    """

    lag_records: int = 0
    lag_bytes: int = 0
    lag_age: float = 0.0
    drain_rate: float = 0.0
    drain_slack: float = 0.0
    """Bytes per second that the consumer may have drained besides, in a lump that is not acknowledged yet."""
    offered_rate: float = 0.0
    blocked_time: float = 0.0
    """Seconds for which bytes have waited and the client took none."""
    usual_pause: float = 0.0
    """Seconds for which the client usually stands still between two steps, or two acknowledgements while its window is
    full; 0: not known."""
    unread_time: float = 0.0
    """Seconds for which the client has read nothing, while bytes wait here for it. Its host may have taken bytes."""
    unread_pause: float = 0.0
    """Seconds for which the client usually reads nothing; 0: not known."""
    drain_share: float = 1.0
    """The taken share of what was offered over the last half minute of lag; 1.0 while that is not known."""
    catching_up: float = 0.0
    """Seconds until all that waits is taken, if both rates last: ``inf`` for a consumer that falls behind, and 0.0
    while that is not known."""
    credit_exhausted_time: float = 0.0
    unacknowledged_time: float = 0.0
    """Seconds for which the client acknowledges nothing, though it has before, and its window is full or it holds more
    than usual."""
    ack_pause: float = 0.0
    """Seconds for which it usually acknowledges nothing of what it holds; 0: not known."""
    slow_count: int = 0
    ack_age: float = 0.0
    patience_left: float = 0.0
    """Seconds for which the client, at a long job, has asked to be waited for yet."""
    pool_share: float = 0.0
    slow_fraction: float = 0.0
    in_flight: int = 0
    prefetch: int = 0
    """The client's window in records; 0: it has none."""
    held_bytes: int = 0
    """The consumer's share of the bytes that are held. The shares of all consumers add up to these bytes."""
    offered_burst: float = 1.0
    """The offered rate as a multiple of the usual one; 1.0 while the usual one is unknown."""
    credit_exhausted: bool = False
    user_full: bool = False
    """The consumer is sent no more, because its user has as many bytes in flight as its limit permits."""
    peer_window_closed: bool = False
    """The peer's TCP reports a full buffer: its application is not reading."""
    reads_itself: bool = False
    """The consumer reads recorded topics by itself and reports its progress. Nothing is sent to it."""
    retransmitting: bool = False
    """Bytes that were sent are sent again: they do not get through."""
    rate_window: float = RATE_WINDOW_S
    """Seconds over which ``drain_rate`` was measured, with records waiting all the time."""
    waited: float | None = None
    """Seconds for which records have waited without a break; None: not measured."""
    unacknowledged_bytes: int = 0
    """Bytes that were sent and that its host has not acknowledged."""
    lump_bytes: float = 0.0
    """The most of them that the consumer may have read unseen."""
    plugged: Mapping[str, float] | None = None
    """The values of the plugged-in meters that the consumer's policy names."""

    @property
    def stood(self) -> float:
        """Returns for how long it has taken nothing, though records wait: its socket or its window was full."""
        return max(self.blocked_time, self.credit_exhausted_time)

    def unexcused(self) -> Sample:
        """Returns the sample without what is usual for the client: no pause, and no lump that may be on its way. Its
        rate is 0 as soon as it has stood still for long enough to have one."""
        plain = replace(self, usual_pause=0.0, unread_pause=0.0, ack_pause=0.0, drain_slack=0.0)
        if self.stood < RATE_WINDOW_MIN_S:
            return plain
        return replace(plain, drain_rate=0.0, rate_window=self.stood)

    @property
    def idle(self) -> bool:
        """Tells whether nothing waits and nothing is in flight. An idle consumer is never slow."""
        return self.lag_records == 0 and self.in_flight == 0

    @property
    def excused(self) -> bool:
        """Tells whether it takes nothing because of jobs that it has patience for (meter.py, rule 8)."""
        return self.patience_left > 0 and (self.credit_exhausted or not self.in_flight)

    @property
    def overdue_time(self) -> float:
        """Returns ``blocked_time`` if the consumer usually does not stand still for so long; else 0."""
        return self.blocked_time if self.blocked_time >= PAUSES * self.usual_pause else 0.0

    @property
    def overdue_unread_time(self) -> float:
        """Returns ``unread_time`` likewise."""
        return self.unread_time if self.unread_time >= PAUSES * self.unread_pause else 0.0

    @property
    def overdue_credit_time(self) -> float:
        """Returns ``credit_exhausted_time`` likewise."""
        return self.credit_exhausted_time if self.credit_exhausted_time >= PAUSES * self.usual_pause else 0.0

    @property
    def overdue_unacknowledged_time(self) -> float:
        """Returns ``unacknowledged_time`` likewise."""
        return self.unacknowledged_time if self.unacknowledged_time >= PAUSES * self.ack_pause else 0.0

    @property
    def rate_judged(self) -> bool:
        """Tells whether ``drain_rate`` is that of the consumer, not that of its publishers (rule 2)."""
        return self.lag_records > 0 and self.rate_window >= RATE_WINDOW_MIN_S
