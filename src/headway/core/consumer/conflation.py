"""Conflation: sending a consumer the latest record per key instead of every record.

The latest records are read from a ``State``; reading it once is a *pass*. Records that are appended to the lane while
the consumer is conflated are *owed* to it, and so are their bytes. A record that is then sent from the state is no
longer owed. The others are reported to the consumer as a gap when the pass ends.

A conflation holds no reference to its subscription, which would make a cycle; each method is given the subscription.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Final

from headway.core.base import Reason, moved
from headway.core.log import State, StatePass

if TYPE_CHECKING:
    from headway.core.consumer.subscription import Subscription


class Mode(StrEnum):
    EVERY_RECORD = "every record"
    RESTING = "resting"
    """The cursor is detached, and the next pass is not due yet."""
    DUE = "due"
    """The cursor is detached, and the next pass is due."""


EVERY_RECORD: Final = Mode.EVERY_RECORD
RESTING: Final = Mode.RESTING
DUE: Final = Mode.DUE
MOVES = {
    EVERY_RECORD: {RESTING, DUE},
    RESTING: {DUE, EVERY_RECORD},
    DUE: {RESTING},  # a pass that is due runs before the consumer gets every record again
}


class Conflation:
    __slots__ = ("by_topic", "every_s", "mode", "owed_bytes", "owed_records", "sent_s", "state", "upto")

    def __init__(self, every_s: float | None = None) -> None:
        self.mode = EVERY_RECORD
        """Only ``_become`` sets it."""
        self.every_s = every_s
        """How often the consumer gets the latest record per key, by its own wish or its topic's; 0: whenever its socket
        has room. None: it gets every record, unless its policy conflates it."""
        self.by_topic = ""
        """The filter of the ``[[topic]]`` that ``every_s`` is from; empty if the client asked for it."""
        self.state: State | None = None
        """The latest records; None if the consumer is never conflated."""
        self.upto = 0
        """Sequence up to which the consumer is current."""
        self.owed_records = 0
        """Records that came to the lane while conflating, and are not yet sent or reported as a gap."""
        self.owed_bytes = 0
        self.sent_s = -inf
        """When the last record was published that a pass sent since conflation began."""

    def _become(self, mode: Mode) -> None:
        self.mode = moved(MOVES, self.mode, mode)

    def covers(self, subscription: Subscription) -> bool:
        """Tells whether the state has what waits, or something newer of the same keys: it may be younger than that."""
        waits = subscription.cursor.unsent_sequence()
        return self.state is not None and (not waits or waits > self.state.since_sequence)

    # -- moves ------------------------------------------------------------------------------------------------------

    def start(self, subscription: Subscription, now: float, upto: int) -> None:
        """Starts to conflate: the consumer gets the latest record per key after ``upto``. The cursor must be at a
        record boundary. It frees the chunks that it held at once."""
        cursor = subscription.cursor
        cursor.lane.receipts.conflating(subscription)
        self._become(DUE if cursor.number < cursor.lane.count else RESTING)
        self._update_upto(subscription)
        self._forget_left_out(subscription)
        self.upto = max(self.upto, upto)
        self.sent_s = -inf
        oldest = cursor.oldest_time()
        subscription.current_s = oldest if oldest < inf else now
        cursor.detach()
        subscription.skips.clear()

    def stop(self, subscription: Subscription) -> None:
        """Goes back to every record, after a last pass. A consumer that is conflated by its own wish, or its topic's,
        stays so."""
        if self.mode is EVERY_RECORD or self.every_s is not None:
            return
        self._pass(subscription)
        self._become(EVERY_RECORD)
        subscription.cursor.catch_up()
        self._enter_lane(subscription)

    def once(self, subscription: Subscription) -> None:
        """Runs one pass over the waiting records. Afterwards the cursor goes on from the end of the lane."""
        subscription.feed.lane.receipts.conflating(subscription)
        self._update_upto(subscription)
        self._forget_left_out(subscription)
        self._pass(subscription)
        subscription.cursor.catch_up()
        self._enter_lane(subscription)

    def _forget_left_out(self, subscription: Subscription) -> None:
        """Owes the consumer nothing of what was left out before. All that waits in the lane is to be owed to it."""
        left_out = subscription.left_out
        if left_out.records:
            self.owed_records -= left_out.records
            self.owed_bytes -= left_out.bytes
            left_out.clear()

    def _enter_lane(self, subscription: Subscription) -> None:
        """Goes on at the end of the lane, whose deltas are from now on of records behind it."""
        subscription.astray = False
        subscription.feed.begin_deltas()

    def call(self) -> None:
        """Makes the next pass due."""
        self._become(DUE)

    def go_on(self, subscription: Subscription) -> None:
        """Begins the next pass if it is due."""
        if self.mode is DUE or (not subscription.backfills and self.pass_due(subscription)):
            self._pass(subscription)

    def pass_due(self, subscription: Subscription) -> bool:
        """Tells whether the next pass is due. With a clock, the clock decides. Without one, a pass is due when the lane
        has grown, maybe while the last pass was being sent."""
        if self.mode is not RESTING:
            return self.mode is DUE
        return not self.every_s and subscription.cursor.number != subscription.feed.lane.count

    @property
    def by_clock(self) -> bool:
        """Tells whether the consumer is conflated by an interval."""
        return self.mode is not EVERY_RECORD and bool(self.every_s)

    @property
    def waits_for_clock(self) -> bool:
        """Tells whether the consumer is conflated by an interval that is not over yet."""
        return self.mode is RESTING and bool(self.every_s)

    def _update_upto(self, subscription: Subscription) -> None:
        """Sets ``upto`` to the last record that the cursor has passed."""
        cursor = subscription.cursor
        cursor.step()
        chunk = cursor.chunk
        if not cursor.attached:
            return
        index = cursor.number - chunk.first_number
        self.upto = cursor.lane.last_sequence if index >= len(chunk) else chunk.sequence_of(index) - 1

    def _pass(self, subscription: Subscription) -> None:
        """Begins a pass, or extends the one that is being sent: everything that waits in the lane is now owed."""
        state, lane, cursor = self.state, subscription.feed.lane, subscription.cursor
        assert state is not None
        lane.receive()  # the state has it
        since_s = subscription.oldest_time()
        if self.mode is DUE:
            self._become(RESTING)
        passed, size = lane.count - cursor.number, lane.end - cursor.position
        if not passed and not subscription.backfilling:
            return
        subscription.counters.pass_over(passed, size)
        subscription.case.meter.skipped(size)
        self.owed_records += passed
        self.owed_bytes += size
        cursor.jump_to_end()
        running = subscription.backfills[-1].records if subscription.backfilling else None
        feed, upto = subscription.feed, lane.last_sequence
        if feed.focus is not None:  # the last change of a key that was lost may be behind the lane's last record
            upto = max(upto, state.last_sequence)
        if isinstance(running, StatePass):
            running.extend(upto)
        else:
            since_s = since_s if since_s < inf else subscription.current_s
            running = state.read(self.upto, upto, feed.accepts, feed.focus)
            running.count_none()  # its records are owed
            subscription.add_backfill(running, since_s)
        on_their_way = state.records + running.missed
        if feed.live is not None and running.missed:  # all of it, between marks, takes the place of what is forgotten
            given_up = subscription.backfills.pop()
            given_up.records.close()
            subscription.add_backfill(feed.live.snapshot(feed.key.filter), given_up.since_s)
        # At most one record per key will still be sent. The rest becomes a gap now, not at the end of the pass,
        # because a consumer that is slow enough never reaches that end. What has left the state is told at that end.
        self.own_up(subscription, on_their_way)
        self.upto = upto

    # -- owed records -----------------------------------------------------------------------------------------------

    def settle(self, subscription: Subscription, sent_bytes: int) -> None:
        """Settles one owed record, which was sent with ``sent_bytes``; 0 means that it was left out."""
        if self.owed_records <= 0:
            return  # it was left out before, and is the latest of its key
        if not sent_bytes:
            self._leave_out(subscription, 1)
            return
        self.owed_records -= 1
        self.owed_bytes -= min(self.owed_bytes, sent_bytes)
        if self.owed_records <= 0:
            self._leave_out(subscription, 0)

    def passed_over(self, subscription: Subscription, records: StatePass) -> None:
        """Ends a pass. Records that had left the state before the pass came to them become a gap."""
        missed = min(records.missed, self.owed_records)
        subscription.note_gap(missed, 0, records.upto, Reason.DISCARDED)
        self._leave_out(subscription, missed)

    def own_up(self, subscription: Subscription, on_their_way: int = 0) -> None:
        """Turns the owed records into a gap, except for as many as may still be sent."""
        left_out = self.owed_records - on_their_way
        if left_out > 0:
            subscription.note_gap(left_out, 0, self.upto, Reason.CONFLATED)
            self._leave_out(subscription, left_out)

    def inherit(self, other: Conflation) -> None:
        """Takes over the owed records of a replaced subscription."""
        self.owed_records, other.owed_records = other.owed_records, 0
        self.owed_bytes, other.owed_bytes = other.owed_bytes, 0

    def write_off(self, subscription: Subscription, reason: Reason) -> None:
        """Turns all owed records into a gap, because the consumer gets no more records."""
        lane, owed = subscription.feed.lane, self.owed_records
        if self.mode is not EVERY_RECORD:
            owed += lane.count - subscription.cursor.number
        subscription.note_gap(owed, self.upto, lane.last_sequence, reason)
        self.owed_records = 0

    def _leave_out(self, subscription: Subscription, records: int) -> None:
        """Counts owed records as skipped. Their sizes are unknown, so they take an even share of the owed bytes."""
        left_out = self.owed_bytes * records // max(1, self.owed_records)
        self.owed_records -= records
        if self.owed_records <= 0:
            left_out = self.owed_bytes
        self.owed_bytes -= left_out
        subscription.counters.skipped_bytes += left_out
