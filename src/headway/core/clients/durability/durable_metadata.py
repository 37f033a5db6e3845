"""Durable metadata: the sessions, subscriptions, queues, exchanges and bindings that outlive the process.

Each change of it is added to the ledger. Durable are: sessions that outlive their connections, and their subscriptions;
queues that were declared durable and are not exclusive; durable exchanges; bindings between durable objects; the
batches of writers. A durable subscription with acknowledgements has a durable position; of a shared subscription the
group has it. Without a journal nothing is durable.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.core.base import Reason
from headway.core.clients.durability.all_metadata import AllMetadata
from headway.core.clients.durability.durable_objects import (
    DurableObjects,
    WriterBatch,
    session_terms,
    subscription_terms,
)
from headway.core.consumer import GIVEN_UP, Delivery, Session, Subscription
from headway.core.log import NOT_DURABLE, DurablePosition, Ledger, OutOfOrderProgress
from headway.core.queue import Queue, queue_behind
from headway.core.routing import Binding, Exchange, Registry

DELETION_NOTICES_MAX = 10_000


class Handoff(NamedTuple):
    """The durable data that a subscription leaves to the one that replaces it."""

    number: int
    """The subscription's number in the metadata."""
    position: DurablePosition
    out_of_order: OutOfOrderProgress
    deliveries: list[tuple[Delivery, int]]
    """Those that the client has not settled, each with the sequence of its record."""


class DurableMetadata:
    """Adds a change to the ledger for each durable object that is made, changed or deleted."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.objects = DurableObjects(registry)

    def begin(self, ledger: Ledger) -> None:
        ledger.all_metadata = AllMetadata(self._registry, self.objects).changes
        self._registry.ledger = ledger

    def _add_change(self, what: str, name: object, terms: object) -> None:
        self._registry.ledger.change(self._registry.sequence, what, name, terms)

    # -- sessions ---------------------------------------------------------------------------------------------------

    def session(self, session: Session) -> None:
        """Journals a session that connected, disconnected, or got another expiry."""
        if not self._registry.ledger.journals:
            return
        if session.expiry_s > 0 and not session.ended and session.life is not GIVEN_UP:
            fresh, session.durable = not session.durable, True
            self._add_change("session", session.client, session_terms(session))
            for subscription in session.subscriptions.values() if fresh else ():
                self.subscription(subscription)
        elif session.durable:
            self.session_ended(session)
            for subscription in session.subscriptions.values():
                self.subscription_ended(subscription)

    def session_ended(self, session: Session) -> None:
        if session.durable:
            session.durable = False
            self._add_change("session", session.client, None)

    def note_incoming(self, session: Session, packet_id: int, *, there: bool) -> None:
        """Journals that an exactly-once publish with this id has arrived, or (``there`` False) that it is released. A
        second publish with a known id is recognised as a duplicate."""
        if there:
            session.incoming.add(packet_id)
        elif not session.incoming.discard(packet_id):
            return
        if session.durable:
            self._add_change("arrived", (session.client, packet_id), there or None)

    # -- subscriptions ----------------------------------------------------------------------------------------------

    def subscription(
        self, subscription: Subscription, *, number: int = 0, position_number: int = 0
    ) -> None:
        """Journals a subscription that is new or has new terms. ``number`` and ``position_number`` are the numbers that
        it had before a restart; 0: it had none."""
        ledger = self._registry.ledger
        if not ledger.journals or not subscription.session.durable:
            return
        if subscription.metadata_number == 0:
            subscription.metadata_number = ledger.next_number(number)
            self.objects.subscriptions[subscription.metadata_number] = subscription
        queue = queue_behind(subscription)
        if subscription.request.qos:
            if queue is not None:
                self._track_queue(queue, position_number)
            elif not subscription.cursor.durable_position.durable:
                position = ledger.add_position([subscription.cursor], position_number)
                subscription.cursor.durable_position = position
                position.filters = lambda: (subscription.feed.key.filter,)
                self._registry.count_durable_reader(subscription.feed, 1)
        elif queue is not None:
            self._group_changed(queue)
        self._add_change("subscription", subscription.metadata_number, subscription_terms(subscription))

    def hand_off(self, old: Subscription) -> Handoff | None:
        """Takes the durable data of a subscription that is about to be replaced: its unsettled and unsent records are
        the successor's. Returns None if there is none."""
        position = old.cursor.durable_position
        if not position.durable or old.reader.queue is not None:
            return None
        out_of_order = OutOfOrderProgress(position, self._registry.sequence, old.cursor.unsent_sequence())
        deliveries = [
            (delivery, delivery.chunk.sequence_of(delivery.index)) for delivery in old.channel.in_flight.values()
            if delivery.cursor is old.cursor and delivery.chunk is not None
        ]  # fmt: skip
        for _, sequence in deliveries:
            out_of_order.sent(sequence)
        position.drop(old.cursor)
        old.cursor.durable_position = NOT_DURABLE
        if not out_of_order.over:
            position.cursors.append(out_of_order)
        number, old.metadata_number = old.metadata_number, 0
        del self.objects.subscriptions[number]
        self._registry.count_durable_reader(old.feed, -1)
        return Handoff(number, position, out_of_order, deliveries)

    def take_over(self, subscription: Subscription, handoff: Handoff) -> None:
        """Gives the successor of a replaced subscription its durable data."""
        number, position, out_of_order, deliveries = handoff
        for delivery, sequence in deliveries:
            delivery.cursor, delivery.number = out_of_order, sequence
        subscription.metadata_number = number
        self.objects.subscriptions[number] = subscription
        if not subscription.request.qos:  # it needs no durable position any more
            position.forget()
            return
        position.cursors.append(subscription.cursor)
        position.moved()
        subscription.cursor.durable_position = position
        self._registry.count_durable_reader(subscription.feed, 1)

    def subscription_ended(self, subscription: Subscription) -> None:
        if not subscription.metadata_number:
            return
        self._add_change("subscription", subscription.metadata_number, None)
        del self.objects.subscriptions[subscription.metadata_number]
        subscription.metadata_number = 0
        position, queue = subscription.cursor.durable_position, queue_behind(subscription)
        if queue is not None:
            self._group_changed(queue)
        elif position.durable:
            subscription.cursor.durable_position = NOT_DURABLE
            self._registry.ledger.forget(position)
            self._registry.count_durable_reader(subscription.feed, -1)

    def _group_changed(self, queue: Queue) -> None:
        """Ends a group's durable position when no durable member with acknowledgements is left."""
        if queue.ends_with_members and not any(one.metadata_number and one.request.qos for one in queue.members):
            self.queue_ended(queue)

    # -- queues -----------------------------------------------------------------------------------------------------

    def queue(self, queue: Queue, listener: str, *, position_number: int = 0) -> None:
        """Journals a queue that was declared, if it is durable."""
        if not self._registry.ledger.journals or not queue.terms.durable or queue.terms.exclusive:
            return
        self._track_queue(queue, position_number)
        self.objects.listeners[queue] = listener
        self._add_change("queue", queue.name, self.objects.queue_terms(queue))

    def _track_queue(self, queue: Queue, position_number: int) -> None:
        ledger = self._registry.ledger
        if not queue.durable_position.durable and ledger.journals:
            backlog = queue.backlog
            queue.durable_position = ledger.add_position([*backlog.draining, *backlog.cursors], position_number)
            queue.durable_position.filters = lambda: queue.filters[:-1] or (queue.feed.key.filter,)
            for cursor in (*backlog.draining, *backlog.cursors):
                cursor.durable_position = queue.durable_position
            self._registry.count_durable_reader(queue.feed, 1)

    def queue_ended(self, queue: Queue) -> None:
        """Ends a queue's durable position, and journals the deletion of a declared queue. A group has no change of its
        own: the changes of its members tell when it ends."""
        ledger, position = self._registry.ledger, queue.durable_position
        if not position.durable:
            return
        queue.durable_position = NOT_DURABLE
        for cursor in (*queue.backlog.draining, *queue.backlog.cursors):
            cursor.durable_position = NOT_DURABLE
        ledger.forget(position)
        self._registry.count_durable_reader(queue.feed, -1)
        if self.objects.listeners.pop(queue, None) is not None:
            self._add_change("queue", queue.name, None)

    # -- exchanges and bindings -------------------------------------------------------------------------------------

    def exchange(self, exchange: Exchange, *, there: bool) -> None:
        if exchange.durable:
            self._add_change("exchange", exchange.name, exchange if there else None)

    def binding(self, binding: Binding, *, there: bool) -> None:
        if self._registry.ledger.journals and self.objects.outlives(binding):
            self._add_change("binding", binding, True if there else None)

    # -- writers ----------------------------------------------------------------------------------------------------

    def batch(self, writer: str, batch: WriterBatch | None) -> None:
        """Journals that a writer began a batch or is done with it. ``batch`` None deletes the writer."""
        self.restore_batch(writer, batch)
        self._add_change("batch", writer, batch)

    def restore_batch(self, writer: str, batch: WriterBatch | None) -> None:
        batches, unfinished = self.objects.batches, self.objects.unfinished
        batches.pop(writer, None)
        unfinished.pop(writer, None)
        if batch is not None:
            batches[writer] = batch
            if batch.parts:
                unfinished[writer] = batch

    # -- notices for clients whose durable objects were deleted while they were away ---------------------------------

    def deleted(self, kind: str, name: str, reason: Reason, text: str) -> None:
        """Journals a notice for an absent client: a policy deleted its durable object of this kind and name."""
        if len(self.objects.deletion_notices) < DELETION_NOTICES_MAX:
            self.restore_deletion_notice((kind, name), (reason, text))
            self._add_change("deleted", (kind, name), (reason, text))

    def restore_deletion_notice(self, kind_and_name: tuple[str, str], notice: tuple[Reason, str]) -> None:
        self.objects.deletion_notices[kind_and_name] = notice

    def deletion_notice(self, kind: str, name: str) -> tuple[Reason, str] | None:
        """Returns and removes the notice for this object, so that the client gets it once."""
        notice = self.objects.deletion_notices.pop((kind, name), None)
        if notice is not None:
            self._add_change("deleted", (kind, name), None)
        return notice
