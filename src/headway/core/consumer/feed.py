"""Feeds: a lane and the subscriptions that read it.

A subscription stands in exactly one of two places: in ``waiting`` when its cursor is at the end of the lane (a flush
visits these, once a turn, if the lane grew), or in its session's ``lagging`` when it is behind (nobody visits it until
its outlet has room or credit comes back). So a stuck consumer costs a turn nothing.
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
    """Session whose own records are left out (MQTT No Local); 0: nobody's."""
    group: str | None
    """Whose alone the lane is: a group that shares a subscription, or a queue that refuses what is too much."""


class Feed:
    __slots__ = (
        "accepts", "by_exchange", "flushed", "gated_s", "gated_since_s", "gates", "kept", "key", "lane",
        "left", "limited", "listening", "queues", "reading", "resting", "selector", "slow", "subscriptions",
        "waiting", "was_gated",
    )  # fmt: skip

    def __init__(
        self, key: FeedKey, lane: Lane, accepts: Callable[[Record], bool], *, by_exchange: bool = False
    ) -> None:
        self.key = key
        self.by_exchange = by_exchange
        """Records come to it by bindings, not by its filter."""
        self.lane = lane
        self.accepts = accepts
        """Whether a record belongs in this lane; for records that come another way (state)."""
        self.selector: Selector | None = None
        self.subscriptions: dict[Subscription, None] = {}
        self.waiting: dict[Subscription, None] = {}
        self.resting: dict[Subscription, None] = {}
        """Caught-up consumers that are next looked at by the clock (a conflation interval), not when the lane grows."""
        self.gates: dict[Subscription, float] = {}
        """Consumers that may hold back publishers, and since when."""
        self.was_gated = False
        self.gated_since_s = 0.0
        self.gated_s = 0.0
        """For how long there were gates before."""
        self.slow = 0
        """Subscriptions that are marked slow."""
        self.queues: dict[SharedReader, None] = {}
        """Queues that read this lane or have read some of it that is not settled."""
        self.reading = 0
        """Their cursors: a queue may have more than one."""
        self.listening: dict[SharedReader, None] = {}
        """Queues that have handed out everything and are told when there is more."""
        self.limited: dict[SharedReader, None] = {}
        """Queues that are told in any case: what is too much is to be dropped."""
        self.kept = 0
        """Of those who read it: durable ones, for whom the journal has its records."""
        self.flushed = lane.end
        """How far the lane was offered to those who wait, but for who is left. What is behind that nobody has yet."""
        self.left: deque[Subscription] | None = None
        """Who is to be offered it in the next turns, if he still waits."""

    @property
    def gated(self) -> bool:
        """Publishers are held back: by a consumer of its own, or by all of a queue's."""
        return any(gate.reader.gates for gate in self.gates)

    def holds_back(self, session: Session) -> bool:
        """Nobody waits for itself: its acknowledgements would not be read."""
        return any(gate.session is not session and gate.reader.gates for gate in self.gates)

    def is_read_by(self, session: Session) -> bool:
        return any(one.feed is self for one in session.subscriptions.values())

    def wait(self, subscription: Subscription) -> None:
        """The subscription has been given everything; it waits for more."""
        subscription.session.caught_up(subscription)
        by_clock = subscription.conflation.mode is not EVERY_RECORD and subscription.request.options.conflate_s
        (self.resting if by_clock else self.waiting)[subscription] = None

    def settle_down(self) -> None:
        """Forget what everyone has: called after a flush, and when somebody has caught up."""
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
