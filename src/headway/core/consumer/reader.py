"""A reader is the source of a subscription's records, and knows its lag.

- ``LaneReader``: the subscription reads its lane with a cursor of its own.
- ``QueueMember``: the subscription is a member of a queue, which has one position for all its members.
- ``ArchiveReader`` (poll.py): the client reads recorded topics by itself.

A reader holds no reference to its subscription, which would make a cycle; each method is given the subscription.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Final

from headway.core.base import Reason, moved
from headway.core.consumer.progress import Volume, rest_skipped
from headway.core.log import State, StatePass

if TYPE_CHECKING:
    from headway.core.consumer.feed import SharedReader, Waiting
    from headway.core.consumer.subscription import Subscription
    from headway.core.log import DurablePosition


# -- conflation --------------------------------------------------------------------------------------------------------
#
# Conflation: sending a consumer the latest record per key instead of every record.
#
# The latest records are read from a ``State``; reading it once is a *pass*. Records that are appended to the lane while
# the consumer is conflated are *owed* to it, and so are their bytes. A record that is then sent from the state is no
# longer owed. The others are reported to the consumer as a gap when the pass ends.
#
# A conflation holds no reference to its subscription, which would make a cycle; each method is given the subscription.


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
            whole = feed.live.snapshot(feed.key.filter, subscription.session.rights)
            subscription.add_backfill(whole, given_up.since_s)
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


# -- reader ------------------------------------------------------------------------------------------------------------


class Reader(ABC):
    __slots__ = ()

    queue: SharedReader | None = None
    """The queue that the subscription is a member of."""
    counts_apart = False
    """Set if counters, and not the cursor's position, tell how much the subscription has taken."""
    conflatable = False
    """Set if a newer record may take the place of an older one: not in a queue, whose records are each for one member,
    nor in the archive."""
    reads_itself = False
    """Set if the client reads the archive by itself and reports its progress. No records are sent to it."""

    @property
    def gates(self) -> bool:
        """Tells whether a gate of this subscription holds publishers back."""
        return True

    @property
    def sharers(self) -> int:
        """Returns the number of consumers that share the bytes held for this one."""
        return 1

    def durable(self, subscription: Subscription) -> bool:
        return subscription.session.expiry_s > 0

    def names(self, subscription: Subscription) -> tuple[str, ...]:
        """Returns the topic filters by which its policy is chosen."""
        return (subscription.feed.key.filter,)

    def durable_position(self, subscription: Subscription) -> DurablePosition:
        """Returns the subscription's durable position; the null position if it is not durable."""
        return subscription.cursor.durable_position

    # -- lag --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def has_more(self, subscription: Subscription) -> bool:
        """Tells whether records wait for the subscription."""

    @abstractmethod
    def lag_records(self, subscription: Subscription) -> int:
        """Returns how many records the subscription is still to get, conflated or not."""

    @abstractmethod
    def lag_bytes(self, subscription: Subscription) -> int:
        """Returns the size of these records in the lane."""

    @abstractmethod
    def gating_bytes(self, subscription: Subscription) -> int:
        """Returns how many bytes of the lane are held for the subscription."""

    @abstractmethod
    def oldest_time(self, subscription: Subscription) -> float:
        """Returns the time since when records wait; ``inf`` if none do."""

    # -- accounts (stats.py) ---------------------------------------------------------------------------------------

    def delivered(self, subscription: Subscription) -> Volume:
        """Returns the volume sent, as written on the wire."""
        return subscription.counters.written

    def drained(self, subscription: Subscription) -> Volume:
        return self.delivered(subscription)

    def skipped(self, subscription: Subscription) -> Volume:
        return subscription.counters.skipped

    def owed(self, subscription: Subscription) -> Volume:
        return Volume(self.lag_records(subscription), self.lag_bytes(subscription))


class LaneReader(Reader):
    __slots__ = ()
    conflatable = True

    def has_more(self, subscription: Subscription) -> bool:
        if subscription.backfills:
            return True
        conflation, cursor = subscription.conflation, subscription.cursor
        if conflation.mode is not EVERY_RECORD:
            return conflation.pass_due(subscription)
        return cursor.position != cursor.lane.end

    def lag_records(self, subscription: Subscription) -> int:
        before = subscription.backfill_lag().records if subscription.backfills else 0
        return before + self._lane_records(subscription)

    def _lane_records(self, subscription: Subscription) -> int:
        cursor = subscription.cursor
        if subscription.conflating:
            owed = subscription.conflation.owed_records
            return subscription.feed.lane.count - cursor.number + owed if self.has_more(subscription) else 0
        if cursor.position == cursor.lane.end:
            return 0
        skip = rest_skipped(subscription.skips)
        end = cursor.lane.count if skip is None else max(skip.upto, cursor.number)
        return end - cursor.number - subscription.left_out.records

    def lag_bytes(self, subscription: Subscription) -> int:
        cursor, size = subscription.cursor, 0
        if subscription.conflating:
            if not self.has_more(subscription):
                return 0
            size = subscription.conflation.owed_bytes
        if subscription.backfills:
            size += subscription.backfill_lag().bytes
        skip = rest_skipped(subscription.skips)
        end = cursor.lane.end if skip is None else max(skip.position, cursor.position)
        return size + end - cursor.position - subscription.left_out.bytes

    def gating_bytes(self, subscription: Subscription) -> int:
        """Returns 0 while the consumer is conflated, because it reads a state and needs no bytes of the lane."""
        return 0 if subscription.conflating else subscription.cursor.lag_bytes - subscription.left_out.whole_bytes

    def oldest_time(self, subscription: Subscription) -> float:
        if subscription.conflating:
            # A pass sends the oldest first, so all that still waits in it is younger than what was sent last.
            since_s = max(subscription.current_s, subscription.conflation.sent_s)
            return since_s if self.has_more(subscription) else inf
        if subscription.backfills:
            return max(subscription.backfills[0].since_s, subscription.conflation.sent_s)
        cursor, left_out = subscription.cursor, subscription.left_out
        oldest_s = cursor.oldest_time()
        if left_out.records and oldest_s < inf:
            found = next(left_out.all_waiting(cursor.chunk, cursor.number, cursor.lane.count), None)
            oldest_s = inf if found is None else found[0].time_of(found[1])
        return max(oldest_s, subscription.current_s)

    def delivered(self, subscription: Subscription) -> Volume:
        return subscription.counters.sent(subscription.cursor)

    def owed(self, subscription: Subscription) -> Volume:
        conflation, lane, cursor = subscription.conflation, subscription.feed.lane, subscription.cursor
        if conflation.waits_for_clock:
            return Volume(conflation.owed_records, conflation.owed_bytes)
        left_out = subscription.left_out
        return Volume(
            conflation.owed_records + lane.count - cursor.number - left_out.records,
            conflation.owed_bytes + lane.end - cursor.position - left_out.bytes,
        )


LANE_READER: Final = LaneReader()
"""The reader of all subscriptions that read their lanes."""


class QueueMember(Reader):
    __slots__ = ("queue", "waiting")
    queue: SharedReader
    counts_apart = True

    def __init__(self, queue: SharedReader, waiting: Waiting) -> None:
        self.queue = queue
        self.waiting = waiting
        """The records that wait for the member: all of the queue, or those that were found for its selector."""

    @property
    def gates(self) -> bool:
        return self.queue.gates

    @property
    def sharers(self) -> int:
        return max(1, len(self.queue.members))

    def durable(self, subscription: Subscription) -> bool:
        return super().durable(subscription) if self.queue.ends_with_members else self.queue.terms.durable

    def names(self, subscription: Subscription) -> tuple[str, ...]:
        return super().names(subscription) if self.queue.ends_with_members else self.queue.filters

    def durable_position(self, subscription: Subscription) -> DurablePosition:
        return self.queue.durable_position

    def has_more(self, subscription: Subscription) -> bool:
        return self.waiting.has_more

    def lag_records(self, subscription: Subscription) -> int:
        return self.waiting.lag_records

    def lag_bytes(self, subscription: Subscription) -> int:
        return self.waiting.lag_bytes

    def gating_bytes(self, subscription: Subscription) -> int:
        return self.waiting.lag_bytes

    def oldest_time(self, subscription: Subscription) -> float:
        return self.waiting.oldest_time()

    def drained(self, subscription: Subscription) -> Volume:
        return subscription.counters.taken_from_queue

    @property
    def accounted(self) -> Waiting:
        """The records that its account is of. Members of a shared subscription are offered all of its records, also
        while packet limits, or groups of messages, decide who may have one."""
        return self.queue.backlog if self.queue.ends_with_members else self.waiting

    def skipped(self, subscription: Subscription) -> Volume:
        """Returns the volume that went to other members since this one joined."""
        accounted = self.accounted
        return subscription.counters.given_to_others(accounted.handed_records, accounted.handed_bytes)

    def owed(self, subscription: Subscription) -> Volume:
        accounted = self.accounted
        return Volume(accounted.lag_records, accounted.lag_bytes)
