"""A trace: what became of one record that belongs to a sampled trace, for each of its readers.

It hangs on a receipt, which the broker opens itself or which the publisher asked for. A receipt counts; a trace has
also names and times. Names are limited: of readers that got the record and of all others, the first ones each. The
receipt's figures count all of them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from headway.core.base import Reason
from headway.core.consumer import SharedReader, Subscription
from headway.core.message import Run, TraceContext

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
