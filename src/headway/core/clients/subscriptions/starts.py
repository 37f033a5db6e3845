"""The start of a subscription: the retained records, state and earlier records that it gets before new ones."""

from __future__ import annotations

from functools import partial

from headway.core.base import Reason
from headway.core.clients.sessions import Ending
from headway.core.consumer import (
    LiveSource,
    Subscription,
    SubscriptionOptions,
)
from headway.core.delivery import Fanout, MarkedSnapshot, QueriedRecords, free_cursor, start_conflating
from headway.core.log import (
    NO_PROGRESS,
    OutOfOrderProgress,
    Retained,
    State,
    StateReading,
)
from headway.core.message import (
    Gap,
    compile_key,
)
from headway.core.policy import ActionKind
from headway.core.routing import RecordedRecords, Registry, seen_before

QUERY_S = 300.0
"""A query that its client has not read by then is over."""
TRY_AGAIN_S = 1.0
"""A subscription that cannot be conflated by its topic yet, because it still reads a state of other keys, is looked at
again after this time."""
COVERED_S = 5.0
"""Likewise one that still reads what is older than its state. Very many of these may stand still."""


class Starts:
    """Begins subscriptions, as their options say."""

    def __init__(self, registry: Registry, retained: Retained, fanout: Fanout, ending: Ending) -> None:
        self._registry = registry
        self._ending = ending
        self._retained = retained
        self._fanout = fanout

    def begin(self, subscription: Subscription, now: float, *, fresh: bool) -> None:
        request, options, feed = subscription.request, subscription.request.options, subscription.feed
        if feed.live is not None:
            subscription.conflation.state = feed.live.shown
            feed.live.when_ready(partial(self._show_live, subscription, feed.live), now)
            return
        if feed.deltas is not None:
            feed.deltas.raise_floor(self._registry.sequence)
        if request.send_retained == "always" or (request.send_retained == "new" and fresh):
            self.queue_retained(subscription, now)
        self._choose_interval(subscription)
        self.give_state(subscription)
        state, sequence = subscription.conflation.state, self._registry.sequence
        if options.start != "end":
            sequence = self._start_at(subscription, options, now)
        elif options.wants_state and state is not None and (len(state) or options.marked):
            self._show(subscription, state, now)
        self.conflate(subscription, now, upto=sequence)
        if subscription.has_more:
            self._fanout.send_soon(subscription, now)
        else:
            feed.wait(subscription)

    def conflate(self, subscription: Subscription, now: float, *, upto: int = 0) -> None:
        """Conflates a subscription if its client asked for it, or its topic says so."""
        every_s = subscription.conflation.every_s
        if every_s is not None:
            start_conflating(subscription, now, upto=upto)
            if every_s:
                self._next_tick(subscription, now)

    def _show(self, subscription: Subscription, state: State, now: float) -> None:
        """Gives the state as it is now, with marks if the client asked for them."""
        options, feed, sequence = subscription.request.options, subscription.feed, self._registry.sequence
        if options.query:
            reading = StateReading(state, sequence, subscription.session.tab)
            over = partial(self._end_at, subscription, now)
            self._end_at(subscription, now + QUERY_S)
            records = QueriedRecords(reading, feed.accepts)
            subscription.add_backfill(MarkedSnapshot(state, records, feed.key.filter, over), now)
            return
        snapshot = state.snapshot(sequence, feed.accepts, feed.focus)
        marks = options.marks
        subscription.add_backfill(MarkedSnapshot(state, snapshot, feed.key.filter) if marks else snapshot, now)

    def _show_live(self, subscription: Subscription, live: LiveSource, now: float) -> None:
        """Gives what a live query shows now. What changes while it is sent comes from its state."""
        if subscription.ended:
            return
        cursor = subscription.cursor
        cursor.catch_up()  # until now it has waited for something to show
        subscription.counters.start_at(cursor.number, cursor.position)
        subscription.start_sequence = self._registry.sequence
        subscription.add_backfill(live.snapshot(subscription.feed.key.filter), now)
        start_conflating(subscription, now, upto=self._registry.sequence)
        self._fanout.send_soon(subscription, now)

    def _end_at(self, subscription: Subscription, when: float) -> None:
        """Ends a query by a timer, when nothing is being sent."""
        end = partial(self._ending.end_by_itself, subscription, Reason.SUBSCRIPTION_ENDED)
        subscription.clock = self._registry.timers.move(subscription.clock, when, end)

    def queue_retained(self, subscription: Subscription, now: float) -> None:
        feed = subscription.feed
        if feed.live is not None or feed.deltas is not None:  # a retained record may be older than what it has
            return
        records = self._retained.matching(feed.key.filter, self._registry.sequence, now, feed.accepts)
        if records is not None:
            subscription.add_backfill(records, now, retained=True)

    def _next_tick(self, subscription: Subscription, now: float) -> None:
        interval = subscription.conflation.every_s
        assert interval

        def tick(when: float) -> None:
            if subscription.feed.lane.count != subscription.cursor.number:
                self._fanout.send_soon(subscription, when)
            self._next_tick(subscription, when)

        subscription.clock = self._registry.timers.move(subscription.clock, now + interval, tick)

    def _start_at(self, subscription: Subscription, options: SubscriptionOptions, now: float) -> int:
        """Starts a subscription with the option ``from``: at the earliest record, behind an offset, or at a time.
        Returns the sequence up to which records come from elsewhere than the lane."""
        lane, cursor, archive = subscription.feed.lane, subscription.cursor, self._registry.archive
        sequence = self._registry.sequence
        filter, deltas = subscription.feed.key.filter, subscription.feed.deltas
        latest = subscription.feed.focus is not None or deltas is not None  # it gets what has changed, from the state
        state, earliest = subscription.conflation.state, archive.earliest(filter)
        recorded = earliest is not None and not (latest and options.start == "earliest")
        if earliest is not None and recorded:
            seen = seen_before(archive, filter, options, earliest, now)
        else:
            seen = lane.dropped_sequence if options.start == "earliest" else int(options.start)
        if seen > sequence:  # an offset of a broker that had no journal and was started anew: what it had, nobody knows
            if state is not None and options.marked:
                self._show(subscription, state, now)
                return sequence
            seen = 0 if earliest is None else earliest - 1
            subscription.gap = Gap(0, 1, max(1, lane.dropped_sequence), Reason.NOT_RETAINED)
        if recorded and seen < lane.dropped_sequence and not latest:
            self._read_archive(subscription, seen, now)
            if not archive.complete(filter):  # what is lost of topics that are not recorded, nobody knows
                subscription.gap = Gap(0, seen + 1, lane.dropped_sequence, Reason.NOT_RETAINED)
            return sequence
        if seen >= lane.dropped_sequence and deltas is None:
            chunk = lane.first
            while chunk.next is not None and chunk.next.run_sequence and chunk.next.run_sequence[0] <= seen:
                chunk = chunk.next
            cursor.start_at(chunk, chunk.index_from(seen + 1))
            subscription.current_s = now
            subscription.counters.start_at(cursor.number, cursor.position)
            return min(seen, sequence)
        forgotten = 0
        if state is not None:
            feed = subscription.feed
            changes = state.read(seen, sequence, feed.accepts, feed.focus)
            forgotten = changes.forgive()
            if forgotten and options.marked:  # its client takes what is between the marks for all there is
                changes.close()
                self._show(subscription, state, now)
                return sequence
            subscription.add_backfill(changes, now)
        if deltas is None:
            subscription.gap = Gap(0, seen + 1, lane.dropped_sequence, Reason.NOT_RETAINED)
        subscription.note_gap(forgotten, seen + 1, lane.dropped_sequence, Reason.NOT_RETAINED)
        return sequence

    def _read_archive(self, subscription: Subscription, seen: int, now: float) -> None:
        """Adds a backfill of recorded records. A durable subscription gets the rest of it after a crash, too."""
        filter, upto = subscription.feed.key.filter, self._registry.sequence
        position = subscription.cursor.durable_position
        out_of_order: OutOfOrderProgress = NO_PROGRESS
        if position.durable:
            out_of_order = OutOfOrderProgress(position, upto, seen + 1)
            position.cursors.insert(0, out_of_order)
            position.moved()

        def gone(first: int, last: int) -> None:
            subscription.note_gap(last - first + 1, first, last, Reason.NOT_RETAINED)

        records = RecordedRecords(self._registry.archive, filter, seen, upto, subscription.feed.accepts, gone)
        subscription.add_backfill(records, now, out_of_order=out_of_order)

    def show_state(self, subscription: Subscription, seen: int, now: float) -> None:
        """Gives the present state to a client that was conflated when the process ended. If there may have been more
        for it than this state has now, it gets a gap: of topics that are not recorded, the latest records are lost."""
        state, archive, filter = subscription.conflation.state, self._registry.archive, subscription.feed.key.filter
        if state is not None and state.records:
            subscription.add_backfill(state.read(0, self._registry.sequence, subscription.feed.accepts), now)
        if state is None or not archive.complete(filter) or state.evicted_records or state.forgotten_sequence:
            subscription.note_gap(1, 1, seen, Reason.NOT_RETAINED)

    def give_state(self, subscription: Subscription) -> None:
        """Finds or makes the state for a subscription that needs one, now or for a later action of its policy."""
        options, policy = subscription.request.options, subscription.case.policy
        rules = [rule for rule in policy.rules if rule.then.needs_state]
        wanted = (
            subscription.conflation.every_s is not None
            or options.wants_state
            or options.delta
            or options.start not in ("end", "earliest")
            or any(not rule.keyed for rule in rules)
        )
        if not (wanted or rules) or subscription.conflation.state is not None:
            return
        if not subscription.reader.conflatable:
            return
        filter = subscription.feed.key.filter
        fitting = (
            state for state in self._registry.router.states_for(filter)
            if (state.declared or wanted) and (options.key is None or state.key.text == options.key)
        )  # fmt: skip
        state = next(fitting, None)
        if state is None:
            if not wanted:
                return  # the rules that need it are for topics with a state only
            pool, since = subscription.session.pool, self._registry.sequence
            state = State(filter, compile_key(options.key or "topic"), pool, since_sequence=since)
            self._registry.router.add_state(state)
        state.readers += 1
        subscription.conflation.state = state

    # -- topics that are conflated ------------------------------------------------------------------------------------

    def _choose_interval(self, subscription: Subscription) -> None:
        """Has the topic say how often a subscription gets the latest record per key, if its client says nothing."""
        conflation, state = subscription.conflation, self._conflating_state(subscription)
        if state is not None:
            conflation.every_s, conflation.by_topic = state.conflate_s, state.filter

    def _conflating_state(self, subscription: Subscription) -> State | None:
        """Returns the state of the ``[[topic]]`` that conflates a subscription; None if none does. Who was promised
        each record is not conflated: durable subscriptions, queues and groups. Live queries have an interval of their
        own."""
        options, feed = subscription.request.options, subscription.feed
        if options.conflate_s is not None or options.query or feed.live is not None:
            return None
        if subscription.durable or not subscription.reader.conflatable:
            return None
        return self._registry.router.conflating_state(feed.key.filter)

    def conflate_anew(self, subscription: Subscription, now: float) -> bool:
        """Gives a subscription the interval that its topic says now, and the state that it needs. Returns whether that
        is another one than before."""
        conflation, state = subscription.conflation, self._conflating_state(subscription)
        if state is None:
            return self._conflate_no_more(subscription, now)
        wanted, fits = (state.conflate_s, state.filter), _may_read(subscription, state)
        if fits and (conflation.every_s, conflation.by_topic) == wanted:
            self.give_state(subscription)
            return False
        if fits and conflation.state is not None and not conflation.covers(subscription):
            self._try_again(subscription, now, COVERED_S)
            return False
        if not self._at_boundary(subscription, now):
            return False
        if not fits:
            self._end_interval(subscription)
            if subscription.backfills or subscription.conflating:
                self._wait_anew(subscription, now)
                self._try_again(subscription, now)
                return True
            self._ending.release_state(subscription, now)
        conflation.every_s, conflation.by_topic = wanted
        subscription.clock.cancel()
        self.give_state(subscription)
        if conflation.covers(subscription):
            self.conflate(subscription, now)
        else:  # the state is younger than what waits, and would leave that out
            conflation.every_s, conflation.by_topic = None, ""
            self._try_again(subscription, now, COVERED_S)
        self._wait_anew(subscription, now)
        return True

    def _conflate_no_more(self, subscription: Subscription, now: float) -> bool:
        """Ends the conflation by a topic that does not ask for it now. Returns whether there was one."""
        if not subscription.conflation.by_topic:
            self.give_state(subscription)
            return False
        if not self._at_boundary(subscription, now):
            return False
        self._end_interval(subscription)
        self._wait_anew(subscription, now)
        return True

    def _at_boundary(self, subscription: Subscription, now: float) -> bool:
        """Moves a cursor out of a record that is sent in part. If the disk fails, it tries again later; who sends the
        rest of the record finds that, too."""
        try:
            free_cursor(subscription)
        except OSError:
            self._try_again(subscription, now)
            return False
        return True

    def _end_interval(self, subscription: Subscription) -> None:
        """Ends the conflation by a topic. A policy that conflates the consumer goes on with it."""
        conflation = subscription.conflation
        if conflation.by_topic:
            conflation.every_s, conflation.by_topic = None, ""
            subscription.clock.cancel()
            if not any(action.kind is ActionKind.CONFLATE for action in subscription.case.lasting()):
                conflation.stop(subscription)

    def _try_again(self, subscription: Subscription, now: float, after_s: float = TRY_AGAIN_S) -> None:
        again = partial(self.conflate_anew, subscription)
        subscription.clock = self._registry.timers.move(subscription.clock, now + after_s, again)

    def _wait_anew(self, subscription: Subscription, now: float) -> None:
        """Has a subscription wait for what it waits for now: a record, or its clock."""
        feed = subscription.feed
        if subscription in subscription.session.lagging or subscription.has_more:
            self._fanout.send_soon(subscription, now)
            return
        feed.waiting.pop(subscription, None)
        feed.resting.pop(subscription, None)
        feed.wait(subscription)


def _may_read(subscription: Subscription, state: State) -> bool:
    """Tells whether a subscription may be conflated from a state without giving up another one. Its client may have
    named a key of its own."""
    old = subscription.conflation.state
    return old is None or old is state or subscription.request.options.key is not None
