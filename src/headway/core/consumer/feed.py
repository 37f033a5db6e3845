"""A feed is a lane and the subscriptions that read it.

A subscription is in exactly one of two tables. While its cursor is at the end of the lane it is in ``waiting``, which a
flush visits once a turn if the lane has grown. While it is behind it is in its session's ``lagging``. It is not visited
there until its outlet has room or its client gives credit. So a stuck consumer costs a turn nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headway.core.base import Reason
from headway.core.consumer.progress import BackfillSource
from headway.core.consumer.request import LiveTerms, QueueTerms
from headway.core.consumer.subscription import Subscription
from headway.core.forms import Deltas, Shape
from headway.core.log import Chunk, Cursor, DurablePosition, Focus, Lane, Pool, State
from headway.core.message import Dialect, Record, Run
from headway.core.permission import Rights
from headway.core.policy import Policy, Sample, Verdict
from headway.core.selector import Selector

if TYPE_CHECKING:
    from headway.core.consumer.channel import Delivery
    from headway.core.consumer.session import Session


# -- shared reader -----------------------------------------------------------------------------------------------------
#
# A shared reader reads lanes with one position for many consumers. A queue is one (queue.py). The rooms below ``queue``
# know queues only by these protocols.


class Waiting(Protocol):
    """The records that a shared reader has still to hand out, and how much it has handed out."""

    @property
    def handed_records(self) -> int: ...
    @property
    def handed_bytes(self) -> int: ...
    @property
    def reading(self) -> Cursor:
        """The cursor that reads what comes next."""

    @property
    def lag_bytes(self) -> int: ...
    @property
    def lag_records(self) -> int: ...
    @property
    def has_more(self) -> bool: ...
    def oldest_time(self) -> float:
        """Returns the time when the next record was published; None if there is none."""


class SharedReader(Protocol):
    """Hands out each record that it reads to one of its members."""

    name: str
    terms: QueueTerms
    ends_with_members: bool
    """The reader is the group of an MQTT shared subscription, which ends with its last member."""
    filters: tuple[str, ...]
    """The topic filters by which its policy is chosen."""
    durable_position: DurablePosition
    owner: Session | None
    """The session that has the reader for itself (an exclusive queue)."""
    feed: Feed

    @property
    def members(self) -> Mapping[Subscription, None]: ...
    @property
    def backlog(self) -> Waiting: ...
    @property
    def empties(self) -> int:
        """How often members have taken all that waited."""
    @property
    def gates(self) -> bool:
        """Tells whether all of its members are gates, so that publishers are held back."""
    def dispatch(self, now: float) -> None:
        """Hands out records to members with room and credit."""
    def look_again(self, member: Subscription) -> None:
        """Offers records to a member again: it may have room or credit now."""
    def packet_limit_changed(self) -> None:
        """Notes that the client of a member accepts other sizes of packets than before."""
    def lose(self, delivery: Delivery, reason: Reason, now: float) -> None:
        """Notes that a record which its member had in flight cannot be sent again. One that is too large for the client
        goes to another member, if it may; others are lost, and noted in the member's gap."""
    def count_slow(self, member: Subscription, change: int) -> None:
        """Counts a member that is marked slow (1) or no longer is (-1)."""
    def takes_at_once(self, now: float) -> bool:
        """Tells whether one more record could go to a member at once."""
    def room_for(self, size: int, count: int, now: float) -> int:
        """Returns how many records of so many bytes it accepts, if ``count`` are to come. A full queue refuses the
        others."""
    def refuse(self, run: Run, accepted: int, first: int, now: float) -> None:
        """Refuses the records of the run behind the first ``accepted``."""


# -- feed --------------------------------------------------------------------------------------------------------------


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
    """The key of the topic, if the lane also tells what leaves it (log/states.py)."""
    select: str | None = None
    """The fields of records that the lane has; None: it has whole records (core/forms.py)."""
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

    def snapshot(self, filter: str, rights: Rights) -> BackfillSource:
        """Returns all that subscribers have been told, between marks. ``rights`` are the client's."""

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


# -- observing ---------------------------------------------------------------------------------------------------------
#
# An observer is told of consumers (telemetry/observer.py). The null observer ignores it: telemetry is off.


Shares = dict[Lane, tuple[dict[Chunk, float], dict[object, float]]]
"""``Lane.held_shares`` and ``apart_shares`` of the lanes looked at so far; a cache for one sweep."""


class Observer(Protocol):
    def began(self, subscription: Subscription) -> None:
        """Called for each new consumer."""
    def moved(self, old: Feed, new: Feed, consumers: int) -> None:
        """Called when so many consumers, members of a queue, read another feed than before."""
    def looked(self, subscription: Subscription, sample: Sample, now: float) -> None:
        """Called after each look of the governor at a watched consumer."""
    def verdict(self, verdict: Verdict, subscription: Subscription) -> None:
        """Called for each verdict."""
    def trial_verdict(self, verdict: Verdict, subscription: Subscription, policy: Policy) -> None:
        """Called for each verdict of a trial. ``policy``: the trial's."""
    def ended(self, subscription: Subscription, reason: Reason, now: float) -> None:
        """Called when a consumer ends."""
    def tick(self, now: float, shares: Shares) -> None:
        """Called at the end of each sweep."""


class NullObserver:
    __slots__ = ()

    def began(self, subscription: Subscription) -> None:
        pass

    def moved(self, old: Feed, new: Feed, consumers: int) -> None:
        pass

    def looked(self, subscription: Subscription, sample: Sample, now: float) -> None:
        pass

    def verdict(self, verdict: Verdict, subscription: Subscription) -> None:
        pass

    def trial_verdict(self, verdict: Verdict, subscription: Subscription, policy: Policy) -> None:
        pass

    def ended(self, subscription: Subscription, reason: Reason, now: float) -> None:
        pass

    def tick(self, now: float, shares: Shares) -> None:
        pass


NO_OBSERVER: Final = NullObserver()
"""The only null observer."""
