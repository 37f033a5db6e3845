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
from headway.core.delivery import record_at
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

    def join(self, subscription: Subscription) -> None:
        subscription.cursor.close()
        subscription.cursor = self.cursor
        subscription.share = self
        self.members[subscription] = None
        subscription.session.shares[self] = None

    def leave(self, subscription: Subscription) -> None:
        """The member is gone for good. What its session, if that has ended, had not settled goes to the others."""
        self.members.pop(subscription, None)
        session = subscription.session
        session.shares.pop(self, None)
        for delivery_id, delivery in list(session.in_flight.items()):
            if delivery.subscription is not subscription:
                continue
            assert delivery.chunk is not None
            assert delivery.record is not None
            if not session.ended:  # the client is still there and settles what it was sent
                self.cursor.acknowledge(delivery.number)
                delivery.cursor = delivery.chunk = None
                continue
            del session.in_flight[delivery_id]
            if min(delivery.record.qos, subscription.request.qos) == 1:
                self._returned.append((delivery.chunk, delivery.index))
            else:
                self.cursor.acknowledge(delivery.number)
                sequence = delivery.record.sequence
                subscription.note_gap(1, sequence, sequence, Reason.SUBSCRIPTION_ENDED)

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
        record = record_at(member, chunk, index)
        number = chunk.first_number + index
        session, dialect = member.session, member.dialect
        assert session.outlet is not None
        qos = min(record.qos, member.request.qos)
        reason = None
        if record.expires_s is not None and record.expires_s <= now:
            reason = Reason.EXPIRED
        else:
            delivery_id = session.next_id() if qos else 0
            record = msgspec.structs.replace(record, retain=record.retain and member.request.retain_as_published)
            frame = dialect.encode_record(record, delivery_id, now=now, retain=record.retain, gap=member.gap)
            if len(frame) > session.max_packet_bytes:
                reason = Reason.TOO_LARGE_FOR_CLIENT
        if reason is not None:
            member.note_gap(1, record.sequence, record.sequence, reason)
        else:
            member.gap = None
            session.outlet.out += frame
            member.state_records += 1
            member.state_bytes += len(frame)
        if reason is None and qos:
            delivery = Delivery(member, now)
            delivery.cursor, delivery.number, delivery.record = self.cursor, number, record
            delivery.chunk, delivery.index = chunk, index
            session.in_flight[delivery_id] = delivery
            if not returned:
                self.cursor.sent(number, chunk)
        elif returned:
            self.cursor.acknowledge(number)
        if not returned:
            self.cursor.advance(chunk.ends[index] - chunk.record_start(index))


def _has_room(member: Subscription) -> bool:
    session = member.session
    outlet = session.outlet
    return (
        outlet is not None and not outlet.blocked and not outlet.out and session.half_sent is None and not session.rest
        and not session.dead and (member.request.qos == 0 or session.credit_left > 0)
    )  # fmt: skip
