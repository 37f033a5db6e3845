"""Feeds: a lane and the subscriptions that read it.

A subscription is in exactly one of two places. While its cursor is at the end of the lane it is in ``waiting``, which
a flush visits once a turn if the lane has grown. While it is behind it is in its session's ``lagging``, and nothing
visits it until its outlet has room or its client gives credit. So a stuck consumer costs a turn nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from headway.core.consumer.conflation import EVERY_RECORD
from headway.core.consumer.shared_reader import SharedReader
from headway.core.consumer.subscription import Subscription
from headway.core.log import Lane, Pool
from headway.core.message import Dialect, Record
from headway.core.selector import Selector

if TYPE_CHECKING:
    from headway.core.consumer.session import Session


class FeedKey(NamedTuple):
    """Subscriptions with equal keys get equal bytes, so they share a lane."""

    filter: str
    selector: str | None
    dialect: Dialect
    pool: Pool
    exclude: int
    """Number of the session whose own records are left out (MQTT No Local); 0: none are."""
    group: str | None
    """Name of the one queue or shared-subscription group that has the lane for itself; None: anybody may share it."""


class Feed:
    __slots__ = (
        "accepts",
        "by_exchange",
        "durable_readers",
        "flushed",
        "gated_s",
        "gated_since_s",
        "gates",
        "key",
        "lane",
        "left",
        "limited",
        "listening",
        "queues",
        "reading",
        "resting",
        "selector",
        "slow",
        "subscriptions",
        "waiting",
        "was_gated",
    )  # fmt: skip

    def __init__(
        self, key: FeedKey, lane: Lane, accepts: Callable[[Record], bool], *, by_exchange: bool = False
    ) -> None:
        self.key = key
        self.by_exchange = by_exchange
        """Records are routed to the feed by bindings, not by its filter."""
        self.lane = lane
        self.accepts = accepts
        """Tells whether a record belongs in this lane. For records that are read from a state."""
        self.selector: Selector | None = None
        self.subscriptions: dict[Subscription, None] = {}
        self.waiting: dict[Subscription, None] = {}
        self.resting: dict[Subscription, None] = {}
        """Caught-up consumers that a clock wakes (a conflation interval), not the growth of the lane."""
        self.gates: dict[Subscription, float] = {}
        """Consumers that may hold back publishers, and since when."""
        self.was_gated = False
        self.gated_since_s = 0.0
        self.gated_s = 0.0
        """Seconds for which publishers were gated, up to the last time the gates were opened."""
        self.slow = 0
        """Subscriptions that are marked slow."""
        self.queues: dict[SharedReader, None] = {}
        """Queues that read this lane, or have read records from it that are not settled."""
        self.reading = 0
        """How many cursors these queues have in the lane: a queue may have more than one."""
        self.listening: dict[SharedReader, None] = {}
        """Queues that have handed out everything, to be woken when the lane grows."""
        self.limited: dict[SharedReader, None] = {}
        """Queues with a length limit, to be woken whenever the lane grows: they may have to drop records."""
        self.durable_readers = 0
        """How many durable readers the feed has. While there are any, its records go to the journal."""
        self.flushed = lane.end
        """Position up to which the lane was offered to everybody in ``waiting`` except for those in ``left``."""
        self.left: deque[Subscription] | None = None
        """Waiting subscriptions that are offered the records in the next turns, because one turn's share is used up."""

    @property
    def gated(self) -> bool:
        """Tells whether publishers are held back, by a consumer or by all consumers of a queue."""
        return any(gate.reader.gates for gate in self.gates)

    def holds_back(self, session: Session) -> bool:
        """Tells whether this publisher is held back. Its own consumers never do that: while it waited for them, their
        acknowledgements would not be read."""
        return any(gate.session is not session and gate.reader.gates for gate in self.gates)

    def is_read_by(self, session: Session) -> bool:
        return any(one.feed is self for one in session.subscriptions.values())

    def wait(self, subscription: Subscription) -> None:
        """Makes a subscription that has been given everything wait for more."""
        subscription.session.caught_up(subscription)
        by_clock = subscription.conflation.mode is not EVERY_RECORD and subscription.request.options.conflate_s
        (self.resting if by_clock else self.waiting)[subscription] = None

    def settle_down(self) -> None:
        """Drops what everyone has. Called after a flush, and when somebody has caught up."""
        lane = self.lane
        if self.queues:
            idle = len(self.listening) == self.reading
        else:
            idle = self.flushed == lane.end and len(self.waiting) + len(self.resting) == len(self.subscriptions)
            idle = idle and not self.left
        if idle and not lane.holding:
            lane.empty()
        else:
            lane.trim()
