"""Shared subscriptions: one cursor, many members; each record goes to one of them.

Records are handed out in small stretches to members that have room and credit, in turn, so a member that is stuck
gets no more than it already has while the others share the rest. What a member did not acknowledge when its session
ended goes to another one, except exactly-once deliveries, which MQTT forbids to give to anybody else (MQTT 5, 4.8.2):
these are counted as a gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from headway.core.chunk import Chunk
from headway.core.cursor import Cursor
from headway.core.delivery import record_at, write_frame
from headway.core.errors import Reason
from headway.core.fanout import Fanout
from headway.core.feed import Feed
from headway.core.session import Delivery
from headway.core.subscription import Subscription

STRETCH_RECORDS = 32


class Share:
    """The members of one group on one filter. Its cursor is every member's cursor."""

    def __init__(self, feed: Feed, fanout: Fanout, on_lag: Callable[[Subscription, float], None]) -> None:
        self.feed = feed
        self.cursor = Cursor(feed.lane)
        self.members: dict[Subscription, None] = {}
        self._fanout = fanout
        self._on_lag = on_lag
        self._returned: deque[tuple[Chunk, int]] = deque()
        self.handed_records = 0
        self.handed_bytes = 0
        """Given to whichever member, or left out, since the group began; some twice."""

    def join(self, subscription: Subscription) -> None:
        subscription.cursor.close()
        subscription.cursor = self.cursor
        subscription.share = self
        subscription.start_number, subscription.start_position = self.handed_records, self.handed_bytes
        self.members[subscription] = None
        subscription.session.shares[self] = None

    def leave(self, member: Subscription) -> None:
        """The member is gone for good. What its session, if that has ended, had not settled goes to the others."""
        self.members.pop(member, None)
        session = member.session
        session.shares.pop(self, None)
        if session.ended:
            self._take_back(member, Reason.SUBSCRIPTION_ENDED)
        else:  # the client is still there and settles what it was sent
            for delivery in session.in_flight.values():
                if delivery.subscription is member and delivery.cursor is not None:
                    self.cursor.acknowledge(delivery.number)
                    delivery.cursor = delivery.chunk = None
        if not self.members:
            self._give_up(member, Reason.SUBSCRIPTION_ENDED)

    def _take_back(self, member: Subscription, reason: Reason) -> None:
        """What the member has not settled is for others, unless nobody else may have it."""
        in_flight = member.session.in_flight
        for delivery_id in [i for i, d in in_flight.items() if d.subscription is member]:
            delivery = in_flight.pop(delivery_id)
            assert delivery.chunk is not None
            assert delivery.record is not None
            if min(delivery.record.qos, member.request.qos) == 1:
                self._returned.append((delivery.chunk, delivery.index))
            else:
                self._lose(member, delivery.chunk, delivery.index, reason)
                self.cursor.acknowledge(delivery.number)

    def _give_up(self, member: Subscription, reason: Reason) -> None:
        """Nobody takes what waits: it is counted with this member."""
        while self._returned:
            chunk, index = self._returned.popleft()
            self._lose(member, chunk, index, reason)
            self.cursor.acknowledge(chunk.first_number + index)
        self.handed_records += self.cursor.lag_records
        self.handed_bytes += self.cursor.lag_bytes
        self._fanout.lost(member.skip_to(self.feed.lane.count, reason), reason)

    def _lose(self, member: Subscription, chunk: Chunk, index: int, reason: Reason) -> None:
        sequence = chunk.sequence_of(index)
        member.note_gap(1, sequence, sequence, reason)
        self._fanout.lost({chunk.run_publisher[chunk.run_of(index)]: 1}, reason)

    # -- when room is wanted ----------------------------------------------------------------------------------------

    def holders(self, chunk: Chunk, late_s: float) -> list[Subscription]:
        """Who keeps the lane from letting go of a chunk: those who have long not settled what they were sent of it, or,
        if some of it was not sent, all of them; nobody, while somebody still takes records."""
        if self._wants(chunk):
            return [] if self._anybody_moves(late_s) else list(self.members)
        return [
            member for member in self.members
            if any(d.chunk is chunk and d.subscription is member and d.sent_s <= late_s
                   for d in member.session.in_flight.values())
        ]  # fmt: skip

    def write_off(self, member: Subscription, reason: Reason, late_s: float) -> None:
        """The member keeps its session, and nothing else: others get what it held; if nobody can, it is given up."""
        self._take_back(member, reason)
        if self._wants(self.feed.lane.first) and not self._anybody_moves(late_s):
            self._give_up(member, reason)

    def _wants(self, chunk: Chunk) -> bool:
        waits = self.cursor.chunk is chunk and self.cursor.position != self.feed.lane.end
        return waits or any(returned is chunk for returned, _ in self._returned)

    def _anybody_moves(self, late_s: float) -> bool:
        return any(_moves(member, late_s) for member in self.members)

    # -- handing out ------------------------------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        return bool(self._returned) or self.cursor.position != self.feed.lane.end

    def dispatch(self, now: float) -> None:
        """Hand out what there is to whoever can take it."""
        while self.has_more:
            ready = [member for member in self.members if _has_room(member)]
            if not ready:
                for member in self.members:
                    self._on_lag(member, now)
                return
            portion = max(1, min(STRETCH_RECORDS, self.cursor.lag_records // len(ready)))
            for member in ready:
                for _ in range(portion):
                    if not self.has_more or (member.request.qos and member.session.credit_left <= 0):
                        break
                    self._hand_out(member, now)
                self.members.pop(member)
                self.members[member] = None
                self._fanout.pump(member.session, now)

    def _hand_out(self, member: Subscription, now: float) -> None:
        returned = bool(self._returned)
        if returned:
            chunk, index = self._returned.popleft()
        else:
            self.cursor.step()
            assert self.cursor.chunk is not None
            chunk = self.cursor.chunk
            index = chunk.index_at(self.cursor.position)
        number = chunk.first_number + index
        size = chunk.ends[index] - chunk.record_start(index)
        in_flight = len(member.session.in_flight)
        reason = _send(member, self.cursor, chunk, index, now)
        self.handed_records += 1
        self.handed_bytes += size
        if reason is not None:
            self._lose(member, chunk, index, reason)
        else:
            member.handed_bytes += size
        if len(member.session.in_flight) > in_flight:
            if not returned:
                self.cursor.sent(number, chunk)
        elif returned:
            self.cursor.acknowledge(number)
        if not returned:
            self.cursor.advance(size)


def _send(member: Subscription, cursor: Cursor, chunk: Chunk, index: int, now: float) -> Reason | None:
    """Write one record for one member. Returns why not, if not."""
    session, request = member.session, member.request
    assert session.outlet is not None
    try:
        record = record_at(member, chunk, index)
    except OSError:
        return Reason.SPILL_FAILED
    if record.expires_s is not None and record.expires_s <= now:
        return Reason.EXPIRED
    record = msgspec.structs.replace(record, retain=record.retain and request.retain_as_published)
    delivery_id = session.next_id() if min(record.qos, request.qos) else 0
    frame = write_frame(member, record, delivery_id, now)
    if frame is None:
        return Reason.TOO_LARGE_FOR_CLIENT
    session.outlet.out += frame
    member.state_records += 1
    member.state_bytes += len(frame)
    if delivery_id:
        delivery = Delivery(member, now)
        delivery.cursor, delivery.record = cursor, record
        delivery.chunk, delivery.index, delivery.number = chunk, index, chunk.first_number + index
        session.in_flight[delivery_id] = delivery
    return None


def _has_room(member: Subscription) -> bool:
    session = member.session
    outlet = session.outlet
    return (
        outlet is not None and not outlet.blocked and not outlet.out and session.half_sent is None and not session.rest
        and not session.dead and (member.request.qos == 0 or session.credit_left > 0)
    )  # fmt: skip


def _moves(member: Subscription, late_s: float) -> bool:
    """It can take records, or could a moment ago."""
    session, outlet = member.session, member.session.outlet
    if outlet is None or session.dead:
        return False
    if outlet.blocked:
        return outlet.progress_s > late_s
    unsettled = session.oldest_unacknowledged_s()
    return member.request.qos == 0 or session.credit_left > 0 or unsettled is None or unsettled > late_s
