"""Fan-out moves records from lanes to outlets, at the end of each turn of the loop.

Rules:
- A turn visits the feeds that grew, and in each of them only the subscriptions that were caught up. All consumers at
  one position are offered the same memory. A consumer gets one ``send`` per turn, with any number of records. Nothing
  here runs once per message.
- Where many feeds grew, what is small for a client with several subscriptions is *joined* in ``outlet.out`` and sent
  together, once a first ``send`` was taken: a client with a thousand topics gets a few for all of them.
- A consumer that does not take everything becomes *lagging*. It is not visited again until its outlet has room
  (``pump``).
- An outlet gets whole records: a half-sent record is finished before anything else is written.
- One pump sends at most ``PUMP_BYTES``, so that a consumer that catches up does not hold up the turn. The session goes
  on in the next turn.
- A turn sends at most ``FLUSH_BYTES`` of one feed, and as much to the sessions that go on. The other consumers of the
  feed are *left* for the next turns, where they come first. Until all have it no more records for this feed are read
  (``Broker.must_wait``). Otherwise publishers would be read faster than consumers can be sent to.
- Records that are written one by one (rendering.py) are work, however few bytes they have. A turn makes ``TURN_STEPS``
  of it, for all sessions and feeds together: a thousand clients may ask for a snapshot at the same time. Those that are
  left come first in the next turns.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Iterator
from math import inf

from headway.core.consumer import GIVEN_UP, PAUSED, RESTING, Feed, Outlet, Predicate, Session, Subscription
from headway.core.delivery.frames import Cuts, holds_back, marked
from headway.core.delivery.rendering import COPIES_A_STEP, Copied, Losses, copied_from, render, replay
from headway.core.log import CHUNK_BYTES, Chunk
from headway.core.message import matcher
from headway.core.policy import Action, Which
from headway.core.selector import compile_selector, priority_of

# -- offer -------------------------------------------------------------------------------------------------------------
#
# An offer is memory of a lane that one send hands to a consumer, from its cursor on.


VIEWS_MAX = 16
"""The number of chunks that one ``send`` offers."""
View = memoryview | bytearray | bytes
Offer = tuple[list[View], int, bool]


def end_of_room(subscription: Subscription) -> int:
    """Returns the position in the lane up to which a consumer that acknowledges by number has room, or one before it:
    no further than one ``send`` goes."""
    cursor, room = subscription.cursor, subscription.room
    chunk, number = cursor.chunk, cursor.number + room
    for _ in range(VIEWS_MAX):
        if chunk.next is None or chunk.first_number + len(chunk) >= number:
            break
        chunk = chunk.next
    left = number - chunk.first_number
    return chunk.stop if left >= len(chunk) else chunk.start + chunk.ends[left - 1]


def offer_from(subscription: Subscription, end: int) -> Offer:
    """Returns the memory from the cursor on to ``end``: views, their bytes, and whether they reach that far."""
    cursor = subscription.cursor
    cursor.step()
    chunk = cursor.chunk
    position = cursor.position
    views: list[View] = []
    total = 0
    while position < end and len(views) < VIEWS_MAX and not cursor.lane.bare:
        if chunk.spill is not None or not chunk.plain:
            break
        view = memoryview(chunk.data)[position - chunk.start : end - chunk.start]
        views.append(view)
        total += len(view)
        position = chunk.stop
        if chunk.next is None:
            break
        chunk = chunk.next
    return views, total, position == end


# -- half sent ---------------------------------------------------------------------------------------------------------
#
# Half-sent records: a socket took only the beginning of a record, and the cursor has to move.
#
# Before the cursor moves, the rest of the record is set aside for the outlet. It is a reference to the chunk's memory.
# So a thousand consumers with a half of the same record share that memory.


LAST_READ_BYTES = CHUNK_BYTES
"""No more than this is read from disk for a client that is about to be disconnected, because it is not shared."""


def finish_half_sent(session: Session) -> bytes | memoryview:
    """Sets the rest of a half-sent record aside, so that its cursor is free to move. Raises OSError (failing disk)."""
    if session.half_sent is not None:
        chunk, start, stop = _half_sent(session.half_sent)
        rest = chunk.read(start, stop)
        # A bytearray cannot grow while a view of it exists, so it is copied; it is no larger than a chunk.
        rest = bytes(rest) if type(chunk.data) is bytearray else rest
        session.rest = bytes(session.rest) + rest if session.rest else rest
        session.half_sent.cursor.advance(stop - start)
        session.half_sent = None
    return session.rest


def _half_sent(subscription: Subscription) -> tuple[Chunk, int, int]:
    """Returns the record's chunk, and the start and stop of its rest there."""
    cursor = subscription.cursor
    chunk = cursor.chunk
    return chunk, cursor.position - chunk.start, chunk.ends[chunk.index_at(cursor.position)]


def last_of_half_sent(session: Session) -> bytes | memoryview | None:
    """Returns the rest of a half-sent record, which goes before the last packet of a connection. None if it cannot be
    read: then no last packet is possible, and the client gets the record again, whole, if it comes back."""
    half = session.half_sent
    if half is None:
        return session.rest
    chunk, start, stop = _half_sent(half)
    if chunk.resident or stop - start <= LAST_READ_BYTES:
        try:
            return finish_half_sent(session)
        except OSError:
            pass
    go_back(half)
    session.half_sent = None
    return None


def go_back(half_sent: Subscription) -> None:
    """Gives up the rest of a half-sent record. The record is sent again whole: by the cursor, or as a delivery in
    flight."""
    cursor = half_sent.cursor
    if cursor.owes(cursor.number):
        _, start, stop = _half_sent(half_sent)
        cursor.advance(stop - start)
    else:
        half_sent.rewind_record()


def free_cursor(subscription: Subscription) -> None:
    """Makes sure that the cursor is at a record boundary. Raises OSError (failing disk)."""
    if subscription.session.half_sent is subscription:
        finish_half_sent(subscription.session)


# -- readiness ---------------------------------------------------------------------------------------------------------
#
# Readiness tells whether a consumer can take one more record now, and what it waits for if it cannot.


def has_room(member: Subscription, now: float) -> bool:
    """Tells whether a member can take a record. If only its credit is exhausted, notes since when, for the meters."""
    session = member.session
    outlet = session.outlet
    if outlet.blocked or outlet.out or member.request.polling or member.life is PAUSED:
        return False
    if session.half_sent is not None or session.rest or session.life is GIVEN_UP or holds_back(member):
        return False
    if member.window.timeouts:
        return False  # it still works on deliveries that timed out and were requeued
    if not member.counts_credit or member.credit_left > 0:
        return True
    member.note_exhausted(now)
    member.channel.in_flight_bytes.wait()
    return False


def waits_for_client(member: Subscription) -> bool:
    """Tells whether a member without room has none before its client reads, settles, or lets records flow again."""
    if member.session.outlet.blocked or member.request.polling or member.life is PAUSED or member.window.timeouts:
        return True
    # Who settles something is told by the windows of which it is noted that they are exhausted (acks.py).
    return member.counts_credit and member.credit_left <= 0 and member.credit_exhausted_since_s < inf


def moves(member: Subscription, late_s: float) -> bool:
    """Tells whether a member can take records, or could since ``late_s``."""
    session, outlet = member.session, member.session.outlet
    if session.life is GIVEN_UP or member.life is PAUSED:
        return False
    if outlet.blocked:
        return outlet.progress_s > late_s
    if member.window.timeouts:
        return False
    if member.window.grants and member.credit_left <= 0:
        return member.credit_exhausted_since_s > late_s
    return member.request.qos == 0 or member.credit_left > 0 or member.oldest_unacknowledged_s() > late_s


# -- choosing ----------------------------------------------------------------------------------------------------------
#
# Choosing the records that a discard leaves out: by what a predicate says of each, or until few enough are left.


LOOKED_AT_WORK = 4
"""The work of looking at one record."""
CHUNK_WORK, RANGE_WORK = 16, 4
"""The work of looking at what is known of a chunk, and of leaving out some neighbours."""
PRIORITY = Predicate(("priority of",), priority_of)
UNREADABLE = 0xFF
_RUNS = [re.compile(re.escape(bytes((figure,))) + b"+") for figure in range(10)]


def predicate_of(action: Action) -> Predicate | None:
    """Returns the test of a discard that leaves out records by topic or selector; None for any other."""
    if action.which is Which.TOPICS:
        tests = [matcher(pattern) for pattern in action.topics]
        return Predicate(("topics", action.topics), lambda record: any(test(record.topic) for test in tests))
    if action.which is Which.SELECTOR:
        return Predicate(("selector", action.selector), compile_selector(action.selector).matches)
    return None


def figures_of(subscription: Subscription, chunk: Chunk, predicate: Predicate, index: int) -> bytes:
    """Returns what a predicate says of the first records of the chunk, beyond ``index``; ``UNREADABLE`` of those
    that cannot be read. Sending them will report it."""
    try:
        return marked(subscription, chunk, predicate, index)
    except OSError:
        return bytes((UNREADABLE,)) * len(chunk)


def neighbours(figures: bytes, figure: int, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yields the ranges of records of which a predicate says this figure, from ``first`` to the one before ``last``."""
    for found in _RUNS[figure].finditer(figures, first, last):
        yield found.span()


def enough(chunk: Chunk, first: int, last: int, records: float, size: float) -> int:
    """Returns how many of records ``first`` … ``last - 1`` are at least so many records and bytes; all if they are
    less."""
    count = max(0, records)
    if size > 0:
        count = max(count, bisect_left(chunk.ends, chunk.record_start(first) + size, first, last) - first + 1)
    return int(min(last - first, count))


def at_most(chunk: Chunk, first: int, last: int, records: float, size: float) -> int:
    """Returns how many of records ``first`` … ``last - 1`` are at most so many records and bytes."""
    return int(min(records, bisect_right(chunk.ends, chunk.record_start(first) + size, first, last) - first))


# -- conflating --------------------------------------------------------------------------------------------------------
#
# Starts the conflation of a consumer, once or for good. consumer/reader.py tells what conflation is.


def start_conflating(subscription: Subscription, now: float, *, upto: int = 0) -> None:
    """Conflates the consumer from now on, if a state has what waits. Records up to ``upto`` are left out."""
    if subscription.conflating or not subscription.conflation.covers(subscription):
        return
    free_cursor(subscription)
    subscription.conflation.start(subscription, now, upto)


def conflate_once(subscription: Subscription) -> None:
    """Conflates the records that wait now, unless the consumer still reads a backfill."""
    conflation = subscription.conflation
    if not conflation.covers(subscription) or subscription.backfilling:
        return
    if not subscription.cursor.lag_records:
        return
    free_cursor(subscription)
    conflation.once(subscription)


def find_back(subscription: Subscription) -> None:
    """Gives a consumer that has left something out the latest records in the place of the deltas that wait for it."""
    if subscription.conflating:
        subscription.astray = False
        return
    free_cursor(subscription)
    subscription.conflation.once(subscription)


# -- fanout ------------------------------------------------------------------------------------------------------------


PUMP_BYTES = 1024 * 1024
FLUSH_BYTES = 16 * 1024 * 1024
TURN_STEPS = 256
"""The steps of a turn. A step is to go on with one consumer, or some records that are written one by one: about 20
microseconds."""
JOINED_FEEDS_MIN = 8
"""From so many feeds on that grew in a turn it pays to join what they have for one client."""
JOINED_BYTES = 2048
"""More than that is sent from the lane as it is."""
JOINED_FEEDS_MAX = 64
"""So many feeds are joined in one ``send`` to a client that has fallen behind."""
OUT_BYTES = 16 * 1024
"""The limit of what is joined, which is no lag any more though it was not sent."""
OFFERS_A_STEP = 8
"""Consumers at the end of a lane, which are sent the same memory, in the time of one step."""
STEPS_MAX = 256
"""The steps that one pump makes for one session, if few others wait for theirs."""
STEPS_MIN = 32
"""The steps that it makes if many do."""


class Fanout:
    """Sends records to outlets. Calls ``on_lag`` for each subscription that falls behind, and ``lost`` for each record
    that is left out. ``cuts``: what was cut for envelopes in this turn. ``watched``: who the governor looks at."""

    def __init__(self, on_lag: Callable[[Subscription, float], None], lost: Losses,
                 on_disk_error: Callable[[Subscription, OSError], None],
                 on_bug: Callable[[Session, Exception], None], cuts: Cuts,
                 watched: Container[Subscription]) -> None:
        self._on_lag = on_lag
        self.lost = lost
        self._on_disk_error = on_disk_error
        self._on_bug = on_bug
        self._cuts = cuts
        self._watched = watched
        self.again: OrderedDict[Session, None] = OrderedDict()
        """The sessions whose last pump ended although there were bytes to send and room for them."""
        self.unfinished: dict[Feed, None] = {}
        """The feeds with consumers that are left for the next turns."""
        self._steps_left: float = TURN_STEPS
        """The steps that are left in this turn."""
        self.turn_bytes = 0
        """Bytes that this turn has to send of feeds that grew."""
        self._joined: dict[Session, None] | None = None
        """The sessions that have taken all so far, whose next records are joined; None: few feeds grew."""

    # -- the turn ---------------------------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        self._steps_left, self.turn_bytes = TURN_STEPS, 0

    def begin_joining(self, feeds: int) -> None:
        """Begins to flush so many feeds that grew."""
        self._joined = {} if feeds >= JOINED_FEEDS_MIN else None

    def send_joined(self, now: float) -> None:
        """Sends what was joined."""
        joined, self._joined = self._joined, None
        for session in joined or ():
            if not session.outlet.blocked:
                self._drain(session.outlet, now)

    def flush(self, feed: Feed, now: float) -> None:
        """Offers a feed's new records to all consumers that were caught up, as far as one turn may send."""
        end, count = feed.lane.end, len(feed.waiting)
        gain, feed.flushed = end - feed.flushed, end
        self.turn_bytes += gain * count
        offers_max = TURN_STEPS * OFFERS_A_STEP
        if feed.left or gain * count > FLUSH_BYTES or count > offers_max or self._is_too_much_to_copy(feed):
            feed.left = deque(dict.fromkeys(feed.left or ()) | feed.waiting)  # consumers that were left come first
            self._offer_some(feed, now)
        else:
            self._offer_to(feed.waiting, end, now)

    def _is_too_much_to_copy(self, feed: Feed) -> bool:
        """Tells whether the feed's new records are to be copied for each consumer, and this turn has no room for it."""
        if not feed.waiting or not _is_copied(feed):
            return False
        records = feed.lane.count - next(iter(feed.waiting)).cursor.number
        return records * len(feed.waiting) > self._steps_left * COPIES_A_STEP

    def _offer_some(self, feed: Feed, now: float) -> int:
        """Offers the new records to the first of the consumers that are left. Returns the bytes that were offered."""
        left, waiting, lane, size, steps = feed.left, feed.waiting, feed.lane, 0, 0.0
        steps_a_record = 1 / COPIES_A_STEP if _is_copied(feed) else 0.0
        some: list[Subscription] = []
        while left and size < FLUSH_BYTES and steps < self._steps_left:
            subscription = left.popleft()
            if subscription in waiting:
                some.append(subscription)
                size += lane.end - subscription.cursor.position
                steps += 1 / OFFERS_A_STEP + (lane.count - subscription.cursor.number) * steps_a_record
        self._steps_left -= len(some) // OFFERS_A_STEP
        if left:
            self.unfinished[feed] = None
        else:
            feed.left = None
        self._offer_to(some, lane.end, now)
        return size

    def _offer_to(self, subscriptions: Iterable[Subscription], end: int, now: float) -> None:
        """Offers these consumers the records up to ``end`` of their lane."""
        offers: dict[int, Offer] = {}
        copies: dict[int, Copied | None] = {}
        laggards: list[Subscription] = []
        unsent: list[Subscription] = []
        joined = self._joined
        for subscription in subscriptions:
            session = subscription.session
            outlet = session.outlet
            cursor = subscription.cursor
            if outlet.blocked or session.lagging or session.held_back.size or (
                outlet.out and (joined is None or session not in joined)
            ):  # fmt: skip
                laggards.append(subscription)
                continue
            if subscription.special or (subscription.window.counts and subscription.overrun):
                laggards.append(subscription)
                continue
            position = cursor.position
            if position == end:
                continue  # it got them when its socket had room again
            offer: Offer | None = offers.get(position)
            if offer is None:
                offer = offers[position] = offer_from(subscription, end)
            views, total, plain = offer
            copied = None
            if not plain:
                if position not in copies:
                    copies[position] = copied_from(subscription, now)
                copied = copies[position]
                if copied is None or not copied.fits(subscription):
                    laggards.append(subscription)
                    continue
                total = copied.size
            if joined is not None and session in joined:
                small = total <= JOINED_BYTES
                if not (small and len(outlet.out) + total <= OUT_BYTES) and not self._drain(outlet, now):
                    laggards.append(subscription)
                    continue
            else:
                small = False
            if copied is not None:
                frames = self._numbered(copied, subscription, now)
                if not frames:
                    laggards += () if frames is not None else (subscription,)
                    continue
                views = [frames]
            if small:
                for view in views:
                    outlet.out += view
                cursor.catch_up()
                continue
            taken = outlet.send(views, total)
            if outlet.took(taken, total, now):
                cursor.catch_up()
                if joined is not None and len(session.subscriptions) > 1:
                    joined[session] = None
                continue
            if copied is not None:
                outlet.out += memoryview(views[0])[taken:]
                cursor.catch_up()
                unsent.append(subscription)
                continue
            cursor.advance(taken)
            if not cursor.at_boundary:
                session.half_sent = subscription
            laggards.append(subscription)
        offers.clear()
        offer, views = None, []  # a lane cannot grow while its memory is on offer
        laggards = [subscription for subscription in laggards if subscription.has_more]
        for subscription in (*unsent, *laggards):
            self.lag(subscription, now)
        for subscription in laggards:
            self.pump(subscription.session, now)
            if subscription.feed.live is not None and subscription.has_more:
                start_conflating(subscription, now)

    def _numbered(self, copied: Copied, subscription: Subscription, now: float) -> bytearray | None:
        """Returns copied records with the consumer's ids; empty if that failed. None: it has no ids in a row. It is
        watched from now on, as one that has something to acknowledge."""
        try:
            frames = copied.number(subscription, now)
        except Exception as error:  # noqa: BLE001  as in ``pump``
            self._on_bug(subscription.session, error)
            return bytearray()
        if frames is not None:
            self._steps_left -= 1 / OFFERS_A_STEP + copied.count / COPIES_A_STEP
            subscription.current_s = now
            subscription.case.meter.caught_up(now)
            if subscription not in self._watched:
                self._on_lag(subscription, now)
        return frames

    def go_on(self, now: float) -> None:
        """Goes on with the consumers that are left and the sessions in ``again``, as far as one turn may send."""
        left = FLUSH_BYTES
        while self.unfinished and left > 0 and self._steps_left > 0:
            feed = next(iter(self.unfinished))
            del self.unfinished[feed]
            left -= self._offer_some(feed, now)
            feed.settle_down()
        left, self._steps_left = max(left, FLUSH_BYTES // 4), max(self._steps_left, TURN_STEPS // 4)
        for _ in range(len(self.again)):
            if left <= 0 or self._steps_left <= 0:
                return  # the sessions that are left come first in the next turn
            session, _ = self.again.popitem(last=False)
            outlet = session.outlet
            before = outlet.taken_bytes
            self.pump(session, now)
            left -= outlet.taken_bytes - before

    def lag(self, subscription: Subscription, now: float) -> None:
        """Notes that a subscription has records waiting and so is lagging."""
        subscription.feed.waiting.pop(subscription, None)
        subscription.feed.resting.pop(subscription, None)
        if subscription.conflation.mode is RESTING:
            subscription.conflation.call()
            if not subscription.backfills:
                subscription.current_s = now
        if subscription not in subscription.session.lagging:
            subscription.session.fell_behind(subscription)
            self._on_lag(subscription, now)

    def send_soon(self, subscription: Subscription, now: float) -> None:
        """Notes that a subscription is lagging, and may be sent records at once."""
        self.lag(subscription, now)
        self.again[subscription.session] = None

    def settled(self, subscription: Subscription, records: int) -> None:
        """Gives credit back to a consumer that has done with so many records of its lane."""
        subscription.note_sent()
        subscription.window.settle_some(records)
        self.has_credit(subscription)

    def has_credit(self, subscription: Subscription) -> None:
        """Goes on with a consumer that acknowledges by number and has more credit."""
        session = subscription.session
        subscription.window.exhausted_since_s = None
        if subscription in session.lagging:
            session.let_on(subscription)
            self.again[session] = None

    # -- one session ------------------------------------------------------------------------------------------------

    def pump(self, session: Session, now: float) -> None:
        """Sends the session's waiting records, as long as its outlet takes them."""
        outlet = session.outlet
        if outlet.blocked or session.life is GIVEN_UP:
            return
        if session.starved:
            session.go_on()
        share = min(STEPS_MAX, max(STEPS_MIN, TURN_STEPS // (len(self.again) + 1)))
        budget, least = outlet.taken_bytes + PUMP_BYTES, max(0, self._steps_left - share)
        try:
            while self._finish_half_sent(session, outlet, now) and self._drain(outlet, now):
                if outlet.taken_bytes >= budget or self._steps_left <= least:
                    self.again[session] = None
                    return
                if len(session.ready) > 1 and self._join(session, outlet, now):
                    continue
                if session.channel.replay:
                    steps = replay(session, now, self.lost)
                    self._steps_left -= steps
                    if not steps:
                        return
                elif not self._next(session, outlet, now):
                    return
        except Exception as error:  # noqa: BLE001  it costs this client its connection, and all others nothing
            self.again.pop(session, None)
            self._on_bug(session, error)

    def _finish_half_sent(self, session: Session, outlet: Outlet, now: float) -> bool:
        """Sends the rest of a half-sent record. Returns False while the outlet does not take all of it."""
        if session.rest:
            taken = outlet.send([session.rest], len(session.rest))
            whole = outlet.took(taken, len(session.rest), now)
            session.rest = session.rest[taken:]
            if not whole:
                return False
        subscription = session.half_sent
        if subscription is None:
            return True
        cursor = subscription.cursor
        chunk = cursor.chunk
        start = cursor.position - chunk.start
        stop = chunk.ends[chunk.index_at(cursor.position)]
        try:
            if chunk.spill is not None:
                taken = outlet.send_file(chunk.spill, start, stop - start)
            else:
                taken = outlet.send([memoryview(chunk.data)[start:stop]], stop - start)
        except OSError as error:
            self._on_disk_error(subscription, error)
            return False
        whole = outlet.took(taken, stop - start, now)
        cursor.advance(taken)
        if whole:
            session.half_sent = None
        return whole

    def _drain(self, outlet: Outlet, now: float) -> bool:
        """Sends the outlet's ``out``. Returns False while the outlet does not take all of it."""
        if not outlet.out:
            return True
        total = len(outlet.out)
        taken = outlet.send([outlet.out], total)
        if taken == total:
            outlet.out.clear()
        elif taken:
            del outlet.out[:taken]
        return outlet.took(taken, total, now)

    def _next(self, session: Session, outlet: Outlet, now: float) -> bool:
        """Sends or renders records of the next subscription that may be able to go on. Returns False if no subscription
        can go on in this turn."""
        if not session.ready:
            session.go_on()
        if outlet.blocked or not session.ready:
            return False
        subscription = next(iter(session.ready))
        if not subscription.has_more:
            self._caught_up(subscription, now)
            self._steps_left -= 1
            return bool(session.ready or session.starved)
        before = outlet.taken_bytes
        try:
            steps = self._advance(subscription, outlet, now)
        except OSError as error:
            self._on_disk_error(subscription, error)
            self._steps_left -= 1
            return bool(outlet.out)
        self._steps_left -= max(1, steps)
        if not steps:
            if subscription.has_more:
                session.set_aside(subscription)
            else:
                self._caught_up(subscription, now)
            return True
        if subscription in session.ready:
            session.ready.move_to_end(subscription)  # the subscriptions take turns
        if outlet.blocked:
            return False
        if subscription.backfills and not outlet.out and outlet.taken_bytes == before:
            self.again[session] = None  # the backfill used up its step without finding a record
            return False
        return True

    def _join(self, session: Session, outlet: Outlet, now: float) -> bool:
        """Joins in ``out``, which is empty, all that waits for the next subscriptions, as long as that is little.
        Returns whether there was any."""
        for _ in range(JOINED_FEEDS_MAX):
            subscription = next(iter(session.ready))
            cursor = subscription.cursor
            most = min(JOINED_BYTES, OUT_BYTES - len(outlet.out))
            if cursor.lag_bytes > most or subscription.special or subscription.window.counts:
                break
            views, _, whole = offer_from(subscription, cursor.lane.end)
            if not whole or session.held_back.size:
                break
            for view in views:
                outlet.out += view
            cursor.catch_up()
            session.ready.move_to_end(subscription)  # it had its turn, which counts where there are priorities
            self._caught_up(subscription, now)
            self._steps_left -= 1 / OFFERS_A_STEP
            if len(session.ready) < 2:
                break
        return bool(outlet.out)

    def _advance(self, subscription: Subscription, outlet: Outlet, now: float) -> int:
        """Sends or renders the next records. Returns the steps that it took; 0 if nothing can be sent now."""
        cursor = subscription.cursor
        if subscription.astray:
            find_back(subscription)
        cursor.step()
        chunk = cursor.chunk
        lane_as_is = chunk.plain and not cursor.lane.bare
        if not lane_as_is or subscription.session.held_back.size or subscription.special:
            return render(subscription, now, self.lost, self._cuts)
        end = cursor.lane.end
        if subscription.window.counts:
            if subscription.out_of_room(now):
                return 0
            end = end_of_room(subscription)
        if chunk.spill is not None:
            start = cursor.position - chunk.start
            total = min(chunk.stop, end) - cursor.position
            taken = outlet.send_file(chunk.spill, start, total)
        else:
            views, total, _ = offer_from(subscription, end)
            taken = outlet.send(views, total)
        outlet.took(taken, total, now)
        cursor.advance(taken)
        if outlet.blocked and not cursor.at_boundary:
            subscription.session.half_sent = subscription
        return 1

    def _caught_up(self, subscription: Subscription, now: float) -> None:
        subscription.current_s = now
        subscription.case.meter.caught_up(now)
        feed = subscription.feed
        if feed.live is not None:
            subscription.conflation.stop(subscription)
        feed.wait(subscription)
        feed.settle_down()  # if this was the last consumer, the lane can be emptied without a further publish


def _is_copied(feed: Feed) -> bool:
    """Tells whether the feed's last records are copied for each consumer, with bytes that are for it alone."""
    return not feed.lane.tail.plain
