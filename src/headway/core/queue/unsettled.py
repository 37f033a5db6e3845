"""Unsettled: a queue's records that members have in flight, and their ways back."""

from __future__ import annotations

from math import inf

from headway.core.base import DELIVERY_WORK, Reason, WorkSteps
from headway.core.consumer import Delivery, Subscription, patience_for
from headway.core.delivery import lose
from headway.core.log import Chunk
from headway.core.queue.backlog import Backlog, QueuePort
from headway.core.queue.drops import Drops
from headway.core.queue.lifetimes import Lifetimes
from headway.core.queue.places import QueueCursor
from headway.core.routing import Registry


class Unsettled:
    """Requeues or drops the records that members do not settle."""

    def __init__(self, queue: QueuePort, backlog: Backlog, drops: Drops, lifetimes: Lifetimes,
                 registry: Registry) -> None:
        self._queue = queue
        self._ended = False
        self._terms = queue.terms
        self._ends_with_members = queue.ends_with_members
        self._backlog = backlog
        self._drops = drops
        self._lifetimes = lifetimes
        self._registry = registry
        self._returning: dict[Subscription, None] = {}
        """Members whose late records are being requeued."""

    def stop(self) -> None:
        """Requeues nothing any more, because the queue has ended."""
        self._ended = True
        self._returning.clear()
        del self._queue

    def requeue(self, delivery: Delivery, *, late: bool = False, failed: bool = True) -> None:
        """Puts a record that was handed out back at its old position, marked as redelivered. Drops it if it has come
        back too often. ``late`` says that its member may still settle it. Not ``failed``: its member never tried it,
        so it is as before."""
        if self._ended:
            return
        cursor, chunk = _place_of(delivery)
        returns, limit = delivery.returns + failed, self._terms.returns_max
        if limit is not None and returns > limit:
            self._drops.give_up(chunk, delivery.index, Reason.DELIVERY_LIMIT)
            self._backlog.free(cursor, delivery.number)
        else:
            self._backlog.requeue(cursor, chunk, delivery.index, returns=returns, late=late)
        self._lifetimes.fresh_from = inf
        self._queue.feed.listening.pop(self._queue, None)
        self._registry.ready_queues[self._queue] = None
        self._registry.came_back[self._queue] = None

    def withdraw(self, delivery: Delivery) -> None:
        """Drops a record that its member settled after it timed out, if no other member has it yet."""
        if not self._ended and isinstance(delivery.cursor, QueueCursor):
            self._backlog.withdraw(delivery.cursor, delivery.number)

    def reject(self, delivery: Delivery) -> None:
        """Drops a record that a member rejected."""
        if self._ended:
            return
        cursor, chunk = _place_of(delivery)
        self._drops.reject(chunk, delivery.index)
        self._backlog.free(cursor, delivery.number)

    def requeue_late(self, member: Subscription, now: float, older_s: float | None = None) -> list[Delivery]:
        """Requeues the member's unsettled records that were sent ``older_s`` ago and are beyond the patience for them;
        without ``older_s``, those alone for which there was some. They still use up the member's credit. Returns them.

        What is too much for one turn is requeued in the next ones (deferred.py); until then, nothing else is late."""
        if self._ends_with_members or member in self._returning:
            return []  # MQTT: a member keeps its deliveries until its session ends
        channel, late = member.channel, []
        for delivery_id in channel.ids_of(member):
            delivery = channel.in_flight[delivery_id]
            patience_s = patience_for(member, delivery)
            wait_s = max(patience_s, older_s) if older_s is not None else patience_s or inf
            if delivery.sent_s <= now - wait_s:
                late.append((delivery_id, delivery))
        if late:
            self._returning[member] = None
            self._registry.deferred.begin(self._time_out_all(member, late), now, client=member.session)
        return [delivery for _, delivery in late]

    def _time_out_all(self, member: Subscription, late: list[tuple[int, Delivery]]) -> WorkSteps:
        """Requeues deliveries, except those that the client has settled since."""
        in_flight = member.channel.in_flight
        try:
            for delivery_id, delivery in late:
                if in_flight.get(delivery_id) is delivery:
                    member.channel.time_out(delivery_id)
                    self.requeue(delivery, late=True)
                yield DELIVERY_WORK
        finally:
            self._returning.pop(member, None)

    def requeue_all(self, member: Subscription, reason: Reason, *, all_of_it: bool = True) -> None:
        """Requeues the member's unsettled records. Exactly-once records, which no other client may get, are lost;
        without ``all_of_it`` the member keeps them. Those that have arrived at the client are settled."""
        for _ in self.requeue_in_steps(member, reason, all_of_it=all_of_it):
            pass

    def requeue_in_steps(self, member: Subscription, reason: Reason, *, all_of_it: bool = True) -> WorkSteps:
        """Does that in steps, of a record each."""
        channel = member.channel
        for delivery_id in list(channel.ids_of(member)):
            yield DELIVERY_WORK
            held = channel.in_flight.get(delivery_id)
            if held is None or (not all_of_it and not others_may_get(held)):
                continue
            delivery = lose(member, delivery_id)
            assert delivery is not None
            if delivery.released:
                delivery.cursor.acknowledge(delivery.number)
            elif others_may_get(delivery):
                self.requeue(delivery)
            elif isinstance(delivery.cursor, QueueCursor):
                self.lose(delivery, reason)
        if not member.session.ended:
            self._registry.wake(member.session)  # its other consumers have the credit

    def lose(self, delivery: Delivery, reason: Reason) -> None:
        """Drops a record that its member had in flight, and notes it in the member's gap."""
        if self._ended:
            return
        cursor, chunk = _place_of(delivery)
        self._drops.lose(delivery.subscription, chunk, delivery.index, delivery.index + 1, reason)
        self._backlog.free(cursor, delivery.number)

    def gets_back_from(self, member: Subscription) -> bool:
        """Returns whether a write-off of the member would free some of its deliveries: others may get them, or the
        member was promised nothing."""
        held = map(member.channel.in_flight.__getitem__, member.channel.ids_of(member))
        return any(not member.promised or others_may_get(delivery) for delivery in held)


def others_may_get(delivery: Delivery) -> bool:
    """Tells whether a record may go to another client: one that is delivered exactly once may not, nor may one that has
    arrived."""
    if delivery.released:
        return False
    return delivery.record is None or min(delivery.record.qos, delivery.subscription.request.qos) == 1


def _place_of(delivery: Delivery) -> tuple[QueueCursor, Chunk]:
    """Returns where the record of a delivery from a queue is."""
    cursor, chunk = delivery.cursor, delivery.chunk
    assert isinstance(cursor, QueueCursor)
    assert chunk is not None
    return cursor, chunk
