"""Queue: many members share one position in a topic's log; each record goes to one of them.

Theory of operation. The backlog (backlog.py) is what a queue has still to hand out; drops (drops.py) are records that
it leaves out. Dispatch (dispatch.py) hands out records in small portions, in turn, to members that have room and
credit. So a stuck member gets no more than it already has, and the others share the rest.

Records that a member had not settled when it left are requeued and given to another member, marked as redelivered.
Exactly-once deliveries are the exception: MQTT forbids to give them to another client (MQTT 5, 4.8.2), so they are
counted as a gap.

A member that cannot take a record before its client does something (reads, settles, lets records flow again) is set
aside: it is not looked at before that (``Members.ring``). So stuck members cost the others nothing, and nobody
anything if all are stuck.

A queue that has handed out everything *listens* to its feed. Any other queue runs only after it was marked as ready
(``Registry.ready_queues``): because a member has room or credit again, or gave a record back. So a stuck queue costs a
turn nothing.

A shared subscription's group is a queue that ends with its last member.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from enum import StrEnum

from headway.core.base import NO_TIMER, Reason, moved
from headway.core.consumer import (
    ENDED,
    DeadLetter,
    Delivery,
    Feed,
    QueueMember,
    QueueTerms,
    Session,
    SharedReader,
    Skip,
    Subscription,
)
from headway.core.delivery import Fanout, leave_lane
from headway.core.log import NOT_DURABLE, Chunk, Cursor, DurablePosition
from headway.core.message import TOPICS, Run, spellings, topic_of
from headway.core.queue.backlog import Backlog, QueuePort
from headway.core.queue.dispatch import Dispatch, FetchedRecord
from headway.core.queue.drops import Discards, Drops, letter_work
from headway.core.queue.members import Lifetimes, Members, Unsettled, others_may_get
from headway.core.queue.picking import Picking
from headway.core.queue.places import LaneSource, QueueCursor
from headway.core.routing import SEARCHED_A_UNIT, Binding, Registry

# -- life --------------------------------------------------------------------------------------------------------------
#
# The life of a queue: its states, and the legal moves between them.


class QueueLife(StrEnum):
    OPEN = "open"
    ENDED = "ended"
    """The queue was deleted, or its last member has left a group. It reads nothing more. Deliveries that are still with
    its clients belong to nobody."""


MOVES = {
    QueueLife.OPEN: {QueueLife.ENDED},
    QueueLife.ENDED: set[QueueLife](),
}


# -- placeholder -------------------------------------------------------------------------------------------------------
#
# Placeholder: stands in for the consumers of a durable queue that has none.
#
# Policies judge it like any consumer; it gets no records.


class Placeholder:
    """The placeholder of one queue, while there is one."""

    def __init__(self, queue: QueuePort, registry: Registry, on_lag: Callable[[Subscription, float], None]) -> None:
        self.make: Callable[[float], Subscription | None] = lambda now: None
        """Makes the placeholder of a durable queue; other queues get none."""
        self.here: tuple[Subscription, ...] = ()
        """The placeholder; empty: there is none."""
        self._queue = queue
        self._registry = registry
        self._on_lag = on_lag

    def miss(self, cursor: Cursor, skips: list[Skip], now: float) -> None:
        """Has policies look at the placeholder, because records wait and there is no consumer."""
        if not self.here and (made := self.make(now)) is not None:
            made.reader, made.cursor, made.skips = QueueMember(self._queue, self._queue.backlog), cursor, skips
            self.here = (made,)
        for placeholder in self.here:
            self._on_lag(placeholder, now)

    def dismiss(self) -> None:
        """Removes the placeholder."""
        removed, self.here = self.here, ()
        for placeholder in removed:
            placeholder.become(ENDED)
            self._registry.watched.pop(placeholder, None)
            if placeholder.case.slow:
                self._registry.totals.count_slow(placeholder, -1)
            self._registry.ready_queues[self._queue] = None

    def close(self) -> None:
        """Removes the placeholder for good."""
        self.make = lambda now: None
        self.dismiss()
        del self._queue


# -- binding set -------------------------------------------------------------------------------------------------------
#
# A binding set is all bindings of one queue. It gives the name of the feed that the queue reads, and the names by which
# policies find the queue.
#
# Queues with equal binding sets read one feed. So the feed's name is made of the names of all bindings, in a fixed
# order and without the parts that their exchanges ignore. The names are kept sorted, so a change of one binding moves
# one entry. Only the join of the names visits all of them, and that is one copy.


WAYS_BINDINGS_MAX = 64
"""A queue with more bindings than this is found by its name alone, because each change of a binding looks at all."""
_PLAIN = re.compile(r"""[^\s/,()'"]*""")


class BindingSet:
    __slots__ = ("_filters", "_names", "_own", "_texts", "all")

    def __init__(self, queue: str) -> None:
        self._own = queue
        self._names: list[str] = []
        """The names of the bindings, sorted, each once."""
        self._texts: Counter[str] = Counter()
        """The number of bindings with each name."""
        self._filters: Counter[str] = Counter()
        self.all: dict[Binding, None] = {}

    def __len__(self) -> int:
        """Returns the number of names."""
        return len(self._names)

    def change(self, binding: Binding, seen: Binding, *, there: bool) -> None:
        """Adds a binding (``there``) or removes it. ``seen`` is the binding without the parts its exchange ignores."""
        if there:
            self.all[binding] = None
        else:
            self.all.pop(binding, None)
        text, names = binding_name(seen), self._names
        if _count(self._texts, text, there=there):
            at = bisect_left(names, text)
            names[at : at + (not there)] = [text] if there else []
        filter = filter_of(binding.key)
        if binding.source == TOPICS:
            _count(self._filters, filter, there=there)
        _count(self._filters, f"$exchange/{binding.source}/{filter}", there=there)

    def feed_name(self, *, called: bool) -> str:
        """Returns the name of the feed. ``called`` says that the queue is also published to by its own name."""
        own = [f"$queue/{quote_name(self._own)}"] if called or not self._names else []
        return ", ".join(self._names + own)

    def filters(self) -> tuple[str, ...]:
        """Returns the names by which policies find the queue. "#" is for policies that cover everything."""
        return (*spellings(f"$queue/{self._own}"), *self._filters, "#")

    def ways(self, *, called: bool) -> Iterator[Sequence[str]]:
        """Yields the ways in which all that comes to the queue can be named by filters: by its own name, or by the
        bindings that it all comes from. "#" is for pools of everything."""
        yield from ((name,) for name in (*spellings(f"$queue/{self._own}"), "#"))
        if not called and 0 < len(self.all) <= WAYS_BINDINGS_MAX:
            filters = [(binding.source, filter_of(binding.key)) for binding in self.all]
            if all(source == TOPICS for source, _ in filters):
                yield [filter for _, filter in filters]
            yield [f"$exchange/{source}/{filter}" for source, filter in filters]


def _count(counts: Counter[str], text: str, *, there: bool) -> bool:
    """Counts a name up or down. Returns whether it was the first one that came, or the last one that went."""
    counts[text] += 1 if there else -1
    if not counts[text]:
        del counts[text]
        return True
    return there and counts[text] == 1


def binding_name(binding: Binding) -> str:
    arguments = ", ".join(f"{quote_name(name)}={value!r}" for name, value in binding.arguments)
    source, key = quote_name(binding.source), topic_of(quote_name(binding.key))
    return f"$exchange/{source}/{key}{f' ({arguments})' if arguments else ''}"


def quote_name(text: str) -> str:
    """Returns a name, quoted if it has special characters. Clients choose the names. Without quotes two different lists
    of names could join to one string, and their queues would share a lane."""
    return text if _PLAIN.fullmatch(text) else repr(text)


def filter_of(pattern: str) -> str:
    """Returns a topic filter that matches at least all topics that a binding's pattern matches."""
    levels: list[str] = []
    for word in topic_of(pattern).split("/"):
        levels.append("+" if word == "*" else word)
        if word == "#":
            break
    return "/".join(levels) or "#"


# -- queue -------------------------------------------------------------------------------------------------------------


def queue_of(reader: SharedReader | None) -> Queue:
    """Returns the shared reader as a queue; there is no other kind."""
    assert isinstance(reader, Queue)
    return reader


def queue_behind(subscription: Subscription) -> Queue | None:
    """Returns the queue that the subscription is a member of; None: it reads a lane, or by itself."""
    reader = subscription.reader.queue
    return None if reader is None else queue_of(reader)


class Queue:
    def __init__(self, name: str, feed: Feed, terms: QueueTerms, registry: Registry, fanout: Fanout,
                 on_lag: Callable[[Subscription, float], None], *, ends_with_members: bool = False) -> None:
        self.name = name
        self.terms = terms
        self.feed = feed
        self.ends_with_members = ends_with_members
        self.life = QueueLife.OPEN
        """Set by ``_become`` alone."""
        self.skips: list[Skip] = []
        """Skips that apply to all members."""
        self.filters: tuple[str, ...] = ()
        """The names by which policies find the queue: ``$queue/NAME``, and the names of its bindings."""
        self.owner: Session | None = None
        """The connection that declared the queue as exclusive."""
        self.called = False
        """Whether records were ever published to the queue by its name."""
        self.durable_position: DurablePosition = NOT_DURABLE
        """The durable position; the null position if the queue does not outlive the process."""
        self.expiry = NO_TIMER
        """Deletes the queue if it is not used until then."""
        self.used_s = 0.0
        """The time when a client last asked for a record or declared the queue."""
        self.charged_to = ""
        """The owner that the queue and its bindings count to."""
        self.charged_bytes = 0
        self._registry = registry
        self._on_lag = on_lag
        self.backlog = Backlog(self, registry)
        self.picking = Picking(self.backlog)
        self.members = Members(terms, self.picking)
        self.drops = Drops(self, self.backlog, registry)
        self.discards = Discards(self, self.backlog, self.drops, self.skips, registry)
        self.lifetimes = Lifetimes(self, self.backlog, registry, self.drops.drop)
        self.unsettled = Unsettled(self, self.backlog, self.drops, self.lifetimes, registry)
        self.placeholder = Placeholder(self, registry, on_lag)
        self._dispatch = Dispatch(self, self.members, self.backlog, self.drops, self.discards, self.lifetimes,
                                  self.skips, registry, fanout, on_lag)  # fmt: skip
        self.read(feed)

    def _become(self, life: QueueLife) -> None:
        self.life = moved(MOVES, self.life, life)

    @property
    def ended(self) -> bool:
        return self.life is QueueLife.ENDED

    # -- feeds ------------------------------------------------------------------------------------------------------

    def read(self, feed: Feed, source: LaneSource | None = None) -> None:
        """Goes on in another feed's lane, from its end, after the records that wait now. A lane that a ``source`` fills
        is not durable."""
        self.placeholder.dismiss()
        old, self.feed = self.feed, feed
        self.backlog.reads.go_on_in(feed, source)
        if self.durable_position.durable:
            if source is None:
                self.backlog.cursors[-1].durable_position = self.durable_position
                self.durable_position.cursors.append(self.backlog.cursors[-1])
            self._registry.count_durable_reader(feed, 1)
            self._registry.count_durable_reader(old, -1)
        if self.terms.drops_oldest:
            feed.limited[self] = None
        self._registry.moved(len(self.members), self.members.slow, old, feed)
        if feed is not old:
            self._move_gates(old, feed)
        self.backlog.reads.leave_empty()
        self.backlog.reads.step()
        self._registry.ready_queues[self] = None

    def read_between(self, feed: Feed, source: LaneSource) -> None:
        """Reads what a ``source`` fills a feed's lane with, after what waits now and before what is to come."""
        live = self.feed
        live.reading += 1  # if nothing waits, the queue leaves this feed; it may not be closed before the queue is back
        self.read(feed, source)
        self.read(live)
        live.reading -= 1

    def _move_gates(self, old: Feed, new: Feed) -> None:
        """Moves the members' gates to the feed that they read now. Publishers that waited for the old one go on."""
        for member in [gate for gate in old.gates if gate.reader.queue is self]:
            new.gates[member] = old.gates.pop(member)
        if new.gated and not new.was_gated:
            since_s = old.gated_since_s if old.was_gated else max(new.gates.values())
            new.was_gated, new.gated_since_s = True, since_s
        self._registry.left[old] = None

    def moved_on(self) -> None:
        """Ends the skips of the lane that was read until now."""
        self.skips.clear()

    def source_failed(self) -> None:
        self.drops.by_reason[Reason.SPILL_FAILED] += 1

    def close(self) -> None:
        """Ends the queue. Its remaining members get no more records."""
        self._become(QueueLife.ENDED)
        self.members.departed.clear()
        self.picking.stop()
        self.expiry.cancel()
        self._registry.returning.forget(self)
        self.drops.stop()
        self.discards.stop()
        self.lifetimes.stop()
        self._dispatch.stop()
        self.placeholder.close()
        self.unsettled.stop()
        self._registry.ready_queues.pop(self, None)
        self._registry.put_off.pop(self, None)
        self.backlog.close()

    # -- members ----------------------------------------------------------------------------------------------------

    @property
    def gates(self) -> bool:
        """Whether all eligible members gate the feed. As long as one does not, the queue is served."""
        return self.members.all_gate(self.feed.gates)

    @property
    def empties(self) -> int:
        return self.backlog.empties

    @property
    def left_behind(self) -> bool:
        """Whether it is the exclusive queue of a session that has ended. Deferred work deletes it (deferred.py)."""
        return self.owner is not None and self.owner.ended

    @property
    def promises(self) -> bool:
        """Whether the records of the queue outlive the connections of its consumers."""
        if self.ends_with_members:
            return any(member.promised for member in self.members)
        return self.owner is None

    def look_again(self, member: Subscription) -> None:
        self.members.look_again(member)
        self._registry.ready_queues[self] = None

    def packet_limit_changed(self) -> None:
        self.picking.end_limits()
        self._registry.ready_queues[self] = None

    def count_slow(self, member: Subscription, change: int) -> None:
        self.members.count_slow(member, change)

    def miss(self, now: float) -> None:
        self.placeholder.miss(self.backlog.reads.present, self.skips, now)

    def join(self, subscription: Subscription) -> None:
        self.placeholder.dismiss()
        backlog = self.backlog
        subscription.cursor.close()
        del subscription.feed.subscriptions[subscription]  # the queue knows it
        subscription.cursor = backlog.reads.present
        self.picking.end_limits()
        # A group's lane has only what its selector accepts.
        waiting = backlog if self.ends_with_members else self.picking.join(subscription, self.members)
        subscription.reader = QueueMember(self, waiting)
        subscription.skips = self.skips
        subscription.counters.start_at(waiting.handed_records, waiting.handed_bytes)
        self.members.add(subscription)
        subscription.session.queues[self] = None
        self._registry.ready_queues[self] = None

    def expect_back(self, member: Subscription, now: float) -> None:
        """Hands out nothing fresh before the unsettled records of a member that is gone have come back, for a while."""
        if member.window.used:
            if not self.members.leaving:
                self.members.leaving_since_s = now
            self.members.leaving[member] = None

    def leave(self, member: Subscription) -> None:
        """Removes a member for good. If its session has ended, its unsettled records go to the other members. Else they
        stay with its client, which can still settle them, and go to the others when its session ends."""
        session = member.session
        if self.members.remove(member):
            session.queues.pop(self, None)
        if not self.picking and not self.terms.drops_oldest:
            self.feed.limited.pop(self, None)
        if self.ended:
            return
        if member.window.used and not session.ended:
            self.members.departed.add(member)
            if self.ends_with_members:
                session.departed.add(member)
        if not self.members:
            self.skips.clear()
        if not member.request.polling:
            self._registry.unused[self] = None
        if session.ended:
            self.unsettled.requeue_all(member, Reason.SUBSCRIPTION_ENDED)
        if self.ends_with_members and not self.members:
            self._let_keep()
            self._give_up(member, Reason.SUBSCRIPTION_ENDED)
        self._registry.ready_queues[self] = None

    def _let_keep(self) -> None:
        """Lets clients keep what they have not settled, as the group ends, and have it again when they come back."""
        for channel, members in self.members.departed.by_channel().items():
            for delivery in channel.in_flight.values():
                if delivery.subscription in members:
                    cursor, number = delivery.cursor, delivery.number
                    leave_lane(delivery)
                    cursor.acknowledge(number)

    def restored(self, cursor: Cursor, chunk: Chunk, index: int) -> None:
        """Takes in a record that a member may have had when the previous process ended."""
        assert isinstance(cursor, QueueCursor)
        self.backlog.restored(cursor, chunk, index)

    # -- settled and dropped ----------------------------------------------------------------------------------------

    def settled(self, cursor: object) -> None:
        """Notes that a member settled a record of this cursor."""
        self.backlog.reads.settled(cursor)

    def lose(self, delivery: Delivery, reason: Reason, now: float) -> None:
        member = delivery.subscription
        if reason is Reason.TOO_LARGE_FOR_CLIENT and others_may_get(delivery):
            self.unsettled.requeue(delivery)  # it is dropped if it is too large for all members
        else:
            self.unsettled.lose(delivery, reason)
        self._registry.wake(member.session)  # it has credit again
        if not self.ended:
            self._on_lag(member, now)  # the governor tells of the gap

    def _give_up(self, member: Subscription, reason: Reason) -> None:
        """Drops all waiting records of the lane that is read now, and counts them in this member's gap. Requeued ones
        are freed over the turns to come (deferred.py)."""
        backlog, cursor = self.backlog, self.backlog.cursor
        self.drops.lose_standing(member, reason)
        if backlog.requeued:
            deferred = self._registry.deferred
            deferred.begin(self.drops.lose_requeued(member, reason), deferred.now, client=member.session)
        if cursor.position != cursor.end_position:
            backlog.handed(cursor.end_number - cursor.number, cursor.end_position - cursor.position)
            self._registry.lost(member.skip_to(cursor.end_number, reason), reason)
        self.picking.forget_gone()

    def purge(self) -> Generator[int, None, int]:
        """Drops all waiting records, a part in each step. Yields the work of each step; returns how many it dropped."""
        self.feed.lane.receive()
        left, done = self.backlog.lag_records, 0
        while done < left and not self.ended:
            records, work = self.drops.purge_some(left - done)
            if not records:
                break  # members took the rest
            done += records
            yield work
        return done

    # -- memory pressure --------------------------------------------------------------------------------------------

    def holders(self, chunk: Chunk, late_s: float) -> list[Subscription]:
        """Returns the members that make the lane hold a chunk. If records of the chunk still wait, these are all
        members that could get them, unless one of them takes records. Otherwise they are the members with unsettled
        records of the chunk, sent before ``late_s``."""
        self.members.departed.forget_settled()
        if self.members and self.backlog.wants(chunk):
            holders = self.members.eligible if self.members.single else list(self.members)
            if self.picking:
                holders = self.picking.takers(chunk, holders)
            return [] if self.members.anybody_moves(late_s, self.used_s, holders) else holders
        return [
            member for member in [*self.members, *self.members.departed]
            if any(d.chunk is chunk and d.sent_s <= late_s
                   for d in map(member.channel.in_flight.__getitem__, member.channel.ids_of(member)))
        ]  # fmt: skip

    def nobody_selects(self, chunk: Chunk) -> bool:
        """Tells whether all records of the chunk that wait were looked at, and no member selects them. Where one
        consumer gets all records, that is the only one that counts."""
        cursor = self.backlog.cursor
        fresh = cursor.chunk is chunk and cursor.position < chunk.stop
        only = self.members.eligible if self.members.single else None
        return not fresh and self.picking.nobody_wants(chunk, only)

    def write_off(self, member: Subscription, reason: Reason, late_s: float) -> None:
        """Requeues the member's records. If no member takes records, drops the waiting ones that were not promised."""
        self.give_back(member, reason)
        if self.gives_up(late_s):
            self._give_up(member, reason)

    def give_back(self, member: Subscription, reason: Reason) -> None:
        """Requeues a member's unsettled records, but for those that it was promised and nobody else may get."""
        self.unsettled.requeue_all(member, reason, all_of_it=not member.promised)

    def gives_up(self, late_s: float) -> bool:
        """Returns whether a write-off of a member drops records that wait: none was promised, and no member could take
        records since ``late_s``."""
        if self.promises or self.members.anybody_moves(late_s, self.used_s, self.members.eligible):
            return False
        return self.backlog.wants(self.backlog.oldest_wanted(self.feed.lane.first))

    def give_up_chunk(self, chunk: Chunk, reason: Reason) -> bool:
        """Drops the records of a chunk to make room. Returns whether this turn had work left for all of them."""
        return self.drops.give_up_chunk(chunk, reason, promises=self.promises)

    # -- handing out ------------------------------------------------------------------------------------------------

    def dispatch(self, now: float) -> None:
        """Hands out the waiting records to members that can take them."""
        if not self.ended:
            self._dispatch.run(now)

    def is_behind(self, now: float) -> bool:
        """Tells whether records must come back, be sorted or be dropped before the next one can be handed out."""
        if self._dispatch.waits_for_older(now) or (self.terms.priorities and not self._dispatch.sort_in()):
            return True
        return self.lifetimes.head_expired(now)

    def takes_at_once(self, now: float) -> bool:
        """Returns whether one more record would be handed out at once."""
        self.dispatch(now)
        return not self.backlog.has_more and bool(self.members.ready(now, 1, self.members.ring))

    def has_some_for(self, member: Subscription, now: float) -> bool:
        """Tells whether a record is on its way to a member that has credit, or may be."""
        self.feed.lane.receive()
        if self.is_behind(now):
            return True
        if self.picking.looks_for(member):
            return member.has_more or self.picking.may_find(member)
        return self.backlog.has_more and bool(self.members.ready(now, 1, self.members.ring))

    def looks_on(self, member: Subscription) -> bool:
        """Tells whether nothing was found for a member with a selector, and not everything was looked at."""
        return self.picking.looks_for(member) and not member.has_more and self.picking.may_find(member)

    def get(self, member: Subscription, now: float) -> FetchedRecord | None:
        """Hands the next record to a member that asks for it. Returns None if no record waits or the member has no
        credit. Raises OSError (failing disk)."""
        self.used_s = now
        self.feed.lane.receive()
        return self._dispatch.get(member, now)

    def waiting(self, most: int, bytes_max: int, now: float) -> list[tuple[bytes, int]]:
        """Returns the records that wait, the first of them, as they are in the lane, and how often each came back.
        Takes none. Raises OSError (failing disk)."""
        found: list[tuple[bytes, int]] = []
        self.feed.lane.receive()
        for chunk, index, returns in self.backlog.waiting(most):
            start, end = chunk.record_start(index), chunk.ends[index]
            bytes_max -= end - start
            if bytes_max < 0:
                break
            if not self.lifetimes.expired(chunk, index, now):
                found.append((bytes(chunk.read(start, end)), returns))
        return found

    def room_for(self, size: int, count: int, now: float) -> int:
        """Returns how many records of so many bytes a queue with a length limit accepts, if ``count`` are to come."""
        if self.drops.room(size) < count:
            self.dispatch(now)  # members may take some of what waits
        return self.drops.room(size)

    def refuse(self, run: Run, accepted: int, first: int, now: float) -> None:
        """Refuses the records of the run after the first ``accepted`` ones."""
        if run.journaled:
            lanes = (cursor.lane for cursor in (*self.backlog.cursors, *self.backlog.draining))
            last = max(lane.last_sequence for lane in lanes)
            self.durable_position.refused(first + accepted, first + len(run) - 1, last)
        if self.terms.dead_letter_refused:
            for index in range(accepted, len(run)):
                record = run.record(index, first, now)
                self._registry.effects.append(DeadLetter(self.name, self.terms, record, Reason.QUEUE_LENGTH))
                router = self._registry.router
                router.searched += SEARCHED_A_UNIT * letter_work(router, self.terms, record)  # its publisher's work
