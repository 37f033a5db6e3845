"""Consumers of queues: members that records are pushed to, members that get one at a time, and closed channels."""

from __future__ import annotations

from abc import ABC, abstractmethod

from headway.core.base import Reason, Refused, WorkSteps
from headway.core.clients.requests import check_room, cost
from headway.core.clients.sessions import Ending
from headway.core.clients.subscriptions.subscribing import Subscribing
from headway.core.consumer import (
    NO_LIMIT,
    Channel,
    CountedWindow,
    Grant,
    Session,
    SubscribeRequest,
    Subscription,
    Window,
)
from headway.core.queue import Acks, FetchedRecord, Queue, queue_behind
from headway.core.routing import Registry


class Consuming(Acks, ABC):
    """Adds consumers to queues, and ends them with their channels."""

    def __init__(self, registry: Registry, ending: Ending, subscribing: Subscribing) -> None:
        super().__init__(registry)
        self._ending = ending
        self._subscribing = subscribing

    @abstractmethod
    def tidy(self, now: float) -> None:
        """Deletes auto-delete queues whose last consumer has ended."""

    def consume(
        self, session: Session, channel: Channel, queue: Queue, request: SubscribeRequest, prefetch: int | Window,
        now: float, *, exclusive: bool = False,
    ) -> Subscription:  # fmt: skip
        """Adds a consumer to the queue. It may have ``prefetch`` deliveries in flight, or as its own window says."""
        if request.key in session.subscriptions:
            raise Refused(Reason.NOT_ALLOWED, "there is a consumer of that tag on this channel")
        self.check_consumer(session, request)
        if queue.members.exclusive or (exclusive and queue.members.any_consumer):
            raise Refused(Reason.NOT_AUTHORIZED, f"queue '{queue.name}' has a consumer, and one is to be the only one")
        queue.picking.admit(request.options.selector)
        subscription = self._join(session, channel, queue, request, prefetch, now)
        if exclusive:
            queue.members.exclusive[subscription] = None
        return subscription

    def check_consumer(self, session: Session, request: SubscribeRequest) -> None:
        """Raises :class:`Refused` unless the client may have one more consumer like this, whatever its queue says."""
        check_room(self._registry, session, request, "consumers")
        self._subscribing.asked_for(request)

    def _join(
        self, session: Session, channel: Channel, queue: Queue, request: SubscribeRequest, prefetch: int | Window,
        now: float,
    ) -> Subscription:
        policy = self._subscribing.asked_for(request)
        if policy is None:
            policy = self._registry.policy_for_queue(queue.filters, queue.terms.durable, session.listener)
        subscription = self._subscribing.enter(session, request, queue.feed, policy, now)
        _put_on(channel, subscription, prefetch)
        queue.join(subscription)
        self._registry.ungate(queue.feed, now)
        queue.used_s = now
        return subscription

    def consume_topics(
        self, session: Session, channel: Channel, request: SubscribeRequest, now: float,
        window: int | CountedWindow | Grant = NO_LIMIT,
    ) -> Subscription:  # fmt: skip
        """Adds a consumer that reads topics for itself; the same request again renews it. It acknowledges nothing, or
        by their number the records that its ``window`` has room for, or its client grants so many."""
        known = session.subscriptions.get(request.key)
        if known is not None and (known.filter, known.request.options) != (request.filter, request.options):
            raise Refused(Reason.NOT_ALLOWED, "there is a consumer of that tag on this channel")
        subscription = self._subscribing.subscribe(session, request, now)
        if subscription is not known:
            _put_on(channel, subscription, window)
        return subscription

    def cancel(self, subscription: Subscription, now: float) -> None:
        self._ending.end(subscription, Reason.SUBSCRIPTION_ENDED, now)
        self.tidy(now)

    def get(
        self, session: Session, channel: Channel, queue: Queue, request: SubscribeRequest, prefetch: int, now: float
    ) -> FetchedRecord | None:
        """Returns the queue's next record to a client that asks for one. The client is a member of the queue from then
        on."""
        if queue.members.exclusive:
            raise Refused(Reason.NOT_AUTHORIZED, f"queue '{queue.name}' has a consumer that is to be the only one")
        member = session.subscriptions.get(request.key)
        if member is None:
            session.tab.check(cost(request))
            member = self._join(session, channel, queue, request, prefetch, now)
        return queue.get(member, now)

    def close_channel(self, session: Session, channel: Channel, now: float) -> None:
        """Closes a channel. At once its consumers get no more records and their tags are free. Over the turns to come
        (deferred.py) their unsettled records are requeued and the consumers end."""
        if channel.closed:
            return
        channel.close()
        for member in channel.members:
            member.let_flow(False)
            session.drop(member)
            queue = queue_behind(member)
            if queue is not None:
                queue.members.exclusive.pop(member, None)
                queue.expect_back(member, now)
        self._registry.deferred.begin(self._clear_up(channel), now, client=session)

    def _clear_up(self, channel: Channel) -> WorkSteps:
        """Requeues the unsettled records of a closed channel, and ends its consumers."""
        deferred = self._registry.deferred
        yield from self.recover(channel, deferred.now)
        for member in list(channel.members):
            yield self._ending.end_in_step(member, Reason.SUBSCRIPTION_ENDED, deferred.now)
        self.tidy(deferred.now)


def _put_on(channel: Channel, subscription: Subscription, prefetch: int | Window) -> None:
    subscription.channel = channel
    subscription.window = Window(prefetch) if isinstance(prefetch, int) else prefetch
    channel.members = channel.members or {}
    channel.members[subscription] = None
