"""The turn: what came in is sent to all consumers that can take it. The tick: consumers are looked at besides."""

from __future__ import annotations

from itertools import islice
from math import ceil

from headway.core.base import WorkSteps
from headway.core.clients import Queues, Starts
from headway.core.consumer import SharedReader, Subscription
from headway.core.delivery import Fanout
from headway.core.governance.governor import Governor
from headway.core.live import LiveQueries
from headway.core.routing import Expiring, ReceiptReplies, Registry

POLICY_WORK = 4
"""Work of giving a consumer another policy."""
NAMES_PER_WORK = 4
"""How many of a queue's names are compared with policies in the time of one unit of work."""

WAKES_A_TURN = 1024
"""Members of queues that are looked at again in a turn."""
HAND_OUT_WORK = 512
HANDED_PER_WORK = 16
"""How many records are cut in the time of one unit of work. To look at a queue is one unit more. What a record
costs beyond that is told by queue/dispatch.py: a record for consumers without acknowledgements is cut once for all."""
LAST_EVERY = 8
"""Queues of the highest priority come last about once in so many rounds."""


class Turn:
    """Carries out, at the end of a turn, the consequences of its commands."""

    def __init__(self, registry: Registry, fanout: Fanout, queues: Queues, governor: Governor,
                 receipt_replies: ReceiptReplies, expiring: Expiring, live: LiveQueries, starts: Starts) -> None:
        self._registry = registry
        self._fanout = fanout
        self._queues = queues
        self._governor = governor
        self._receipt_replies = receipt_replies
        self._expiring = expiring
        self._live = live
        self._starts = starts
        self._pools = registry.distinct_pools()
        self._rounds = 0
        """Changes in each round through ready queues, where some have priorities."""
        self._changing = False
        """Whether consumers get other policies now, because their queues have new names or their sessions new terms."""

    def flush(self, now: float) -> None:
        """Ends a turn: sends new records to all consumers that can take them."""
        registry, fanout = self._registry, self._fanout
        fanout.begin_turn()
        if registry.deferred:
            registry.deferred.turn(now)
        if registry.rounds.begun:
            registry.rounds.turn(now)
        if registry.backpressure.next_is_due:
            registry.backpressure.resume_next(now)
        if registry.allowances.due:
            self._let_fly()
        if self._live:
            self._live.turn(now)
        if self._live.broken:
            self._governor.cutter.end_broken(self._live.take_broken(), now)
        if fanout.again or fanout.unfinished:
            fanout.go_on(now)
        dirty, registry.dirty = registry.dirty, {}
        fanout.begin_joining(len(dirty))
        for feed in sorted(dirty, key=lambda feed: -feed.priority) if registry.priorities else dirty:
            if feed.queues:
                registry.ready_queues |= feed.listening
                registry.ready_queues |= feed.limited
                feed.listening.clear()  # nobody has looked at what the lane has got, so the lane keeps it
            else:
                fanout.flush(feed, now)
                feed.settle_down()
        fanout.send_joined(now)
        if registry.woken:
            registry.look_again(WAKES_A_TURN)
        for overdue in (registry.returning, registry.overdue):
            if overdue.begun:
                registry.ready_queues = overdue.turn() | registry.ready_queues
        if registry.ready_queues or registry.put_off or registry.left or registry.unused or registry.cuts:
            self._hand_out(now)
        if (registry.renamed or registry.came_elsewhere) and not self._changing:
            self._changing = True  # one pass at a time, however often clients bind, unbind and come back meanwhile
            registry.deferred.begin(self._change_policies(), now)
        if self._governor.sweeping:
            self._governor.go_on(now, fanout.turn_bytes)
        if registry.receipts.due:
            self._receipt_replies.turn(now)
        registry.looks_for_room.clear()
        for pool in self._pools:
            if pool.must_spill or pool.lane_must_spill:
                self._governor.relief.relieve(now)
                break

    def _let_fly(self) -> None:
        """Lets sessions go on that waited for their users' limits of bytes in flight."""
        for number in self._registry.allowances.next_turns():
            session = self._registry.numbers.get(number)
            if session is not None:  # None: it has ended
                session.channel.exhausted_since_s = None
                self._fanout.again[session] = None
                self._registry.wake(session)

    def _hand_out(self, now: float) -> None:
        """Dispatches the ready queues, and tidies up after queues that have changed."""
        registry = self._registry
        if registry.left:
            left, registry.left = registry.left, {}
            for feed in left:
                registry.backpressure.gate_opened(feed, now)
        ready = self._dispatch(now)
        registry.cuts.clear()
        if registry.unused:
            self._queues.tidy(now)
        for feed in {queue.feed: None for queue in ready}:
            feed.settle_down()

    def _dispatch(self, now: float) -> list[SharedReader]:
        """Dispatches queues as far as a turn's work goes, and returns them. The others are put off, and come first in
        the next turn: one client may have ten thousand queues, which all become ready when it has credit again. Until
        they had their turn nothing more is published to them (``Intake.must_wait``); else publishers would be read
        faster than consumers can be sent to."""
        registry, ready, left = self._registry, list[SharedReader](), HAND_OUT_WORK
        begins = False
        while left > 0 and not begins:
            begins = not registry.put_off
            if begins:
                registry.put_off, registry.ready_queues = self._in_order(registry.ready_queues), {}
            for queue in list(islice(registry.put_off, HAND_OUT_WORK)):
                if left <= 0:
                    break
                del registry.put_off[queue]
                ready.append(queue)
                before = registry.handed_work
                queue.dispatch(now)
                left -= 1 + ceil((registry.handed_work - before) / HANDED_PER_WORK)
        return ready

    def _in_order(self, queues: dict[SharedReader, None]) -> dict[SharedReader, None]:
        """Returns queues that are ready, those of a higher priority first. Whoever comes first may take all the room
        that a client has, so now and then they come last."""
        if not self._registry.priorities:
            return queues
        self._rounds = (self._rounds * 5 + 1) % (1 << 16)  # mixed, as what clients do may be as regular as that
        sign = 1 if self._rounds >> 8 < (1 << 8) // LAST_EVERY else -1
        return dict.fromkeys(sorted(queues, key=lambda queue: sign * queue.feed.priority))

    def _change_policies(self) -> WorkSteps:
        """Gives the members of queues the policies for the queues' present names, and the subscriptions of sessions
        those of their present listener, and of how long they last."""
        queues, self._registry.renamed = self._registry.renamed, {}
        sessions, self._registry.came_elsewhere = self._registry.came_elsewhere, {}
        try:
            for queue in queues:
                if queue.members:
                    yield 1 + len(queue.filters) // NAMES_PER_WORK
                yield from self._change_policies_of(list(queue.members))
            for session in sessions:
                yield from self._change_policies_of(list(session.subscriptions.values()))
        finally:
            self._changing = False

    def _change_policies_of(self, subscriptions: list[Subscription]) -> WorkSteps:
        for subscription in subscriptions:
            if not subscription.ended:
                self._governor.change_policy(subscription, self._registry.deferred.now)
            if not subscription.ended:
                self._starts.conflate_anew(subscription, self._registry.deferred.now)
            yield POLICY_WORK

    @property
    def has_work(self) -> bool:
        """Tells whether another flush is needed at once."""
        registry = self._registry
        return bool(registry.dirty or registry.ready_queues or registry.put_off or registry.woken
                    or self._fanout.again or self._fanout.unfinished
                    or registry.deferred or registry.rounds.begun or registry.overdue.queues
                    or registry.returning.queues or registry.allowances.due or registry.backpressure.next_is_due
                    or self._governor.sweeping or registry.receipts.due or self._live.has_work)

    def tick(self, now: float, late_s: float = 0.0) -> None:
        """Ends a turn, runs timers, the governor's sweep if it is due, and relief. Called every ``Governor.tick_s``
        seconds. What comes of it is carried out by the next flush. ``late_s`` is the longest time that clients had to
        wait for the loop since the last tick."""
        self._registry.timers.run(now)
        self.flush(now)  # so that no consumer is judged by records that became due only now
        shares = self._governor.sweep(now, late_s)
        self._registry.observer.tick(now, shares)
        self._governor.relief.relieve(now)
        self._registry.receipts.tick(now)
        self._expiring.tick(now)
