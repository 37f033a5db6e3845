"""Conflation: a consumer that is given the latest record per key, from the state, and what it is owed meanwhile.

Records that pass in the lane while it is conflated are *owed*, and so are their bytes. Each that is then sent is
settled; of the others the consumer is told when the pass ends.

A conflation does not know whose it is, and is told each time: what knows itself is not gone when it is over.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from headway.core.base import Reason, moved
from headway.core.log import State, StatePass

if TYPE_CHECKING:
    from headway.core.consumer.subscription import Subscription


class Mode(StrEnum):
    EVERY_RECORD = "every record"
    RESTING = "resting"
    """The cursor is detached, and nothing was asked for yet of what has changed since the last pass."""
    DUE = "due"
    """The cursor is detached, and what has changed is to be given."""


EVERY_RECORD: Final = Mode.EVERY_RECORD
RESTING: Final = Mode.RESTING
DUE: Final = Mode.DUE
MOVES = {
    EVERY_RECORD: {RESTING, DUE},
    RESTING: {DUE, EVERY_RECORD},
    DUE: {RESTING},  # what is due is given before it is given every record again
}


class Conflation:
    __slots__ = ("mode", "owed_bytes", "owed_records", "state", "upto")

    def __init__(self) -> None:
        self.mode = EVERY_RECORD
        """Is read by everybody, and set by nobody but ``_become``."""
        self.state: State | None = None
        """Where the latest records are; None: it is never conflated."""
        self.upto = 0
        """Sequence up to which the consumer is current."""
        self.owed_records = 0
        """Records that passed while conflating and were not (yet) sent as such."""
        self.owed_bytes = 0
        """Theirs."""

    def _become(self, mode: Mode) -> None:
        self.mode = moved(MOVES, self.mode, mode)

    # -- moves ------------------------------------------------------------------------------------------------------

    def start(self, subscription: Subscription, now: float, upto: int) -> None:
        """From now on the latest record per key, after this sequence; the cursor stands at a record boundary. What it
        stood on is free at once."""
        cursor = subscription.cursor
        self._become(DUE if cursor.number < cursor.lane.count else RESTING)
        self._stand_at_cursor(subscription)
        self.upto = max(self.upto, upto)
        oldest = cursor.oldest_time()
        subscription.current_s = now if oldest is None else oldest
        cursor.detach()
        subscription.skips.clear()

    def stop(self, subscription: Subscription) -> None:
        """Back to every record, from the end of what was conflated; but for who asked to be conflated."""
        if self.mode is EVERY_RECORD or subscription.request.options.conflate_s is not None:
            return
        self._pass(subscription)
        self._become(EVERY_RECORD)
        subscription.cursor.attach()

    def once(self, subscription: Subscription) -> None:
        """One pass; the cursor stands at a record boundary, and goes on at the end."""
        self._stand_at_cursor(subscription)
        self._pass(subscription)
        subscription.cursor.catch_up()

    def call(self) -> None:
        """Who rests is to be given what has changed."""
        self._become(DUE)

    def go_on(self, subscription: Subscription) -> None:
        """Begin the next pass, if it is time for one."""
        if self.mode is DUE or (subscription.backfill is None and self.pass_due(subscription)):
            self._pass(subscription)

    def pass_due(self, subscription: Subscription) -> bool:
        """It is to be given what has changed: its clock says so, or, where it has none, the lane has grown (maybe while
        the last pass was on its way, when no flush looked at it)."""
        if self.mode is not RESTING:
            return self.mode is DUE
        by_clock = subscription.request.options.conflate_s
        return not by_clock and subscription.cursor.number != subscription.feed.lane.count

    def waits_for_clock(self, subscription: Subscription) -> bool:
        """What has changed is offered to it when the clock says so, and not before."""
        return self.mode is RESTING and bool(subscription.request.options.conflate_s)

    def _stand_at_cursor(self, subscription: Subscription) -> None:
        """It is current up to the last record its cursor has passed."""
        cursor = subscription.cursor
        cursor.step()
        chunk = cursor.chunk
        if chunk is None:
            return
        index = cursor.number - chunk.first_number
        self.upto = cursor.lane.last_sequence if index >= len(chunk) else chunk.sequence_of(index) - 1

    def _pass(self, subscription: Subscription) -> None:
        """Everything up to now is owed as the latest record per key, read from the state."""
        state, lane, cursor = self.state, subscription.feed.lane, subscription.cursor
        assert state is not None
        if self.mode is DUE:
            self._become(RESTING)
        passed, size = lane.count - cursor.number, lane.end - cursor.position
        if not passed and subscription.backfill is None:
            return
        subscription.counters.pass_over(passed, size)
        subscription.case.meter.skipped(size)
        self.owed_records += passed
        self.owed_bytes += size
        # No more than one record per key can still be on its way: the rest is left out for good, and is owned up to
        # now, for a consumer slow enough keeps one pass going for ever.
        self.own_up(subscription, len(state))
        cursor.jump_to_end()
        running = subscription.backfills[-1].records if subscription.backfills else None
        if isinstance(running, StatePass):
            running.extend(lane.last_sequence)
        else:
            subscription.add_backfill(state.read(self.upto, lane.last_sequence, subscription.feed.accepts))
        self.upto = lane.last_sequence

    # -- what is owed -----------------------------------------------------------------------------------------------

    def settle(self, subscription: Subscription, sent_bytes: int) -> None:
        """One of the records that passed while conflating was sent; or, with no bytes, left out."""
        if not sent_bytes:
            self._leave_out(subscription, 1)
            return
        self.owed_records -= 1
        self.owed_bytes -= min(self.owed_bytes, sent_bytes)
        if self.owed_records <= 0:
            self._leave_out(subscription, 0)

    def passed_over(self, subscription: Subscription, records: StatePass) -> None:
        """A pass was read to its end: what it missed is no part of the state any more."""
        missed = min(records.missed, self.owed_records)
        subscription.note_gap(missed, 0, records.upto, Reason.DISCARDED)
        self._leave_out(subscription, missed)

    def own_up(self, subscription: Subscription, on_their_way: int = 0) -> None:
        """Of what passed no more than so many records will still be sent."""
        left_out = self.owed_records - on_their_way
        if left_out > 0:
            subscription.note_gap(left_out, 0, self.upto, Reason.CONFLATED)
            self._leave_out(subscription, left_out)

    def inherit(self, other: Conflation) -> None:
        """What the subscription this one replaces was owed is owed to this one."""
        self.owed_records, other.owed_records = other.owed_records, 0
        self.owed_bytes, other.owed_bytes = other.owed_bytes, 0

    def write_off(self, subscription: Subscription, reason: Reason) -> None:
        """The consumer will be given nothing any more."""
        lane, owed = subscription.feed.lane, self.owed_records
        if self.mode is not EVERY_RECORD:
            owed += lane.count - subscription.cursor.number
        subscription.note_gap(owed, self.upto, lane.last_sequence, reason)
        self.owed_records = 0

    def _leave_out(self, subscription: Subscription, records: int) -> None:
        """So many are not owed any more. Nobody knows their sizes: they have an even part of the bytes owed."""
        left_out = self.owed_bytes * records // max(1, self.owed_records)
        self.owed_records -= records
        if self.owed_records <= 0:
            left_out = self.owed_bytes
        self.owed_bytes -= left_out
        subscription.counters.skipped_bytes += left_out
