"""Keeping: which sessions, subscriptions, queues, exchanges and bindings outlive the process, and telling the ledger.

Kept are: sessions that outlive their connections; their subscriptions, with a place if records are to be acknowledged
(of a shared subscription the group has the place); queues that were declared durable and are nobody's alone; durable
exchanges; bindings between what is kept; the batches of writers. Nothing here does anything while there is no ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headway.core.base import Reason
from headway.core.consumer import GIVEN_UP, Channel, QueueTerms, Session, SubscribeRequest, Subscription
from headway.core.delivery import EXACTLY_ONCE, stands_for
from headway.core.log import Fact, Kept, Ledger, LooseEnds
from headway.core.queue import Queue, queue_of
from headway.core.routing import PREDECLARED, Binding, Exchange, Registry

OBITUARIES_MAX = 10_000

_Told = tuple[str, object, object]
"""A fact but for its sequence."""


class SessionTerms(NamedTuple):
    listener: str
    protocol: str
    username: str | None
    expiry_s: float
    credit: int
    gone_s: float | None
    """Since when its client is away; None: it is there."""


class SubscriptionTerms(NamedTuple):
    client: str
    request: SubscribeRequest
    place: int
    """Whose place is its own; 0: it has none."""


class Estate(NamedTuple):
    """What a subscription leaves to the one that replaces it."""

    number: int
    kept: Kept
    loose: LooseEnds


class QueueKeptTerms(NamedTuple):
    place: int
    listener: str
    terms: QueueTerms


class Batch(NamedTuple):
    """The last one that a writer began; see writers.py."""

    number: int
    parts: tuple[str, ...]
    """Empty: it is done."""
    sequence: int
    """The last one when it began."""
    time_s: float
    """When it began, or was done."""


class Keeping:
    def __init__(self, registry: Registry) -> None:
        self.batches: dict[str, Batch] = {}
        """By writer."""
        self._registry = registry
        self._subscriptions: dict[int, Subscription] = {}
        self._listeners: dict[Queue, str] = {}
        self._obituaries: dict[tuple[str, str], tuple[Reason, str]] = {}

    def begin(self, ledger: Ledger) -> None:
        ledger.all_facts = self.facts
        self._registry.ledger = ledger

    def _say(self, what: str, name: object, terms: object) -> None:
        assert self._registry.ledger is not None
        self._registry.ledger.fact(self._registry.sequence, what, name, terms)

    # -- sessions ---------------------------------------------------------------------------------------------------

    def session(self, session: Session) -> None:
        """It has come, or gone, or is to live for another time."""
        if self._registry.ledger is None:
            return
        if session.expiry_s > 0 and not session.ended and session.life is not GIVEN_UP:
            fresh, session.kept = not session.kept, True
            self._say("session", session.client, _session_terms(session))
            for subscription in session.subscriptions.values() if fresh else ():
                self.subscription(subscription)
        elif session.kept:
            self.session_ended(session)
            for subscription in session.subscriptions.values():
                self.subscription_ended(subscription)

    def session_ended(self, session: Session) -> None:
        if session.kept:
            session.kept = False
            self._say("session", session.client, None)

    def arrived(self, session: Session, packet_id: int, *, there: bool) -> None:
        """Should it come again, it is known."""
        if there:
            session.incoming.add(packet_id)
        elif not session.incoming.discard(packet_id):
            return
        if session.kept:
            self._say("arrived", (session.client, packet_id), there or None)

    # -- subscriptions ----------------------------------------------------------------------------------------------

    def subscription(self, subscription: Subscription, *, number: int | None = None, place: int | None = None) -> None:
        """There is a new one, or its terms have changed; ``number`` and ``place``: those it had before."""
        ledger = self._registry.ledger
        if ledger is None or not subscription.session.kept:
            return
        if subscription.number_kept == 0:
            subscription.number_kept = ledger.next_number(number)
            self._subscriptions[subscription.number_kept] = subscription
        queue = subscription.reader.queue
        if subscription.request.qos:
            if queue is not None:
                self._keep_queue(queue_of(queue), place)
            elif subscription.cursor.kept is None:
                kept = subscription.cursor.kept = ledger.keep([subscription.cursor], place)
                kept.filters = lambda: (subscription.feed.key.filter,)
                self._registry.count_durable_reader(subscription.feed, 1)
        elif queue is not None:
            self._group_changed(queue_of(queue))
        self._say("subscription", subscription.number_kept, self._terms(subscription))

    def loosen(self, old: Subscription) -> Estate | None:
        """A subscription is to be replaced: what its client has not settled, and what it had still to be given, is its
        successor's. None: it leaves nothing that is kept."""
        kept = old.cursor.kept
        if kept is None or old.reader.queue is not None:
            return None
        loose = LooseEnds(kept, self._registry.sequence, old.cursor.fresh_sequence())
        for delivery in old.channel.in_flight.values():
            if delivery.cursor is old.cursor and delivery.chunk is not None:
                delivery.loose, delivery.sequence = loose, delivery.chunk.sequence_of(delivery.index)
                loose.sent(delivery.sequence)
        kept.drop(old.cursor)
        old.cursor.kept = None
        if not loose.over:
            kept.cursors.append(loose)
        number, old.number_kept = old.number_kept, 0
        del self._subscriptions[number]
        self._registry.count_durable_reader(old.feed, -1)
        return Estate(number, kept, loose)

    def inherit(self, subscription: Subscription, estate: Estate) -> None:
        """The successor is there."""
        number, kept, _ = estate
        subscription.number_kept = number
        self._subscriptions[number] = subscription
        if not subscription.request.qos:  # nothing is kept for it any more
            kept.forget()
            return
        kept.cursors.append(subscription.cursor)
        kept.moved()
        subscription.cursor.kept = kept
        self._registry.count_durable_reader(subscription.feed, 1)

    def subscription_ended(self, subscription: Subscription) -> None:
        ledger = self._registry.ledger
        if ledger is None or not subscription.number_kept:
            return
        self._say("subscription", subscription.number_kept, None)
        del self._subscriptions[subscription.number_kept]
        subscription.number_kept = 0
        kept, queue = subscription.cursor.kept, subscription.reader.queue
        if queue is not None:
            self._group_changed(queue_of(queue))
        elif kept is not None:
            subscription.cursor.kept = None
            ledger.forget(kept)
            self._registry.count_durable_reader(subscription.feed, -1)

    def _group_changed(self, queue: Queue) -> None:
        """A group has a place as long as one of its members is durable and acknowledges."""
        if queue.ends_with_members and not any(one.number_kept and one.request.qos for one in queue.members):
            self.queue_ended(queue)

    def _terms(self, subscription: Subscription) -> SubscriptionTerms:
        kept = subscription.cursor.kept
        return SubscriptionTerms(subscription.session.client, subscription.request, kept.number if kept else 0)

    # -- queues -----------------------------------------------------------------------------------------------------

    def queue(self, queue: Queue, listener: str, *, place: int | None = None) -> None:
        """It was declared."""
        if self._registry.ledger is None or not queue.terms.durable or queue.terms.exclusive:
            return
        self._keep_queue(queue, place)
        self._listeners[queue] = listener
        self._say("queue", queue.name, self._queue_terms(queue))

    def _keep_queue(self, queue: Queue, place: int | None) -> None:
        ledger = self._registry.ledger
        if queue.kept is None and ledger is not None:
            backlog = queue.backlog
            queue.kept = ledger.keep([*backlog.settling, *backlog.cursors], place)
            queue.kept.filters = lambda: queue.filters[:-1] or (queue.feed.key.filter,)
            for cursor in (*backlog.settling, *backlog.cursors):
                cursor.kept = queue.kept
            self._registry.count_durable_reader(queue.feed, 1)

    def queue_ended(self, queue: Queue) -> None:
        """Of a group, nothing is to be said but through its members."""
        ledger, kept = self._registry.ledger, queue.kept
        if ledger is None or kept is None:
            return
        queue.kept = None
        for cursor in (*queue.backlog.settling, *queue.backlog.cursors):
            cursor.kept = None
        ledger.forget(kept)
        self._registry.count_durable_reader(queue.feed, -1)
        if self._listeners.pop(queue, None) is not None:
            self._say("queue", queue.name, None)

    def _queue_terms(self, queue: Queue) -> QueueKeptTerms:
        assert queue.kept is not None
        return QueueKeptTerms(queue.kept.number, self._listeners[queue], queue.terms)

    # -- exchanges and bindings -------------------------------------------------------------------------------------

    def exchange(self, exchange: Exchange) -> None:
        if self._registry.ledger is not None and exchange.durable:
            self._say("exchange", exchange.name, exchange)

    def exchange_ended(self, exchange: Exchange) -> None:
        if self._registry.ledger is not None and exchange.durable:
            self._say("exchange", exchange.name, None)

    def binding(self, binding: Binding, *, there: bool) -> None:
        if self._registry.ledger is not None and self.outlives(binding):
            self._say("binding", binding, True if there else None)

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

    def batch(self, writer: str, batch: Batch | None) -> None:
        """It has begun one, or is done with it; None: there is no such writer any more."""
        self.restore_batch(writer, batch)
        if self._registry.ledger is not None:
            self._say("batch", writer, batch)

    def restore_batch(self, writer: str, batch: Batch | None) -> None:
        if batch is None:
            self.batches.pop(writer, None)
        else:
            self.batches[writer] = batch

    # -- those who were away when theirs was deleted ----------------------------------------------------------------

    def deleted(self, kind: str, name: str, reason: Reason, text: str) -> None:
        """A policy deleted something durable whose client is away: it is to be told when it comes."""
        if len(self._obituaries) < OBITUARIES_MAX:
            self.restore_obituary((kind, name), (reason, text))
            if self._registry.ledger is not None:
                self._say("deleted", (kind, name), (reason, text))

    def restore_obituary(self, of: tuple[str, str], told: tuple[Reason, str]) -> None:
        self._obituaries[of] = told

    def obituary(self, kind: str, name: str) -> tuple[Reason, str] | None:
        """What somebody is to be told, once."""
        told = self._obituaries.pop((kind, name), None)
        if told is not None and self._registry.ledger is not None:
            self._say("deleted", (kind, name), None)
        return told

    # -- all there is -----------------------------------------------------------------------------------------------

    def facts(self) -> Iterator[Fact | None]:
        """In an order in which they can be made again; see ``Ledger.all_facts``."""
        for kind in (self._all_exchanges, self._all_queues, self._all_bindings, self._all_sessions,
                     self._all_obituaries, self._all_subscriptions, self._all_batches):  # fmt: skip
            for told in kind():
                yield None if told is None else Fact(self._registry.sequence, *told)

    def _all_exchanges(self) -> Iterator[_Told | None]:
        there = self._registry.router.exchanges.by_name
        predeclared = {name for name, _ in PREDECLARED}
        for name in list(there):
            exchange = there.get(name)
            said = exchange is not None and exchange.durable and name not in predeclared
            yield ("exchange", name, exchange) if said else None

    def _all_queues(self) -> Iterator[_Told | None]:
        for queue in list(self._listeners):
            yield ("queue", queue.name, self._queue_terms(queue)) if queue in self._listeners else None

    def _all_bindings(self) -> Iterator[_Told | None]:
        there = self._registry.router.exchanges.by_name
        for name in list(there):
            for binding in list(there[name].bindings.all) if name in there else ():
                said = name in there and binding in there[name].bindings.all and self.outlives(binding)
                yield ("binding", binding, True) if said else None

    def _all_sessions(self) -> Iterator[_Told | None]:
        for session in list(self._registry.sessions.values()):
            if session.kept:
                yield "session", session.client, _session_terms(session)
                yield from _underway(session)
            else:
                yield None

    def _all_obituaries(self) -> Iterator[_Told | None]:
        for of in list(self._obituaries):
            told = self._obituaries.get(of)
            yield ("deleted", of, told) if told is not None else None

    def _all_subscriptions(self) -> Iterator[_Told | None]:
        for number in list(self._subscriptions):
            subscription = self._subscriptions.get(number)
            if subscription is not None and subscription.session.kept:
                yield "subscription", number, self._terms(subscription)
            else:
                yield None  # it ended with its session, whose name may be another's by now

    def _all_batches(self) -> Iterator[_Told | None]:
        for writer in list(self.batches):
            batch = self.batches.get(writer)
            yield ("batch", writer, batch) if batch is not None else None


def _underway(session: Session) -> Iterator[_Told | None]:
    """What of exactly-once deliveries is under way, in and out."""
    channel = session.channel
    for packet_id in list(session.incoming):
        if not session.kept:
            return
        yield ("arrived", (session.client, packet_id), True) if packet_id in session.incoming else None
    for delivery_id in list(channel.in_flight):
        delivery = channel.in_flight.get(delivery_id)
        if not session.kept:
            return
        if delivery is not None and delivery.subscription.request.qos == EXACTLY_ONCE:
            kept, sequence = stands_for(delivery)
            place = kept.number if kept is not None and sequence else 0
            yield "flight", (session.client, delivery_id), (place, sequence, delivery.released)
        else:
            yield None
    for delivery_id in list(channel.doubtful):
        if not session.kept:
            return
        # One that was let go of meanwhile may be released once more; but not one that is in use again.
        yield ("flight", (session.client, delivery_id), (0, 0, True)) if delivery_id not in channel.in_flight else None


def _session_terms(session: Session) -> SessionTerms:
    channel: Channel = session.channel
    return SessionTerms(
        session.listener, session.protocol, session.username, session.expiry_s, channel.limit,
        session.gone_since_s if session.outlet is None else None,
    )  # fmt: skip
