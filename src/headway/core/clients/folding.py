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

from headway.core.clients.keeping import Batch, QueueKeptTerms, SessionTerms, SubscriptionTerms
from headway.core.log import Fact, Place
from headway.core.routing import PREDECLARED, Binding, Destination, Exchange, Exchanges

OWN = {name for name, _ in PREDECLARED}
PAIRS_MAX = 1000
"""So many stretches that are settled are remembered before those that are behind are forgotten."""


class Standing:
    """What is settled of one place: everything before ``upto``, and the pairs."""

    __slots__ = ("_limit", "_pairs", "conflated", "fresh", "upto")

    def __init__(self, place: Place) -> None:
        self._pairs: list[tuple[int, int]] = []
        self._limit = PAIRS_MAX
        self.replace(place)

    def replace(self, place: Place) -> None:
        """This place is all there is to know."""
        self._pairs.clear()
        self.add(place)

    def add(self, place: Place) -> None:
        """A later place."""
        self.upto, self.conflated = place.upto, not place.fresh
        self.fresh = place.fresh or max((place.upto, *(end + 1 for end in place.settled[1::2])))
        if place.settled:
            self._pairs += zip(place.settled[::2], place.settled[1::2], strict=True)
            if len(self._pairs) > self._limit:
                self._pairs = [pair for pair in self._pairs if pair[1] >= self.upto]
                self._limit = max(PAIRS_MAX, 2 * len(self._pairs))

    def covers(self, sequence: int) -> bool:
        """It is settled. To be asked after ``close``."""
        at = bisect_right(self._pairs, (sequence, inf)) - 1
        return at >= 0 and sequence <= self._pairs[at][1]

    def place(self, number: int) -> Place:
        """All of it, as one place with this number."""
        above = [end for pair in self._pairs if pair[1] >= self.upto for end in pair]
        return Place(number, self.upto, 0 if self.conflated else self.fresh, tuple(above))

    def close(self) -> None:
        """Nothing more is added."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted(self._pairs):
            if merged and first <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(last, merged[-1][1])
            else:
                merged.append((first, last))
        self._pairs = merged


class Told(NamedTuple):
    at: float
    """The sequence behind which it is to be made."""
    fact: Fact


class _Client:
    """A session that has not ended, and what is its own."""

    __slots__ = ("ids", "session", "subscriptions")

    def __init__(self, session: Fact) -> None:
        self.session = session
        self.subscriptions: dict[object, Fact] = {}
        self.ids: dict[tuple[str, object], Fact] = {}
        """Exactly-once publishes and deliveries under way."""


class _Place:
    __slots__ = ("began", "owners", "standing")

    def __init__(self, began: int) -> None:
        self.began = began
        self.owners = 0
        self.standing: Standing | None = None


class _Ways(Exchanges):
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
        self._places: dict[int, _Place] = {}
        self._queues: dict[str, list[Fact]] = {}
        """Each with its bindings that came and went."""
        self._ways = _Ways(self._way)
        self._ways_told: list[Fact] = []
        """Exchanges, and bindings between them, that came and went."""
        self._last: dict[tuple[str, object], Fact] = {}
        """Of what counts as it is at the end."""
        self._sequence = 0
        self._snapshot: set[tuple[str, object]] | None = None
        """What one has said so far; None: this is none."""

    # -- what comes, in order ---------------------------------------------------------------------------------------

    def fact(self, fact: Fact, *, again: bool) -> None:
        """``again``: it is from a snapshot."""
        self._sequence, what, name, terms = fact
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
                self._session(str(name), fact)
            case "session", None:
                self._session_ended(str(name))
            case "subscription", SubscriptionTerms():
                self._subscription(fact, terms)
            case "subscription", None:
                self._subscription_ended(name)
            case ("arrived" | "flight"), _:
                self._under_way(fact, again=again)
            case "queue", QueueKeptTerms():
                self._queue(str(name), fact, terms)
            case "queue", None:
                self._queue_ended(str(name))
            case "exchange", _:
                self._exchange(str(name), fact)
            case "binding", _:
                self._binding(fact)
            case _, None:
                self._last.pop((what, name), None)
            case _:
                self._last[what, name] = fact

    def snapshot_ended(self) -> None:
        """It was whole: of what it did not mention there is nothing any more."""
        said, self._snapshot = self._snapshot, None
        if said is None:
            return
        there: list[tuple[str, object]] = [("session", name) for name in self._clients]
        there += (("subscription", number) for number in self._client_of)
        there += (("queue", name) for name in self._queues)
        there += (("binding", binding) for way in self._ways.by_name.values() for binding in way.bindings.all)
        there += (("exchange", name) for name in self._ways.by_name if name not in OWN)
        there += (of for client in self._clients.values() for of in client.ids if of[0] == "arrived")
        there += self._last
        for what, name in there:
            if (what, name) not in said:
                self.fact(Fact(self._sequence, what, name, None), again=False)

    def place(self, place: Place, *, again: bool) -> None:
        """Where somebody stands; ``again``: a snapshot says it, and it is all there is to know."""
        known = self._places.get(place.number)
        if known is None:
            return  # nobody does any more
        if known.standing is None:
            known.standing = Standing(place)
        elif again:
            known.standing.replace(place)
        else:
            known.standing.add(place)

    # -- sessions and subscriptions ---------------------------------------------------------------------------------

    def _session(self, client: str, fact: Fact) -> None:
        known = self._clients.get(client)
        if known is None:
            self._clients[client] = _Client(fact)
        else:
            known.session = fact

    def _session_ended(self, client: str) -> None:
        known = self._clients.get(client)
        for number in list(known.subscriptions) if known is not None else ():
            self._subscription_ended(number)
        self._clients.pop(client, None)

    def _subscription(self, fact: Fact, terms: SubscriptionTerms) -> None:
        self._subscription_ended(fact.name, instead=terms.place)
        client = self._clients.get(terms.client)
        if client is not None:
            client.subscriptions[fact.name] = fact
            self._client_of[fact.name] = client
            self._place(terms.place)

    def _subscription_ended(self, number: object, *, instead: int = 0) -> None:
        """``instead``: the place that it has from now on."""
        client = self._client_of.pop(number, None)
        if client is not None:
            terms = client.subscriptions.pop(number).terms
            assert isinstance(terms, SubscriptionTerms)
            self._leave(terms.place, stays=terms.place == instead)

    def _under_way(self, fact: Fact, *, again: bool) -> None:
        client, of = self._clients.get(fact.name[0]), (fact.what, fact.name)  # type: ignore[index]
        if client is None:
            return
        if not again:  # but a snapshot does not know which one was the last
            client.ids.pop(of, None)
        if fact.terms is not None:
            client.ids[of] = fact

    def _place(self, number: int) -> None:
        if number:
            self._places.setdefault(number, _Place(self._sequence)).owners += 1

    def _leave(self, number: int, *, stays: bool = False) -> None:
        if number:
            place = self._places[number]
            place.owners -= 1
            if not place.owners and not stays:
                del self._places[number]

    # -- queues, exchanges, bindings --------------------------------------------------------------------------------

    def _queue(self, name: str, fact: Fact, terms: QueueKeptTerms) -> None:
        known = self._queues.get(name)
        if known is not None and known[0].terms == terms:
            return
        self._queue_ended(name)
        self._queues[name] = [fact]
        self._place(terms.place)

    def _queue_ended(self, name: str) -> None:
        facts = self._queues.pop(name, None)
        if facts is not None:
            terms = facts[0].terms
            assert isinstance(terms, QueueKeptTerms)
            self._leave(terms.place)
            self._ways.remove_queue(name)

    def _exchange(self, name: str, fact: Fact) -> None:
        known, terms = self._ways.by_name.get(name), fact.terms
        if known is not None and isinstance(terms, Exchange) and not known.difference(terms):
            return
        if known is not None:
            self._ways.remove(name)
        if isinstance(terms, Exchange):
            self._ways_told.append(fact)
            self._ways.add(terms.alike())

    def _binding(self, fact: Fact) -> None:
        binding = fact.name
        assert isinstance(binding, Binding)
        kind, name = binding.destination
        if fact.terms is None:
            self._ways.unbind(binding)
        elif name in (self._queues if kind == "queue" else self._ways.by_name):
            self._ways.bind(binding)

    def _way(self, what: str, name: object, terms: object) -> None:
        """Something leads elsewhere than before."""
        to = name.destination if isinstance(name, Binding) else Destination("exchange", "")
        told = self._ways_told if to.kind == "exchange" else self._queues.get(to.name)
        if told is None:
            return  # the queue has just ended
        if told[-1:] and told[-1][:3] == (self._sequence, what, name) and what == "binding":
            told.pop()  # and there was no record between
        told.append(Fact(self._sequence, what, name, terms))

    # -- what is left -----------------------------------------------------------------------------------------------

    def standings(self) -> dict[int, Standing]:
        """By the number of their place; of those that have one. Of others nothing is settled."""
        return {number: place.standing for number, place in self._places.items() if place.standing is not None}

    def needed(self) -> int:
        """The first sequence that somebody wants; 0: nobody wants anything."""
        firsts = [
            place.standing.upto if place.standing is not None else place.began + 1 for place in self._places.values()
        ]
        batches = [fact.terms for fact in self._last.values()]
        firsts += [batch.sequence + 1 for batch in batches if isinstance(batch, Batch) and batch.parts]
        return min(firsts, default=0)

    def told(self) -> list[Told]:
        """In the order in which it is to be made."""
        found = [Told(0.0, client.session) for client in self._clients.values()]
        found += (Told(fact.sequence, fact) for fact in self._ways_told)
        found += (Told(facts[0].sequence, facts[0]) for facts in self._queues.values())
        found += self._subscriptions()
        found += (Told(fact.sequence, fact) for facts in self._queues.values() for fact in facts[1:])
        found += (Told(inf, fact) for client in self._clients.values() for fact in client.ids.values())
        found += (Told(inf, fact) for fact in self._last.values())
        found.sort(key=lambda told: told.at)
        return found

    def _subscriptions(self) -> Iterator[Told]:
        for client in self._clients.values():
            for fact in client.subscriptions.values():
                assert isinstance(fact.terms, SubscriptionTerms)
                place = self._places.get(fact.terms.place)
                yield Told(inf if place is None else place.began, fact)
