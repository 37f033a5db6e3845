"""The objects that outlive the process: their changes, all of them, and what is left of them after a crash."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any, NamedTuple

from headway.core.base import Reason
from headway.core.consumer import GIVEN_UP, Delivery, QueueTerms, Session, SubscribeRequest, Subscription
from headway.core.delivery import EXACTLY_ONCE, durable_record
from headway.core.log import NOT_DURABLE, CommittedPosition, DurablePosition, Ledger, MetadataChange, OutOfOrderProgress
from headway.core.permission import Identity
from headway.core.queue import Queue, queue_behind
from headway.core.routing import PREDECLARED, Binding, Destination, Exchange, Exchanges, Registry

# -- durable objects ---------------------------------------------------------------------------------------------------
#
# Durable objects: what the journal keeps of sessions, subscriptions, queues and writers, and which there are.


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


# -- recovered position ------------------------------------------------------------------------------------------------
#
# A recovered position is what the journal says of a durable position: which records are settled.


PAIRS_MAX = 1000
"""The number of settled ranges that it holds before it drops those that are before ``upto``."""


class RecoveredPosition:
    """A position as the journal's entries give it: all records before ``upto`` and in the settled ranges are settled.
    """

    __slots__ = ("_limit", "_pairs", "conflated", "unsent", "upto")

    def __init__(self, position: CommittedPosition) -> None:
        self._pairs: list[tuple[int, int]] = []
        self._limit = PAIRS_MAX
        self.replace(position)

    def replace(self, position: CommittedPosition) -> None:
        """Replaces all earlier positions by this one, which is complete."""
        self._pairs.clear()
        self.add(position)

    def add(self, position: CommittedPosition) -> None:
        """Adds a later committed position."""
        self.upto, self.conflated = position.upto, not position.unsent
        self.unsent = position.unsent or max((position.upto, *(end + 1 for end in position.settled[1::2])))
        if position.settled:
            self._pairs += zip(position.settled[::2], position.settled[1::2], strict=True)
            if len(self._pairs) > self._limit:
                self._pairs = [pair for pair in self._pairs if pair[1] >= self.upto]
                self._limit = max(PAIRS_MAX, 2 * len(self._pairs))

    def covers(self, sequence: int) -> bool:
        """Tells whether this record is in a settled range. Called after ``close``."""
        at = bisect_right(self._pairs, (sequence, inf)) - 1
        return at >= 0 and sequence <= self._pairs[at][1]

    def position(self, number: int) -> CommittedPosition:
        """Returns all of it as one committed position with this number."""
        above = [end for pair in self._pairs if pair[1] >= self.upto for end in pair]
        return CommittedPosition(number, self.upto, 0 if self.conflated else self.unsent, tuple(above))

    def close(self) -> None:
        """Merges the ranges, after the last position was added."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted(self._pairs):
            if merged and first <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(last, merged[-1][1])
            else:
                merged.append((first, last))
        self._pairs = merged


# -- all metadata ------------------------------------------------------------------------------------------------------
#
# All metadata: every durable object as a change, for a snapshot of the journal.


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


# -- folding -----------------------------------------------------------------------------------------------------------
#
# Folding reduces all metadata changes of a journal (durable.py) to those that still matter at its end.
#
# Theory of operation. Most changes in a journal are obsolete: the sessions, subscriptions and queues have ended.
# Folding forgets an ended session, subscription or queue as soon as it reads the change that ends it. So its memory
# depends on those that are alive, and on how often exchanges and the bindings of present queues changed. It returns the
# remaining changes in this order: the sessions; then the changes that decide the way of records, each at its sequence
# (subscriptions and queues with durable positions, exchanges, bindings); then the changes of which only the last state
# counts.
#
# Rules:
# - A subscription is restored once, with its last terms, at the sequence where its durable position began. The position
#   of a shared subscription began before the present members joined, because the group's records are older.
# - All bindings that a present queue ever had are restored for the time that they existed, because they decide which
#   records the queue has. So are the exchanges between, also those that were deleted.
# - Some objects end without a change of their own: a binding with either of its ends, an auto-delete exchange with its
#   last binding, a subscription with its session. Folding adds these changes.
# - A snapshot is complete, unless something else stands in it, or its first entry is missing. An object that is not
#   known yet begins with it at the latest. An object that it does not mention has ended. (The changes between it and
#   the
#   snapshot before may have been deleted.)


OWN = {name for name, _ in PREDECLARED}


class RecoveredChange(NamedTuple):
    """A metadata change that recovery applies behind sequence ``at``."""

    at: float
    change: MetadataChange


class _Client:
    """A session that has not ended, with its subscriptions."""

    __slots__ = ("ids", "session", "subscriptions")

    def __init__(self, session: MetadataChange) -> None:
        self.session = session
        self.subscriptions: dict[object, MetadataChange] = {}
        self.ids: dict[tuple[str, object], MetadataChange] = {}
        """The client's unfinished exactly-once publishes and deliveries."""


class _Position:
    """A durable position: the sequence at which it began, and the number of its owners."""

    __slots__ = ("began", "owners", "recovered")

    def __init__(self, number: int, began: int) -> None:
        self.began = began
        self.owners = 0
        self.recovered = RecoveredPosition(CommittedPosition(number, began + 1, began + 1, ()))


class _Routes(Exchanges):
    """Exchanges and bindings at the present point of the journal. Reports each that is made or deleted."""

    def __init__(self, report: Callable[[str, object, object], None]) -> None:
        super().__init__()
        self._report = report

    def bind(self, binding: Binding) -> bool:
        fresh = binding.source in self.by_name and super().bind(binding)
        if fresh:
            self._report("binding", binding, True)
        return fresh

    def _unbind(self, binding: Binding) -> bool:
        there = super()._unbind(binding)
        if there:
            self._report("binding", binding, None)
        return there

    def _end(self, name: str) -> None:
        self._report("exchange", name, None)
        super()._end(name)


class Folding:
    """Reads all changes and positions of a journal, and returns those that still matter."""

    def __init__(self) -> None:
        self.reserved = 0
        """The sequences up to this one may have been used."""
        self._clients: dict[str, _Client] = {}
        self._client_of: dict[object, _Client] = {}
        """The client of each subscription, by the subscription's number."""
        self._positions: dict[int, _Position] = {}
        self._queues: dict[str, list[MetadataChange]] = {}
        """Each queue's declaration, and all changes of its bindings."""
        self._routes = _Routes(self._route_changed)
        self._route_changes: list[MetadataChange] = []
        """All changes of exchanges and of bindings between exchanges."""
        self._last: dict[tuple[str, object], MetadataChange] = {}
        """The last change of each object of which only the last state counts."""
        self._sequence = 0
        self._mentioned: set[tuple[str, object]] | None = None
        """The objects that the present snapshot has mentioned so far; None outside of a snapshot."""

    # -- the entries of the journal, in order -----------------------------------------------------------------------

    def change(self, change: MetadataChange, *, again: bool) -> None:
        """Folds a change. ``again`` says that it is from a snapshot."""
        self._sequence, what, name, terms = change
        if not again:
            self._mentioned = None  # an unfinished snapshot does not count
        elif what == "reserved":  # it is the first entry of each
            self._mentioned = {(what, name)}
        elif self._mentioned is not None:
            self._mentioned.add((what, name))
        match what, terms:
            case "reserved", int():
                self.reserved = terms  # fewer than before, if the broker gave some back
            case "session", SessionTerms():
                self._session(str(name), change)
            case "session", None:
                self._session_ended(str(name))
            case "subscription", SubscriptionTerms():
                self._subscription(change, terms)
            case "subscription", None:
                self._subscription_ended(name)
            case (("arrived" | "flight"), _):
                self._unfinished(change, again=again)
            case "queue", DurableQueueTerms():
                self._queue(str(name), change, terms)
            case "queue", None:
                self._queue_ended(str(name))
            case "exchange", _:
                self._exchange(str(name), change)
            case "binding", _:
                self._binding(change)
            case _, None:
                self._last.pop((what, name), None)
            case _:
                self._last[what, name] = change

    def snapshot_ended(self) -> None:
        """Ends all objects that a complete snapshot did not mention."""
        mentioned, self._mentioned = self._mentioned, None
        if mentioned is None:
            return
        there: list[tuple[str, object]] = [("session", name) for name in self._clients]
        there += (("subscription", number) for number in self._client_of)
        there += (("queue", name) for name in self._queues)
        there += (("binding", binding) for way in self._routes.by_name.values() for binding in way.bindings.all)
        there += (("exchange", name) for name in self._routes.by_name if name not in OWN)
        there += (key for client in self._clients.values() for key in client.ids if key[0] == "arrived")
        there += self._last
        for what, name in there:
            if (what, name) not in mentioned:
                self.change(MetadataChange(self._sequence, what, name, None), again=False)

    def position(self, position: CommittedPosition, *, again: bool) -> None:
        """Folds a committed position. ``again`` says that it is from a snapshot, and so is complete."""
        known = self._positions.get(position.number)
        if known is None:
            return  # its owner has ended
        if again:
            known.recovered.replace(position)
        else:
            known.recovered.add(position)

    # -- sessions and subscriptions ---------------------------------------------------------------------------------

    def _session(self, client: str, change: MetadataChange) -> None:
        self._clients.setdefault(client, _Client(change)).session = change

    def _session_ended(self, client: str) -> None:
        known = self._clients.pop(client, None)
        for number in list(known.subscriptions) if known is not None else ():
            self._subscription_ended(number)

    def _subscription(self, change: MetadataChange, terms: SubscriptionTerms) -> None:
        self._subscription_ended(change.name, instead=terms.position_number)
        client = self._clients.get(terms.client)
        if client is not None:
            client.subscriptions[change.name] = change
            self._client_of[change.name] = client
            self._position(terms.position_number)

    def _subscription_ended(self, number: object, *, instead: int = 0) -> None:
        """Forgets a subscription. ``instead`` is the number of the position that it has from now on."""
        client = self._client_of.pop(number, None)
        if client is not None:
            terms = client.subscriptions.pop(number).terms
            assert isinstance(terms, SubscriptionTerms)
            self._leave(terms.position_number, stays=terms.position_number == instead)

    def _unfinished(self, change: MetadataChange, *, again: bool) -> None:
        """Folds an exactly-once publish or delivery. The latest one stands last."""
        client, key = self._clients.get(change.name[0]), (change.what, change.name)  # type: ignore[index]
        if client is None:
            return
        if not again:  # a snapshot does not know which one was the last
            client.ids.pop(key, None)
        if change.terms is not None:
            client.ids[key] = change

    def _position(self, number: int) -> None:
        if number:
            self._positions.setdefault(number, _Position(number, self._sequence)).owners += 1

    def _leave(self, number: int, *, stays: bool = False) -> None:
        if number:
            position = self._positions[number]
            position.owners -= 1
            if not position.owners and not stays:
                del self._positions[number]

    # -- queues, exchanges, bindings --------------------------------------------------------------------------------

    def _queue(self, name: str, change: MetadataChange, terms: DurableQueueTerms) -> None:
        known = self._queues.get(name)
        if known is not None and known[0].terms == terms:
            return
        self._queue_ended(name)
        self._queues[name] = [change]
        self._position(terms.position_number)

    def _queue_ended(self, name: str) -> None:
        changes = self._queues.pop(name, None)
        if changes is not None:
            terms = changes[0].terms
            assert isinstance(terms, DurableQueueTerms)
            self._leave(terms.position_number)
            self._routes.remove_queue(name)

    def _exchange(self, name: str, change: MetadataChange) -> None:
        known, terms = self._routes.by_name.get(name), change.terms
        if known is not None:
            if isinstance(terms, Exchange) and not known.difference(terms):
                return
            self._routes.remove(name)
        if isinstance(terms, Exchange):
            self._route_changes.append(change)
            self._routes.add(terms.alike())

    def _binding(self, change: MetadataChange) -> None:
        binding = change.name
        assert isinstance(binding, Binding)
        kind, name = binding.destination
        if change.terms is None:
            self._routes.unbind(binding)
        elif name in (self._queues if kind == "queue" else self._routes.by_name):
            self._routes.bind(binding)

    def _route_changed(self, what: str, name: object, terms: object) -> None:
        """Notes a change of an exchange or a binding."""
        to = name.destination if isinstance(name, Binding) else Destination("exchange", "")
        changes = self._route_changes if to.kind == "exchange" else self._queues.get(to.name)
        if changes is None:
            return  # the queue has just ended
        if changes[-1:] and changes[-1][:3] == (self._sequence, what, name) and what == "binding":
            changes.pop()  # no record came between the two changes
        changes.append(MetadataChange(self._sequence, what, name, terms))

    # -- the result -------------------------------------------------------------------------------------------------

    def recovered_positions(self) -> dict[int, RecoveredPosition]:
        """Returns the recovered positions by number."""
        return {number: position.recovered for number, position in self._positions.items()}

    def needed(self) -> int:
        """Returns the first sequence that a position or an unfinished batch needs; 0 if none does."""
        firsts = [position.recovered.upto for position in self._positions.values()]
        batches = [change.terms for change in self._last.values()]
        firsts += [batch.sequence + 1 for batch in batches if isinstance(batch, WriterBatch) and batch.parts]
        return min(firsts, default=0)

    def changes(self) -> list[RecoveredChange]:
        """Returns the remaining changes in the order in which recovery applies them."""
        found = [RecoveredChange(0.0, client.session) for client in self._clients.values()]
        found += (RecoveredChange(change.sequence, change) for change in self._route_changes)
        found += (RecoveredChange(changes[0].sequence, changes[0]) for changes in self._queues.values())
        found += self._subscriptions()
        found += (
            RecoveredChange(change.sequence, change) for changes in self._queues.values() for change in changes[1:]
        )
        found += (RecoveredChange(inf, change) for client in self._clients.values() for change in client.ids.values())
        found += (RecoveredChange(inf, change) for change in self._last.values())
        found.sort(key=lambda recovered: recovered.at)
        return found

    def _subscriptions(self) -> Iterator[RecoveredChange]:
        for client in self._clients.values():
            for change in client.subscriptions.values():
                assert isinstance(change.terms, SubscriptionTerms)
                position = self._positions.get(change.terms.position_number)
                yield RecoveredChange(inf if position is None else position.began, change)


# -- durable metadata --------------------------------------------------------------------------------------------------
#
# Durable metadata: the sessions, subscriptions, queues, exchanges and bindings that outlive the process.
#
# Each change of it is added to the ledger. Durable are: sessions that outlive their connections, and their
# subscriptions; queues that were declared durable and are not exclusive; durable exchanges; bindings between durable
# objects; the batches of writers. A durable subscription with acknowledgements has a durable position; of a shared
# subscription the group has it. Without a journal nothing is durable.


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
