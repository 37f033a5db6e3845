"""Subscribing: from a request to a cursor, with what it may want to see first (retained records, state, what is held).

A subscription starts at the end of its lane. Everything a client may want from before that point is read *after* the
cursor was placed, up to the sequence at which it was placed, so nothing is lost or doubled between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headway.core.delivery import delivery_record
from headway.core.effects import Disconnect
from headway.core.errors import Reason, Refused
from headway.core.fanout import Fanout
from headway.core.feed import Feed, FeedKey
from headway.core.keys import BadKey, compile_key
from headway.core.lane import Lane
from headway.core.meter import Meter
from headway.core.moves import finish_half_sent, start_conflating
from headway.core.policy import ActionKind, Policy, PolicyState, Which
from headway.core.record import Gap, Record
from headway.core.registry import Registry
from headway.core.retained import Retained
from headway.core.selector import BadSelector, compile_selector
from headway.core.session import Session
from headway.core.shared import Share
from headway.core.state import State
from headway.core.subscription import SubscribeRequest, Subscription
from headway.core.topics import BadTopic, covers, matcher, parse_share, validate_filter


class Subscribing:
    def __init__(self, registry: Registry, retained: Retained, fanout: Fanout,
                 watch: Callable[[Subscription, float], None]) -> None:
        self._registry = registry
        self._retained = retained
        self._fanout = fanout
        self._watch = watch

    # -- in ---------------------------------------------------------------------------------------------------------

    def subscribe(self, session: Session, request: SubscribeRequest, now: float) -> Subscription:
        """Grant a subscription, or raise :class:`Refused`. One of the same filter is replaced."""
        group, filter = _parse_filter(request)
        limit = self._registry.limits_of(session.listener).subscriptions_per_session_max
        old = session.subscriptions.get(request.filter)
        if old is None and len(session.subscriptions) >= limit:
            raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, f"a session may have {limit} subscriptions")
        policy = self._policy(session, request, filter)
        accepts = _acceptance(request, filter, session.number if request.no_local else 0)
        key = FeedKey(
            filter, request.options.selector, (group and request.shared_dialect) or request.dialect,
            session.pool, session.number if request.no_local else 0, group,
        )  # fmt: skip
        owed: Gap | None = None
        if old is not None:
            if old.feed.key == key and old.request.options == request.options:
                return self._renew(old, request, now)
            owed = self.end(old, Reason.SUBSCRIPTION_ENDED, now)
        feed = self._registry.router.feeds.get(key) or self._open(key, accepts, request)
        meter = Meter(now, feed.lane.end, self._registry.lateness)
        subscription = Subscription(session, request, feed, policy, PolicyState(policy), meter)
        subscription.gap = owed
        session.subscriptions[request.filter] = subscription
        feed.subscriptions[subscription] = None
        self._registry.consumers[filter] += 1
        self._lease(subscription, now)
        if group is not None:
            if feed.share is None:
                feed.share = Share(feed, self._fanout, self._watch)
            feed.share.join(subscription)
            self._registry.dirty[feed] = None  # the others may have left something waiting
            return subscription
        self._begin(subscription, now, fresh=old is None)
        return subscription

    def _policy(self, session: Session, request: SubscribeRequest, filter: str) -> Policy:
        name = request.options.policy
        if name is None:
            return self._registry.policy_for(filter, session.expiry_s > 0)
        policy = self._registry.policy_named(name)
        if policy is None:
            known = ", ".join(repr(p.name) for p in self._registry.policies) or "none"
            raise Refused(Reason.PROTOCOL_ERROR, f"there is no policy {name!r}; there is: {known}")
        return policy

    def _renew(self, subscription: Subscription, request: SubscribeRequest, now: float) -> Subscription:
        """Subscribed to once more, all the same: the lease begins anew, and retained records may be due again."""
        subscription.request = request
        subscription.renewals += 1
        self._lease(subscription, now)
        if request.send_retained == "always" and subscription.preface is None:
            subscription.preface = self._retained_for(subscription, now)
            subscription.preface_retain = True
            if subscription.preface is not None:
                self._fanout.lag(subscription, now)
                self._fanout.again[subscription.session] = None
        return subscription

    def _lease(self, subscription: Subscription, now: float) -> None:
        """End the subscription when its lease is over, unless it was renewed by then."""
        lease_s, renewals = subscription.request.options.lease_s, subscription.renewals
        if lease_s is None:
            return

        def expire(when: float) -> None:
            if subscription.renewals == renewals:
                self.end(subscription, Reason.LEASE_EXPIRED, when)

        self._registry.timers.at(now + lease_s, expire)

    def _open(self, key: FeedKey, accepts: Callable[[Record], bool], request: SubscribeRequest) -> Feed:
        feed = Feed(key, Lane(key.dialect, key.pool, self._registry.sequence), accepts)
        if request.options.selector is not None:
            feed.selector = compile_selector(request.options.selector)
        self._registry.router.add_feed(feed)
        return feed

    # -- what comes first -------------------------------------------------------------------------------------------

    def _begin(self, subscription: Subscription, now: float, *, fresh: bool) -> None:
        request, options, feed = subscription.request, subscription.request.options, subscription.feed
        if request.send_retained == "always" or (request.send_retained == "new" and fresh):
            subscription.preface = self._retained_for(subscription, now)
            subscription.preface_retain = subscription.preface is not None
        self.give_state(subscription)
        state, sequence = subscription.state, self._registry.sequence
        if options.start != "end":
            self._start_at(subscription, options.start)
        elif options.snapshot and state is not None and len(state):
            subscription.queue_pass(state.read(0, sequence, feed.accepts))
        if options.conflate_s is not None:
            start_conflating(subscription, now)
            subscription.conflated_upto = max(subscription.conflated_upto, sequence)
            if options.conflate_s:
                self._next_tick(subscription, now)
        if subscription.has_more:
            self._fanout.lag(subscription, now)
            self._fanout.again[subscription.session] = None
        elif options.conflate_s:
            feed.resting[subscription] = None
        else:
            feed.waiting[subscription] = None

    def _retained_for(self, subscription: Subscription, now: float) -> Iterator[Record] | None:
        feed = subscription.feed
        return self._retained.matching(feed.key.filter, self._registry.sequence, now, feed.accepts)

    def _next_tick(self, subscription: Subscription, now: float) -> None:
        interval = subscription.request.options.conflate_s
        assert interval

        def tick(when: float) -> None:
            if subscription.ended:
                return
            if subscription.feed.lane.count != subscription.cursor.number:
                self._fanout.lag(subscription, when)
                self._fanout.again[subscription.session] = None
            self._next_tick(subscription, when)

        self._registry.timers.at(now + interval, tick)

    def _start_at(self, subscription: Subscription, start: str) -> None:
        """``from``: the earliest record held, or what follows a sequence the client has already seen."""
        lane, cursor = subscription.feed.lane, subscription.cursor
        seen = lane.dropped_sequence if start == "earliest" else int(start)
        if seen >= lane.dropped_sequence:
            chunk = lane.first
            while chunk.next is not None and chunk.next.run_sequence and chunk.next.run_sequence[0] <= seen:
                chunk = chunk.next
            index = 0
            while index < len(chunk) and chunk.sequence_of(index) <= seen:
                index += 1
            cursor.stand_at(chunk, index)
            subscription.start_number = cursor.number
            return
        if subscription.state is not None:
            subscription.queue_pass(subscription.state.read(seen, self._registry.sequence, subscription.feed.accepts))
        subscription.gap = Gap(0, seen + 1, lane.dropped_sequence, Reason.NOT_RETAINED)

    def give_state(self, subscription: Subscription) -> None:
        """Find or make the state this subscription may be conflated from, if it ever may."""
        options, policy = subscription.request.options, subscription.policy
        wanted = options.conflate_s is not None or options.snapshot or options.start not in ("end", "earliest") or any(
            rule.then.kind is ActionKind.CONFLATE or rule.then.which is Which.OLDER_PER_KEY for rule in policy.rules
        )
        if not wanted or subscription.state is not None:
            return
        filter = subscription.feed.key.filter
        states = self._registry.router.states
        fitting = [s for s in states if covers(s.filter, filter) and (options.key is None or s.key.text == options.key)]
        fitting.sort(key=lambda s: not s.declared)
        state = next((s for s in fitting if s.declared or s.filter == filter), None)
        if state is None:
            state = State(filter, compile_key(options.key or "topic"), subscription.session.pool)
            self._registry.router.add_state(state)
        state.readers += 1
        subscription.state = state

    # -- out --------------------------------------------------------------------------------------------------------

    def end(self, subscription: Subscription, reason: Reason, now: float) -> Gap | None:
        """The subscription is over. What it was still owed is counted; returns that as a gap."""
        session, feed, registry = subscription.session, subscription.feed, self._registry
        if subscription.ended:
            return None
        subscription.ended = True
        if session.half_sent is subscription:
            self._finish(session)
        for place in (session.lagging, feed.waiting, feed.resting, feed.subscriptions):
            place.pop(subscription, None)
        if session.subscriptions.get(subscription.filter) is subscription:
            del session.subscriptions[subscription.filter]
        registry.watched.pop(subscription, None)
        registry.consumers[feed.key.filter] -= 1
        if subscription.meter.slow:
            registry.slow_consumers[feed.key.filter] -= 1
        if subscription.share is not None:
            subscription.share.leave(subscription)
            registry.dirty[feed] = None  # the others may go on with what it left
        else:
            self._write_off(subscription, reason)
        registry.gap_records_ended.update(subscription.gap_records)
        registry.delivered_records_ended += subscription.delivered_records
        registry.delivered_bytes_ended += subscription.delivered_bytes
        if subscription.share is None:
            self._set_free(subscription)
            subscription.cursor.close()
        self._release_state(subscription)
        if subscription in feed.gates:
            self.open_gate(subscription, now)
        if not feed.subscriptions:
            if feed.share is not None:
                feed.share.cursor.close()
            registry.router.remove_feed(feed)
            registry.dirty.pop(feed, None)
            feed.lane.close()
        return subscription.gap

    def _finish(self, session: Session) -> None:
        """The record the client has part of is finished, whatever becomes of its subscription; or the connection ends."""
        assert session.outlet is not None
        try:
            finish_half_sent(session)
        except OSError as error:
            session.half_sent = None
            session.dead = True
            text = f"a record half sent could not be read back from disk ({error.strerror or error})"
            self._registry.effects.append(Disconnect(session, session.outlet, Reason.SPILL_FAILED, text, None))

    def _set_free(self, subscription: Subscription) -> None:
        """What was sent stays to be acknowledged, and to be sent again if need be, without its place in the lane."""
        session = subscription.session
        for delivery_id, delivery in list(session.in_flight.items()):
            if session.ended or delivery.subscription is not subscription:
                continue
            try:
                delivery.record = delivery_record(delivery)
                delivery.cursor = delivery.chunk = None
            except OSError:
                del session.in_flight[delivery_id]  # its disk failed: it could not be sent again

    def _write_off(self, subscription: Subscription, reason: Reason) -> None:
        """Count what the consumer will not get any more, delivered or conflated."""
        if subscription.conflating:
            owed = subscription.conflate_owed + subscription.feed.lane.count - subscription.cursor.number
            subscription.note_gap(owed, subscription.conflated_upto, subscription.feed.lane.last_sequence, reason)
        elif subscription.cursor.chunk is not None:
            self._registry.lost(subscription.skip_to(subscription.feed.lane.count, reason), reason)

    def _release_state(self, subscription: Subscription) -> None:
        subscription.close_passes()
        state, subscription.state = subscription.state, None
        if state is None:
            return
        state.readers -= 1
        if state.readers == 0 and not state.declared:
            self._registry.router.remove_state(state)
            state.close()

    def open_gate(self, subscription: Subscription, now: float) -> None:
        """This consumer holds back publishers no longer."""
        feed = subscription.feed
        since = feed.gates.pop(subscription, None)
        if since is not None:
            subscription.blocked_publishers_s += now - since
            if not feed.gates:
                self._registry.resume(feed, now)


def _parse_filter(request: SubscribeRequest) -> tuple[str | None, str]:
    try:
        share = parse_share(request.filter)
        if share is None:
            return None, validate_filter(request.filter)
    except BadTopic as error:
        raise Refused(Reason.PROTOCOL_ERROR, str(error)) from error
    if request.shared_dialect is None:
        raise Refused(Reason.PROTOCOL_ERROR, "shared subscriptions are not available here")
    return share


def _acceptance(request: SubscribeRequest, filter: str, exclude: int) -> Callable[[Record], bool]:
    """The test that says whether a record belongs to such a subscription. Raises :class:`Refused` on a bad selector."""
    try:
        selects = compile_selector(request.options.selector).matches if request.options.selector else None
        if request.options.key:
            compile_key(request.options.key)
    except (BadSelector, BadKey) as error:
        raise Refused(Reason.PROTOCOL_ERROR, str(error)) from error
    on_topic = matcher(filter)

    def accepts(record: Record) -> bool:
        if not on_topic(record.topic) or (exclude and record.publisher == exclude):
            return False
        return selects is None or selects(record)

    return accepts

