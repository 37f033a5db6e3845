"""Acks: clients acknowledge, refuse or recover deliveries from queues."""

from __future__ import annotations

from collections.abc import Container, Sequence

from headway.core.base import DELIVERY_WORK, Reason, Refused, WorkSteps
from headway.core.consumer import Channel, Delivery, Subscription
from headway.core.queue.dispatch import resend
from headway.core.queue.queue import Queue, queue_of
from headway.core.routing import REFUSED_WORK, REQUEUED_WORK, Registry

RESENT_BYTES_MAX = 1024 * 1024


class Acks:
    """Settles and requeues deliveries."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def acknowledge(self, channel: Channel, delivery_ids: Sequence[int]) -> None:
        done = 0
        while done < len(delivery_ids):
            for (subscription, cursor), count in channel.settle_run(delivery_ids, done).items():
                done += count
                _look_again(subscription).settled(cursor)
            if done < len(delivery_ids):
                late = self._late(channel, delivery_ids[done])
                queue_of(late.subscription.reader.queue).unsettled.withdraw(late)
                done += 1
        self._credit_is_back(channel)

    def refuse(
        self, channel: Channel, delivery_ids: Sequence[int], *, requeue: bool, failed: bool = True
    ) -> None:
        """Takes back deliveries that the client refuses. They are requeued (``requeue``) or dropped. Not ``failed``:
        the client never tried them."""
        for delivery_id in delivery_ids:
            delivery = channel.remove(delivery_id)
            if delivery is None:
                self._late(channel, delivery_id)
                continue
            queue = _look_again(delivery.subscription)
            self._registry.overdue.left -= REFUSED_WORK
            if requeue:
                queue.unsettled.requeue(delivery, failed=failed)
            else:
                queue.unsettled.reject(delivery)
        self._credit_is_back(channel)

    def _sent_again(self, channel: Channel, delivery_id: int, now: float) -> bool:
        member = channel.in_flight[delivery_id].subscription
        session = member.session
        if member.ended or not session.connected or len(session.outlet.out) > RESENT_BYTES_MAX:
            return False
        return resend(member, delivery_id, now)

    def _late(self, channel: Channel, delivery_id: int) -> Delivery:
        """Returns a delivery that timed out before the client settled it. Raises :class:`Refused` if there is none."""
        delivery = channel.settle_timed_out(delivery_id)
        if delivery is None:
            raise Refused(Reason.PRECONDITION_FAILED, f"unknown delivery tag {delivery_id}")
        self._wake(channel)
        return delivery

    def _credit_is_back(self, channel: Channel) -> None:
        """Marks the session's queues as ready, if the window of the channel or of the session was exhausted."""
        if channel.exhausted_since_s is not None or channel.whole.exhausted_since_s is not None:
            channel.exhausted_since_s = channel.whole.exhausted_since_s = None
            self._wake(channel)

    def _wake(self, channel: Channel) -> None:
        owner = self._registry.numbers.get(channel.owner)
        if owner is not None:  # None: its session has ended
            self._registry.wake(owner)

    def recover(self, channel: Channel, now: float, keep: Container[int] = (), *, requeue: bool = True) -> WorkSteps:
        """Requeues the channel's deliveries in flight, except those in ``keep``, one per step. Without ``requeue`` a
        delivery is sent again to the same consumer, unless that consumer has much unsent already. A delivery that the
        client settles between two steps stays settled."""
        for delivery_id in [known for known in channel.in_flight if known not in keep]:
            yield DELIVERY_WORK if requeue else REQUEUED_WORK
            if not requeue and delivery_id in channel.in_flight and self._sent_again(channel, delivery_id, now):
                continue
            delivery = channel.remove(delivery_id)
            if delivery is not None and delivery.subscription.reader.queue is not None:
                _look_again(delivery.subscription).unsettled.requeue(delivery)
        for delivery_id in [known for known in channel.timed_out if known not in keep]:
            if channel.settle_timed_out(delivery_id) is not None:
                self._wake(channel)
            yield DELIVERY_WORK
        self._credit_is_back(channel)


def _look_again(member: Subscription) -> Queue:
    """Has its queue offer records to a member again, because it has credit. Returns the queue."""
    member.window.exhausted_since_s = None
    queue = queue_of(member.reader.queue)
    queue.look_again(member)
    return queue
