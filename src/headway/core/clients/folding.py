"""Folding: of all the facts that a journal has (ledger.py), those that still matter at the end of it.

Theory of operation. Most of what a journal tells is over: sessions that came and went, subscriptions and queues that
ended. Facts are folded as they are read, so that nothing is left of what has ended, and memory goes with what is alive.
What is left is told in this order: sessions; then, each where it began, whatever decides where records go
(subscriptions and queues that have a place, exchanges, bindings); then what only counts as it was at the end.

Rules:
- A subscription is made with its last terms, once, where its *place* began: of a shared one that is before the members
  that are left had joined, for the group's records are older than they.
- A binding of a queue that is left counts for as long as it was there, since that decides which records the queue has.
  Exchanges count with it, also those that are no more.
- What ends without a word of its own is put into words here: bindings with either of their ends, exchanges that were to
  go with their last binding, subscriptions with their session.
- A snapshot says all there is: what is not known has begun by then, and what it does not mention has ended. (What was
  said between it and the one before may have been removed.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from math import inf
from typing import NamedTuple

from headway.core.clients.durable_metadata import DurableQueueTerms, SessionTerms, SubscriptionTerms, WriterBatch
from headway.core.log import CommittedPosition, MetadataChange
from headway.core.routing import PREDECLARED, Binding, Destination, Exchange, Exchanges

OWN = {name for name, _ in PREDECLARED}
PAIRS_MAX = 1000
"""So many stretches that are settled are remembered before those that are behind are forgotten."""


class RecoveredPosition:
    """What is settled of one place: everything before ``upto``, and the pairs."""

    __slots__ = ("_limit", "_pairs", "conflated", "fresh", "upto")

    def __init__(self, position: CommittedPosition) -> None:
        self._pairs: list[tuple[int, int]] = []
        self._limit = PAIRS_MAX
        self.replace(position)

    def replace(self, position: CommittedPosition) -> None:
        """This place is all there is to know."""
        self._pairs.clear()
        self.add(position)

    def add(self, position: CommittedPosition) -> None:
        """A later place."""
        self.upto, self.conflated = position.upto, not position.fresh
        self.fresh = position.fresh or max((position.upto, *(end + 1 for end in position.settled[1::2])))
        if position.settled:
            self._pairs += zip(position.settled[::2], position.settled[1::2], strict=True)
            if len(self._pairs) > self._limit:
                self._pairs = [pair for pair in self._pairs if pair[1] >= self.upto]
                self._limit = max(PAIRS_MAX, 2 * len(self._pairs))

    def covers(self, sequence: int) -> bool:
        """It is settled. To be asked after ``close``."""
        at = bisect_right(self._pairs, (sequence, inf)) - 1
        return at >= 0 and sequence <= self._pairs[at][1]

    def position(self, number: int) -> CommittedPosition:
        """All of it, as one place with this number."""
        above = [end for pair in self._pairs if pair[1] >= self.upto for end in pair]
        return CommittedPosition(number, self.upto, 0 if self.conflated else self.fresh, tuple(above))

    def close(self) -> None:
        """Nothing more is added."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted(self._pairs):
            if merged and first <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(last, merged[-1][1])
            else:
                merged.append((first, last))
        self._pairs = merged


class RecoveredChange(NamedTuple):
    at: float
    """The sequence behind which it is to be made."""
    change: MetadataChange


class _Client:
    """A session that has not ended, and what is its own."""

    __slots__ = ("ids", "session", "subscriptions")

    def __init__(self, session: MetadataChange) -> None:
        self.session = session
        self.subscriptions: dict[object, MetadataChange] = {}
        self.ids: dict[tuple[str, object], MetadataChange] = {}
        """Exactly-once publishes and deliveries under way."""


class _Position:
    __slots__ = ("began", "owners", "recovered")

    def __init__(self, began: int) -> None:
        self.began = began
        self.owners = 0
        self.recovered: RecoveredPosition | None = None


class _Routes(Exchanges):
    """Exchanges and bindings as they were; tells of each that comes or goes, for whatever reason."""

    def __init__(self, tell: Callable[[str, object, object], None]) -> None:
        super().__init__()
        self._tell = tell

    def bind(self, binding: Binding) -> bool:
        fresh = binding.source in self.by_name and super().bind(binding)
        if fresh:
            self._tell("binding", binding, True)
        return fresh

    def unbind(self, binding: Binding) -> bool:
        there = binding.source in self.by_name and binding in self.by_name[binding.source].bindings.all
        if there:
            self._tell("binding", binding, None)
        return super().unbind(binding)

    def remove(self, name: str) -> None:
        for binding in self.by_name[name].bindings.all:
            self._tell("binding", binding, None)
        self._tell("exchange", name, None)
        super().remove(name)


class Folding:
    def __init__(self) -> None:
        self.reserved = 0
        """Sequences up to this one may have been used."""
        self._clients: dict[str, _Client] = {}
        self._client_of: dict[object, _Client] = {}
        """By subscription."""
        self._positions: dict[int, _Position] = {}
        self._queues: dict[str, list[MetadataChange]] = {}
        """Each with its bindings that came and went."""
        self._routes = _Routes(self._route_changed)
        self._route_changes: list[MetadataChange] = []
        """Exchanges, and bindings between them, that came and went."""
        self._last: dict[tuple[str, object], MetadataChange] = {}
        """Of what counts as it is at the end."""
        self._sequence = 0
        self._snapshot: set[tuple[str, object]] | None = None
        """What one has said so far; None: this is none."""

    # -- what comes, in order ---------------------------------------------------------------------------------------

    def change(self, change: MetadataChange, *, again: bool) -> None:
        """``again``: it is from a snapshot."""
        self._sequence, what, name, terms = change
        if not again:
            self._snapshot = None  # one that was not finished says nothing
        elif self._snapshot is None:
            self._snapshot = {(what, name)}
        else:
            self._snapshot.add((what, name))
        match what, terms:
            case "reserved", int():
                self.reserved = max(self.reserved, terms)
            case "session", SessionTerms():
                self._session(str(name), change)
            case "session", None:
                self._session_ended(str(name))
            case "subscription", SubscriptionTerms():
                self._subscription(change, terms)
            case "subscription", None:
                self._subscription_ended(name)
            case (("arrived" | "flight"), _):
                self._under_way(change, again=again)
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
        """It was whole: of what it did not mention there is nothing any more."""
        said, self._snapshot = self._snapshot, None
        if said is None:
            return
        there: list[tuple[str, object]] = [("session", name) for name in self._clients]
        there += (("subscription", number) for number in self._client_of)
        there += (("queue", name) for name in self._queues)
        there += (("binding", binding) for way in self._routes.by_name.values() for binding in way.bindings.all)
        there += (("exchange", name) for name in self._routes.by_name if name not in OWN)
        there += (of for client in self._clients.values() for of in client.ids if of[0] == "arrived")
        there += self._last
        for what, name in there:
            if (what, name) not in said:
                self.change(MetadataChange(self._sequence, what, name, None), again=False)

    def position(self, position: CommittedPosition, *, again: bool) -> None:
        """Where somebody stands; ``again``: a snapshot says it, and it is all there is to know."""
        known = self._positions.get(position.number)
        if known is None:
            return  # nobody does any more
        if known.recovered is None:
            known.recovered = RecoveredPosition(position)
        elif again:
            known.recovered.replace(position)
        else:
            known.recovered.add(position)

    # -- sessions and subscriptions ---------------------------------------------------------------------------------

    def _session(self, client: str, change: MetadataChange) -> None:
        known = self._clients.get(client)
        if known is None:
            self._clients[client] = _Client(change)
        else:
            known.session = change

    def _session_ended(self, client: str) -> None:
        known = self._clients.get(client)
        for number in list(known.subscriptions) if known is not None else ():
            self._subscription_ended(number)
        self._clients.pop(client, None)

    def _subscription(self, change: MetadataChange, terms: SubscriptionTerms) -> None:
        self._subscription_ended(change.name, instead=terms.position_number)
        client = self._clients.get(terms.client)
        if client is not None:
            client.subscriptions[change.name] = change
            self._client_of[change.name] = client
            self._position(terms.position_number)

    def _subscription_ended(self, number: object, *, instead: int = 0) -> None:
        """``instead``: the place that it has from now on."""
        client = self._client_of.pop(number, None)
        if client is not None:
            terms = client.subscriptions.pop(number).terms
            assert isinstance(terms, SubscriptionTerms)
            self._leave(terms.position_number, stays=terms.position_number == instead)

    def _under_way(self, change: MetadataChange, *, again: bool) -> None:
        client, of = self._clients.get(change.name[0]), (change.what, change.name)  # type: ignore[index]
        if client is None:
            return
        if not again:  # but a snapshot does not know which one was the last
            client.ids.pop(of, None)
        if change.terms is not None:
            client.ids[of] = change

    def _position(self, number: int) -> None:
        if number:
            self._positions.setdefault(number, _Position(self._sequence)).owners += 1

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
        if known is not None and isinstance(terms, Exchange) and not known.difference(terms):
            return
        if known is not None:
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
        """Something leads elsewhere than before."""
        to = name.destination if isinstance(name, Binding) else Destination("exchange", "")
        told = self._route_changes if to.kind == "exchange" else self._queues.get(to.name)
        if told is None:
            return  # the queue has just ended
        if told[-1:] and told[-1][:3] == (self._sequence, what, name) and what == "binding":
            told.pop()  # and there was no record between
        told.append(MetadataChange(self._sequence, what, name, terms))

    # -- what is left -----------------------------------------------------------------------------------------------

    def recovered_positions(self) -> dict[int, RecoveredPosition]:
        """By the number of their place; of those that have one. Of others nothing is settled."""
        return {
            number: position.recovered for number, position in self._positions.items() if position.recovered is not None
        }

    def needed(self) -> int:
        """The first sequence that somebody wants; 0: nobody wants anything."""
        firsts = [
            position.recovered.upto if position.recovered is not None else position.began + 1
            for position in self._positions.values()
        ]
        batches = [change.terms for change in self._last.values()]
        firsts += [batch.sequence + 1 for batch in batches if isinstance(batch, WriterBatch) and batch.parts]
        return min(firsts, default=0)

    def changes(self) -> list[RecoveredChange]:
        """In the order in which it is to be made."""
        found = [RecoveredChange(0.0, client.session) for client in self._clients.values()]
        found += (RecoveredChange(change.sequence, change) for change in self._route_changes)
        found += (RecoveredChange(changes[0].sequence, changes[0]) for changes in self._queues.values())
        found += self._subscriptions()
        found += (
            RecoveredChange(change.sequence, change) for changes in self._queues.values() for change in changes[1:]
        )
        found += (RecoveredChange(inf, change) for client in self._clients.values() for change in client.ids.values())
        found += (RecoveredChange(inf, change) for change in self._last.values())
        found.sort(key=lambda told: told.at)
        return found

    def _subscriptions(self) -> Iterator[RecoveredChange]:
        for client in self._clients.values():
            for change in client.subscriptions.values():
                assert isinstance(change.terms, SubscriptionTerms)
                position = self._positions.get(change.terms.position_number)
                yield RecoveredChange(inf if position is None else position.began, change)
