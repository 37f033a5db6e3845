"""Samples: the measurements of one consumer at one instant. A meter takes them (meter.py), policies judge them."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

# -- sample ------------------------------------------------------------------------------------------------------------


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


# -- figures -----------------------------------------------------------------------------------------------------------
#
# Figures: the plain numbers on one consumer that a meter makes a sample of.


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
    usual (meter.py)."""
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


# -- lateness ----------------------------------------------------------------------------------------------------------
#
# Lateness: when the broker's own loop was late. Meters leave that time out, for no consumer is to blame for it.


EVENTS_MAX = 64


class Lateness:
    """A record of when the broker's own loop was late, and by how much. All meters share it and subtract it."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        self._events: deque[tuple[float, float]] = deque(maxlen=EVENTS_MAX)

    def add(self, now: float, seconds: float) -> None:
        """Notes that the loop ran at ``now`` and should have run ``seconds`` earlier."""
        if seconds > 0:
            self._events.append((now, seconds))

    def within(self, since: float, now: float) -> float:
        """Returns how many of the seconds from ``since`` to ``now`` the loop was late."""
        if not self._events or self._events[-1][0] <= since:
            return 0.0
        late = 0.0
        for at, seconds in self._events:
            late += max(0.0, min(at, now) - max(at - seconds, since))
        return min(late, max(0.0, now - since))


# -- share window ------------------------------------------------------------------------------------------------------
#
# A share window is what a consumer was offered, and what it took, over the last half minute of its lag.
#
# Both go by lumps, each in its own time: what was taken is counted from one look to another, and what was offered from
# one lump of the feed to another (meter.py). So the two are compared as rates.


SHARE_WINDOW_S = 30.0
SHARE_PAUSES = 4.0
"""A share is taken over so many usual pauses, or rests of the feed, if that is longer."""


class Mark(NamedTuple):
    """One look."""

    looked_s: float
    came_s: float
    """The end of the time over which what was offered is measured."""
    end_bytes: int
    reached_bytes: int
    fair_bytes: float = 0.0
    """The consumer's part of what its connection took; 0: it has one for itself."""


class Span(NamedTuple):
    """The bytes that were offered and taken between two looks."""

    taken_bytes: float
    taken_s: float
    offered_bytes: int
    offered_s: float


class ShareWindow:
    __slots__ = ("_end", "_marks", "_whole")

    def __init__(self) -> None:
        self._marks: list[Mark] = []
        """The oldest first."""
        self._whole = self._end = Span(0.0, 0.0, 0, 0.0)
        """The span from the first of them to the last, and the end of it."""

    def due(self, now: float, pace_s: float) -> bool:
        """Tells whether a look is to be kept. ``pace_s``: the usual pause of the client, or the usual rest of its feed
        if that is longer."""
        return not self._marks or now - self._marks[-1].looked_s >= _length(pace_s) / 8

    def keep(self, mark: Mark, pace_s: float, end_s: float) -> None:
        """Remembers a look, an eighth of the window after the last one. One of them is at least a window old.
        ``end_s``: the length of the window's end."""
        window, marks = _length(pace_s), self._marks
        marks.append(mark)
        while len(marks) > 2 and mark.looked_s - marks[1].looked_s >= window:
            del marks[0]
        before = (other for other in reversed(marks) if mark.looked_s - other.looked_s >= end_s)
        self._whole, self._end = _span(marks[0], mark), _span(next(before, marks[0]), mark)

    def clear(self) -> None:
        self._marks.clear()

    def since(self, now: float) -> float:
        """Returns when it begins."""
        return self._marks[0].looked_s if self._marks else now

    def share(self, lump_bytes: float, record_bytes: float) -> float:
        """Returns the share taken of what was offered, or the most that it may be: so much more may have been taken,
        and a record too many was offered."""
        taken, taken_s, offered, offered_s = self._whole
        if offered <= record_bytes or offered_s <= 0 or taken_s <= 0:
            return 1.0
        return min(1.0, (taken + lump_bytes) * offered_s / (taken_s * (offered - record_bytes)))

    def closing(self, lump_bytes: float) -> float:
        """Returns how many bytes a second it took more than it was offered, at the end of the window; less than 0: it
        took less."""
        taken, taken_s, offered, offered_s = self._end
        if taken_s <= 0:
            return 0.0
        return (taken + lump_bytes) / taken_s - offered / (offered_s if offered_s > 0 else taken_s)

    def fork(self) -> ShareWindow:
        """Returns a copy that goes on from here by itself."""
        other = ShareWindow()
        other._marks, other._whole, other._end = self._marks.copy(), self._whole, self._end
        return other


def _length(pace_s: float) -> float:
    return max(SHARE_WINDOW_S, SHARE_PAUSES * pace_s)


def _span(since: Mark, upto: Mark) -> Span:
    """Returns what is between two looks. Taken counts what the consumer took, or what it would have got of what its
    connection took, if that is more: many consumers of one connection are served in turn, each with all that waits."""
    taken = max(upto.reached_bytes - since.reached_bytes, upto.fair_bytes - since.fair_bytes)
    offered = upto.end_bytes - since.end_bytes
    return Span(taken, upto.looked_s - since.looked_s, offered, upto.came_s - since.came_s)


# -- fair part ---------------------------------------------------------------------------------------------------------
#
# A fair part is what a consumer would have got of its connection, if all consumers of the connection were served at
# once. They are served in turn, each with all that waits for it, so that each alone seems to stand still for long.


class FairPart:
    __slots__ = ("_part", "bytes")

    def __init__(self, of: Figures) -> None:
        self._part = of.part
        """The part of the connection's bytes that it had when it began to lag. Later that depends on whose turn it
        was."""
        self.bytes = 0.0

    def look(self, of: Figures) -> bool:
        """Takes in how far the connection is. Returns False if that is another connection than before."""
        before, self.bytes = self.bytes, self._part * (of.connection_bytes or 0)
        return self.bytes >= before

    def fork(self) -> FairPart:
        """Returns a copy that goes on from here by itself."""
        return copy.copy(self)


# -- look --------------------------------------------------------------------------------------------------------------
#
# A look is a plug-in's view of one consumer, in plain values that it cannot change.


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one consumer."""

    sample: Sample
    """The sample of this look. An action also gets the values of the plugged-in meters that its policy names."""
    client: str
    filter: str
    """The topic filter, or queue, that the client subscribed to."""
    listener: str
    """The name of the listener that the client connected to."""
    protocol: str
    """The client's protocol, such as ``mqtt5`` or ``amqp``."""
    user: str
    """The name that the client logged in with; empty: none."""
    durable: bool
    """The subscription outlives its connection."""
    connected: bool
    """The client is connected."""
    policy: str
    """The name of the consumer's policy."""
    wall_s: float
    """Seconds since 1970, so that a plug-in needs no clock."""
