"""Restoring: at start, everything the journal has is made again (ledger.py says what that is).

Theory of operation. First all that was ever said is folded (folding.py): what is left of it is known, and all
*standings*: what of each durable subscription and queue is settled. Then what is left and runs come in order. Runs go
to the lanes they went to, as far as somebody still wants some of them. At the end the cursors are put where they stood:
what was sent and is not settled is in flight again, of a queue back at its place.

Nothing is delivered meanwhile, nobody is there. What is said to the ledger by all this is known to it already, and is
dropped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from math import inf

from headway.core.base import Reason
from headway.core.clients.admission import Admission
from headway.core.clients.folding import Standing, Told
from headway.core.clients.keeping import Batch, Keeping, QueueKeptTerms, SessionTerms, SubscriptionTerms
from headway.core.clients.queues import Queues
from headway.core.clients.subscribing import Subscribing
from headway.core.consumer import Delivery, Feed, Poll, Subscription
from headway.core.log import Chunk, Cursor, Kept, Place
from headway.core.message import Dialect, Run
from headway.core.queue import Queue, queue_of
from headway.core.routing import Binding, Encoded, Exchange, Publishing, Registry, part_of


class Restoring:
    def __init__(self, registry: Registry, publishing: Publishing, subscribing: Subscribing, queues: Queues,
                 admission: Admission, keeping: Keeping, dialect: Dialect, standings: dict[int, Standing]) -> None:
        """``dialect``: that of queues. ``standings``: by the number of their place."""
        self._registry = registry
        self._publishing = publishing
        self._subscribing = subscribing
        self._queues = queues
        self._admission = admission
        self._keeping = keeping
        self._dialect = dialect
        self._standings = standings
        for standing in standings.values():
            standing.close()
        registry.router.exchanges.ends_unused = False
        self._owners: dict[int, Subscription | Queue] = {}
        """By place."""
        self._ways: dict[tuple[str, object], object] = {}
        """Exchanges and bindings that have changed since the last record."""
        self._flights: dict[str, dict[int, tuple[int, int, bool]]] = {}
        """By client and delivery id, the last one last: place, sequence, and whether its client has it."""
        self._floors: dict[Feed, int] = {}
        """Nobody wants what is older."""
        self.records = 0
        """In lanes again, those in several lanes once for each."""

    # -- what comes, in order ---------------------------------------------------------------------------------------

    def make(self, told: Told, now: float) -> None:
        at, (_, what, name, terms) = told
        if at < inf:
            self._registry.sequence = max(self._registry.sequence, int(at))
        match what, terms:
            case "session", SessionTerms():
                self._admission.restore(str(name), terms, now)
            case "subscription", SubscriptionTerms():
                self._subscription(name, terms, int(min(at, self._registry.sequence)), now)
            case "queue", QueueKeptTerms():
                self._queue(str(name), terms, int(at), now)
            case ("exchange" | "binding"), _:
                self._ways[what, name] = terms
            case "arrived", _:
                self._arrived(name)  # type: ignore[arg-type]
            case "flight", (int(), int(), bool()):
                self._flights.setdefault(name[0], {})[name[1]] = terms  # type: ignore[index, assignment]
            case "deleted", (reason, text):
                self._keeping.restore_obituary(name, (Reason(reason), text))  # type: ignore[arg-type]
            case "batch", Batch():
                self._keeping.restore_batch(name, terms)  # type: ignore[arg-type]

    def _arrived(self, of: tuple[str, int]) -> None:
        session = self._registry.sessions.get(of[0])
        if session is not None:
            session.incoming.add(of[1])

    def _subscription(self, number: object, terms: SubscriptionTerms, sequence: int, now: float) -> None:
        session = self._registry.sessions.get(terms.client)
        assert session is not None, "of a session that has ended there are no subscriptions"
        assert isinstance(number, int)
        subscription = self._subscribing.restore(session, terms.request, now, number=number, place=terms.place)
        if terms.place:
            queue = subscription.reader.queue
            self._owns(terms.place, subscription if queue is None else queue_of(queue), sequence)

    def _queue(self, name: str, terms: QueueKeptTerms, sequence: int, now: float) -> None:
        queue = self._queues.restore(name, terms.terms, self._dialect, terms.listener, terms.place, now)
        self._owns(terms.place, queue, sequence)

    def _owns(self, place: int, owner: Subscription | Queue, sequence: int) -> None:
        self._owners[place] = owner
        if place not in self._standings:
            self._standings[place] = Standing(Place(place, sequence + 1, sequence + 1, ()))
        self._lower(owner.feed, place)

    def _lower(self, feed: Feed, place: int) -> None:
        upto = self._standings[place].upto
        self._floors[feed] = min(upto, self._floors.get(feed, upto))

    def _catch_up(self) -> None:
        """Have exchanges and bindings as they were when the next records came."""
        ways, self._ways = self._ways, {}
        bindings = [(name, terms) for (_, name), terms in ways.items() if isinstance(name, Binding)]
        exchanges = [(str(name), terms) for (what, name), terms in ways.items() if what == "exchange"]
        there = self._registry.router.exchanges.by_name
        changed = self._queues.rebind([name for name, terms in bindings if terms is None], there=False)
        for name, terms in exchanges:
            if name in there and there[name] is not terms:
                deque(self._queues.delete_exchange(name, if_unused=False), maxlen=0)
        for name, terms in exchanges:
            if isinstance(terms, Exchange) and name not in there:
                self._queues.declare_exchange(terms)
        changed |= self._queues.rebind([name for name, terms in bindings if terms is not None], there=True)
        for queue in changed:
            if queue.kept is not None:
                self._lower(queue.feed, queue.kept.number)

    def run(self, run: Run, first: int, publisher: str, time_s: float, *, recorded: bool) -> None:
        """Records that were published at ``time_s``; to be known as state again if they are ``recorded``."""
        if self._ways:
            self._catch_up()
        registry, last = self._registry, first + len(run) - 1
        registry.sequence = max(registry.sequence, last)
        run.journaled = True
        session = registry.sessions.get(publisher)
        run.publisher = session.number if session is not None else 0
        encoded: Encoded = {}
        route = self._publishing.route(run)
        for state in route.states if recorded else ():
            self._publishing.keep(state, run, first, time_s)
        for feed in route.feeds:
            if not feed.kept:
                continue
            if last < self._floors.get(feed, 0):
                feed.lane.dropped_sequence = last
                continue
            before = feed.lane.count
            if feed.by_exchange and feed.key.group is not None:
                for part, sequence in self._taken(feed, run, first):
                    self._publishing.append(feed, part, sequence, {}, session, time_s)
            else:
                self._publishing.append(feed, run, first, encoded, session, time_s)
            self.records += feed.lane.count - before

    def _taken(self, feed: Feed, run: Run, first: int) -> Iterator[tuple[Run, int]]:
        """What a queue that refuses what is too much took of a run."""
        places = [queue.kept.number for queue in feed.queues if queue.kept is not None]
        at = 0
        while at < len(run):
            refused = any(self._standings[place].covers(first + at) for place in places)
            upto = at + 1
            while upto < len(run) and refused == any(self._standings[place].covers(first + upto) for place in places):
                upto += 1
            if not refused:
                yield part_of(run, at, upto), first + at
            at = upto

    # -- the end ----------------------------------------------------------------------------------------------------

    def finish(self, now: float) -> None:
        """Put the cursors where they stood."""
        self._catch_up()
        self._registry.router.exchanges.ends_unused = True
        for client, flights in self._flights.items():
            if (session := self._registry.sessions.get(client)) is not None:
                session.channel.go_on_after(next(reversed(flights)))
                session.channel.doubtful += [
                    one for one, (place, sequence, _) in flights.items() if self._doubtful(place, sequence)
                ]  # fmt: skip
        for place, owner in self._owners.items():
            kept = _kept(owner)
            if kept is None:
                continue  # it has ended since
            standing = self._standings[place]
            for cursor in list(kept.cursors):
                assert isinstance(cursor, Cursor), "nothing was replaced yet"
                cursor.kept = None  # it is told nothing new
                if isinstance(owner, Queue):
                    self._stand_queue(owner, cursor, standing)
                elif isinstance(owner, Poll):
                    owner.place.offset = standing.upto
                else:
                    _stand_subscription(owner, cursor, standing, self._ids(owner, place), now)
                    if standing.conflated:
                        self._subscribing.starts.show_state(owner, standing.fresh - 1)
                cursor.kept = kept
        for client in self._flights:  # what the member of a queue has not settled is the queue's again
            if (session := self._registry.sessions.get(client)) is not None:
                channel = session.channel
                channel.doubtful = [one for one in channel.doubtful if one not in channel.in_flight]

    def _doubtful(self, place: int, sequence: int) -> bool:
        """A client may hold an id that stood for this."""
        owner = self._owners.get(place)
        if owner is None or _kept(owner) is None:
            return True
        standing = self._standings[place]
        return sequence >= standing.upto and not standing.covers(sequence)

    def _ids(self, owner: Subscription, place: int) -> dict[int, tuple[int, bool]]:
        flights = self._flights.get(owner.session.client, {})
        return {
            sequence: (delivery_id, released)
            for delivery_id, (of, sequence, released) in flights.items() if of == place
        }  # fmt: skip

    def _stand_queue(self, queue: Queue, cursor: Cursor, standing: Standing) -> None:
        for chunk, index in unsettled(cursor, standing):
            cursor.sent(chunk.first_number + index, chunk)
            queue.restored(cursor, chunk, index)
        _step_over(cursor, standing.fresh)
        self._registry.woken[queue] = None


def _kept(owner: Subscription | Queue) -> Kept | None:
    """None: it has ended."""
    return owner.kept if isinstance(owner, Queue) else owner.cursor.kept


def _stand_subscription(
    subscription: Subscription, cursor: Cursor, standing: Standing, ids: dict[int, tuple[int, bool]], now: float
) -> None:
    """``ids``: by sequence, the delivery id its client knows it by, and whether it has it."""
    channel = subscription.session.channel
    for chunk, index in unsettled(cursor, standing):
        if chunk.holes is None or not chunk.holes[index]:
            continue  # it was sent, and is not acknowledged by anybody
        delivery = Delivery(subscription, now)
        delivery.cursor, delivery.chunk, delivery.index = cursor, chunk, index
        delivery.number = chunk.first_number + index
        cursor.sent(delivery.number, chunk)
        known, released = ids.get(chunk.sequence_of(index), (0, False))
        if known and known not in channel.in_flight:
            delivery.released = released
            channel.add(known, delivery)
        else:
            channel.add(channel.next_id(), delivery)
    _step_over(cursor, standing.fresh)
    subscription.counters.start_at(cursor.number, cursor.position)


def unsettled(cursor: Cursor, standing: Standing) -> Iterator[tuple[Chunk, int]]:
    """What was sent and is not settled, from where the cursor stands."""
    chunk = cursor.chunk
    here = cursor.number
    while chunk is not None:
        first = max(_index_from(chunk, standing.upto), here - chunk.first_number)
        stop = min(_index_from(chunk, standing.fresh), cursor.end_number - chunk.first_number)
        for index in range(first, stop):
            if not standing.covers(chunk.sequence_of(index)):
                yield chunk, index
        chunk = chunk.next


def _step_over(cursor: Cursor, fresh: int) -> None:
    """Move on to the first record that was never sent."""
    chunk = cursor.chunk
    while chunk is not None:
        index = _index_from(chunk, fresh)
        if index < len(chunk) or chunk.next is None:
            cursor.skip_to(min(chunk.first_number + index, cursor.end_number))
            return
        chunk = chunk.next


def _index_from(chunk: Chunk, sequence: int) -> int:
    """Which of the chunk's records is the first with this sequence or a later one; their number if none is."""
    run = bisect_left(chunk.run_sequence, sequence + 1) - 1
    if run < 0:
        return 0
    stop = chunk.run_first[run + 1] if run + 1 < len(chunk.run_first) else len(chunk)
    return min(stop, chunk.run_first[run] + sequence - chunk.run_sequence[run])
