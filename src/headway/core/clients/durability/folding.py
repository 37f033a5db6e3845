"""Folding reduces all metadata changes of a journal (ledger.py) to those that still matter at its end.

Theory of operation. Most changes in a journal are obsolete: the sessions, subscriptions and queues have ended. Folding
forgets an ended session, subscription or queue as soon as it reads the change that ends it. So its memory depends on
those that are alive, and on how often exchanges and the bindings of present queues changed. It returns the remaining
changes in this order: the sessions; then the changes that decide the way of records, each at its sequence
(subscriptions and queues with durable positions, exchanges, bindings); then the changes of which only the last state
counts.

Rules:
- A subscription is restored once, with its last terms, at the sequence where its durable position began. The position
  of a shared subscription began before the present members joined, because the group's records are older.
- All bindings that a present queue ever had are restored for the time that they existed, because they decide which
  records the queue has. So are the exchanges between, also those that were deleted.
- Some objects end without a change of their own: a binding with either of its ends, an auto-delete exchange with its
  last binding, a subscription with its session. Folding adds these changes.
- A snapshot is complete, unless something else stands in it, or its first entry is missing. An object that is not
  known yet begins with it at the latest. An object that it does not mention has ended. (The changes between it and the
  snapshot before may have been deleted.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import NamedTuple

from headway.core.clients.durability.durable_objects import (
    DurableQueueTerms,
    SessionTerms,
    SubscriptionTerms,
    WriterBatch,
)
from headway.core.clients.durability.recovered_position import RecoveredPosition
from headway.core.log import CommittedPosition, MetadataChange
from headway.core.routing import PREDECLARED, Binding, Destination, Exchange, Exchanges

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
