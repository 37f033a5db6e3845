"""A reader is the source of a subscription's records, and knows its lag.

- ``LaneReader``: the subscription reads its lane with a cursor of its own.
- ``QueueMember``: the subscription is a member of a queue, which has one position for all its members.
- ``ArchiveReader`` (poll.py): the client reads recorded topics by itself.

A reader holds no reference to its subscription, which would make a cycle; each method is given the subscription.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from typing import TYPE_CHECKING, Final

from headway.core.consumer.conflation import EVERY_RECORD
from headway.core.consumer.progress import Volume, rest_skipped

if TYPE_CHECKING:
    from headway.core.consumer.shared_reader import SharedReader, Waiting
    from headway.core.consumer.subscription import Subscription
    from headway.core.log import DurablePosition


class Reader(ABC):
    __slots__ = ()

    queue: SharedReader | None = None
    """The queue that the subscription is a member of."""
    counts_apart = False
    """Set if counters, and not the cursor's position, tell how much the subscription has taken."""
    conflatable = False
    """Set if a newer record may take the place of an older one: not in a queue, whose records are each for one member,
    nor in the archive."""
    reads_itself = False
    """Set if the client reads the archive by itself and reports its progress. No records are sent to it."""

    @property
    def gates(self) -> bool:
        """Tells whether a gate of this subscription holds publishers back."""
        return True

    @property
    def sharers(self) -> int:
        """Returns the number of consumers that share the bytes held for this one."""
        return 1

    def durable(self, subscription: Subscription) -> bool:
        return subscription.session.expiry_s > 0

    def names(self, subscription: Subscription) -> tuple[str, ...]:
        """Returns the topic filters by which its policy is chosen."""
        return (subscription.feed.key.filter,)

    def durable_position(self, subscription: Subscription) -> DurablePosition:
        """Returns the subscription's durable position; the null position if it is not durable."""
        return subscription.cursor.durable_position

    # -- lag --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def has_more(self, subscription: Subscription) -> bool:
        """Tells whether records wait for the subscription."""

    @abstractmethod
    def lag_records(self, subscription: Subscription) -> int:
        """Returns how many records the subscription is still to get, conflated or not."""

    @abstractmethod
    def lag_bytes(self, subscription: Subscription) -> int:
        """Returns the size of these records in the lane."""

    @abstractmethod
    def gating_bytes(self, subscription: Subscription) -> int:
        """Returns how many bytes of the lane are held for the subscription."""

    @abstractmethod
    def oldest_time(self, subscription: Subscription) -> float:
        """Returns the time since when records wait; ``inf`` if none do."""

    # -- accounts (accounts.py) ---------------------------------------------------------------------------------------

    def delivered(self, subscription: Subscription) -> Volume:
        """Returns the volume sent, as written on the wire."""
        return subscription.counters.written

    def drained(self, subscription: Subscription) -> Volume:
        return self.delivered(subscription)

    def skipped(self, subscription: Subscription) -> Volume:
        return subscription.counters.skipped

    def owed(self, subscription: Subscription) -> Volume:
        return Volume(self.lag_records(subscription), self.lag_bytes(subscription))


class LaneReader(Reader):
    __slots__ = ()
    conflatable = True

    def has_more(self, subscription: Subscription) -> bool:
        if subscription.backfills:
            return True
        conflation, cursor = subscription.conflation, subscription.cursor
        if conflation.mode is not EVERY_RECORD:
            return conflation.pass_due(subscription)
        return cursor.position != cursor.lane.end

    def lag_records(self, subscription: Subscription) -> int:
        before = subscription.backfill_lag().records if subscription.backfills else 0
        return before + self._lane_records(subscription)

    def _lane_records(self, subscription: Subscription) -> int:
        cursor = subscription.cursor
        if subscription.conflating:
            owed = subscription.conflation.owed_records
            return subscription.feed.lane.count - cursor.number + owed if self.has_more(subscription) else 0
        if cursor.position == cursor.lane.end:
            return 0
        skip = rest_skipped(subscription.skips)
        end = cursor.lane.count if skip is None else max(skip.upto, cursor.number)
        return end - cursor.number - subscription.left_out.records

    def lag_bytes(self, subscription: Subscription) -> int:
        cursor, size = subscription.cursor, 0
        if subscription.conflating:
            if not self.has_more(subscription):
                return 0
            size = subscription.conflation.owed_bytes
        if subscription.backfills:
            size += subscription.backfill_lag().bytes
        skip = rest_skipped(subscription.skips)
        end = cursor.lane.end if skip is None else max(skip.position, cursor.position)
        return size + end - cursor.position - subscription.left_out.bytes

    def gating_bytes(self, subscription: Subscription) -> int:
        """Returns 0 while the consumer is conflated, because it reads a state and needs no bytes of the lane."""
        return 0 if subscription.conflating else subscription.cursor.lag_bytes - subscription.left_out.whole_bytes

    def oldest_time(self, subscription: Subscription) -> float:
        if subscription.conflating:
            # A pass sends the oldest first, so all that still waits in it is younger than what was sent last.
            since_s = max(subscription.current_s, subscription.conflation.sent_s)
            return since_s if self.has_more(subscription) else inf
        if subscription.backfills:
            return max(subscription.backfills[0].since_s, subscription.conflation.sent_s)
        cursor, left_out = subscription.cursor, subscription.left_out
        oldest_s = cursor.oldest_time()
        if left_out.records and oldest_s < inf:
            found = next(left_out.all_waiting(cursor.chunk, cursor.number, cursor.lane.count), None)
            oldest_s = inf if found is None else found[0].time_of(found[1])
        return max(oldest_s, subscription.current_s)

    def delivered(self, subscription: Subscription) -> Volume:
        return subscription.counters.sent(subscription.cursor)

    def owed(self, subscription: Subscription) -> Volume:
        conflation, lane, cursor = subscription.conflation, subscription.feed.lane, subscription.cursor
        if conflation.waits_for_clock:
            return Volume(conflation.owed_records, conflation.owed_bytes)
        left_out = subscription.left_out
        return Volume(
            conflation.owed_records + lane.count - cursor.number - left_out.records,
            conflation.owed_bytes + lane.end - cursor.position - left_out.bytes,
        )


LANE_READER: Final = LaneReader()
"""The reader of all subscriptions that read their lanes."""


class QueueMember(Reader):
    __slots__ = ("queue", "waiting")
    queue: SharedReader
    counts_apart = True

    def __init__(self, queue: SharedReader, waiting: Waiting) -> None:
        self.queue = queue
        self.waiting = waiting
        """The records that wait for the member: all of the queue, or those that were found for its selector."""

    @property
    def gates(self) -> bool:
        return self.queue.gates

    @property
    def sharers(self) -> int:
        return max(1, len(self.queue.members))

    def durable(self, subscription: Subscription) -> bool:
        return super().durable(subscription) if self.queue.ends_with_members else self.queue.terms.durable

    def names(self, subscription: Subscription) -> tuple[str, ...]:
        return super().names(subscription) if self.queue.ends_with_members else self.queue.filters

    def durable_position(self, subscription: Subscription) -> DurablePosition:
        return self.queue.durable_position

    def has_more(self, subscription: Subscription) -> bool:
        return self.waiting.has_more

    def lag_records(self, subscription: Subscription) -> int:
        return self.waiting.lag_records

    def lag_bytes(self, subscription: Subscription) -> int:
        return self.waiting.lag_bytes

    def gating_bytes(self, subscription: Subscription) -> int:
        return self.waiting.lag_bytes

    def oldest_time(self, subscription: Subscription) -> float:
        return self.waiting.oldest_time()

    def drained(self, subscription: Subscription) -> Volume:
        return subscription.counters.taken_from_queue

    @property
    def accounted(self) -> Waiting:
        """The records that its account is of. Members of a shared subscription are offered all of its records, also
        while packet limits, or groups of messages, decide who may have one."""
        return self.queue.backlog if self.queue.ends_with_members else self.waiting

    def skipped(self, subscription: Subscription) -> Volume:
        """Returns the volume that went to other members since this one joined."""
        accounted = self.accounted
        return subscription.counters.given_to_others(accounted.handed_records, accounted.handed_bytes)

    def owed(self, subscription: Subscription) -> Volume:
        accounted = self.accounted
        return Volume(accounted.lag_records, accounted.lag_bytes)
