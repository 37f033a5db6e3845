"""A receipt: one record of a publisher that asked, and the readers that it was owed to.

Theory of operation. When the record is published, the receipt notes its readers: subscriptions that read a lane, and
queues. Each of them is *pending* until its fate is known, and then counts once:

- A loss is reported where it happens (open_receipts.py), with its reason.
- That a reader got the record is found by looking at its cursor: it has passed the record, and nothing of it waits for
  an acknowledgement. Nobody reports this, because nothing may be done per record and consumer.
- A conflated subscription gets the record from a state or not at all. That it was sent is reported. If the state has a
  later record of the key before that, the record was conflated.

So ``owed`` = ``got`` + all losses + the number of pending readers, at any time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from headway.core.base import NO_TIMER, Reason
from headway.core.consumer import EVERY_RECORD, Delivery, Session, SharedReader, Subscription
from headway.core.log import Cursor, Lane, State
from headway.core.message import ReceiptRequest, Run
from headway.core.receipts.trace import Trace


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
        return self.delivery.subscription.channel.in_flight.get(self.delivery_id) is self.delivery


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
