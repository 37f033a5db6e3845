"""Restoring rebuilds the broker from the journal at the start (durable.py tells what the journal has).

Theory of operation. First all metadata changes and positions are folded (durability.py). This gives the remaining
changes and the recovered position of each durable subscription and queue. Then these changes and the runs are applied
in order of sequence. A run goes to the same lanes as before if one of their readers still needs a record of it. At the
end the cursors are moved to their recovered positions. Unsettled deliveries of a subscription are in flight again, and
so are exactly-once deliveries of a queue, with the member that may have them. All others of a queue are requeued.

What cannot be replayed is set aside (``odd``), each thing by itself: one record that a dialect cannot write costs its
lane this record, and nobody else anything.

No client is connected meanwhile, so nothing is delivered. The journal has all changes that this adds to the ledger, so
the ledger discards them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import groupby
from math import inf

from headway.core.base import Reason
from headway.core.clients.durability import (
    DurableMetadata,
    DurableQueueTerms,
    RecoveredChange,
    RecoveredPosition,
    SessionTerms,
    SubscriptionTerms,
    WriterBatch,
)
from headway.core.clients.queues import Queues
from headway.core.clients.sessions import Admission
from headway.core.clients.subscriptions import Subscribing
from headway.core.consumer import Delivery, Feed, Poll, Session, Subscription
from headway.core.delivery import record_at
from headway.core.log import (
    NOT_DURABLE,
    Chunk,
    CommittedPosition,
    Cursor,
    DurablePosition,
    JournaledRun,
    MetadataChange,
)
from headway.core.message import Dialect, Run
from headway.core.queue import Queue, queue_behind
from headway.core.routing import Binding, Encoded, Exchange, Publishing, Registry, part_of

Odd = Callable[[MetadataChange | JournaledRun | CommittedPosition, Exception], None]


class Restoring:
    """Applies the folded changes and the runs of a journal to an empty broker."""

    def __init__(
        self,
        registry: Registry,
        publishing: Publishing,
        subscribing: Subscribing,
        queues: Queues,
        admission: Admission,
        metadata: DurableMetadata,
        dialect: Dialect,
        recovered_positions: dict[int, RecoveredPosition],
        odd: Odd,
    ) -> None:
        """``dialect`` is the dialect of queues. ``recovered_positions`` are by the number of the durable position.
        ``odd`` sets aside what cannot be replayed."""
        self._odd = odd
        self._registry = registry
        self._publishing = publishing
        self._subscribing = subscribing
        self._queues = queues
        self._admission = admission
        self._metadata = metadata
        self._dialect = dialect
        self._recovered = recovered_positions
        for recovered in recovered_positions.values():
            recovered.close()
        registry.router.exchanges.ends_unused = False
        self._owners: dict[int, Subscription | Queue] = {}
        """The subscription or queue of each durable position, by the position's number."""
        self._routes: dict[tuple[str, object], object] = {}
        """The exchanges and bindings that have changed since the last record."""
        self._in_flight_ids: dict[str, dict[int, tuple[int, int, bool]]] = {}
        """Exactly-once deliveries by client and delivery id, the latest last: the number of the durable position, the
        sequence, and whether the client has received it."""
        self._held: dict[int, dict[int, tuple[str, int, bool]]] = {}
        """The same by durable position and sequence: the client, the delivery id, and whether the client has it."""
        self._floors: dict[Feed, int] = {}
        """The first sequence that a reader of the feed needs."""
        self.records = 0
        """The number of records that were appended to lanes; a record in several lanes counts for each."""

    # -- changes and runs, in order ---------------------------------------------------------------------------------

    def make(self, entry: RecoveredChange, now: float) -> None:
        try:
            self._make(entry, now)
        except Exception as error:  # noqa: BLE001  whatever it is, everything else is restored
            self._odd(entry.change, error)

    def _make(self, entry: RecoveredChange, now: float) -> None:
        at, (_, what, name, terms) = entry
        if at < inf:
            self._registry.sequence = max(self._registry.sequence, int(at))
        match what, terms:
            case "session", SessionTerms():
                self._admission.restore(str(name), terms, now)
            case "subscription", SubscriptionTerms():
                self._subscription(name, terms, now)
            case "queue", DurableQueueTerms():
                self._queue(str(name), terms, now)
            case (("exchange" | "binding"), _):
                self._routes[what, name] = terms
            case "arrived", _:
                self._arrived(name)  # type: ignore[arg-type]
            case "flight", (int(), int(), bool()):
                self._in_flight_ids.setdefault(name[0], {})[name[1]] = terms  # type: ignore[index, assignment]
            case "deleted", (reason, text):
                self._metadata.restore_deletion_notice(name, (Reason(reason), text))  # type: ignore[arg-type]
            case "batch", WriterBatch():
                self._metadata.restore_batch(name, terms)  # type: ignore[arg-type]

    def _arrived(self, of: tuple[str, int]) -> None:
        session = self._registry.sessions.get(of[0])
        if session is not None:
            session.incoming.add(of[1])

    def _subscription(self, number: object, terms: SubscriptionTerms, now: float) -> None:
        session = self._registry.sessions.get(terms.client)
        assert session is not None, "a session that has ended has no subscriptions"
        assert isinstance(number, int)
        subscription = self._subscribing.restore(
            session, terms.request, now, number=number, position_number=terms.position_number
        )
        if terms.position_number:
            self._owns(terms.position_number, queue_behind(subscription) or subscription)

    def _queue(self, name: str, terms: DurableQueueTerms, now: float) -> None:
        queue = self._queues.restore(name, terms.terms, self._dialect, terms.listener, terms.position_number, now)
        self._owns(terms.position_number, queue)

    def _owns(self, position_number: int, owner: Subscription | Queue) -> None:
        self._owners[position_number] = owner
        self._lower(owner.feed, position_number)

    def _lower(self, feed: Feed, position_number: int) -> None:
        upto = self._recovered[position_number].upto
        self._floors[feed] = min(upto, self._floors.get(feed, upto))

    def _change_routes(self) -> None:
        """Makes the exchanges and bindings what they were when the next records came."""
        routes, self._routes = self._routes, {}
        try:
            self._change(routes)
        except Exception:  # noqa: BLE001  one of them is odd: each by itself
            for (what, name), terms in routes.items():
                try:
                    self._change({(what, name): terms})
                except Exception as error:  # noqa: BLE001
                    self._odd(MetadataChange(self._registry.sequence, what, name, terms), error)

    def _change(self, routes: dict[tuple[str, object], object]) -> None:
        bindings = [(name, terms) for (_, name), terms in routes.items() if isinstance(name, Binding)]
        exchanges = [(str(name), terms) for (what, name), terms in routes.items() if what == "exchange"]
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
            if queue.durable_position.durable:
                self._lower(queue.feed, queue.durable_position.number)

    def run(self, run: Run, first: int, publisher: str, time_s: float, *, recorded: bool) -> None:
        """Appends a run that was published at ``time_s`` to its lanes. A ``recorded`` run also updates its states."""
        if self._routes:
            self._change_routes()
        registry, last = self._registry, first + len(run) - 1
        registry.sequence = max(registry.sequence, last)
        run.journaled = True
        session = registry.sessions.get(publisher)
        run.publisher = session.number if session is not None else 0
        encoded: Encoded = {}
        try:
            route = self._publishing.route(run)
            for state in route.states if recorded else ():
                self._publishing.keep(state, run, first, time_s)
        except Exception as error:  # noqa: BLE001  whatever it is, all other records are restored
            self._odd(JournaledRun("", run, first, publisher), error)
            return
        for feed in route.feeds:
            if not feed.durable_readers or (publisher and feed.key.exclude == publisher):
                continue
            if last < self._floors.get(feed, 0):
                feed.lane.dropped_sequence = last
                continue
            before = feed.lane.count
            try:
                self._append(feed, run, first, encoded, session, time_s)
            except Exception:  # noqa: BLE001  one of them is odd: each by itself
                self._append_each(feed, run, first, publisher, session, time_s)
            self.records += feed.lane.count - before

    def _append(
        self, feed: Feed, run: Run, first: int, encoded: Encoded, session: Session | None, time_s: float
    ) -> None:
        if feed.refuses:
            for part, sequence in self._accepted(feed, run, first):
                self._publishing.appending.append(feed, part, sequence, {}, session, time_s, {})
        else:
            self._publishing.appending.append(feed, run, first, encoded, session, time_s, {})

    def _append_each(
        self, feed: Feed, run: Run, first: int, publisher: str, session: Session | None, time_s: float
    ) -> None:
        """Appends the records of a run one by one, but for those that the lane has already."""
        for index in range(len(run)):
            if first + index <= feed.lane.last_sequence:
                continue
            part = part_of(run, index, index + 1)
            try:
                self._append(feed, part, first + index, {}, session, time_s)
            except Exception as error:  # noqa: BLE001  whatever it is, all other records are restored
                self._odd(JournaledRun("", part, first + index, publisher), error)

    def _accepted(self, feed: Feed, run: Run, first: int) -> Iterator[tuple[Run, int]]:
        """Yields the parts of a run that its queue had not refused, and the first sequence of each."""
        positions = [queue.durable_position for queue in feed.queues if queue.durable_position.durable]
        recovered = [self._recovered[position.number] for position in positions]
        for refused, part in groupby(range(len(run)), lambda at: any(one.covers(first + at) for one in recovered)):
            at, *others = part
            last = at + len(others)
            if not refused:
                yield part_of(run, at, last + 1), first + at
                continue
            for position in positions:  # the journal's next snapshot has to know it, too
                position.restore_refused(first + at, first + last, feed.lane.last_sequence)

    # -- the end ----------------------------------------------------------------------------------------------------

    def finish(self, now: float) -> None:
        """Moves the cursors to their recovered positions."""
        self._change_routes()
        self._registry.router.exchanges.ends_unused = True
        sessions = self._registry.sessions
        for client, in_flight_ids in self._in_flight_ids.items():
            for delivery_id, (position_number, sequence, released) in in_flight_ids.items():
                self._held.setdefault(position_number, {})[sequence] = client, delivery_id, released
        known = [(sessions[client].channel, ids) for client, ids in self._in_flight_ids.items() if client in sessions]
        for channel, in_flight_ids in known:
            channel.go_on_after(next(reversed(in_flight_ids)))
            channel.orphaned_ids |= {
                one: None
                for one, (position_number, sequence, _) in in_flight_ids.items()
                if self._is_orphaned(position_number, sequence)
            }
        for position_number, owner in self._owners.items():
            position = _position_of(owner)
            if not position.durable:
                continue  # it has ended since
            recovered = self._recovered[position_number]
            for cursor in list(position.cursors):
                assert isinstance(cursor, Cursor), "no subscription was replaced yet"
                cursor.durable_position = NOT_DURABLE  # the journal knows all moves below
                try:
                    self._place(owner, cursor, recovered, position_number, now)
                except Exception as error:  # noqa: BLE001  it gets some records again, and all others are restored
                    self._odd(recovered.position(position_number), error)
                cursor.durable_position = position
        for channel, _ in known:  # the unsettled records of a queue's member are requeued
            channel.orphaned_ids = {one: None for one in channel.orphaned_ids if one not in channel.in_flight}

    def _place(
        self, owner: Subscription | Queue, cursor: Cursor, recovered: RecoveredPosition, position_number: int,
        now: float,
    ) -> None:  # fmt: skip
        if isinstance(owner, Queue):
            self._place_queue(owner, cursor, recovered, position_number, now)
        elif isinstance(owner, Poll):
            owner.archive_cursor.offset = recovered.upto
        else:
            _place_subscription(owner, cursor, recovered, self._ids(owner, position_number), now)
            if recovered.conflated:
                self._subscribing.starts.show_state(owner, recovered.unsent - 1, now)

    def _is_orphaned(self, position_number: int, sequence: int) -> bool:
        """Tells whether the client may still hold the id of this record, although its subscription does not send it."""
        owner = self._owners.get(position_number)
        if owner is None or not _position_of(owner).durable:
            return True
        recovered = self._recovered[position_number]
        return sequence >= recovered.upto and not recovered.covers(sequence)

    def _ids(self, owner: Subscription, position_number: int) -> dict[int, tuple[int, bool]]:
        return {
            sequence: (delivery_id, released)
            for sequence, (client, delivery_id, released) in self._held.get(position_number, {}).items()
            if client == owner.session.client
        }

    def _place_queue(
        self, queue: Queue, cursor: Cursor, recovered: RecoveredPosition, position_number: int, now: float
    ) -> None:
        members = {member.session.client: member for member in queue.members}
        held = self._held.get(position_number, {}) if members else {}
        for chunk, index in unsettled(cursor, recovered):
            client, delivery_id, released = held.get(chunk.sequence_of(index), ("", 0, False))
            member = members.get(client)
            if member is None or delivery_id in member.channel.in_flight:
                queue.restored(cursor, chunk, index)
                continue
            record = record_at(cursor.lane.dialect, chunk, index)
            delivery = Delivery(member, now, cursor, chunk, index, chunk.first_number + index, released, record=record)
            cursor.sent(delivery.number, chunk)
            member.channel.add(delivery_id, delivery)
        _step_over(cursor, recovered.unsent)
        self._registry.ready_queues[queue] = None


def _position_of(owner: Subscription | Queue) -> DurablePosition:
    """Returns the owner's durable position; the null position if the owner has ended."""
    return owner.durable_position if isinstance(owner, Queue) else owner.cursor.durable_position


def _place_subscription(
    subscription: Subscription,
    cursor: Cursor,
    recovered: RecoveredPosition,
    ids: dict[int, tuple[int, bool]],
    now: float,
) -> None:
    """Puts a subscription's cursor and deliveries where they were. ``ids`` holds, by sequence, the delivery id that the
    client knows and whether the client has received the record."""
    channel = subscription.session.channel
    for chunk, index in unsettled(cursor, recovered):
        if not (chunk.holes and chunk.holes[index]):
            continue  # it was sent without an acknowledgement
        delivery = Delivery(subscription, now, cursor, chunk, index, chunk.first_number + index)
        cursor.sent(delivery.number, chunk)
        known, released = ids.get(chunk.sequence_of(index), (0, False))
        if known and known not in channel.in_flight:
            delivery.released = released
            channel.add(known, delivery)
        else:
            channel.add(channel.next_id(), delivery)
    _step_over(cursor, recovered.unsent)
    subscription.counters.start_at(cursor.number, cursor.position)


def unsettled(cursor: Cursor, recovered: RecoveredPosition) -> Iterator[tuple[Chunk, int]]:
    """Yields the records from the cursor on that were sent and are not settled."""
    chunk: Chunk | None = cursor.chunk
    here = cursor.number
    while chunk is not None:
        first = max(chunk.index_from(recovered.upto), here - chunk.first_number)
        stop = min(chunk.index_from(recovered.unsent), cursor.end_number - chunk.first_number)
        for index in range(first, stop):
            if not recovered.covers(chunk.sequence_of(index)):
                yield chunk, index
        chunk = chunk.next


def _step_over(cursor: Cursor, unsent: int) -> None:
    """Moves the cursor on to the first record that was never sent."""
    chunk: Chunk | None = cursor.chunk
    while chunk is not None:
        index = chunk.index_from(unsent)
        if index < len(chunk) or chunk.next is None:
            cursor.skip_to(min(chunk.first_number + index, cursor.end_number))
            return
        chunk = chunk.next
