"""Subscriptions to topics, consumers of queues, and polls: how they begin."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf

import msgspec

from headway.core.base import Reason, Refused
from headway.core.clients.durability import DurableMetadata, Handoff
from headway.core.clients.requests import acceptance_of, check_room, cost, focus_of, parse_filter, projection_of
from headway.core.clients.sessions import Admission, Ending
from headway.core.consumer import (
    BackfillSource,
    ConnectionlessOutlet,
    ConnectRequest,
    Feed,
    FeedKey,
    LiveSource,
    Poll,
    QueueTerms,
    Session,
    SubscribeRequest,
    Subscription,
    SubscriptionOptions,
)
from headway.core.delivery import (
    Fanout,
    Handover,
    MarkedSnapshot,
    QueriedRecords,
    free_cursor,
    set_free,
    start_conflating,
)
from headway.core.forms import Shape
from headway.core.live import LiveQueries
from headway.core.log import (
    NO_PROGRESS,
    SUBSCRIPTIONS,
    Focus,
    Lane,
    OutOfOrderProgress,
    Retained,
    State,
    StateReading,
)
from headway.core.message import (
    Dialect,
    Gap,
    Record,
    compile_key,
    validate_filter,
)
from headway.core.permission import ALL_RIGHTS, Operation, Rights
from headway.core.policy import HTTP_LISTENER, ActionKind, Case, Meter, Policy
from headway.core.queue import Queue, queue_of
from headway.core.routing import RecordedRecords, Registry, seen_before
from headway.core.selector import compile_selector

# -- starts ------------------------------------------------------------------------------------------------------------
#
# The start of a subscription: the retained records, state and earlier records that it gets before new ones.


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
        sees = options.marked and subscription.session.rights.sees(state.filter)
        if options.query:
            reading = StateReading(state, sequence, subscription.session.tab)
            over = partial(self._end_at, subscription, now)
            self._end_at(subscription, now + QUERY_S)
            records = QueriedRecords(reading, feed.accepts)
            marked = MarkedSnapshot(state, records, feed.key.filter, over, tells_keys=sees, tells_evicted=sees)
            subscription.add_backfill(marked, now)
            return
        snapshot = state.snapshot(sequence, feed.accepts, feed.focus)
        marked = MarkedSnapshot(state, snapshot, feed.key.filter, tells_keys=sees, tells_evicted=sees)
        subscription.add_backfill(marked if options.marks else snapshot, now)

    def _show_live(self, subscription: Subscription, live: LiveSource, now: float) -> None:
        """Gives what a live query shows now. What changes while it is sent comes from its state."""
        if subscription.ended:
            return
        cursor = subscription.cursor
        cursor.catch_up()  # until now it has waited for something to show
        subscription.counters.start_at(cursor.number, cursor.position)
        subscription.start_sequence = self._registry.sequence
        subscription.add_backfill(live.snapshot(subscription.feed.key.filter, subscription.session.rights), now)
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
            self._read_archive(subscription, seen, now, held=options.start == "earliest")
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

    def _read_archive(self, subscription: Subscription, seen: int, now: float, *, held: bool) -> None:
        """Adds a backfill of recorded records. A durable subscription gets the rest of it after a crash, too. ``held``:
        the client wants what there is, so what was deleted before is no gap."""
        filter, upto = subscription.feed.key.filter, self._registry.sequence
        position = subscription.cursor.durable_position
        out_of_order: OutOfOrderProgress = NO_PROGRESS
        if position.durable:
            out_of_order = OutOfOrderProgress(position, upto, seen + 1)
            position.cursors.insert(0, out_of_order)
            position.moved()

        def gone(first: int, last: int) -> None:
            subscription.note_gap(last - first + 1, first, last, Reason.NOT_RETAINED)

        records = RecordedRecords(
            self._registry.archive, filter, seen, upto, subscription.feed.accepts, gone, held=held
        )
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
        subscription.session.outlet.freshen(soon=True)

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


# -- subscribing -------------------------------------------------------------------------------------------------------
#
# Subscribing turns a request into a cursor, with the older records that the client may want first.
#
# A subscription starts at the end of its lane. Older records (retained records, state, recorded records) are read
# *after* the cursor was placed, up to the sequence at which it was placed. So no record is lost or doubled between the
# two.


BACKFILLS_MAX = 64
"""A subscription with so many unread backfills of replaced subscriptions cannot be replaced again."""
QUERIES_MAX = 16
"""The most queries of one state at a time, because each is told of every record that is replaced."""
GROUP = QueueTerms()
"""The terms of the queue of a shared subscription."""


class Subscribing:
    """Grants, replaces, renews and restores subscriptions."""

    def __init__(
        self,
        registry: Registry,
        retained: Retained,
        fanout: Fanout,
        ending: Ending,
        metadata: DurableMetadata,
        watch: Callable[[Subscription, float], None],
        live: LiveQueries,
    ) -> None:
        self._registry = registry
        self._metadata = metadata
        self._ending = ending
        self.starts = Starts(registry, retained, fanout, ending)
        self._fanout = fanout
        self._watch = watch
        self._live = live

    # -- in ---------------------------------------------------------------------------------------------------------

    def subscribe(self, session: Session, request: SubscribeRequest, now: float) -> Subscription:
        """Grants a subscription, or raises :class:`Refused`. It replaces an earlier one with the same filter."""
        group, filter = self.check(session, request.filter)
        if group is not None and request.shared_dialect is None:
            raise Refused(Reason.PROTOCOL_ERROR, "shared subscriptions are not available here")
        old = session.subscriptions.get(request.key)
        if old is None:
            check_room(self._registry, session, request)
        policy = self._policy(session, request, filter)
        accepts = acceptance_of(session, request, filter)
        self._check_start(request.options, filter)
        if request.options.query:
            self._check_query(request.options, group, filter, old)
        focus = focus_of(self._registry, session, request, group, filter, accepts)
        shape = projection_of(self._registry, session, request, group, filter, accepts)
        live = self._live.terms(session, request, group, filter)
        if live is not None:  # it is conflated for all who ask for the same
            request = msgspec.structs.replace(
                request, options=msgspec.structs.replace(request.options, conflate_s=None)
            )
        key = self._key(session, request, group, filter, focus, shape)._replace(live=live)
        fresh, owed, handoff = old is None, None, None
        if old is not None and _is_done(old, request.options):
            self._ending.end(old, Reason.SUBSCRIPTION_ENDED, now)
            old = None
        elif old is not None:
            if old.feed.key == key and old.request.options == request.options:
                return self._renew(old, request, now)
            if len(old.backfills) >= BACKFILLS_MAX:
                text = f"it was replaced {BACKFILLS_MAX} times, and what it was owed before has not been read"
                raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, text)
            old.feed.lane.receive()
            handoff = self._metadata.hand_off(old)
            if not old.has_more or old.conflating or old.reader.queue is not None or not _continues(old, key):
                owed = self._ending.end(old, Reason.SUBSCRIPTION_ENDED, now)
                old = None
        feed = self._feed(session, request, key, accepts, focus, shape)
        subscription = self.enter(session, request, feed, policy, now)
        subscription.gap = owed
        self._lease(subscription, now)
        if group is not None:
            self._join_group(feed, subscription)
        elif old is not None:
            self._hand_over(old, subscription, handoff, now)
        if handoff is not None:
            self._metadata.take_over(subscription, handoff)
        if not request.options.query:  # after a restart its client asks again
            self._metadata.subscription(subscription)
        if group is None:
            self.starts.begin(subscription, now, fresh=fresh)
        return subscription

    def check(self, session: Session, filter: str) -> tuple[str | None, str]:
        """Returns the group of a shared subscription, None if it is none, and the filter. Raises :class:`Refused` if it
        is no filter, or the client may not read all of it."""
        group, filter = parse_filter(filter)
        session.rights.check(Operation.SUBSCRIBE, filter)
        return group, filter

    def _check_start(self, options: SubscriptionOptions, filter: str) -> None:
        if options.start_time(0.0) is not None and self._registry.archive.earliest(filter) is None:
            raise Refused(Reason.PROTOCOL_ERROR, f"option from: a time, and nothing of {filter!r} is recorded")

    def _check_query(
        self, options: SubscriptionOptions, group: str | None, filter: str, old: Subscription | None
    ) -> None:
        if group is not None:
            raise Refused(Reason.PROTOCOL_ERROR, "option query: a shared subscription has no state of its own")
        if options.start != "end" or options.interval_s is not None:
            raise Refused(Reason.PROTOCOL_ERROR, "option query: not with from or conflate, as no live records follow")
        if old is not None and not old.request.options.query:
            raise Refused(Reason.PROTOCOL_ERROR, "option query: it would replace the subscription that is there")
        if sum(state.queries for state in self._registry.router.states_for(filter)) >= QUERIES_MAX:
            text = f"{QUERIES_MAX} queries of this state are being answered: ask again later"
            raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, text)

    def poll(
        self,
        session: Session,
        request: SubscribeRequest,
        offset: int,
        now: float,
        *,
        number: int = 0,
        position_number: int = 0,
    ) -> Poll:
        """Makes a poll that reads recorded topics from this offset on. Its feed has no other readers and no records."""
        archive, filter = self._registry.archive, validate_filter(request.filter)
        key = FeedKey(filter, None, request.dialect, session.pool, session.number, None)
        feed = Feed(key, Lane(request.dialect, session.pool, 0), lambda _: False)
        if not number:
            session.tab.check(cost(request))
        policy = self._policy(session, request, filter)
        meter = Meter(now, 0, self._registry.lateness)
        poll = Poll(session, request, feed, Case(policy, meter), archive, offset)
        self._put(poll)
        self._metadata.subscription(poll, number=number, position_number=position_number)
        poll.archive_cursor.durable_position.read_recorded_only()
        poll.archive_cursor.durable_position.moved()  # it is not where a new one is by itself
        return poll

    def answer(self, session: Session, request: SubscribeRequest, records: BackfillSource, since_s: float, now: float
               ) -> Subscription:  # fmt: skip
        """Makes the subscription of an answer that its client does not take: it stands for what is left of it, which is
        read elsewhere, so that policies judge its client. Raises :class:`Refused`."""
        session.tab.check(cost(request))
        key = FeedKey(validate_filter(request.filter), None, request.dialect, session.pool, session.number, None)
        feed = Feed(key, Lane(request.dialect, session.pool, 0), lambda _: False)
        subscription = self.enter(session, request, feed, self._policy(session, request, key.filter), now)
        subscription.add_backfill(records, since_s)
        self._fanout.lag(subscription, now)
        return subscription

    def change_terms(self, subscription: Subscription, request: SubscribeRequest) -> None:
        """Changes the policy of a subscription, as its new request says."""
        subscription.case.govern_by(self._policy(subscription.session, request, subscription.feed.key.filter))
        subscription.request = request
        self._metadata.subscription(subscription)

    def restore(
        self, session: Session, request: SubscribeRequest, now: float, *, number: int, position_number: int
    ) -> Subscription:
        """Restores a subscription from the journal. The client gets no retained records or state for it."""
        if request.polling:
            return self.poll(session, request, 0, now, number=number, position_number=position_number)
        group, filter = parse_filter(request.filter)
        key = self._key(session, request, group, filter)
        accepts = acceptance_of(session, request, filter)
        feed = self._feed(session, request, key, accepts)
        policy = self._registry.policy_named(request.options.policy or "") or self._policy_of(session, filter)
        subscription = self.enter(session, request, feed, policy, now)
        self._lease(subscription, now)
        if group is not None:
            self._join_group(feed, subscription)
        else:
            self.starts.give_state(subscription)
            self.starts.conflate(subscription, now)
            feed.wait(subscription)
        self._metadata.subscription(subscription, number=number, position_number=position_number)
        return subscription

    def enter(
        self, session: Session, request: SubscribeRequest, feed: Feed, policy: Policy, now: float
    ) -> Subscription:
        """Makes a subscription and puts it into the tables."""
        meter = Meter(now, feed.lane.end, self._registry.lateness)
        subscription = Subscription(session, request, feed, Case(policy, meter))
        self._put(subscription)
        return subscription

    def _put(self, subscription: Subscription) -> None:
        feed = subscription.feed
        subscription.tab_bytes = cost(subscription.request)
        subscription.session.tab.add(SUBSCRIPTIONS, subscription.tab_bytes)
        subscription.session.put(subscription)
        feed.subscriptions[subscription] = None
        self._registry.totals.count_consumers(feed.key.filter, 1)
        self._registry.observer.began(subscription)

    def _join_group(self, feed: Feed, subscription: Subscription) -> None:
        queue = next((queue_of(queue) for queue in feed.queues if queue.feed is feed), None)
        if queue is not None and not queue.members.anybody_there:
            # The group has ended; deferred work ends its members later. What is published until then is not theirs.
            queue.read(Feed(feed.key, Lane(feed.key.dialect, feed.key.pool, self._registry.sequence), feed.accepts))
            queue = None
        if queue is None:
            queue = Queue(subscription.filter, feed, GROUP, self._registry, self._fanout, self._watch,
                          ends_with_members=True)  # fmt: skip
        queue.join(subscription)

    def _hand_over(self, old: Subscription, subscription: Subscription, handoff: Handoff | None, now: float) -> None:
        """Replaces ``old``, which still has records waiting. The new subscription sends these first."""
        session, since_s = old.session, min(old.oldest_time(), now)
        self._registry.observer.ended(old, Reason.SUBSCRIPTION_ENDED, now)
        if session.half_sent is old:
            self._ending.finish_half_sent(session)
        session.caught_up(old)
        for waiting in (old.feed.waiting, old.feed.resting, self._registry.watched):
            waiting.pop(old, None)
        old.stop_timers()
        self._ending.open_gate(old, now)
        old.feed.lane.receipts.replaced(old, subscription)
        set_free(old)
        for number in [*old.cursor.aside, *old.cursor.unacknowledged]:
            old.cursor.acknowledge(number)
        subscription.gap, old.gap = old.gap, None
        while old.backfills:  # the new request may ask for other retained records, or none
            backfill = old.backfills.pop(0)
            if backfill.retained:
                backfill.records.close()
            else:
                subscription.backfills.append(backfill)
        subscription.conflation.inherit(old.conflation)
        over = partial(self._ending.end, reason=Reason.SUBSCRIPTION_ENDED, now=now)
        out_of_order = NO_PROGRESS if handoff is None else handoff.out_of_order
        handover = Handover(old, self._registry.lost, over)
        subscription.add_backfill(handover, since_s, out_of_order=out_of_order)

    def _policy(self, session: Session, request: SubscribeRequest, filter: str) -> Policy:
        return self.asked_for(request) or self._policy_of(session, filter)

    def _policy_of(self, session: Session, filter: str) -> Policy:
        return self._registry.policy_for(filter, session.expiry_s > 0, session.listener)

    def asked_for(self, request: SubscribeRequest) -> Policy | None:
        """Returns the policy that the request names; None if it leaves the choice to the configuration."""
        name = request.options.policy
        if name is None:
            return None
        policy = self._registry.policy_named(name)
        if policy is None:
            # Not which there are: their names may tell of topics that are none of the client's business.
            raise Refused(Reason.PROTOCOL_ERROR, f"there is no policy {name!r}: the broker's configuration names them")
        return policy

    def _renew(self, subscription: Subscription, request: SubscribeRequest, now: float) -> Subscription:
        """Renews a subscription that is requested again unchanged: its lease begins anew, and the client may get the
        retained records again."""
        subscription.request, subscription.dialect = request, request.dialect
        subscription.renewals += 1
        self._metadata.subscription(subscription)
        self._lease(subscription, now)
        if request.send_retained == "always" and not subscription.backfills:
            self.starts.queue_retained(subscription, now)
            if subscription.backfills:
                self._fanout.send_soon(subscription, now)
        return subscription

    def _lease(self, subscription: Subscription, now: float) -> None:
        """Starts the lease: the subscription ends after it, unless it is renewed by then."""
        lease_s, timers = subscription.request.options.lease_s, self._registry.timers
        if lease_s is not None:
            over = partial(self._lease_is_over, subscription)
            subscription.lease = timers.move(subscription.lease, now + lease_s, over)

    def _lease_is_over(self, subscription: Subscription, now: float) -> None:
        """Ends a subscription, unless its client has renewed all its leases at once meanwhile (``RENEW``)."""
        renewed_s = subscription.session.renewed_s
        if renewed_s + (subscription.request.options.lease_s or 0.0) > now:
            self._lease(subscription, renewed_s)
        else:
            self._ending.end_by_itself(subscription, Reason.LEASE_EXPIRED, now)

    def _key(self, session: Session, request: SubscribeRequest, group: str | None, filter: str,
             focus: Focus | None = None, shape: Shape | None = None) -> FeedKey:
        return FeedKey(
            filter, request.options.selector, (group and request.shared_dialect) or request.dialect,
            self._registry.pool_for([(filter,)], session.pool), session.number if request.no_local else 0, group,
            None if focus is None else focus.state.key.text, request.options.select,
            None if shape is None or shape.deltas is None else shape.deltas.state.key.text,
        )  # fmt: skip

    def _feed(self, session: Session, request: SubscribeRequest, key: FeedKey, accepts: Callable[[Record], bool],
              focus: Focus | None = None, shape: Shape | None = None) -> Feed:
        if key.live is not None:
            feed = self._live.open(key, key.live, session)
            feed.priority = self._registry.priority_for([(key.filter,)])
            return feed
        router, options = self._registry.router, request.options
        if key in router.feeds and not options.query:
            return router.feeds[key]
        feed = Feed(key, Lane(key.dialect, key.pool, self._registry.sequence), accepts)
        feed.shape, feed.priority = shape, self._registry.priority_for([(key.filter,)])
        if not options.query:  # a query's lane gets no records
            if options.selector is not None:
                feed.selector, feed.focus = compile_selector(options.selector), focus
            feed.worked_out = feed.focus is not None or shape is not None
            router.add_feed(feed)
        return feed


def _is_done(old: Subscription, options: SubscriptionOptions) -> bool:
    """Tells whether ``old`` is a query that is answered, or that its client does not want any more."""
    asked = old.request.options
    return asked.query and not (old.backfills and asked == options)


def _continues(old: Subscription, key: FeedKey) -> bool:
    """Tells whether records that wait for ``old`` may be sent to a subscription that takes its place."""
    return key.live is None and not key.shaped and not old.feed.key.shaped


# -- polls -------------------------------------------------------------------------------------------------------------
#
# Polls: consumers that read recorded topics by themselves. They attach, leave, and attach again.


POLLS_PROTOCOL = "http"


class Polls:
    """Attaches and detaches polls by name."""

    def __init__(self, registry: Registry, admission: Admission, subscribing: Subscribing, ending: Ending) -> None:
        self._registry = registry
        self._admission = admission
        self.leave = admission.leave
        self._subscribing = subscribing
        self._ending = ending

    def attach(self, name: str, filter: str, offset: int, policy: str | None, dialect: Dialect, now: float,
               username: str | None = None, patience_s: float | None = None, rights: Rights = ALL_RIGHTS) -> Poll:
        """Returns the poll of this name, which reads a recorded filter. A new poll begins at ``offset``. ``dialect`` is
        journaled with it, but no record is encoded for a poll. ``username`` is its owner. Raises :class:`Refused`."""
        rights.check(Operation.SUBSCRIBE, filter)
        session = self._registry.sessions.get(name)
        if session is not None and session.protocol != POLLS_PROTOCOL:
            text = f"{name!r} is the name of a client that speaks {session.protocol}"
            raise Refused(Reason.PRECONDITION_FAILED, text)
        if session is None or not session.connected:
            request = ConnectRequest(name, HTTP_LISTENER, clean_start=False, expiry_s=inf, username=username,
                                     protocol=POLLS_PROTOCOL, rights=rights)  # fmt: skip
            session = self._admission.connect(request, ConnectionlessOutlet(now), now)
        session.grant(rights)
        poll = next((one for one in session.subscriptions.values() if isinstance(one, Poll)), None)
        wanted = SubscribeRequest(filter, dialect, qos=1, send_retained="never", polling=True,
                                  options=SubscriptionOptions(policy=policy, patience_s=patience_s))  # fmt: skip
        if poll is not None and poll.request.key != wanted.key:
            self._ending.end(poll, Reason.SUBSCRIPTION_ENDED, now)
            poll = None
        if poll is None:
            poll = self._subscribing.poll(session, wanted, offset, now)
        elif poll.request.options != wanted.options:
            self._subscribing.change_terms(poll, wanted)
        session.lagging[poll] = None  # the governor always watches a poll, because no turn would add it again
        self._registry.watched.setdefault(poll)
        return poll

    def end(self, session: Session, now: float) -> None:
        self._admission.end(session, Reason.SUBSCRIPTION_ENDED, now)
