"""A feed is a lane and the subscriptions that read it.

A subscription is in exactly one of two tables. While its cursor is at the end of the lane it is in ``waiting``, which a
flush visits once a turn if the lane has grown. While it is behind it is in its session's ``lagging``. It is not visited
there until its outlet has room or its client gives credit. So a stuck consumer costs a turn nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headway.core.consumer.progress import BackfillSource
from headway.core.consumer.request import LiveTerms
from headway.core.consumer.shared_reader import SharedReader
from headway.core.consumer.subscription import Subscription
from headway.core.forms import Deltas, Shape
from headway.core.log import Focus, Lane, Pool, State
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
    exclude: int | str
    """The number of the session (MQTT No Local), or the name of the client (queues, which may outlive its session),
    whose own records are left out; 0 if there is none."""
    group: str | None
    """The name of the queue or group that has the lane for itself; None if the lane may be shared."""
    focus: str | None = None
    """The key of the topic, if the lane also tells what leaves it (log/focus.py)."""
    select: str | None = None
    """The fields of records that the lane has; None: it has whole records (forms/shape.py)."""
    delta: str | None = None
    """The key of the topic, if records of the lane have only what has changed."""
    live: LiveTerms | None = None
    """Set if the lane has a page of a state, or aggregates, in the place of what is published."""

    def leaves_out(self, session: Session) -> bool:
        return self.exclude == session.number or self.exclude == session.client

    @property
    def shaped(self) -> bool:
        return self.select is not None or self.delta is not None


class LiveSource(Protocol):
    """A live page, or kept aggregates: the source of a lane that does not have what is published."""

    shown: State
    """A state of its own, with all that subscribers see."""

    @property
    def held_share(self) -> float:
        """Returns the bytes that are held for each of its subscribers."""

    def when_ready(self, begin: Callable[[float], None], now: float) -> None:
        """Calls ``begin`` as soon as there is something to show, maybe at once."""

    def snapshot(self, filter: str) -> BackfillSource:
        """Returns all that subscribers have been told, between marks."""

    def told_upto(self, last_sequence: int, now: float) -> tuple[int, float] | None:
        """Returns the sequence of the last change that is told if it is to be, and since when more may wait to be, in
        seconds (0: nothing does). None: nothing is shown yet."""

    def leave(self, feed: Feed) -> None:
        """Takes a feed away that has no readers any more."""


class Feed:
    __slots__ = (
        "accepts",
        "by_exchange",
        "durable_readers",
        "flushed",
        "focus",
        "gated_s",
        "gated_since_s",
        "gates",
        "key",
        "lane",
        "left",
        "limited",
        "listening",
        "live",
        "priority",
        "queues",
        "reading",
        "refuses",
        "resting",
        "selector",
        "shape",
        "slow",
        "subscriptions",
        "waiting",
        "was_gated",
        "worked_out",
    )  # fmt: skip

    def __init__(
        self, key: FeedKey, lane: Lane, accepts: Callable[[Record], bool], *, by_exchange: bool = False
    ) -> None:
        self.key = key
        self.by_exchange = by_exchange
        """Records are routed to the feed by bindings, not by its filter."""
        self.refuses = by_exchange and key.group is not None
        """Set if it is that of one queue, which refuses records when it is full."""
        self.lane = lane
        self.accepts = accepts
        """Tells whether a record belongs in this lane. It is used for records from a state or an archive."""
        self.selector: Selector | None = None
        self.focus: Focus | None = None
        """Tells of keys that the selector no longer accepts; None: nobody asks for it."""
        self.shape: Shape | None = None
        """The form in which subscribers get records; None: as they were published."""
        self.worked_out = False
        """Set if the lane does not have records as they were published: it has a focus, or a shape."""
        self.priority = 0
        """How far it comes before others, for a client that is behind and where a turn has much to do; 0 to 9."""
        self.live: LiveSource | None = None
        """The page or the aggregates that the lane tells; None: it has what is published."""
        self.subscriptions: dict[Subscription, None] = {}
        self.waiting: dict[Subscription, None] = {}
        self.resting: dict[Subscription, None] = {}
        """Caught-up consumers with a conflation interval: a timer visits them, not the growth of the lane."""
        self.gates: dict[Subscription, float] = {}
        """Consumers that may hold back publishers, and the time since when they do."""
        self.was_gated = False
        self.gated_since_s = 0.0
        self.gated_s = 0.0
        """Seconds for which publishers were gated, up to the last time the gates were opened."""
        self.slow = 0
        """Subscriptions that are marked slow."""
        self.queues: dict[SharedReader, None] = {}
        """Queues that read this lane, or have unsettled records from it."""
        self.reading = 0
        """The number of cursors that these queues have in the lane; a queue may have more than one."""
        self.listening: dict[SharedReader, None] = {}
        """Queues that have handed out everything. They are ready when the lane grows."""
        self.limited: dict[SharedReader, None] = {}
        """Queues with a length limit. They are ready whenever the lane grows, because they may have to drop records."""
        self.durable_readers = 0
        """The number of durable readers. While there are any, the feed's records are journaled."""
        self.flushed = lane.end
        """The position up to which the lane was offered to all consumers in ``waiting``, except for those in ``left``.
        """
        self.left: deque[Subscription] | None = None
        """Waiting subscriptions that get the offer in the next turns, because this turn's share is used up."""

    @property
    def deltas(self) -> Deltas | None:
        return None if self.shape is None else self.shape.deltas

    def begin_deltas(self) -> None:
        """From now on its deltas, if it has any, are only of records behind the end of the lane."""
        if self.deltas is not None:
            self.deltas.raise_floor(self.lane.last_sequence)

    @property
    def gated(self) -> bool:
        """Tells whether publishers are held back, by a consumer or by all consumers of a queue."""
        return self._is_shut_for(None)

    def holds_back(self, session: Session) -> bool:
        """Tells whether this publisher is held back. Its own consumers never hold it back, because their
        acknowledgements would not be read while it waits."""
        return self._is_shut_for(session)

    def _is_shut_for(self, session: Session | None) -> bool:
        """Tells whether a gate of another session is shut. A queue is asked once, however many of its members gate."""
        asked: set[SharedReader] = set()
        for gate in self.gates:
            queue = gate.reader.queue
            if gate.session is session or queue in asked:
                continue
            if gate.reader.gates:
                return True
            if queue is not None:
                asked.add(queue)
        return False

    def is_read_by(self, session: Session) -> bool:
        return any(one.feed is self for one in session.subscriptions.values())

    def wait(self, subscription: Subscription) -> None:
        """Makes a caught-up subscription wait for more records."""
        subscription.session.caught_up(subscription)
        by_clock = subscription.conflation.by_clock
        (self.resting if by_clock else self.waiting)[subscription] = None

    def settle_down(self) -> None:
        """Drops the records that all consumers have. Called after a flush, and when a consumer has caught up."""
        lane = self.lane
        if self.queues:
            idle = len(self.listening) == self.reading
        else:
            idle = self.flushed == lane.end and len(self.waiting) + len(self.resting) == len(self.subscriptions)
            idle = idle and not self.left
        if idle and not lane.cursors_awaiting_acks:
            lane.empty()
        else:
            lane.trim()
