"""Ending a subscription: its records, deliveries, state and gates.

All records that the subscription did not get are counted as skipped. Its unacknowledged deliveries stay in the session,
which can still settle them.
"""

from __future__ import annotations

from contextlib import suppress

from headway.core.base import END_WORK, Reason
from headway.core.clients.durability import DurableMetadata
from headway.core.consumer import ENDED, Cancelled, Disconnect, Session, Subscription
from headway.core.delivery import delivery_record, finish_half_sent
from headway.core.log import CHUNK_BYTES, SUBSCRIPTIONS
from headway.core.message import Gap
from headway.core.queue import queue_behind
from headway.core.routing import Registry


class Ending:
    """Takes subscriptions out of all tables, and opens gates."""

    def __init__(self, registry: Registry, metadata: DurableMetadata) -> None:
        self._registry = registry
        self._metadata = metadata

    def end(self, subscription: Subscription, reason: Reason, now: float) -> Gap | None:
        """Ends a subscription. Counts the records that it did not get, and returns them as a gap."""
        session, feed, registry = subscription.session, subscription.feed, self._registry
        if subscription.ended:
            return None
        feed.lane.receive()
        subscription.become(ENDED)
        session.tab.add(SUBSCRIPTIONS, -subscription.tab_bytes)
        subscription.stop_timers()
        self._metadata.subscription_ended(subscription)
        registry.observer.ended(subscription, reason, now)
        if session.half_sent is subscription:
            self.finish_half_sent(session)
        session.caught_up(subscription)
        for table in (feed.waiting, feed.resting, feed.subscriptions):
            table.pop(subscription, None)
        session.drop(subscription)
        if subscription.channel.members:
            subscription.channel.members.pop(subscription, None)
        registry.watched.pop(subscription, None)
        registry.totals.count_consumers(feed.key.filter, -1)
        if subscription.case.slow:
            registry.totals.count_slow(subscription, -1)
        queue = queue_behind(subscription)
        if queue is not None:
            queue.leave(subscription)
        else:
            feed.lane.receipts.leaving(subscription, reason)
            self._write_off(subscription, reason)
        registry.totals.count(subscription)
        if queue is None:
            self.set_free(subscription)
            subscription.cursor.close()
            feed.settle_down()  # the lane's records may have been held for this subscription only
        self.release_state(subscription, now)
        if subscription in feed.gates:
            self.open_gate(subscription, now)
        if queue is not None and queue.ends_with_members and not queue.members:
            self._metadata.queue_ended(queue)
            queue.close()
        registry.close_if_unread(feed)
        if session.outlet.told_of_ends:
            registry.effects.append(Cancelled(subscription))
        return subscription.gap

    def end_in_step(self, subscription: Subscription, reason: Reason, now: float) -> int:
        """Ends a subscription as a step of deferred work. Returns the work: each chunk that it did not read is visited.
        """
        of_lane = not subscription.ended and queue_behind(subscription) is None
        chunks = subscription.gating_bytes // CHUNK_BYTES if of_lane else 0
        self.end(subscription, reason, now)
        return END_WORK + chunks

    def end_by_itself(self, subscription: Subscription, reason: Reason, now: float) -> None:
        """Ends a subscription because its lease is over, or it is a query that is answered. A client with channels is
        told."""
        self.end(subscription, reason, now)
        if subscription.has_channel:
            told = reason if reason is Reason.LEASE_EXPIRED else Reason.NORMAL
            self._registry.effects.append(Cancelled(subscription, told))

    def finish_half_sent(self, session: Session) -> None:
        """Sends the rest of a half-sent record, although its subscription ends. Ends the connection if that fails."""
        try:
            finish_half_sent(session)
        except OSError as error:
            session.half_sent = None
            session.give_up()
            text = f"a record half sent could not be read back from disk ({error.strerror or error})"
            self._registry.effects.append(Disconnect(session, session.outlet, Reason.SPILL_FAILED, text, None))

    def set_free(self, subscription: Subscription) -> None:
        """Detaches the unacknowledged deliveries from the lane. Each takes its record along, so that it can be sent
        again."""
        if subscription.session.ended:
            return  # its deliveries are never settled
        channel = subscription.channel
        for delivery_id in channel.ids_of(subscription):
            delivery = channel.in_flight[delivery_id]
            if delivery.chunk is None:
                continue  # it is from a backfill, whose progress goes on
            with suppress(OSError):  # the disk failed: this record cannot be sent again
                delivery.record = delivery_record(delivery)
            delivery.leave_lane()

    def _write_off(self, subscription: Subscription, reason: Reason) -> None:
        """Counts the records that the consumer will not get any more, delivered or conflated."""
        if not subscription.conflating:
            self._registry.lost(subscription.skip_to(subscription.stop, reason), reason)
        subscription.conflation.write_off(subscription, reason)

    def release_state(self, subscription: Subscription, now: float) -> None:
        """Takes its state, and what it reads of it, from a subscription."""
        subscription.close_backfills()
        conflation = subscription.conflation
        state, conflation.state = conflation.state, None
        if state is None:
            return
        state.readers -= 1
        if state.readers == 0 and not state.declared:
            self._registry.router.remove_state(state)
            self._registry.deferred.begin(state.close(), now, client=subscription.session)

    def open_gate(self, subscription: Subscription, now: float) -> None:
        """Opens the consumer's gate: it no longer holds back publishers."""
        feed = subscription.feed
        since = feed.gates.pop(subscription, None)
        subscription.session.gates.pop(subscription, None)
        if since is not None:
            subscription.case.blocked_publishers_s += now - since
            self._registry.ungate(feed, now)
