"""Readers: how a subscription comes by its records, and what of them waits for it.

- By itself, from its lane, with a cursor of its own: ``LaneReader``.
- As a member of a queue, which has one position for all of them: ``QueueMember``.
- By itself, from what is recorded (poll.py): ``ArchiveReader``.

A reader does not know whose it is, and is told each time: what knows itself is not gone when it is over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from headway.core.consumer.conflation import EVERY_RECORD
from headway.core.consumer.counters import Volume

if TYPE_CHECKING:
    from headway.core.consumer.shared_reader import SharedReader
    from headway.core.consumer.skip import Skip
    from headway.core.consumer.subscription import Subscription
    from headway.core.log import Kept


class Reader(ABC):
    __slots__ = ()

    queue: SharedReader | None = None
    """Whose member the subscription is."""
    counts_apart = False
    """Where its cursor is does not tell what it took."""
    reads_itself = False
    """Nothing is sent to it: it reads what is recorded, and says how far it has come."""

    @property
    def gates(self) -> bool:
        """Publishers wait for it, if it is to hold them back."""
        return True

    @property
    def sharers(self) -> int:
        """By how many what is held for it is shared."""
        return 1

    def durable(self, subscription: Subscription) -> bool:
        return subscription.session.expiry_s > 0

    def names(self, subscription: Subscription) -> tuple[str, ...]:
        """Those it goes by for policies."""
        return (subscription.feed.key.filter,)

    def kept(self, subscription: Subscription) -> Kept | None:
        """Its place in the journal."""
        return subscription.cursor.kept

    # -- what waits -------------------------------------------------------------------------------------------------

    @abstractmethod
    def has_more(self, subscription: Subscription) -> bool:
        """Something waits."""

    @abstractmethod
    def lag_records(self, subscription: Subscription) -> int:
        """Records it has not been given, in whatever form, and is going to be."""

    @abstractmethod
    def lag_bytes(self, subscription: Subscription) -> int:
        """Theirs, as they stand in the lane."""

    @abstractmethod
    def gating_bytes(self, subscription: Subscription) -> int:
        """How much of the lane must be kept for it."""

    @abstractmethod
    def oldest_time(self, subscription: Subscription) -> float | None:
        """Since when something waits; None when nothing does."""

    # -- its books (accounts.py) ------------------------------------------------------------------------------------

    def delivered(self, subscription: Subscription) -> Volume:
        """What it was given, as it was written for it."""
        return subscription.counters.written

    def drained(self, subscription: Subscription) -> Volume:
        return self.delivered(subscription)

    def skipped(self, subscription: Subscription) -> Volume:
        return subscription.counters.skipped

    def owed(self, subscription: Subscription) -> Volume:
        return Volume(self.lag_records(subscription), self.lag_bytes(subscription))


class LaneReader(Reader):
    __slots__ = ()

    def has_more(self, subscription: Subscription) -> bool:
        if subscription.backfills:
            return True
        conflation, cursor = subscription.conflation, subscription.cursor
        if conflation.mode is not EVERY_RECORD:
            return conflation.pass_due(subscription)
        return cursor.position != cursor.lane.end

    def lag_records(self, subscription: Subscription) -> int:
        cursor = subscription.cursor
        if subscription.conflating:
            owed = subscription.conflation.owed_records
            return subscription.feed.lane.count - cursor.number + owed if self.has_more(subscription) else 0
        skip = _rest_skipped(subscription)
        return cursor.lag_records if skip is None else max(0, skip.first - cursor.number)

    def lag_bytes(self, subscription: Subscription) -> int:
        cursor = subscription.cursor
        if subscription.conflating and not self.has_more(subscription):
            return 0
        skip = _rest_skipped(subscription)
        return cursor.lag_bytes if skip is None else max(0, skip.position - cursor.position)

    def gating_bytes(self, subscription: Subscription) -> int:
        """A conflating consumer reads state, so nothing is."""
        return 0 if subscription.conflating else subscription.cursor.lag_bytes

    def oldest_time(self, subscription: Subscription) -> float | None:
        if subscription.conflating:
            return subscription.current_s if self.has_more(subscription) else None
        oldest = subscription.cursor.oldest_time()
        return None if oldest is None else max(oldest, subscription.current_s)

    def delivered(self, subscription: Subscription) -> Volume:
        return subscription.counters.sent(subscription.cursor)

    def owed(self, subscription: Subscription) -> Volume:
        conflation, lane, cursor = subscription.conflation, subscription.feed.lane, subscription.cursor
        if conflation.waits_for_clock(subscription):
            return Volume(conflation.owed_records, conflation.owed_bytes)
        return Volume(
            conflation.owed_records + lane.count - cursor.number, conflation.owed_bytes + lane.end - cursor.position
        )


LANE_READER: Final = LaneReader()
"""Of all who read their lanes by themselves."""


def _rest_skipped(subscription: Subscription) -> Skip | None:
    """The skip that leaves out everything from some record on, if one is in force."""
    for skip in subscription.skips:
        if skip.stop is None and skip.predicate is None:
            return skip
    return None


class QueueMember(Reader):
    __slots__ = ("queue",)
    queue: SharedReader
    counts_apart = True

    def __init__(self, queue: SharedReader) -> None:
        self.queue = queue

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

    def kept(self, subscription: Subscription) -> Kept | None:
        return self.queue.kept

    def has_more(self, subscription: Subscription) -> bool:
        return self.queue.backlog.has_more

    def lag_records(self, subscription: Subscription) -> int:
        return self.queue.backlog.lag_records

    def lag_bytes(self, subscription: Subscription) -> int:
        return self.queue.backlog.lag_bytes

    def gating_bytes(self, subscription: Subscription) -> int:
        return self.queue.backlog.lag_bytes

    def oldest_time(self, subscription: Subscription) -> float | None:
        return self.queue.backlog.oldest_time()

    def drained(self, subscription: Subscription) -> Volume:
        return subscription.counters.taken_from_queue

    def skipped(self, subscription: Subscription) -> Volume:
        """What went to another member."""
        backlog = self.queue.backlog
        return subscription.counters.given_to_others(backlog.handed_records, backlog.handed_bytes)
