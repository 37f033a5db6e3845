"""Receipts tell what became of one record: who was owed it, who got it, and who did not, and why. Its publisher asked,
or the broker follows it for its trace.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from headway.core.base import NO_TIMER, Reason, Refused, Timers
from headway.core.consumer import EVERY_RECORD, NO_LIMIT, Channel, Delivery, Feed, Session, SharedReader, Subscription
from headway.core.log import (
    NO_RECEIPTS,
    RECEIPT_BYTES,
    RECEIPT_READER_BYTES,
    RECEIPTS,
    Cursor,
    Lane,
    OpenReceipts,
    State,
)
from headway.core.message import ReceiptRequest, Run, TraceContext

# -- sampling ----------------------------------------------------------------------------------------------------------
#
# Sampling: which records the broker follows for their traces.
#
# The publisher decides first: a record is followed only if its ``traceparent`` says that its trace is sampled. Of these
# traces the broker follows a share, chosen by the trace's id: all records of one trace, or none. Beyond ``per_second``
# records in a second none is followed, so that a publisher that has every record sampled costs the broker no more.


_RANGE = 1 << 64
SECOND_S = 1.0


class TraceSampling:
    def __init__(self, ratio: float = 1.0, per_second: int = 100, wait_s: float = 30.0) -> None:
        self.wait_s = wait_s
        """The time for which a record is followed."""
        self.followed = 0
        self.skipped = 0
        """Sampled records that were not followed, because there were too many in their second."""
        self._bound = int(ratio * _RANGE)
        self._per_second = per_second
        self._second_s = float("-inf")
        self._in_second = 0

    def wants(self, context: TraceContext, now: float) -> bool:
        """Tells whether a record of a sampled trace is followed, and counts it."""
        if context.trace_id % _RANGE >= self._bound:
            return False
        if now - self._second_s >= SECOND_S:
            self._second_s, self._in_second = now, 0
        if self._in_second >= self._per_second:
            self.skipped += 1
            return False
        self._in_second += 1
        self.followed += 1
        return True


# -- trace -------------------------------------------------------------------------------------------------------------
#
# A trace: what became of one record that belongs to a sampled trace, for each of its readers.
#
# It hangs on a receipt, which the broker opens itself or which the publisher asked for. A receipt counts; a trace has
# also names and times. Names are limited: of readers that got the record and of all others, the first ones each. The
# receipt's figures count all of them.


DELIVERED_MAX = 32
OTHERS_MAX = 64
"""Readers with a fate of their own in a trace."""


class Outcome(StrEnum):
    DELIVERED = "delivered"
    CONFLATED = "conflated"
    DISCARDED = "discarded"
    EXPIRED = "expired"
    DEAD_LETTERED = "dead_lettered"
    LOST = "lost"
    WAITING = "waiting"


_OUTCOMES: Final = {
    None: Outcome.DELIVERED, Reason.CONFLATED: Outcome.CONFLATED, Reason.DISCARDED: Outcome.DISCARDED,
    Reason.EXPIRED: Outcome.EXPIRED,
}  # fmt: skip
NOT_YET = -1.0


class Fate:
    """The end of the record's way to one reader."""

    __slots__ = ("at_s", "client", "name", "outcome", "reason")

    def __init__(self, reader: Subscription | SharedReader, outcome: Outcome, reason: Reason | None) -> None:
        if isinstance(reader, Subscription):
            self.client, self.name = reader.session.client, reader.filter
        else:
            self.client, self.name = "", reader.name
        self.outcome = outcome
        self.reason = reason
        self.at_s = NOT_YET
        """The time at which it was known; set at the end of the turn."""


class Trace:
    __slots__ = (
        "body_bytes", "client", "context", "delivered", "ended_s", "exchange", "fates", "figures", "opened_s", "others",
        "qos", "records", "sequence", "stamped", "state", "topic",
    )  # fmt: skip

    def __init__(self, context: TraceContext, run: Run, client: str, sequence: int, now: float) -> None:
        """``sequence``: that of the run's last record, which is the one that is followed."""
        self.context = context
        self.client = client
        """The publisher's name."""
        self.topic = run.topic
        self.exchange = run.exchange
        self.qos = run.qos
        self.records = len(run)
        """Neighbouring records with one trace context count as one batch."""
        self.body_bytes = run.ends[-1] - run.bodies[-1]
        self.sequence = sequence
        self.opened_s = now
        self.ended_s = NOT_YET
        self.state = ""
        """The state of the receipt when it was closed; empty before."""
        self.figures: dict[str, int] = {}
        """How many readers were owed the record, and how it ended for how many."""
        self.fates: list[Fate] = []
        self.stamped = 0
        """How many of the fates have their time."""
        self.delivered = self.others = 0

    def note(self, reader: Subscription | SharedReader, reason: Reason | None, *, dead_letter: bool = False) -> None:
        """Notes what became of the record for a reader: it got the record (None), or did not, for this reason."""
        outcome = Outcome.DEAD_LETTERED if dead_letter else _OUTCOMES.get(reason, Outcome.LOST)
        self._add(reader, outcome, reason)

    def _add(self, reader: Subscription | SharedReader, outcome: Outcome, reason: Reason | None) -> None:
        if outcome is Outcome.DELIVERED:
            self.delivered += 1
            if self.delivered > DELIVERED_MAX:
                return
        else:
            self.others += 1
            if self.others > OTHERS_MAX:
                return
        self.fates.append(Fate(reader, outcome, reason))

    def note_waiting(self, reader: Subscription | SharedReader) -> None:
        self._add(reader, Outcome.WAITING, None)

    def stamp(self, now: float) -> None:
        """Gives what is new the time."""
        for fate in self.fates[self.stamped :]:
            fate.at_s = now
        self.stamped = len(self.fates)
        if self.state:
            self.ended_s = now

    @property
    def unnamed(self) -> int:
        """How many readers are counted without a fate of their own."""
        return self.delivered + self.others - len(self.fates)


# -- receipt -----------------------------------------------------------------------------------------------------------
#
# A receipt: one record of a publisher that asked, and the readers that it was owed to.
#
# Theory of operation. When the record is published, the receipt notes its readers: subscriptions that read a lane, and
# queues. Each of them is *pending* until its fate is known, and then counts once:
#
# - A loss is reported where it happens (chunk.py), with its reason.
# - That a reader got the record is found by looking at its cursor: it has passed the record, and nothing of it waits
# for
#   an acknowledgement. Nobody reports this, because nothing may be done per record and consumer.
# - A conflated subscription gets the record from a state or not at all. That it was sent is reported. If the state has
# a
#   later record of the key before that, the record was conflated.
#
# So ``owed`` = ``got`` + all losses + the number of pending readers, at any time.


class ReceiptState(StrEnum):
    OPEN = "open"
    COMPLETE = "complete"
    """No reader is pending."""
    TIMED_OUT = "timed_out"
    DISPLACED = "displaced"
    """The publisher, or all of them together, have asked for too many others since."""
    PUBLISHER_ENDED = "publisher_ended"
    """The session of the publisher has ended."""
    BROKER_STOPS = "broker_stops"
    """The broker stops. No publisher is told this; traces are."""
    REFUSED = "refused"
    """The request was not understood, or there was no room."""


class Way(StrEnum):
    """How a pending subscription gets the record."""

    LANE = "lane"
    """From its lane; or it was sent from there, and the subscription is conflated since."""
    STATE = "state"
    """By a pass over a state, because it is conflated."""


LANE: Final = Way.LANE
STATE: Final = Way.STATE


class Sent(NamedTuple):
    """A delivery that the cursor of its subscription does not know. It waits for its acknowledgement."""

    delivery_id: int
    delivery: Delivery

    @property
    def waits(self) -> bool:
        return self.delivery.subscription.channel.get(self.delivery_id) is self.delivery


class Receipt:
    __slots__ = (
        "_left_waiting", "bytes", "closing", "conflated", "dead_lettered", "discarded", "got", "heirs", "keys", "lost",
        "number", "numbers", "opened_s", "owed", "pending", "qos", "queues", "request", "sequence", "session", "state",
        "text", "timer", "to_look", "told", "topic", "traces", "why",
    )  # fmt: skip

    def __init__(
        self, number: int, session: Session, run: Run, request: ReceiptRequest, sequence: int, now: float,
        traces: tuple[Trace, ...] = (),
    ) -> None:  # fmt: skip
        """``traces``: the broker itself asks, for these; its publisher is told nothing."""
        self.number = number
        self.session = session
        """The publisher's."""
        self.request = request
        self.traces = traces
        """The trace that the record is followed for, if any: names, times and reasons."""
        self.told = not traces
        """Whether the publisher is told, because it asked."""
        self.topic = run.topic
        self.qos = run.qos
        self.sequence = sequence
        self.opened_s = now
        self.state = ReceiptState.OPEN
        self.text = ""
        """Says why the receipt was closed, if it is not complete."""
        self.closing = False
        """Set when the time is over and the readers are looked at once more."""
        self.timer = NO_TIMER
        self.bytes = 0
        """The bytes that it counts for on its publisher's tab."""
        self.owed = self.got = self.conflated = self.discarded = self.dead_lettered = self.lost = 0
        self.why: Counter[Reason] = Counter()
        """How many readers did not get the record, by reason."""
        self.pending: dict[Subscription, Way | Sent] = {}
        self.queues: dict[SharedReader, Cursor] = {}
        """Pending queues, each with the cursor that reads the record."""
        self.numbers: dict[Lane, int] = {}
        """The number of the record in each lane that took it; -1 for lanes of heirs."""
        self.keys: dict[State, str | None] = {}
        """The key of the record in each state that took it."""
        self.heirs: dict[Subscription, Subscription] = {}
        """Subscriptions that read what pending ones, which they replaced, had not read."""
        self.to_look: list[Subscription | SharedReader] = []
        """The readers that are still to be looked at in this round. Empty between two rounds."""
        self._left_waiting = 0
        """The readers that were pending when the receipt was closed."""

    # -- settling ---------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return len(self.pending) + len(self.queues) + self._left_waiting

    def forget_readers(self) -> None:
        """Lets go of the readers, because the receipt is closed. How many of them still waited stays known."""
        self._left_waiting = self.waiting
        for table in (self.pending, self.queues, self.numbers, self.keys, self.heirs):
            table.clear()
        self.to_look = []

    def resolve(self, reader: Subscription | SharedReader, reason: Reason | None, *, dead_letter: bool = False) -> None:
        """Counts the fate of a pending reader: it got the record (None), or did not, for this reason."""
        if isinstance(reader, Subscription):
            del self.pending[reader]
        else:
            del self.queues[reader]
        for trace in self.traces:
            trace.note(reader, reason, dead_letter=dead_letter)
        if reason is None:
            self.got += 1
            return
        self.why[reason] += 1
        if dead_letter:
            self.dead_lettered += 1
        elif reason is Reason.CONFLATED:
            self.conflated += 1
        elif reason is Reason.DISCARDED:
            self.discarded += 1
        else:
            self.lost += 1

    def refused_by(self, queues: Sequence[SharedReader]) -> None:
        """Counts full queues, which refused the record."""
        self.owed += len(queues)
        self.lost += len(queues)
        if queues:
            self.why[Reason.QUEUE_LENGTH] += len(queues)
        for trace in self.traces:
            for queue in queues:
                trace.note(queue, Reason.QUEUE_LENGTH)

    def end_traces(self) -> None:
        """Completes what its trace notes, before the readers are forgotten."""
        for trace in self.traces:
            for queue in self.queues:
                trace.note_waiting(queue)
            for subscription in self.pending:
                trace.note_waiting(subscription)
            trace.state, trace.figures = str(self.state), self.counts()

    def pending_reader(self, reader: Subscription) -> Subscription | SharedReader | None:
        """Returns whom a report about this subscription is about; None if that is nobody who is pending: itself, the
        subscription that it replaced, or its queue."""
        queue = reader.reader.queue
        if queue is not None:
            return queue if queue in self.queues else None
        if reader in self.pending:
            return reader
        replaced = self.heirs.get(reader)
        return replaced if replaced in self.pending else None

    # -- looking ----------------------------------------------------------------------------------------------------

    def begin_round(self) -> None:
        self.to_look = [*self.queues, *self.pending]
        self.to_look.reverse()

    def fate(self, reader: Subscription | SharedReader) -> tuple[bool, Reason | None]:
        """Tells whether the fate of a pending reader is known by now, and the reason if it did not get the record."""
        if not isinstance(reader, Subscription):
            cursor = self.queues.get(reader)
            return cursor is not None and not self.waits_in(cursor), None
        way = self.pending.get(reader)
        if way is None:
            return False, None
        if isinstance(way, Sent):
            return not way.waits, None
        if way is STATE:
            reason = self.gone_from_state(reader)
            return reason is not None, reason
        return not self.waits_in(reader.cursor), None

    def waits_in(self, cursor: Cursor) -> bool:
        """Tells whether the record waits to be read by this cursor, or to be acknowledged."""
        number = self.numbers[cursor.lane]
        return cursor.number <= number or cursor.owes(number)

    def gone_from_state(self, reader: Subscription) -> Reason | None:
        """Returns the reason why a conflated subscription will not get the record any more; None if it still may."""
        state = reader.conflation.state
        if state is None or state not in self.keys:
            return Reason.CONFLATED  # the state began later, or has ended
        latest = state.get(self.topic, self.keys[state])
        if latest is None:
            return Reason.DISCARDED  # it was evicted
        return None if latest.sequence == self.sequence else Reason.CONFLATED

    # -- telling ----------------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Returns how many readers were owed the record, and what became of it for how many."""
        return {
            "owed": self.owed, "got": self.got, "conflated": self.conflated, "discarded": self.discarded,
            "dead_lettered": self.dead_lettered, "lost": self.lost, "waiting": self.waiting,
        }  # fmt: skip

    def figures(self, now: float) -> dict[str, Any]:
        """Returns what the publisher is told, without its own name."""
        told: dict[str, Any] = {
            "topic": self.topic, "sequence": self.sequence, "state": str(self.state), **self.counts(),
            "why": {str(reason): count for reason, count in self.why.items()},
            "took_ms": int((now - self.opened_s) * 1000), "timeout_ms": int(self.request.wait_s * 1000),
        }  # fmt: skip
        if self.text:
            told["text"] = self.text
        return told


def way_of(subscription: Subscription) -> Way:
    """Returns how a record that is published now reaches the subscription."""
    return LANE if subscription.conflation.mode is EVERY_RECORD else STATE


# -- lane receipts -----------------------------------------------------------------------------------------------------
#
# The receipts that are open on one lane, by sequence, and what is reported to them (chunk.py).


class AllReceipts(Protocol):
    """The receipts of all lanes, as those of one lane know them."""

    def on(self, lane: Lane) -> LaneReceipts: ...
    def park(self, receipt: Receipt, reader: Subscription, sent: Sent) -> None: ...
    def resolve(self, receipt: Receipt, reader: Subscription | SharedReader, reason: Reason | None) -> None: ...
    def unacknowledged(self, receipt: Receipt, reader: Subscription, delivery: Delivery) -> None: ...


class LaneReceipts(OpenReceipts):
    def __init__(self, receipts: AllReceipts) -> None:
        self._receipts = receipts
        self._sequences: list[int] = []
        self._by_sequence: dict[int, Receipt] = {}

    def add(self, receipt: Receipt) -> None:
        sequence = receipt.sequence
        if sequence not in self._by_sequence:
            self._by_sequence[sequence] = receipt
            at = bisect_left(self._sequences, sequence)  # the end, unless a subscription was replaced
            self._sequences.insert(at, sequence)

    def remove(self, receipt: Receipt) -> None:
        if self._by_sequence.pop(receipt.sequence, None) is not None:
            del self._sequences[bisect_left(self._sequences, receipt.sequence)]

    def __bool__(self) -> bool:
        return bool(self._sequences)

    def _between(self, first: int, last: int) -> list[Receipt]:
        sequences = self._sequences
        found = sequences[bisect_left(sequences, first) : bisect_right(sequences, last)]
        return [self._by_sequence[sequence] for sequence in found]

    def _pending(self, reader: Subscription) -> Iterator[Receipt]:
        """Yields the receipts that the subscription is pending in; they may be closed meanwhile."""
        for receipt in list(self._by_sequence.values()):
            if reader in receipt.pending:
                yield receipt

    # -- reports ----------------------------------------------------------------------------------------------------

    def lost(self, reader: object, first: int, last: int, reason: str) -> None:
        assert isinstance(reader, Subscription)
        for receipt in self._between(first, last):
            about = receipt.pending_reader(reader)
            if about is not None:
                self._receipts.resolve(receipt, about, Reason(reason))

    def sent(self, reader: object, sequence: int, delivery_id: int) -> None:
        assert isinstance(reader, Subscription)
        receipt = self._by_sequence.get(sequence)
        about = None if receipt is None else receipt.pending_reader(reader)
        if receipt is None or not isinstance(about, Subscription) or isinstance(receipt.pending[about], Sent):
            return  # a snapshot may repeat what a replaced subscription was owed
        delivery = reader.channel.get(delivery_id)
        if delivery is not None:
            self._receipts.park(receipt, about, Sent(delivery_id, delivery))
        else:
            self._receipts.resolve(receipt, about, None)

    def conflating(self, reader: object) -> None:
        assert isinstance(reader, Subscription)
        cursor = reader.cursor
        for receipt in self._pending(reader):
            if receipt.pending[reader] is not LANE:
                continue
            if cursor.number <= receipt.numbers[cursor.lane]:
                receipt.pending[reader] = STATE

    def leaving(self, reader: object, reason: str) -> None:
        assert isinstance(reader, Subscription)
        in_flight = cache(lambda: _in_flight(reader))
        for receipt in self._pending(reader):
            way = receipt.pending[reader]
            if isinstance(way, Sent):
                if reader.session.ended and way.waits:
                    self._receipts.unacknowledged(receipt, reader, way.delivery)
                elif not way.waits:
                    self._receipts.resolve(receipt, reader, None)
                continue
            if way is STATE:
                self._receipts.resolve(receipt, reader, receipt.gone_from_state(reader) or Reason(reason))
                continue
            number = receipt.numbers[reader.cursor.lane]
            if reader.cursor.number <= number:
                self._receipts.resolve(receipt, reader, Reason(reason))
            elif not reader.cursor.owes(number):
                self._receipts.resolve(receipt, reader, None)
            else:
                self._left_in_flight(receipt, reader, in_flight()[number])

    def _left_in_flight(self, receipt: Receipt, reader: Subscription, sent: Sent) -> None:
        """The subscription ends, and its client may still acknowledge this delivery, unless its session ends too."""
        if reader.session.ended:
            self._receipts.unacknowledged(receipt, reader, sent.delivery)
        else:
            self._receipts.park(receipt, reader, sent)

    def replaced(self, reader: object, heir: object) -> None:
        assert isinstance(reader, Subscription)
        assert isinstance(heir, Subscription)
        in_flight = cache(lambda: _in_flight(reader))
        for receipt in list(self._by_sequence.values()):
            about = receipt.pending_reader(reader)
            if not isinstance(about, Subscription) or isinstance(receipt.pending[about], Sent):
                continue
            number, way = receipt.numbers[about.cursor.lane], receipt.pending[about]
            if about is reader and way is not STATE and reader.cursor.number > number:
                if reader.cursor.owes(number):
                    self._receipts.park(receipt, reader, in_flight()[number])
                else:
                    self._receipts.resolve(receipt, reader, None)
                continue
            receipt.heirs[heir] = about
            self._receipts.on(heir.feed.lane).add(receipt)
            receipt.numbers.setdefault(heir.feed.lane, -1)


def _in_flight(reader: Subscription) -> dict[int, Sent]:
    """Returns the deliveries of the subscription's own lane, by number."""
    return {
        delivery.number: Sent(delivery_id, delivery)
        for delivery_id, delivery in reader.channel.in_flight.items()
        if delivery.subscription is reader and delivery.chunk is not None
    }


# -- receipts ----------------------------------------------------------------------------------------------------------
#
# The open receipts of all publishers. It opens, looks at and closes them; ``done`` has those to be told.
#
# The broker opens receipts of its own for records of sampled traces. ``traced`` has what became of these.
#
# Rules:
# - Nothing is done per record or consumer while no receipt is open, and nothing per record and consumer while one is.
# - A turn looks at the readers of receipts that were opened in it, a tick at those that still wait, each up to a
# budget.
# - A session has at most ``OPEN_MAX`` open receipts, and all sessions together ``ALL_OPEN_MAX``. The oldest gives way.
#   The readers that a receipt has to remember are on its publisher's tab.
# - Receipts of the broker's own are on nobody's tab, and displace no other. They have limits of their own:
#   ``TRACES_MAX`` open ones, and ``TRACES_BYTES_MAX`` for what all of these together remember.


OPEN_MAX = 64
ALL_OPEN_MAX = 1024
TURN_LOOKS = 1024
TICK_LOOKS = 2048
TRACES_MAX = 1024
TRACES_BYTES_MAX = 10_000_000
ENDED_MAX = 4096
"""Ended traces that nobody has taken."""
ASK_WORK = 64
"""To open and to tell one receipt is as much work as a search of so many entries."""


class Receipts:
    def __init__(self, timers: Timers) -> None:
        self.asked = 0
        self.closed: Counter[ReceiptState] = Counter()
        self.open: dict[int, Receipt] = {}
        """By sequence, so the oldest comes first."""
        self.done: deque[Receipt] = deque()
        """Closed receipts that their publishers are not told yet."""
        self.traced: deque[Trace] = deque()
        """Ended traces. Whoever exports them takes them at the end of each turn."""
        self._lost = 0
        self._followed: dict[int, Receipt] = {}
        """Open receipts of the broker's own, by sequence."""
        self._followed_bytes = 0
        self._news: dict[Trace, None] = {}
        """Traces with something that has no time yet."""
        self._timers = timers
        self._of_session: dict[Session, dict[int, Receipt]] = {}
        self._parked: dict[Delivery, tuple[Receipt, Subscription]] = {}
        """Deliveries of pending subscriptions that no cursor knows."""
        self._fresh: deque[Receipt] = deque()
        """Receipts to be looked at in this turn: new ones, and those whose time is over."""
        self._old: dict[Receipt, None] = {}
        """Open receipts that were looked at, to be looked at again. The next one comes first."""

    @property
    def due(self) -> bool:
        """Tells whether there is something to look at, or to tell, in this turn."""
        return bool(self._fresh or self.done or self._news)

    @property
    def asked_open(self) -> int:
        """How many open receipts publishers have asked for."""
        return len(self.open) - len(self._followed)

    # -- opening ----------------------------------------------------------------------------------------------------

    def ask(
        self, session: Session, run: Run, sequence: int, feeds: Collection[Feed], states: Iterable[State], now: float
    ) -> int:
        """Opens a receipt for a record that was just published to these feeds. Returns the work, as that of a search
        of so many entries."""
        self.asked += 1
        assert run.receipt is not None
        receipt = Receipt(self.asked, session, run, run.receipt, sequence, now)
        if receipt.request.fault:
            self._refuse(receipt, receipt.request.fault)
            return ASK_WORK
        size = RECEIPT_BYTES + len(run.topic) + receipt.request.size
        most = _readers_of(feeds, sequence)
        try:
            if most:
                session.tab.check(size + RECEIPT_READER_BYTES * most)
        except Refused as error:
            self._refuse(receipt, str(error))
            return ASK_WORK
        self._find_readers(receipt, feeds)
        if not receipt.waiting:
            self._close(receipt, ReceiptState.COMPLETE)
            return ASK_WORK + receipt.owed
        self._make_room(session)
        self._open(receipt, run, states, size + RECEIPT_READER_BYTES * receipt.waiting)
        return ASK_WORK + receipt.owed

    def follow(
        self, session: Session, run: Run, feeds: Collection[Feed], states: Iterable[State], now: float, trace: Trace,
        wait_s: float,
    ) -> int:  # fmt: skip
        """Follows the last record of a run, which was just published to these feeds, for its trace. Returns the work,
        as ``ask`` does."""
        sequence = trace.sequence
        asked = self.open.get(sequence)
        if asked is not None:  # its publisher asked, too
            asked.traces = (trace,)
            return 0
        receipt = Receipt(0, session, run, ReceiptRequest(wait_s), sequence, now, (trace,))
        size = RECEIPT_BYTES + RECEIPT_READER_BYTES * _readers_of(feeds, sequence)
        if self._followed_bytes + size > TRACES_BYTES_MAX:
            self._close(receipt, ReceiptState.REFUSED)
            return ASK_WORK
        self._find_readers(receipt, feeds)
        if not receipt.waiting:
            self._close(receipt, ReceiptState.COMPLETE)
            return ASK_WORK + receipt.owed
        if len(self._followed) >= TRACES_MAX:
            self._close(next(iter(self._followed.values())), ReceiptState.DISPLACED)
        self._open(receipt, run, states, RECEIPT_BYTES + RECEIPT_READER_BYTES * receipt.waiting)
        return ASK_WORK + receipt.owed

    def _make_room(self, session: Session) -> None:
        """Closes the oldest receipt if there are too many, of this session or of all."""
        own = self._of_session.get(session, {})
        if len(own) >= OPEN_MAX:
            self._displace(next(iter(own.values())))
        elif self.asked_open >= ALL_OPEN_MAX:
            self._displace(next(one for one in self.open.values() if one.told))

    def _find_readers(self, receipt: Receipt, feeds: Iterable[Feed]) -> None:
        for feed in feeds:
            lane, queues = feed.lane, [queue for queue in feed.queues if queue.feed is feed]
            if lane.last_sequence != receipt.sequence:
                if feed.refuses:  # its queue was full
                    receipt.refused_by(queues)
                continue  # a selector, or No Local, kept it out
            receipt.numbers[lane] = lane.count - 1
            if queues or feed.by_exchange:
                receipt.queues.update((queue, queue.backlog.reading) for queue in queues)
            else:
                receipt.pending.update(
                    (one, way_of(one)) for one in feed.subscriptions
                    if one.stop_number == NO_LIMIT and not one.session.ended
                )  # fmt: skip
        receipt.owed += receipt.waiting

    def _open(self, receipt: Receipt, run: Run, states: Iterable[State], size: int) -> None:
        session, last = receipt.session, len(run) - 1
        self.open[receipt.sequence] = receipt
        receipt.bytes = size
        if receipt.told:
            self._of_session.setdefault(session, {})[receipt.sequence] = receipt
            session.tab.add(RECEIPTS, size)
        else:
            self._followed[receipt.sequence] = receipt
            self._followed_bytes += size
        record = run.record(last, receipt.sequence - last, receipt.opened_s)
        receipt.keys = {state: state.key_of(record) for state in states}
        for lane in receipt.numbers:
            self.on(lane).add(receipt)
        receipt.timer = self._timers.at(receipt.opened_s + receipt.request.wait_s, lambda _: self._time_out(receipt))
        self._fresh.append(receipt)

    def on(self, lane: Lane) -> LaneReceipts:
        """Returns the receipts that are open on a lane, to add one."""
        if not isinstance(lane.receipts, LaneReceipts):
            lane.receipts = LaneReceipts(self)
        return lane.receipts

    # -- closing ----------------------------------------------------------------------------------------------------

    def _refuse(self, receipt: Receipt, text: str) -> None:
        receipt.text = text
        self._close(receipt, ReceiptState.REFUSED)

    def _displace(self, receipt: Receipt) -> None:
        receipt.text = f"closed early: a client may have {OPEN_MAX} open receipts, and all together {ALL_OPEN_MAX}"
        self._close(receipt, ReceiptState.DISPLACED)

    def _time_out(self, receipt: Receipt) -> None:
        """Closes the receipt after one more look at its readers."""
        receipt.closing = True
        receipt.to_look = []
        self._old.pop(receipt, None)
        self._fresh.append(receipt)

    def _close(self, receipt: Receipt, state: ReceiptState) -> None:
        receipt.state = state
        if receipt.told:
            self.closed[state] += 1
            self.done.append(receipt)
            receipt.session.tab.add(RECEIPTS, -receipt.bytes)
        else:
            self._followed_bytes -= receipt.bytes
        receipt.timer.cancel()
        receipt.bytes = 0
        receipt.end_traces()
        self._news |= dict.fromkeys(receipt.traces)
        if self.open.pop(receipt.sequence, None) is not None:
            self._take_out(receipt)
        self._old.pop(receipt, None)
        receipt.forget_readers()  # it may stay in ``done`` for some turns, and is on no tab

    def _take_out(self, receipt: Receipt) -> None:
        """Takes an open receipt out of the tables of its session, of deliveries and of lanes."""
        if receipt.told:
            own = self._of_session[receipt.session]
            del own[receipt.sequence]
            if not own:
                del self._of_session[receipt.session]
        else:
            del self._followed[receipt.sequence]
        for way in receipt.pending.values():
            if isinstance(way, Sent):
                del self._parked[way.delivery]
        for lane in receipt.numbers:
            found = lane.receipts
            if isinstance(found, LaneReceipts):
                found.remove(receipt)
                if not found:
                    lane.receipts = NO_RECEIPTS

    def publisher_ended(self, session: Session) -> None:
        """Closes the receipts of a publisher whose session has ended."""
        for receipt in list(self._of_session.get(session, {}).values()):
            receipt.text = "closed early: the session of the publisher has ended"
            self._close(receipt, ReceiptState.PUBLISHER_ENDED)

    def end_traces(self, now: float) -> None:
        """Closes what is followed for traces as it stands, because the broker stops."""
        for receipt in list(self._followed.values()):
            self._close(receipt, ReceiptState.BROKER_STOPS)
        self._stamp(now)

    # -- reports ----------------------------------------------------------------------------------------------------

    def resolve(
        self, receipt: Receipt, reader: Subscription | SharedReader, reason: Reason | None, *, dead_letter: bool = False
    ) -> None:
        """Counts the fate of a pending reader. Closes the receipt if it was the last one."""
        if isinstance(reader, Subscription):
            way = receipt.pending[reader]
            if isinstance(way, Sent):
                del self._parked[way.delivery]
        receipt.resolve(reader, reason, dead_letter=dead_letter)
        self._news |= dict.fromkeys(receipt.traces)
        if not receipt.waiting and receipt.state is ReceiptState.OPEN:
            self._close(receipt, ReceiptState.COMPLETE)

    def park(self, receipt: Receipt, reader: Subscription, sent: Sent) -> None:
        """Notes that the record was sent to a pending subscription in a delivery that no cursor knows."""
        receipt.pending[reader] = sent
        self._parked[sent.delivery] = receipt, reader

    def unacknowledged(self, receipt: Receipt, reader: Subscription, delivery: Delivery) -> None:
        """Notes that a session has ended without an acknowledgement. At QoS 2 it may have confirmed the arrival."""
        self.resolve(receipt, reader, None if delivery.released else Reason.UNACKNOWLEDGED)

    def cleared(self, channel: Channel) -> None:
        """Notes that a session has ended, and its deliveries with it."""
        if self._parked:
            for delivery in channel.in_flight.values():
                found = self._parked.get(delivery)
                if found is not None:
                    self.unacknowledged(*found, delivery)

    def dropped(
        self, queue: SharedReader, first: int, last: int, reason: Reason, *, dead_letter: bool = False
    ) -> None:
        """Notes that a queue leaves out its records with these sequences."""
        for receipt in self._between(first, last):
            if queue in receipt.queues:
                self.resolve(receipt, queue, reason, dead_letter=dead_letter)

    def _between(self, first: int, last: int) -> list[Receipt]:
        if first == last:
            return [self.open[first]] if first in self.open else []
        return [receipt for sequence, receipt in self.open.items() if first <= sequence <= last]

    def queue_ended(self, queue: SharedReader, reason: Reason) -> None:
        for receipt in list(self.open.values()):
            if queue in receipt.queues:
                known, why = receipt.fate(queue)
                self.resolve(receipt, queue, why if known else reason)

    # -- looking ----------------------------------------------------------------------------------------------------

    def turn(self, now: float) -> None:
        """Looks at the readers of new receipts, as far as a turn's budget goes."""
        left = TURN_LOOKS
        while self._fresh and left > 0:
            receipt = self._fresh[0]
            left -= self._look(receipt, left)
            if not receipt.to_look:
                self._fresh.popleft()
                self._looked(receipt)
        self._stamp(now)

    def tick(self, now: float) -> None:
        """Looks at the readers of all open receipts in turn, as far as a tick's budget goes."""
        left, rounds = TICK_LOOKS, len(self._old)
        while rounds and self._old and left > 0:
            receipt = next(iter(self._old))
            left -= self._look(receipt, left)
            if not receipt.to_look:
                self._old.pop(receipt, None)
                rounds -= 1
                self._looked(receipt)
        self._stamp(now)

    def _stamp(self, now: float) -> None:
        """Gives what traces have noted since the last turn the time, and hands out those that have ended."""
        if self._news:
            news, self._news = self._news, {}
            for trace in news:
                trace.stamp(now)
                if trace.state:
                    self._hand_out(trace)

    def _hand_out(self, trace: Trace) -> None:
        if len(self.traced) < ENDED_MAX:
            self.traced.append(trace)
        else:
            self._lost += 1

    def take_lost(self) -> int:
        """Returns how many ended traces had no room in ``traced`` since the last call."""
        lost, self._lost = self._lost, 0
        return lost

    def _look(self, receipt: Receipt, most: int) -> int:
        """Looks at some readers of a receipt. Returns how many, and 1 more."""
        if receipt.state is not ReceiptState.OPEN:
            receipt.to_look = []
            return 1
        if not receipt.to_look:
            receipt.begin_round()
        looks = min(most, len(receipt.to_look))
        for _ in range(looks):
            self._look_at(receipt, receipt.to_look.pop())
            if receipt.state is not ReceiptState.OPEN:
                receipt.to_look = []
                break
        return looks + 1

    def _look_at(self, receipt: Receipt, reader: Subscription | SharedReader) -> None:
        known, reason = receipt.fate(reader)
        if known:
            self.resolve(receipt, reader, reason)

    def _looked(self, receipt: Receipt) -> None:
        if receipt.state is not ReceiptState.OPEN:
            return
        if receipt.closing:
            receipt.text = "closed after its time, while readers still wait"
            self._close(receipt, ReceiptState.TIMED_OUT)
        else:
            self._old[receipt] = None


def _readers_of(feeds: Iterable[Feed], sequence: int) -> int:
    """Returns how many readers a record may be owed to, at most."""
    return sum(len(feed.queues) or len(feed.subscriptions) for feed in feeds if feed.lane.last_sequence == sequence)
