"""Publishing: a run gets its sequences, and goes into the logs that want it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from headway.core.base import Reason, Refused, WorkSteps, format_count, format_size
from headway.core.consumer import Feed, Session, SharedReader, SubscriptionOptions
from headway.core.forms import merged_run
from headway.core.log import MAIN, Coming, Lane, Pool, Retained, State
from headway.core.message import (
    DELETE,
    EVENT,
    SCAN_MAX,
    TOLD_KEY,
    TOPICS,
    Dialect,
    EncodedRun,
    Properties,
    ReceiptRequest,
    Record,
    Run,
    may_delete,
    routing_key_of,
    says_merge,
)
from headway.core.permission import ALL_RIGHTS, QUEUES, Operation, Rights
from headway.core.receipts import Receipt
from headway.core.routing.backpressure import WideRecords
from headway.core.routing.matching import (
    DECODED_A_UNIT,
    RECORDS_A_UNIT,
    SEARCHED_A_UNIT,
    SLICES_PER_POOL,
    Befores,
    Route,
    marked_parts,
    merges_of,
    part_of,
    put_work,
    records_before,
    selecting_work,
    slice_of,
    work_of,
    worked_out_parts,
)
from headway.core.routing.registry import RecordedTopics, Registry
from headway.core.selector import Decoded, Selector

# -- appending ---------------------------------------------------------------------------------------------------------
#
# Appending puts a run into the lane of a feed, in its dialect, and holds the publisher up if the lane has no room.
#
# A run is encoded once in each dialect for all lanes; so is each part of it that a selector accepts.
#
# A run for very many lanes is *spread* over them: some in each turn, as deferred work (base/deferred.py). It has its
# sequence, is in the states and in the journal, and is confirmed, before the first lane has it. Until all have it:
#
# - its publisher waits, and so do others whose next record goes to very many lanes (``Publishing.lacks_room``);
# - what others publish to a lane that it has not reached yet has it appended to this lane first;
# - so has a reader that begins or stops at the lane's end. For a durable reader it is unsent.
#
# So nobody can tell this from a run that took its time to come. (Rejected: to hold up all publishers meanwhile, which
# is what it did to others before; and to write runs down for lanes to fetch, which every reader of a lane would pay
# for.)


Encoded = dict[Dialect | tuple[Dialect, int, int], EncodedRun]
"""The frames of a run by dialect, and of parts of it by dialect, start and stop."""


STEP_WORK = 32
LANE_WORK = 4
"""The work of a lane that a run is spread to: it is offered to its consumers at the end of the turn."""
SPREAD_PER_WORK = 16
"""So many lanes are noted for a run that is to be spread over them in the time of one unit of work."""


class Appending:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._backpressure = registry.backpressure

    def spread(self, feeds: list[Feed], run: Run, first: int, before: Befores, session: Session | None, now: float
               ) -> None:  # fmt: skip
        """Begins to append a run to the lanes of very many feeds."""
        registry, wide = self._registry, self._backpressure.wide
        spread = Spread(self, feeds, run, first, before, session, now)
        wide.coming[spread] = None
        registry.router.searched += SEARCHED_A_UNIT * len(feeds) // SPREAD_PER_WORK
        registry.deferred.begin(spread.steps(wide), now, client=wide, whole=True)
        if wide.coming and session is not None:
            self._backpressure.pause(session, wide, now)

    def append_straight(self, feeds: list[Feed], run: Run, first: int, session: Session | None, now: float) -> None:
        """Appends a run to the lanes of feeds that take all records as they are (``Route.straight``)."""
        encoded: dict[Dialect, EncodedRun] = {}
        bug: Exception | None = None
        for feed in feeds:
            try:
                dialect = feed.key.dialect
                frames = encoded.get(dialect)
                if frames is None:
                    frames = encoded[dialect] = dialect.encode(run, first)
                feed.lane.append(run, frames, first, now)
                self._grown(feed, session, now)
            except Exception as error:  # noqa: BLE001  told to the publisher, when all other lanes have the run
                bug = error
        if bug is not None:
            raise bug

    def append(
        self, feed: Feed, run: Run, first: int, encoded: Encoded, session: Session | None, now: float,
        decoded: Decoded,
    ) -> int:  # fmt: skip
        """Appends a run to the lane of a feed. Returns 0 if the feed accepts none of its records, else 1."""
        key = feed.key
        if key.exclude and session is not None and key.leaves_out(session):
            return 0
        if feed.selector is not None:
            if not self._append_selected(feed, feed.selector, run, first, encoded, decoded, now):
                return 0
        else:
            frames = encoded.get(key.dialect)
            if frames is None:
                frames = encoded[key.dialect] = key.dialect.encode(run, first)
            feed.lane.append(run, frames, first, now)
        self._grown(feed, session, now)
        return 1

    def _append_selected(
        self, feed: Feed, selector: Selector, run: Run, first: int, encoded: Encoded, decoded: Decoded,
        now: float,
    ) -> bool:  # fmt: skip
        """Appends the records that the feed's selector accepts. Neighbours form a run of their own."""
        dialect = feed.key.dialect
        selected = selector.select(run, decoded)
        start = 0
        for at, index in enumerate(selected, 1):
            if at < len(selected) and selected[at] == index + 1:
                continue
            begin, stop = selected[start], index + 1
            piece, sequence = part_of(run, begin, stop), first + begin
            key = dialect if piece is run else (dialect, begin, stop)
            frames = encoded.get(key)
            if frames is None:
                frames = encoded[key] = dialect.encode(piece, sequence)
            feed.lane.append(piece, frames, sequence, now)
            start = at
        return bool(selected)

    def append_worked_out(
        self, feed: Feed, run: Run, first: int, before: Befores, decoded: Decoded, session: Session | None, now: float
    ) -> int:
        """Appends what a feed with a focus or a shape gets of a run. Returns how many parts these are."""
        if feed.key.exclude and session is not None and feed.key.leaves_out(session):
            return 0
        parts = worked_out_parts(feed, run, first, before, decoded, now)
        for part, index in parts:
            feed.lane.append(part, feed.key.dialect.encode(part, first + index), first + index, now)
        if parts:
            self._grown(feed, session, now)
        return len(parts)

    def _grown(self, feed: Feed, session: Session | None, now: float) -> None:
        """Notes that a lane has grown. Holds the publisher back if it has to be."""
        registry, key = self._registry, feed.key
        registry.dirty[feed] = None
        if session is not None:
            pool = key.pool
            if feed.gates and feed.holds_back(session):
                self._backpressure.pause(session, feed, now)
            if pool.hopeless or pool.crowded or feed.lane.full:
                self.hold_up(session, feed, now)

    def hold_up(self, session: Session, feed: Feed, now: float) -> None:
        """Pauses the publisher if the lane or its pool has no room for more."""
        lane, pool = feed.lane, feed.key.pool
        if (lane.full or pool.hopeless) and lane.closed(now) and (pool.tight or not feed.is_read_by(session)):
            pool.close(lane)
            self._backpressure.pause(session, lane, now)
        if pool.full_for(lane):
            self._backpressure.pause(session, pool, now)


class Spread(Coming):
    """A run that is appended to the lanes of ``feeds``, some in each step."""

    def __init__(self, appending: Appending, feeds: list[Feed], run: Run, first: int, before: Befores,
                 session: Session | None, now: float) -> None:
        self._appending = appending
        self._run = run
        self.first = first
        self._before = before
        self._session = session
        self._now = now
        self._encoded: Encoded = {}
        self._decoded: Decoded = {}
        self._feeds = feeds
        self._left: dict[Lane, Feed] = {}
        """The lanes that do not have it yet."""
        for feed in feeds:
            feed.lane.coming = self
            self._left[feed.lane] = feed
            if feed.selector is None:
                feed.key.pool.expect(len(run.data))

    def steps(self, wide: WideRecords) -> WorkSteps:
        bug: Exception | None = None
        work = 0
        for feed in self._feeds:
            if feed.lane not in self._left:
                continue
            work += LANE_WORK + len(self._run.ends) // RECORDS_A_UNIT
            work += 0 if feed.selector is None else selecting_work(self._run, feed.selector.cost)
            try:
                self.reach(feed.lane)
            except Exception as error:  # noqa: BLE001  told when all other lanes have the run
                bug = error
            if work >= STEP_WORK:
                yield work
                work = 0
        del wide.coming[self]
        if bug is not None:
            raise bug

    def reach(self, lane: Lane) -> None:
        """Appends the run to a lane that does not have it yet."""
        feed = self._left[lane]
        self.leave(lane)
        if feed.worked_out:
            self._appending.append_worked_out(
                feed, self._run, self.first, self._before, self._decoded, self._session, self._now
            )
        else:
            self._appending.append(
                feed, self._run, self.first, self._encoded, self._session, self._now, self._decoded
            )

    def leave(self, lane: Lane) -> None:
        """Passes a lane by that closes."""
        feed = self._left.pop(lane)
        lane.coming = None
        if feed.selector is None:
            feed.key.pool.came(len(self._run.data))


# -- published ---------------------------------------------------------------------------------------------------------
#
# Published: what became of a run, of runs, or of a slice of one.


FULL_QUEUE = "a queue that these records are for is full, and refuses more"


class Published(NamedTuple):
    """The result of publishing a run: the number of lanes and states that took records of it, the number of its first
    records that no queue refused, and the work."""

    taken: int
    accepted: int
    work: int
    refused: Refused | None = None
    """The reason why a patch was refused."""


class PublishedRuns(NamedTuple):
    """The result of publishing runs: the number of runs published, the number of lanes and states that took them, the
    work, the last refusal, the part of the last run that is still to be published, and the feeds of the last one."""

    runs: int
    taken: int
    work: int
    refused: Refused | None
    rest: Run | None = None
    feeds: Sequence[Feed] = ()


class PublishedSlice(NamedTuple):
    """The result of publishing a slice of a run. ``run`` has its records; ``stop`` is the index in the whole run of the
    first record that was not published. ``feeds``: those that it went to."""

    run: Run
    taken: int
    accepted: int
    work: int
    stop: int
    refused: Refused | None = None
    feeds: Sequence[Feed] = ()


# -- replay ------------------------------------------------------------------------------------------------------------
#
# A replay is recorded records that a queue hands out before new ones, because a binding asked for them (``from``).
#
# Records are read from disk as the queue hands them out, a batch at a time, into a lane of the queue's own. So a replay
# takes up no more memory than a batch, however long it is. It is not durable: after a crash the client asks for it
# again.


FILL_BYTES = 64 * 1024


def seen_before(archive: RecordedTopics, filter: str, options: SubscriptionOptions, earliest: int, now: float) -> int:
    """Returns the last offset that a subscriber has seen, by its option ``from``."""
    at_s = options.start_time(now + archive.wall_offset_s)
    if at_s is not None:
        return archive.before(filter, at_s)
    return earliest - 1 if options.start == "earliest" else int(options.start)


class Replay:
    """Fills a lane with the records of ``runs`` that have ``after`` < offset <= ``upto`` and a topic that ``matches``.
    Each run comes with its first offset and its time, in order."""

    def __init__(self, runs: Iterator[tuple[Run, int, float]], after: int, upto: int,
                 matches: Callable[[str], bool]) -> None:
        self._runs = runs
        self._after = after
        self._upto = upto
        self._matches = matches

    def fill(self, lane: Lane) -> bool:
        """Appends some more records, or looks at ``SCAN_MAX`` runs without finding one. Returns False if there are no
        more. Raises OSError."""
        end, looks = lane.end, 0
        for run, first, time_s in self._runs:
            start, stop = max(0, self._after + 1 - first), min(len(run), self._upto + 1 - first)
            if start >= stop or not self._matches(run.topic):
                looks += 1
                if looks >= SCAN_MAX:
                    return True
                continue
            part = part_of(run, start, stop)
            lane.append(part, lane.dialect.encode(part, first + start), first + start, time_s)
            if lane.end - end >= FILL_BYTES:
                break
        return lane.end > end


# -- publishing --------------------------------------------------------------------------------------------------------
#
# Publishing gives a run its sequence numbers, and puts it into its states, retained records and lanes.
#
# All work here is done once for each run and each distinct (filter, selector, dialect), never for each subscriber. A
# run is encoded once in each dialect for all lanes; so is each part of it that a selector accepts.
#
# A large run, by its bytes in all lanes together or by its work, is published in *slices*. Between two slices its
# publisher may be paused, and then the rest waits with it. So one publisher takes a pool at most a slice beyond its
# limit. A slice has at least one record.


PREFIX = "$SYS/headway/"
_ESCAPES = str.maketrans({"/": "%2F", "+": "%2B", "#": "%23", "%": "%25"})
WIDE_BYTES_MIN = 1024 * 1024
"""A record that takes up no more than this in all of its lanes together need not fit in. So small pools take records as
long as they are not full, and exceed their limit by little."""
LOOK_WORK = 4
"""The work of a look at a record that changes a state, for each live order and aggregate: now, and at a turn's end."""


class Publishing:
    def __init__(self, registry: Registry, retained: Retained) -> None:
        self._registry = registry
        self._backpressure, self._wide = registry.backpressure, registry.backpressure.wide
        self._retained = retained
        self.deferred = registry.deferred
        self.appending = Appending(registry)
        self._feeds, self._pools = registry.router.feeds, registry.distinct_pools()
        least = min(pool.memory_limit for pool in self._pools)
        self._wide_bytes = max(WIDE_BYTES_MIN, least // SLICES_PER_POOL)

    def publish(self, session: Session | None, runs: list[Run], now: float) -> int:
        """Publishes runs in order; ``session`` None is the broker itself. Returns how many lanes and states took them.

        Raises :class:`Refused` if there is no room to retain a record or if a queue refuses records. All other lanes
        and states have them nevertheless.
        """
        taken = 0
        refused: Refused | None = None
        for run in runs:
            lanes, refusal = self._publish(session, run, self._registry.router.route(run.topic), now)
            taken += lanes
            refused = refusal or refused
        if refused is not None:
            raise refused
        return taken

    def publish_some(self, session: Session, runs: list[Run], now: float, work_max: float) -> PublishedRuns:
        """Publishes runs in order until ``work_max`` is reached or the publisher has to wait, but at least a slice of
        the first run. Those that the session may not publish are left out."""
        taken, work, done = 0, 0, 0
        feeds: list[Feed] = []
        refused: Refused | None = None
        rest: Run | None = None
        router, rights = self._registry.router, session.rights
        for run in runs:
            if done and (work >= work_max or session.paused_by):
                break
            done += 1
            if rights is not ALL_RIGHTS and not rights.may_publish(run.topic, len(run.ends)):
                session.refused_records += len(run.ends)
                refused = rights.refusal(Operation.PUBLISH, run.topic)
                work += 1
                continue
            route = router.route(run.topic)
            if done > 1 and (run.ends[0] * len(route.feeds) > self._wide_bytes or route.wide):
                done -= 1  # whether there is room for it, and its lanes have what came before, is asked first
                break
            count = len(run.ends)
            sliced = count > 1 and (
                len(route.feeds) > 1 or route.selecting or route.states or merges_of(run, route) is not None
            )
            if sliced and (part := slice_of(run, route, session)) < count:
                run, rest, count = part_of(run, 0, part), part_of(run, part, count), part
            lanes, refusal = self._publish(session, run, route, now)
            if refusal is not None:
                refused = refusal
            taken += lanes
            work += work_of(run, route, lanes)
            feeds = route.feeds
            if router.searched:
                work += self._searched()
            if rest is not None:
                break
        return PublishedRuns(done, taken, work, refused, rest, feeds)

    def _publish(self, session: Session | None, run: Run, route: Route, now: float) -> tuple[int, Refused | None]:
        """Publishes a run. Returns how many lanes and states took it, and the last refusal. Records that are refused
        count in the session, for not every client can be told."""
        if (refused := self._refusal(run, route, now)) is not None:
            if session is not None:
                session.refused_records += len(run.ends)
            return 0, refused
        whole, refused = self._whole(session, run, route, now)
        if whole is None:
            return 0, refused
        first = self._count(session, whole)
        if whole.retain:
            try:
                self._retained.put(whole.record(len(whole) - 1, first, now))
                self._registry.ledger.retained_changed(whole.topic)
            except Refused as error:
                refused = error
                if session is not None:
                    session.refused_records += 1
        taken, accepted = self._take(session, whole, first, route, now)
        if accepted < len(whole.ends):
            refused = Refused(Reason.QUEUE_LENGTH, FULL_QUEUE)
            if session is not None:
                session.refused_records += len(whole.ends) - accepted
        run.journaled = whole.journaled
        return taken, refused

    def publish_to(self, session: Session | None, run: Run, now: float) -> Published:
        """Publishes a run to ``run.exchange``."""
        route = self.route(run)
        if (refused := self._refusal(run, route, now)) is not None:
            return Published(0, 0, 1 + self._searched(), refused)
        whole, refused = self._whole(session, run, route, now)
        if whole is None:
            return Published(0, 0, self._searched(), refused)
        taken, accepted = self._take(session, whole, self._count(session, whole), route, now)
        run.journaled = whole.journaled
        return Published(taken, accepted, work_of(whole, route, taken) + self._searched())

    def publish_slice(self, session: Session, run: Run, now: float, start: int = 0) -> PublishedSlice:
        """Publishes a slice of a run, from record ``start`` on, to ``run.exchange``."""
        router, stop = self._registry.router, len(run.ends)
        route = router.route_from(run.exchange, run.topic, run.headers)
        if stop > 1:
            most = slice_of(run, route, session, start) if run.own is None or route.plain else 1
            if start or most < stop:
                stop = min(start + most, stop)
                run = part_of(run, start, stop)
        if (refused := self._refusal(run, route, now)) is not None:
            return PublishedSlice(run, 0, 0, 1, stop, refused, route.feeds)
        if merges_of(run, route) is not None:
            taken, accepted, work, refused = self.publish_to(session, run, now)
            return PublishedSlice(run, taken, accepted, work, stop, refused, route.feeds)
        taken, accepted = self._take(session, run, self._count(session, run), route, now)
        work = work_of(run, route, taken)
        if router.searched:
            work += self._searched()
        return PublishedSlice(run, taken, accepted, work, stop, None, route.feeds)

    def _whole(self, session: Session | None, run: Run, route: Route, now: float) -> tuple[Run | None, Refused | None]:
        """Returns the run with whole records in the place of patches, None if all are refused; and the last refusal."""
        if route.merges is None or not says_merge(run.properties):
            return run, None
        whole, dropped, refused, looked_bytes = merged_run(route.merges, run, now)
        self._registry.router.searched += SEARCHED_A_UNIT * (looked_bytes // DECODED_A_UNIT + len(run))
        if session is not None:
            session.refused_records += dropped
        return whole, refused

    def _searched(self) -> int:
        """Returns the work of finding routes since the last call."""
        router = self._registry.router
        entries, router.searched = router.searched, 0
        return -(-entries // SEARCHED_A_UNIT)

    def route(self, run: Run) -> Route:
        return self._registry.router.route_from(run.exchange, run.topic, run.headers)

    def parts(self, run: Run) -> Iterable[tuple[Run, int]]:
        """Returns the run in the parts in which it is published, each with the index of its first record."""
        keyed = self.route(run).keyed
        return [(run, 0)] if keyed is None or not may_delete(run) else marked_parts(run, keyed.key)

    def check_room(self, runs: Iterable[Run], now: Callable[[], float]) -> WorkSteps:
        """Raises :class:`Refused` if a queue would refuse some of these runs, published together, or a pool one of
        them. There may be very many, so this is done in steps, of a run each."""
        limited: dict[Feed, tuple[int, int]] = {}
        for run in runs:
            route = self.route(run)
            if (refused := self._refusal(run, route, now())) is not None:
                raise refused
            for feed in route.feeds:
                if feed.refuses:
                    count, size = limited.get(feed, (0, 0))
                    limited[feed] = count + len(run), size + len(run.data)
            yield 1 + self._searched()
        for feed, (count, size) in limited.items():
            if feed.queues and _queue_of(feed).room_for(-(-size // max(1, count)), count, now()) < count:
                raise Refused(Reason.QUEUE_LENGTH, f"a queue has no room for {count} more records")

    def takes_at_once(self, run: Run, now: float) -> bool:
        return any(
            not feed.by_exchange or any(queue.takes_at_once(now) for queue in feed.queues)
            for feed in self.route(run).feeds
        )

    def _count(self, session: Session | None, run: Run) -> int:
        """Counts the run. Returns its first sequence number."""
        registry, count = self._registry, len(run)
        first = registry.sequence + 1
        registry.sequence += count
        registry.totals.published_records += count
        registry.totals.published_bytes += len(run.data)
        if session is not None:
            run.publisher = session.number
            session.published_records += count
            session.published_bytes += len(run.data)
        return first

    def _take(self, session: Session | None, run: Run, first: int, route: Route, now: float) -> tuple[int, int]:
        """Puts a run into the lanes and states of its route. Returns the first two fields of :class:`Published`."""
        if route.keyed is None or not may_delete(run):
            return self._take_part(session, run, first, route, now)
        taken, accepted = 0, len(run.ends)
        for part, start in marked_parts(run, route.keyed.key):
            more, upto = self._take_part(session, part, first + start, route, now)
            taken, run.journaled = taken + more, part.journaled
            if upto < len(part.ends):
                accepted = min(accepted, start + upto)
        return taken, accepted

    def _take_part(self, session: Session | None, run: Run, first: int, route: Route, now: float) -> tuple[int, int]:
        """Puts a run into lanes and states as it is. Lanes that it is spread over are taken to want it."""
        if route.straight and run.receipt is None and not self._wide.coming:
            self.appending.append_straight(route.feeds, run, first, session, now)
            return len(route.feeds), len(run.ends)
        if route.misses:
            self._registry.totals.count_missed(run, "the broker" if session is None else session.client)
        ledger = self._registry.ledger
        if route.stream or (route.durable and run.qos):
            ledger.run(route.stream or MAIN, run, first, run.origin or ("" if session is None else session.client))
            if ledger.full and session is not None:
                self._backpressure.pause(session, ledger, now)
        before = records_before(route.worked_out, run, first, now) if route.worked_out else {}
        for state in route.states:
            self.keep(state, run, first, now)
        taken, accepted = len(route.states), len(run.ends)
        appending = self.appending
        encoded: Encoded = {}
        decoded: Decoded = {}
        bug: Exception | None = None
        feeds = route.feeds
        if self._wide.coming:
            self._registry.router.searched += SEARCHED_A_UNIT * LANE_WORK * route.receive()
        if route.wide:
            feeds = [one for one in feeds if one.refuses and _room(one, run, now) < len(run)]
            at_once = set(feeds)
            appending.spread([one for one in route.feeds if one not in at_once], run, first, before, session, now)
            taken += len(route.feeds) - len(feeds)
        for feed in feeds:
            try:
                if feed.refuses and (room := _room(feed, run, now)) < len(run):
                    taken, accepted = taken + 1, min(accepted, room)
                    if room:
                        appending.append(feed, part_of(run, 0, room), first, {}, session, now, {})
                    for queue in list(feed.queues):
                        queue.refuse(run, room, first, now)
                elif feed.worked_out:
                    taken += appending.append_worked_out(feed, run, first, before, decoded, session, now)
                else:
                    taken += appending.append(feed, run, first, encoded, session, now, decoded)
            except Exception as error:  # noqa: BLE001  told to the publisher, when all other lanes have the run
                bug = error
        if bug is not None:
            raise bug
        if run.receipt is not None and session is not None:
            if run.receipt.reply_to:
                run.receipt = _permitted(run.receipt, session.rights)
            if route.wide:
                route.receive()
            asked = self._registry.receipts.ask(session, run, first, route.feeds, route.states, now)
            request, router = run.receipt, self._registry.router
            to = request.reply_to or advisory_topic("receipt", session.client)
            reached = router.reach(TOPICS if request.exchange is None else request.exchange, to, None)
            router.searched += asked + SEARCHED_A_UNIT * reached  # its publisher pays for the reply, too
        return taken, accepted

    def keep(self, state: State, run: Run, first: int, now: float) -> None:
        """Updates a state. If the topic itself is the key, only the last record of the run matters."""
        count = len(run)
        start = count - 1 if state.by_topic else 0
        change = state.change if state.tombstones and may_delete(run) else state.put
        if state.readings:
            looks = (count - start) * sum(reading.look_work for reading in state.readings)
            self._registry.router.searched += SEARCHED_A_UNIT * LOOK_WORK * looks
        self._registry.router.searched += SEARCHED_A_UNIT * ((count - start) * put_work(run) - 1)  # one is the state's
        for index in range(start, count):
            change(run.record(index, first, now))

    def must_wait(self, session: Session, route: Route, now: float) -> bool:
        """Tells whether the publisher has to wait because there is no room for more on this route."""
        for feed in route.feeds:
            self.appending.hold_up(session, feed, now)
        return bool(session.paused_by)

    # -- room -------------------------------------------------------------------------------------------------------

    def is_wide(self, run: Run, start: int = 0) -> bool:
        """True if the run's next record may take up more than a slice of a pool, and a megabyte, in all lanes, or may
        have to wait for others on their way to very many lanes. This is asked for every run, so it does not look for
        the lanes that it goes to."""
        if self._wide.coming:
            return True
        size = run.ends[start] - run.ends[start - 1] if start else run.ends[0]
        return size * len(self._feeds) > self._wide_bytes or bool(run.properties.user and says_merge(run.properties))

    def shortage(self, run: Run, route: Route, start: int = 0) -> tuple[Pool, int] | None:
        """Returns the pool without room for the next record of a run in all of its lanes, and how much that takes;
        None: there is room, or it takes no more than a slice.

        Bytes count once for each lane, as pools count them, though lanes that were empty share them (chunk.py).
        (Rejected: to count shared bytes once. Each lane copies them when its next record comes, however small.)"""
        feeds, size = route.feeds, run.ends[start] - (run.ends[start - 1] if start else 0)
        if (merges := merges_of(run, route)) is not None:
            before = merges.current(run.topic, merges.key.find(run.topic, run.properties, run.payload(start)))
            size += 0 if before is None else len(before.payload)
        if len(feeds) < 2 or size * len(feeds) <= self._wide_bytes:
            return None
        short = self._short_of(feeds, size)
        if short is not None and any(feed.selector is not None for feed in feeds):
            self._registry.router.searched += SEARCHED_A_UNIT * route.selecting
            record = part_of(run, start, start + 1)
            decoded: Decoded = {}
            feeds = [one for one in feeds if one.selector is None or one.selector.select(record, decoded)]
            short = self._short_of(feeds, size)
        return short

    def _short_of(self, feeds: list[Feed], size: int) -> tuple[Pool, int] | None:
        """Returns the first pool without room for so many bytes in each of these lanes, and how much that is in all."""
        lanes = {self._pools[0]: len(feeds)} if len(self._pools) == 1 else Counter(feed.key.pool for feed in feeds)
        return next(((pool, size * count) for pool, count in lanes.items() if not pool.fits(size * count)), None)

    def lacks_room(self, session: Session, run: Run, now: float, start: int = 0) -> bool:
        """Pauses the publisher if the next record of a run has to wait for room, or, where it goes to very many lanes,
        for those before it. Returns whether it is paused."""
        if not self.has_its_turn(run):
            self._backpressure.pause(session, self._wide, now)
            return bool(session.paused_by)
        if not self.is_wide(run, start) or (short := self.shortage(run, self.route(run), start)) is None:
            return False
        if not _asked_for(*short, now):
            return False  # it will be refused
        self._backpressure.pause(session, short[0].wanted, now)
        return bool(session.paused_by)

    def _refusal(self, run: Run, route: Route, now: float) -> Refused | None:
        """Returns why the first record of a run is refused: it would take up more than there can be room for. None: it
        is not."""
        narrow = run.ends[0] * len(route.feeds) <= self._wide_bytes
        if narrow and (route.merges is None or merges_of(run, route) is None):
            return None
        short = self.shortage(run, route)
        if short is None or short[0].makes_room(short[1], now):
            return None
        pool, size = short
        text = (f"the record would take up {format_size(size)} in the {format_count(len(route.feeds))} logs of its "
                f"consumers together, for which the pool's {format_size(pool.memory_limit)} have no room: send less at "
                f"once, or have pool.memory raised")  # fmt: skip
        return Refused(Reason.MEMORY_LIMIT, text)

    def has_room(self, run: Run) -> bool:
        """True if there is room for a run that no publisher waits with."""
        if self.is_wide(run) and self.shortage(run, self.route(run)) is not None:
            return False
        full = any(pool.full for pool in self._pools)
        return not full or not any(feed.key.pool.full for feed in self.route(run).feeds)

    def has_its_turn(self, run: Run) -> bool:
        """False while others are on their way to as many lanes as this run is for."""
        return not (self._wide.coming and self.route(run).wide)

    def may_wait(self, run: Run, now: float) -> bool:
        """True if there will be room for a run that waits without a publisher. Asks its pool for that room."""
        short = self.shortage(run, self.route(run)) if self.is_wide(run) else None
        return short is None or _asked_for(*short, now)

    def announce(self, run: Run, now: float) -> int:
        """Publishes a run of the broker's own, or a will. Returns the work, which the broker does a limited amount of
        in a turn, as it does for clients. Nobody waits for an answer. So a refusal (a full queue, no room to retain the
        record) changes nothing: all other consumers have the record. Whether there is room is asked before
        (``has_room``); a record that is dropped for want of it is counted (``drop``)."""
        route = self._registry.router.route(run.topic)
        with suppress(Refused):
            self.publish(None, [run], now)
        return work_of(run, route, len(route.feeds) + len(route.states)) + self._searched()

    def announce_soon(self, run: Run, now: float, client: object, *, whole: bool = False) -> None:
        """Announces a run as deferred work (deferred.py), which is now if the turn has work left."""
        self._registry.deferred.begin(self._announce_in_steps(run), now, client=client, whole=whole)

    def _announce_in_steps(self, run: Run) -> WorkSteps:
        if not self.has_room(run):
            self.drop("advisory", run)
            yield 1
            return
        yield self.announce(run, self._registry.deferred.now)

    def drop(self, kind: str, run: Run) -> None:
        """Counts a record that nobody waits with, and that there is no room for."""
        totals = self._registry.totals
        totals.unpublished_records[kind] += len(run)
        totals.unpublished = f"{kind} on {run.topic[:100]!a}"


def _asked_for(pool: Pool, size: int, now: float) -> bool:
    """Asks a pool to make room for so many bytes. Returns False if there can be none."""
    if not pool.makes_room(size, now):
        return False
    pool.wanted.size = min(size, pool.wanted.size or size)
    return True


def advisory_topic(kind: str, client: str) -> str:
    """Returns the topic of advisories about a client. Its name is one level, percent-escaped."""
    return f"{PREFIX}{kind}/{client.translate(_ESCAPES)}"


def _queue_of(feed: Feed) -> SharedReader:
    """Returns the queue with a length limit that has this feed to itself."""
    return next(queue for queue in feed.queues if queue.feed is feed)


def _room(feed: Feed, run: Run, now: float) -> int:
    """Returns how many records of the run a queue with a length limit has room for."""
    return _queue_of(feed).room_for((run.ends[-1] - run.bodies[-1]) or 1, len(run), now)


def _permitted(receipt: ReceiptRequest, rights: Rights) -> ReceiptRequest:
    """Returns the request, as one for an advisory if the publisher may not publish to where it wants the receipt. The
    broker's names for queues are told by their clients alone, who may have receipts there."""
    to = receipt.reply_to if receipt.exchange is None else QUEUES + routing_key_of(receipt.reply_to)
    if to.startswith(f"{QUEUES}amq.") or rights.may_publish(to):
        return receipt
    return msgspec.structs.replace(receipt, reply_to="", exchange=None, fault=rights.text(Operation.PUBLISH, to))


# -- advisory ----------------------------------------------------------------------------------------------------------
#
# Advisories: the broker publishes events of clients, as records on ``$SYS/headway/KIND/CLIENT``.
#
# Kinds: ``slow``, ``recovered`` (no longer slow), ``gap`` (records were skipped: how many, which, why), ``offlined``,
# ``online``, ``close_consumer`` (asks the client to end a subscription), ``deleted`` (the subscription was ended),
# ``disconnected``, ``returned`` (records whose acknowledgement took too long went back to their queue), ``told`` (what
# a plug-in has to say), ``fast_producer`` (the client is not read, because of a slow consumer or a full pool),
# ``receipt`` (what became of a record). The payload is JSON. Advisories are not retained: clients that want them
# subscribe. If those are very many, the advisories that are too much work for one turn wait for the next ones, in
# order.


_JSON = Properties(payload_format=1, content_type="application/json")


class Advisories:
    def __init__(self, publishing: Publishing) -> None:
        self._publishing = publishing
        self._deferred = publishing.deferred
        self.count = 0

    @property
    def waiting(self) -> int:
        """How many advisories wait for the turns to come."""
        return len(self._deferred.begun.get(self, ()))

    def advisory(self, kind: str, client: str, **details: object) -> Run:
        """Returns an advisory about a client."""
        self.count += 1
        payload = msgspec.json.encode({"client": client, **details})
        return Record(advisory_topic(kind, client), payload, _JSON).run()

    def tell(self, kind: str, client: str, now: float, **details: object) -> None:
        """Publishes an advisory. If very many get it, others wait for the turns to come, in order."""
        self._publishing.announce_soon(self.advisory(kind, client, **details), now, self)


# -- expiring ----------------------------------------------------------------------------------------------------------
#
# Expiry of keys: what was not updated for as long as its ``[[topic]]`` says (``expire``) is deleted by the broker.
#
# The state is in the order of changes, so only its oldest entries are looked at, some at each tick. The broker
# publishes a delete for each key, as a client would, so whoever hears of deletes hears of these. Deletes that are as
# old are not kept any longer either.


EXPIRE_MAX = 500
"""The most keys of one state that expire in one tick."""
EXPIRE_WORK = 4096
"""The most work of that, in the server's units: very many consumers may be told."""


class Expiring:
    def __init__(self, registry: Registry, publishing: Publishing) -> None:
        self._registry = registry
        self._publishing = publishing

    def tick(self, now: float) -> None:
        for state in self._registry.router.expiring:
            left = EXPIRE_WORK
            for record in state.older(now - state.expire_s, EXPIRE_MAX):
                delete = _delete(state, record)
                if not self._publishing.has_room(delete):
                    break  # it is looked at again at the next tick
                left -= self._publishing.announce(delete, now)
                if left <= 0:
                    break


def _delete(state: State, record: Record) -> Run:
    key = state.key_of(record)
    user: tuple[tuple[str, str], ...] = ((EVENT, DELETE),)
    if key is not None:
        name = state.key.property_name
        user = (*(((name, key),) if name else ()), *user, (TOLD_KEY, key))
    user += (("headway-why", "expired"),)
    return Run(record.topic, b"", [0], [0], properties=Properties(user=user), qos=record.qos)


# -- receipt replies ---------------------------------------------------------------------------------------------------
#
# Receipt replies: closed receipts are sent to where their publishers asked for them, or else as advisories.
#
# An MQTT publisher names a response topic, an AMQP publisher the queue in ``reply-to``. The payload is the same JSON as
# that of the advisory. A reply has the QoS of the record, 1 at most, and the publisher's correlation data.


REPLY_WORK = 3
"""The work of telling a receipt, beside that of publishing the reply. Replies are deferred work (deferred.py)."""


class ReceiptReplies:
    def __init__(self, registry: Registry, publishing: Publishing, advisories: Advisories) -> None:
        self._deferred = registry.deferred
        self._receipts = registry.receipts
        self._publishing = publishing
        self._advisories = advisories
        self._telling = False

    def turn(self, now: float) -> None:
        """Looks at the receipts that are due, and tells those that are closed."""
        self._receipts.turn(now)
        if self._receipts.done and not self._telling:
            self._telling = True
            self._deferred.begin(self._tell_all(), now, client=self)

    def _tell_all(self) -> WorkSteps:
        done = self._receipts.done
        try:
            while done:
                yield REPLY_WORK + self._tell(done.popleft(), self._deferred.now)
        finally:
            self._telling = False

    def _tell(self, receipt: Receipt, now: float) -> int:
        """Returns the work of publishing the reply. A queue that is full refuses it. Without room it is
        dropped, and counted."""
        request, client, figures = receipt.request, receipt.session.client, receipt.figures(now)
        if not request.reply_to:
            run = self._advisories.advisory("receipt", client, **figures)
            if not self._publishing.has_room(run):
                self._publishing.drop("receipt", run)
                return 0
            return self._publishing.announce(run, now)
        payload = msgspec.json.encode({"client": client, **figures})
        properties = Properties(
            payload_format=1, content_type="application/json", correlation_data=request.correlation
        )
        exchange = TOPICS if request.exchange is None else request.exchange
        run = Run(request.reply_to, payload, [len(payload)], [0], None, min(receipt.qos, 1), properties=properties,
                  exchange=exchange)  # fmt: skip
        if not self._publishing.has_room(run):
            self._publishing.drop("receipt", run)
            return 0
        return self._publishing.publish_to(None, run, now).work
