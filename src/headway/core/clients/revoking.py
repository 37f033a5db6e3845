"""Revoking: gives all clients the rights of new permissions, and ends at once what they may not have any more.

Rules:
- A subscription that is no longer allowed ends, with the deliveries that its client has not settled. A connected client
  is disconnected and told why; one that is away is told when it comes back.
- A consumer of a queue is cancelled. Records that it has not settled stay in the queue, as when a client cancels.
- An exclusive queue with a binding that its client may not make any more is deleted.
- A client that may not connect any more is disconnected. Its session stays, for its own user, until it expires.
- A will to a topic that its client may not publish to is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable

from headway.core.base import Reason, Refused, stop
from headway.core.clients.admission import Admission
from headway.core.clients.durability import DurableMetadata
from headway.core.clients.ending import Ending
from headway.core.clients.object_names import check_binding, is_own, read_by
from headway.core.clients.queues import Queues
from headway.core.consumer import Revoked, Session, Subscription, Will
from headway.core.delivery import lose
from headway.core.permission import Operation, Rights
from headway.core.queue import Queue, queue_of
from headway.core.routing import Binding, Registry

RightsOf = Callable[[Session], Rights | None]


class Revoking:
    def __init__(self, registry: Registry, admission: Admission, ending: Ending, queues: Queues,
                 metadata: DurableMetadata) -> None:
        self._registry = registry
        self._admission = admission
        self._ending = ending
        self._queues = queues
        self._metadata = metadata

    def apply(self, rights_of: RightsOf, now: float) -> None:
        """Gives each session its rights, and ends what they do not allow."""
        for session in list(self._registry.sessions.values()):
            if not session.ended:
                session.grant(rights_of(session))
                if session.rights is not None:
                    self._apply_to(session, session.rights, now)
        for queue, bindings in self._bindings_of_exclusive().items():
            self._check_bindings(queue, bindings, now)

    def _apply_to(self, session: Session, rights: Rights, now: float) -> None:
        self._forget_wills(session, rights)
        texts = _refusal(rights.check_connect)
        for subscription in list(session.subscriptions.values()):
            read = read_by(subscription)
            if read is not None and not rights.may(Operation.SUBSCRIBE, read):
                text = rights.text(Operation.SUBSCRIBE, read)
                if subscription.reader.queue is None or subscription.reader.queue.ends_with_members:
                    self._end(subscription, now)
                    texts.append(text)
                elif subscription.request.polling:
                    self._queues.cancel(subscription, now)
                else:
                    subscription.let_flow(False)
                    self._registry.effects.append(Revoked(subscription, text))
        if not texts:
            return
        text = "; ".join(texts)
        if session.connected:
            self._admission.expel(session, Reason.NOT_AUTHORIZED, text, now)
        elif session.durable:
            self._metadata.deleted("client", session.client, Reason.NOT_AUTHORIZED, text)

    def _end(self, subscription: Subscription, now: float) -> None:
        """Ends a subscription. What was sent and not settled is not sent again to this client; what a group has sent to
        it goes to the others."""
        reader = subscription.reader.queue
        if reader is not None:
            queue_of(reader).unsettled.requeue_all(subscription, Reason.NOT_AUTHORIZED)
        channel = subscription.channel
        for delivery_id, delivery in list(channel.in_flight.items()):
            if delivery.subscription is subscription and not delivery.released:
                lose(subscription, delivery_id)
        channel.replay = [delivery_id for delivery_id in channel.replay if delivery_id in channel.in_flight]
        self._ending.end(subscription, Reason.NOT_AUTHORIZED, now)

    def _forget_wills(self, session: Session, rights: Rights) -> None:
        if _denied(rights, session.will):
            session.will = None
        if _denied(rights, session.pending_will):
            session.pending_will = None
            stop(session.will_due)
        session.settle_tab()

    def _bindings_of_exclusive(self) -> dict[Queue, list[Binding]]:
        found: dict[Queue, list[Binding]] = {}
        owned = {queue.name: queue_of(queue) for queues in self._registry.owned.values() for queue in queues}
        if not owned:
            return found
        for exchange in self._registry.router.exchanges.by_name.values():
            for binding in exchange.bindings.all:
                if binding.destination.kind == "queue" and (queue := owned.get(binding.destination.name)) is not None:
                    found.setdefault(queue, []).append(binding)
        return found

    def _check_bindings(self, queue: Queue, bindings: list[Binding], now: float) -> None:
        rights = None if queue.owner is None or queue.owner.ended else queue.owner.rights
        if rights is None:
            return
        exchanges, own = self._registry.router.exchanges.by_name, is_own(queue.name, queue.terms)
        for binding in bindings:
            try:
                check_binding(rights, binding, exchanges[binding.source], own=own)
            except Refused:
                self._queues.delete(queue, now)
                return


def _refusal(check: Callable[[], None]) -> list[str]:
    try:
        check()
    except Refused as refused:
        return [str(refused)]
    return []


def _denied(rights: Rights, will: Will | None) -> bool:
    return will is not None and not rights.may_publish(will.record.topic)
