"""All metadata: every durable object as a change, for a snapshot of the journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headway.core.clients.durability.durable_objects import DurableObjects, session_terms, subscription_terms
from headway.core.consumer import Session
from headway.core.delivery import EXACTLY_ONCE, durable_record
from headway.core.log import MetadataChange
from headway.core.routing import PREDECLARED, Registry

_Change = tuple[str, object, object]
"""A metadata change without its sequence."""


class AllMetadata:
    """Yields all durable objects, over many turns. Between two steps they may change: each change is journaled, too."""

    def __init__(self, registry: Registry, objects: DurableObjects) -> None:
        self._registry = registry
        self._objects = objects

    def changes(self) -> Iterator[MetadataChange | None]:
        """Yields all metadata as changes, in an order in which they can be applied; see ``Ledger.all_metadata``."""
        objects = self._objects
        for kind in (self._exchanges(), self._queues(), self._bindings(), self._sessions(),
                     _all_of("deleted", objects.deletion_notices), self._subscriptions(),
                     _all_of("batch", objects.batches)):  # fmt: skip
            for change in kind:
                yield None if change is None else MetadataChange(self._registry.sequence, *change)

    def _exchanges(self) -> Iterator[_Change | None]:
        there = self._registry.router.exchanges.by_name
        predeclared = {name for name, _ in PREDECLARED}
        for name in list(there):
            exchange = there.get(name)
            durable = exchange is not None and exchange.durable and name not in predeclared
            yield ("exchange", name, exchange) if durable else None

    def _queues(self) -> Iterator[_Change | None]:
        for queue in list(self._objects.listeners):
            yield ("queue", queue.name, self._objects.queue_terms(queue)) if queue in self._objects.listeners else None

    def _bindings(self) -> Iterator[_Change | None]:
        there = self._registry.router.exchanges.by_name
        for name in list(there):
            for binding in list(there[name].bindings.all) if name in there else ():
                durable = name in there and binding in there[name].bindings.all and self._objects.outlives(binding)
                yield ("binding", binding, True) if durable else None

    def _sessions(self) -> Iterator[_Change | None]:
        for session in list(self._registry.sessions.values()):
            if session.durable:
                yield "session", session.client, session_terms(session)
                yield from _underway(session)
            else:
                yield None

    def _subscriptions(self) -> Iterator[_Change | None]:
        for number in list(self._objects.subscriptions):
            subscription = self._objects.subscriptions.get(number)
            if subscription is not None and subscription.session.durable:
                yield "subscription", number, subscription_terms(subscription)
            else:
                yield None  # it ended with its session; another session may have the client's name by now


def _all_of(what: str, table: Mapping[Any, object]) -> Iterator[_Change | None]:
    for name in list(table):
        yield (what, name, table[name]) if name in table else None


def _underway(session: Session) -> Iterator[_Change | None]:
    """Yields the unfinished exactly-once publishes and deliveries of a session."""
    channel = session.channel
    for packet_id in list(session.incoming):
        if not session.durable:
            return
        yield ("arrived", (session.client, packet_id), True) if packet_id in session.incoming else None
    for delivery_id in list(channel.in_flight):
        delivery = channel.in_flight.get(delivery_id)
        if not session.durable:
            return
        if delivery is not None and delivery.subscription.request.qos == EXACTLY_ONCE:
            position, sequence = durable_record(delivery)
            position_number = position.number if sequence else 0
            yield "flight", (session.client, delivery_id), (position_number, sequence, delivery.released)
        else:
            yield None
    for delivery_id in list(channel.orphaned_ids):
        if not session.durable:
            return
        # An id that was freed meanwhile may be released once more. An id that is in use again must not be.
        yield ("flight", (session.client, delivery_id), (0, 0, True)) if delivery_id not in channel.in_flight else None
