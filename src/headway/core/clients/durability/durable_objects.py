"""Durable objects: what the journal keeps of sessions, subscriptions, queues and writers, and which there are."""

from __future__ import annotations

from typing import NamedTuple

from headway.core.base import Reason
from headway.core.consumer import QueueTerms, Session, SubscribeRequest, Subscription
from headway.core.permission import Identity
from headway.core.queue import Queue
from headway.core.routing import Binding, Registry


class SessionTerms(NamedTuple):
    listener: str
    protocol: str
    username: str | None
    expiry_s: float
    credit: int
    gone_s: float | None
    """The time when the client disconnected; None while it is connected."""


class SubscriptionTerms(NamedTuple):
    client: str
    request: SubscribeRequest
    position_number: int
    """The number of its durable position; 0 if it has none."""


class DurableQueueTerms(NamedTuple):
    position_number: int
    listener: str
    terms: QueueTerms


class WriterBatch(NamedTuple):
    """The last batch that a writer began; see writers.py."""

    number: int
    parts: tuple[str, ...]
    """The names of its parts; empty when the batch is done."""
    sequence: int
    """The newest sequence of the broker when the batch began."""
    time_s: float
    """The time when the batch began, or was done."""
    user: Identity | None = None
    """The user who asked for it; None: it is done, or it was begun by a release that did not write that down."""


class DurableObjects:
    """The durable objects that no other table has."""

    def __init__(self, registry: Registry) -> None:
        self.subscriptions: dict[int, Subscription] = {}
        """By their numbers in the metadata."""
        self.listeners: dict[Queue, str] = {}
        """The declared queues, each with its listener."""
        self.deletion_notices: dict[tuple[str, str], tuple[Reason, str]] = {}
        """By the kind and the name of what was deleted."""
        self.batches: dict[str, WriterBatch] = {}
        """The last batch of each writer, by the writer's name."""
        self.unfinished: dict[str, WriterBatch] = {}
        """Those of ``batches`` that are not done."""
        self._registry = registry

    def queue_terms(self, queue: Queue) -> DurableQueueTerms:
        assert queue.durable_position.durable
        return DurableQueueTerms(queue.durable_position.number, self.listeners[queue], queue.terms)

    def outlives(self, binding: Binding) -> bool:
        """Tells whether the binding is durable."""
        router = self._registry.router
        exchanges = router.exchanges.by_name
        source = exchanges.get(binding.source)
        if source is None or not source.durable:
            return False
        if binding.destination.kind == "queue":
            queue = router.queues.get(binding.destination.name)
            return queue is not None and queue in self.listeners
        target = exchanges.get(binding.destination.name)
        return target is not None and target.durable


def session_terms(session: Session) -> SessionTerms:
    return SessionTerms(
        session.listener, session.protocol, session.username, session.expiry_s, session.channel.limit,
        session.gone_since_s if not session.connected else None,
    )  # fmt: skip


def subscription_terms(subscription: Subscription) -> SubscriptionTerms:
    position = subscription.cursor.durable_position
    return SubscriptionTerms(subscription.session.client, subscription.request, position.number)
