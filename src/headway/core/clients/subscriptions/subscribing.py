"""Subscribing turns a request into a cursor, with the older records that the client may want first.

A subscription starts at the end of its lane. Older records (retained records, state, recorded records) are read *after*
the cursor was placed, up to the sequence at which it was placed. So no record is lost or doubled between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from headway.core.base import Reason, Refused
from headway.core.clients.durability import DurableMetadata, Handoff
from headway.core.clients.requests import acceptance_of, check_room, cost, focus_of, parse_filter, shape_of
from headway.core.clients.sessions import Ending
from headway.core.clients.subscriptions.starts import Starts
from headway.core.consumer import (
    BackfillSource,
    Feed,
    FeedKey,
    Poll,
    QueueTerms,
    Session,
    SubscribeRequest,
    Subscription,
    SubscriptionOptions,
)
from headway.core.delivery import Fanout, Handover
from headway.core.forms import Shape
from headway.core.live import LiveQueries
from headway.core.log import NO_PROGRESS, SUBSCRIPTIONS, Focus, Lane, Retained
from headway.core.message import Record, validate_filter
from headway.core.permission import Operation
from headway.core.policy import Case, Meter, Policy
from headway.core.queue import Queue, queue_of
from headway.core.routing import Registry
from headway.core.selector import compile_selector

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
        shape = shape_of(self._registry, session, request, group, filter, accepts)
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
        self._ending.set_free(old)
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
