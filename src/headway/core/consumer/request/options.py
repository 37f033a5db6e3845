"""Options of subscriptions and queues. All protocols share them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from headway.core.consumer.request.option_table import UNCONFLATED_S, Use, read_options, start_time
from headway.core.log import State
from headway.core.message import Dialect, Envelope
from headway.core.selector import typed as typed_selector

_AGGREGATE = re.compile(r"(?:^|,)\s*\w+\s*\(")


class LiveTerms(NamedTuple):
    """The terms of a page of a state, or of aggregates, that is kept up to date: equal ones are shared."""

    state: State
    """The state of the topics that it is of."""
    order_by: str
    top: int
    skip: int
    select: str | None
    """Aggregates; None: it is a page."""
    group_by: str | None
    every_s: float
    """The least time between two changes that are told; 0: each turn."""


class SubscriptionOptions(msgspec.Struct, frozen=True):
    """The options of one subscription. Each protocol has its own way to carry them."""

    conflate_s: float | None = None
    """Deliver the latest record per key this often; 0: whenever the socket has room; ``UNCONFLATED_S``: every record.
    None: as the topic says."""
    snapshot: bool = False
    """Deliver first the state (the latest record per key), then live records, from one consistent point."""
    marks: bool = False
    """Mark the begin and the end of a snapshot, and tell the key of each of its records (delivery/marks.py)."""
    query: bool = False
    """Deliver the state, with marks, and then end the subscription."""
    out_of_focus: bool = False
    """Tell of keys whose latest record no longer matches the selector (log/focus.py)."""
    delta: bool = False
    """Deliver only what has changed in a record, where the record before is known (forms/shape.py)."""
    policy: str | None = None
    """A policy of the configuration, by name, instead of the one its topics select."""
    start: str = "end"
    """The option ``from``: ``end``, ``earliest``, the sequence of the last record already seen, or a time."""
    key: str | None = None
    selector: str | None = None
    offsets: bool = False
    """Each record carries its sequence."""
    expiries: bool = False
    """Records that expired while they waited are announced as gaps, too."""
    lease_s: float | None = None
    """Seconds after which the subscription ends, unless its client subscribes again before."""
    patience_s: float | None = None
    """Seconds for which the client may hold a delivery without being slow. Its policy may grant less."""
    order_by: str | None = None
    """The order of a live page. With ``top`` and ``skip`` the subscriber sees only a page of the state."""
    top: int | None = None
    skip: int | None = None
    select: str | None = None
    """The fields of each record that are wanted; or aggregates of the state, kept up to date, of the groups that
    ``group_by`` says."""
    group_by: str | None = None

    @property
    def live(self) -> bool:
        """Tells whether a page or aggregates are wanted in the place of all records."""
        if (self.order_by, self.top, self.skip, self.group_by) != (None,) * 4:
            return True
        return self.select is not None and bool(_AGGREGATE.search(self.select))

    @property
    def interval_s(self) -> float | None:
        """Returns how often the client wants the latest record per key; None if it does not ask for that."""
        return None if self.conflate_s == UNCONFLATED_S else self.conflate_s

    @property
    def wants_state(self) -> bool:
        return self.snapshot or self.query

    @property
    def marked(self) -> bool:
        return self.marks or self.query

    def start_time(self, now_s: float) -> float | None:
        """Returns the time to start from, in seconds since 1970, or None if ``start`` is not a time. ``now_s`` is the
        time now."""
        return start_time(self.start, now_s)


NO_OPTIONS = SubscriptionOptions()


def parse_options(
    pairs: Iterable[tuple[str, str]], use: Use = Use.SUBSCRIPTION, *, typed: bool = False
) -> SubscriptionOptions:
    """Returns the options that name-value pairs say (option_table.py). ``typed``: the client's protocol has types for
    properties, and so has the selector.

    Raises :class:`Refused` with the name of the option and what it takes."""
    found = read_options(pairs, use)
    selector = found.get("selector")
    if typed and isinstance(selector, str):
        found["selector"] = typed_selector(selector)
    return msgspec.convert(found, SubscriptionOptions) if found else NO_OPTIONS


class SubscribeRequest(msgspec.Struct, frozen=True):
    """A request to subscribe. ``dialect`` says how records are written for the consumer."""

    filter: str
    dialect: Dialect
    shared_dialect: Dialect | None = None
    """The dialect of a shared group's lane, which has to hold all properties of a record."""
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    """The consumer sees the flag the publisher set."""
    send_retained: str = "always"
    """``always``, ``new`` (only if the subscription did not exist) or ``never``."""
    options: SubscriptionOptions = NO_OPTIONS
    name: object = None
    """The subscription's name within its session; None: its filter."""
    envelope: Envelope | None = None
    """How records of a queue are written for the consumer in batches; None: one by one, in ``dialect``."""
    polling: bool = False
    """The consumer gets a record only when it asks for one, from a queue (AMQP basic.get) or from the archive."""
    alone: bool = False
    """While there is such a consumer, the first of them gets all records of the queue, and the others stand by."""
    by_library: bool = False
    """The client's library asked for it, of which the application knows nothing: it is revoked without a word."""

    @property
    def key(self) -> object:
        return self.filter if self.name is None else self.name

    @property
    def label(self) -> str:
        """The name as people read it."""
        return "/".join(map(str, self.name)) if isinstance(self.name, tuple) else ""


class QueueTerms(msgspec.Struct, frozen=True):
    """The terms a queue was declared with. None means no limit."""

    durable: bool = False
    exclusive: bool = False
    """Only the session that declared the queue may use it, and the queue ends with the session."""
    auto_delete: bool = False
    """The queue ends with its last consumer."""
    ttl_s: float | None = None
    """Seconds that a record may wait."""
    idle_s: float | None = None
    """Seconds after which an unused queue ends."""
    records_max: int | None = None
    bytes_max: int | None = None
    refuses: bool = False
    """A full queue refuses new records (AMQP ``reject-publish``). Otherwise it drops its oldest records."""
    dead_letter_exchange: str | None = None
    """The exchange to which records go that were rejected, have expired, or were dropped."""
    dead_letter_key: str | None = None
    dead_letter_refused: bool = False
    priorities: int = 0
    """The highest priority there is: records with a higher one go first. 0: records go in the order they came."""
    single_active: bool = False
    """One consumer gets all records until it is gone; then the next one does."""
    returns_max: int | None = None
    """A record that was requeued more often than this is dropped (a poison message)."""
    selector: str | None = None
    """The selector of a subscription to topics that is a queue. Records that do not match never enter it."""
    leaves_out: str | None = None
    """The client whose records never enter the queue (``no_local``)."""

    @property
    def drops_oldest(self) -> bool:
        """Whether the queue has a length limit, and drops its oldest records beyond it."""
        return not self.refuses and (self.records_max is not None or self.bytes_max is not None)
