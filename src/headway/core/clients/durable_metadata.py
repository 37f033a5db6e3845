"""Durable metadata: the sessions, subscriptions, queues, exchanges and bindings that outlive the process.

Each change of it is added to the ledger. Durable are: sessions that outlive their connections, and their subscriptions;
queues that were declared durable and are not exclusive; durable exchanges; bindings between durable objects; the
batches of writers. A durable subscription with acknowledgements has a durable position; of a shared subscription the
group has it. Without a ledger these methods do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headway.core.base import Reason
from headway.core.consumer import GIVEN_UP, Channel, QueueTerms, Session, SubscribeRequest, Subscription
from headway.core.delivery import EXACTLY_ONCE, durable_record
from headway.core.log import NOT_DURABLE, DurablePosition, Ledger, MetadataChange, OutOfOrderProgress
from headway.core.queue import Queue, queue_of
from headway.core.routing import PREDECLARED, Binding, Exchange, Registry

DELETION_NOTICES_MAX = 10_000

_Change = tuple[str, object, object]
"""A metadata change without its sequence."""


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


class Handoff(NamedTuple):
    """The durable data that a subscription leaves to the one that replaces it."""

    number: int
    """The subscription's number in the metadata."""
    position: DurablePosition
    out_of_order: OutOfOrderProgress


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


class DurableMetadata:
    """Adds a change to the ledger for each durable object that is made, changed or deleted."""

    def __init__(self, registry: Registry) -> None:
        self.batches: dict[str, WriterBatch] = {}
        """The last batch of each writer, by the writer's name."""
        self._registry = registry
        self._subscriptions: dict[int, Subscription] = {}
        self._listeners: dict[Queue, str] = {}
        self._deletion_notices: dict[tuple[str, str], tuple[Reason, str]] = {}

    def begin(self, ledger: Ledger) -> None:
        ledger.all_metadata = self.changes
        self._registry.ledger = ledger

    def _add_change(self, what: str, name: object, terms: object) -> None:
        assert self._registry.ledger is not None
        self._registry.ledger.change(self._registry.sequence, what, name, terms)

    # -- sessions ---------------------------------------------------------------------------------------------------

    def session(self, session: Session) -> None:
        """Journals a session that connected, disconnected, or got another expiry."""
        if self._registry.ledger is None:
            return
        if session.expiry_s > 0 and not session.ended and session.life is not GIVEN_UP:
            fresh, session.durable = not session.durable, True
            self._add_change("session", session.client, _session_terms(session))
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
        self, subscription: Subscription, *, number: int | None = None, position_number: int | None = None
    ) -> None:
        """Journals a subscription that is new or has new terms. ``number`` and ``position_number`` are the numbers that
        it had before a restart."""
        ledger = self._registry.ledger
        if ledger is None or not subscription.session.durable:
            return
        if subscription.metadata_number == 0:
            subscription.metadata_number = ledger.next_number(number)
            self._subscriptions[subscription.metadata_number] = subscription
        queue = subscription.reader.queue
        if subscription.request.qos:
            if queue is not None:
                self._track_queue(queue_of(queue), position_number)
            elif not subscription.cursor.durable_position.durable:
                position = ledger.add_position([subscription.cursor], position_number)
                subscription.cursor.durable_position = position
                position.filters = lambda: (subscription.feed.key.filter,)
                self._registry.count_durable_reader(subscription.feed, 1)
        elif queue is not None:
            self._group_changed(queue_of(queue))
        self._add_change("subscription", subscription.metadata_number, self._terms(subscription))

    def hand_off(self, old: Subscription) -> Handoff | None:
        """Takes the durable data of a subscription that is about to be replaced: its unsettled and unsent records are
        the successor's. Returns None if there is none."""
        position = old.cursor.durable_position
        if not position.durable or old.reader.queue is not None:
            return None
        out_of_order = OutOfOrderProgress(position, self._registry.sequence, old.cursor.unsent_sequence())
        for delivery in old.channel.in_flight.values():
            if delivery.cursor is old.cursor and delivery.chunk is not None:
                delivery.out_of_order, delivery.sequence = out_of_order, delivery.chunk.sequence_of(delivery.index)
                out_of_order.sent(delivery.sequence)
        position.drop(old.cursor)
        old.cursor.durable_position = NOT_DURABLE
        if not out_of_order.over:
            position.cursors.append(out_of_order)
        number, old.metadata_number = old.metadata_number, 0
        del self._subscriptions[number]
        self._registry.count_durable_reader(old.feed, -1)
        return Handoff(number, position, out_of_order)

    def take_over(self, subscription: Subscription, handoff: Handoff) -> None:
        """Gives the successor of a replaced subscription its durable data."""
        number, position, _ = handoff
        subscription.metadata_number = number
        self._subscriptions[number] = subscription
        if not subscription.request.qos:  # it needs no durable position any more
            position.forget()
            return
        position.cursors.append(subscription.cursor)
        position.moved()
        subscription.cursor.durable_position = position
        self._registry.count_durable_reader(subscription.feed, 1)

    def subscription_ended(self, subscription: Subscription) -> None:
        ledger = self._registry.ledger
        if ledger is None or not subscription.metadata_number:
            return
        self._add_change("subscription", subscription.metadata_number, None)
        del self._subscriptions[subscription.metadata_number]
        subscription.metadata_number = 0
        position, queue = subscription.cursor.durable_position, subscription.reader.queue
        if queue is not None:
            self._group_changed(queue_of(queue))
        elif position.durable:
            subscription.cursor.durable_position = NOT_DURABLE
            ledger.forget(position)
            self._registry.count_durable_reader(subscription.feed, -1)

    def _group_changed(self, queue: Queue) -> None:
        """Ends a group's durable position when no durable member with acknowledgements is left."""
        if queue.ends_with_members and not any(one.metadata_number and one.request.qos for one in queue.members):
            self.queue_ended(queue)

    def _terms(self, subscription: Subscription) -> SubscriptionTerms:
        position = subscription.cursor.durable_position
        return SubscriptionTerms(subscription.session.client, subscription.request, position.number)

    # -- queues -----------------------------------------------------------------------------------------------------

    def queue(self, queue: Queue, listener: str, *, position_number: int | None = None) -> None:
        """Journals a queue that was declared, if it is durable."""
        if self._registry.ledger is None or not queue.terms.durable or queue.terms.exclusive:
            return
        self._track_queue(queue, position_number)
        self._listeners[queue] = listener
        self._add_change("queue", queue.name, self._queue_terms(queue))

    def _track_queue(self, queue: Queue, position_number: int | None) -> None:
        ledger = self._registry.ledger
        if not queue.durable_position.durable and ledger is not None:
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
        if ledger is None or not position.durable:
            return
        queue.durable_position = NOT_DURABLE
        for cursor in (*queue.backlog.draining, *queue.backlog.cursors):
            cursor.durable_position = NOT_DURABLE
        ledger.forget(position)
        self._registry.count_durable_reader(queue.feed, -1)
        if self._listeners.pop(queue, None) is not None:
            self._add_change("queue", queue.name, None)

    def _queue_terms(self, queue: Queue) -> DurableQueueTerms:
        assert queue.durable_position.durable
        return DurableQueueTerms(queue.durable_position.number, self._listeners[queue], queue.terms)

    # -- exchanges and bindings -------------------------------------------------------------------------------------

    def exchange(self, exchange: Exchange) -> None:
        if self._registry.ledger is not None and exchange.durable:
            self._add_change("exchange", exchange.name, exchange)

    def exchange_ended(self, exchange: Exchange) -> None:
        if self._registry.ledger is not None and exchange.durable:
            self._add_change("exchange", exchange.name, None)

    def binding(self, binding: Binding, *, there: bool) -> None:
        if self._registry.ledger is not None and self.outlives(binding):
            self._add_change("binding", binding, True if there else None)

    def outlives(self, binding: Binding) -> bool:
        router = self._registry.router
        source = router.exchanges.by_name.get(binding.source)
        if source is None or not source.durable:
            return False
        if binding.destination.kind == "queue":
            queue = router.queues.get(binding.destination.name)
            return queue is not None and queue in self._listeners
        target = router.exchanges.by_name.get(binding.destination.name)
        return target is not None and target.durable

    # -- writers ----------------------------------------------------------------------------------------------------

    def batch(self, writer: str, batch: WriterBatch | None) -> None:
        """Journals that a writer began a batch or is done with it. ``batch`` None deletes the writer."""
        self.restore_batch(writer, batch)
        if self._registry.ledger is not None:
            self._add_change("batch", writer, batch)

    def restore_batch(self, writer: str, batch: WriterBatch | None) -> None:
        if batch is None:
            self.batches.pop(writer, None)
        else:
            self.batches[writer] = batch

    # -- notices for clients whose durable objects were deleted while they were away ---------------------------------

    def deleted(self, kind: str, name: str, reason: Reason, text: str) -> None:
        """Journals a notice for an absent client: a policy deleted its durable object of this kind and name."""
        if len(self._deletion_notices) < DELETION_NOTICES_MAX:
            self.restore_deletion_notice((kind, name), (reason, text))
            if self._registry.ledger is not None:
                self._add_change("deleted", (kind, name), (reason, text))

    def restore_deletion_notice(self, kind_and_name: tuple[str, str], notice: tuple[Reason, str]) -> None:
        self._deletion_notices[kind_and_name] = notice

    def deletion_notice(self, kind: str, name: str) -> tuple[Reason, str] | None:
        """Returns and removes the notice for this object, so that the client gets it once."""
        notice = self._deletion_notices.pop((kind, name), None)
        if notice is not None and self._registry.ledger is not None:
            self._add_change("deleted", (kind, name), None)
        return notice

    # -- all metadata -----------------------------------------------------------------------------------------------

    def changes(self) -> Iterator[MetadataChange | None]:
        """Yields all metadata as changes, in an order in which they can be applied; see ``Ledger.all_metadata``."""
        for kind in (self._all_exchanges, self._all_queues, self._all_bindings, self._all_sessions,
                     self._all_deletion_notices, self._all_subscriptions, self._all_batches):  # fmt: skip
            for change in kind():
                yield None if change is None else MetadataChange(self._registry.sequence, *change)

    def _all_exchanges(self) -> Iterator[_Change | None]:
        there = self._registry.router.exchanges.by_name
        predeclared = {name for name, _ in PREDECLARED}
        for name in list(there):
            exchange = there.get(name)
            durable = exchange is not None and exchange.durable and name not in predeclared
            yield ("exchange", name, exchange) if durable else None

    def _all_queues(self) -> Iterator[_Change | None]:
        for queue in list(self._listeners):
            yield ("queue", queue.name, self._queue_terms(queue)) if queue in self._listeners else None

    def _all_bindings(self) -> Iterator[_Change | None]:
        there = self._registry.router.exchanges.by_name
        for name in list(there):
            for binding in list(there[name].bindings.all) if name in there else ():
                durable = name in there and binding in there[name].bindings.all and self.outlives(binding)
                yield ("binding", binding, True) if durable else None

    def _all_sessions(self) -> Iterator[_Change | None]:
        for session in list(self._registry.sessions.values()):
            if session.durable:
                yield "session", session.client, _session_terms(session)
                yield from _underway(session)
            else:
                yield None

    def _all_deletion_notices(self) -> Iterator[_Change | None]:
        for kind_and_name in list(self._deletion_notices):
            notice = self._deletion_notices.get(kind_and_name)
            yield ("deleted", kind_and_name, notice) if notice is not None else None

    def _all_subscriptions(self) -> Iterator[_Change | None]:
        for number in list(self._subscriptions):
            subscription = self._subscriptions.get(number)
            if subscription is not None and subscription.session.durable:
                yield "subscription", number, self._terms(subscription)
            else:
                yield None  # it ended with its session; another session may have the client's name by now

    def _all_batches(self) -> Iterator[_Change | None]:
        for writer in list(self.batches):
            batch = self.batches.get(writer)
            yield ("batch", writer, batch) if batch is not None else None


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


def _session_terms(session: Session) -> SessionTerms:
    channel: Channel = session.channel
    return SessionTerms(
        session.listener, session.protocol, session.username, session.expiry_s, channel.limit,
        session.gone_since_s if not session.connected else None,
    )  # fmt: skip
