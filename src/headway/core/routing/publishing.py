"""Publishing: a run gets its sequence numbers, and goes to the state, the retained records and the lanes it is for.

Everything here happens once per run and distinct (filter, selector, dialect); never per subscriber. A run is written in
each dialect once, whatever number of lanes want it so; a stretch of it that a selector wants as well.

A run that is much, by what it takes up in all lanes together or by the work it is, is published in *slices*: in between
its publisher may be told to wait, and the rest waits with it. So a pool is never more than a slice above its limit on a
publisher's account. One record is never less than a slice.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.core.base import Reason, Refused
from headway.core.consumer import Feed, Session
from headway.core.log import MAIN, Retained, State
from headway.core.message import Dialect, EncodedRun, Record, Run
from headway.core.routing.registry import Registry
from headway.core.routing.router import Route

RECORDS_A_UNIT = 128
"""So many records more for a lane are as much work as another lane."""
SELECTED_A_UNIT = 4
"""So many records that a selector looks at are as much work as another lane."""
SEARCHED_A_UNIT = 8
"""So many places that are looked at to find out where a record goes are, too. It is found out once, and remembered."""
SLICE_WORK = 1024
SLICES_PER_POOL = 32
Encoded = dict[Dialect | tuple[Dialect, int, int], EncodedRun]
"""What a run is in each dialect; and what stretches of it are."""


class Published(NamedTuple):
    """What became of a run: how many lanes and states took records of it, how many of its records, from the first on,
    no queue refused, and the work that it was."""

    taken: int
    accepted: int
    work: int


class PublishedRuns(NamedTuple):
    """What became of runs: how many of them were published, how many lanes and states took them, what work that was,
    the last refusal, and of the last run what is left to be published."""

    runs: int
    taken: int
    work: int
    refused: Refused | None
    rest: Run | None = None


class PublishedSlice(NamedTuple):
    """What became of the records of a run that were published at once, and the work that it was. ``stop``: the first
    that was not published."""

    run: Run
    taken: int
    accepted: int
    work: int
    stop: int


class Publishing:
    def __init__(self, registry: Registry, retained: Retained) -> None:
        self._registry = registry
        self._retained = retained

    def publish(self, session: Session | None, runs: list[Run], now: float) -> int:
        """Publish runs in order; ``session`` None is the broker itself. Returns how many lanes and states took them.

        Raises :class:`Refused` where a retained record cannot be kept, or a queue refuses some; everybody else has them
        all the same.
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
        """Publish runs in order until that comes to so much work, or the publisher has to wait; a slice of the first
        one in any case."""
        taken, work, done = 0, 0, 0
        refused: Refused | None = None
        rest: Run | None = None
        router = self._registry.router
        for run in runs:
            if done and (work >= work_max or session.paused_by):
                break
            done += 1
            route = router.route(run.topic)
            count = len(run.ends)
            if count > 1 and len(route.feeds) > 1 and (part := slice_of(run, route, session)) < count:
                run, rest, count = part_of(run, 0, part), part_of(run, part, count), part
            lanes, refusal = self._publish(session, run, route, now)
            if refusal is not None:
                refused = refusal
            taken += lanes
            work += work_of(count, route, lanes)
            if router.searched:
                work += self._searched()
            if rest is not None:
                break
        return PublishedRuns(done, taken, work, refused, rest)

    def _publish(self, session: Session | None, run: Run, route: Route, now: float) -> tuple[int, Refused | None]:
        """How many lanes and states took it, and what was refused of it."""
        first = self._count(session, run)
        refused: Refused | None = None
        if run.retain:
            try:
                self._retained.put(run.record(len(run) - 1, first, now))
                if self._registry.ledger is not None:
                    self._registry.ledger.retained[run.topic] = None
            except Refused as error:
                refused = error
        taken, accepted = self._take(session, run, first, route, now)
        if accepted < len(run.ends):
            refused = Refused(Reason.QUEUE_LENGTH, "a queue that these records are for is full, and refuses more")
        return taken, refused

    def publish_to(self, session: Session | None, run: Run, now: float, *, route: Route | None = None) -> Published:
        """Publish a run to ``run.exchange``."""
        if route is None:
            route = self.route(run)
        taken, accepted = self._take(session, run, self._count(session, run), route, now)
        return Published(taken, accepted, work_of(len(run.ends), route, taken) + self._searched())

    def publish_slice(self, session: Session, run: Run, now: float, start: int = 0) -> PublishedSlice:
        """Publish the records of a run from ``start`` on to ``run.exchange``, as many of them as are a slice."""
        router, stop = self._registry.router, len(run.ends)
        route = router.route_from(run.exchange, run.topic, run.headers)
        if stop > 1 and (most := slice_of(run, route, session)) < stop:
            stop = min(start + most, stop)
            run = part_of(run, start, stop)
        taken, accepted = self._take(session, run, self._count(session, run), route, now)
        work = work_of(len(run.ends), route, taken)
        if router.searched:
            work += self._searched()
        return PublishedSlice(run, taken, accepted, work, stop)

    def _searched(self) -> int:
        """The work that it was to find out where records go."""
        router = self._registry.router
        places, router.searched = router.searched, 0
        return -(-places // SEARCHED_A_UNIT)

    def route(self, run: Run) -> Route:
        return self._registry.router.route_from(run.exchange, run.topic, run.headers)

    def takes_at_once(self, run: Run, now: float) -> bool:
        return any(
            not feed.by_exchange or any(queue.takes_at_once(now) for queue in feed.queues)
            for feed in self.route(run).feeds
        )

    def _count(self, session: Session | None, run: Run) -> int:
        """The run's first sequence number."""
        registry, count = self._registry, len(run)
        first = registry.sequence + 1
        registry.sequence += count
        registry.published_records += count
        registry.published_bytes += len(run.data)
        if session is not None:
            run.publisher = session.number
            session.published_records += count
            session.published_bytes += len(run.data)
        return first

    def _take(self, session: Session | None, run: Run, first: int, route: Route, now: float) -> tuple[int, int]:
        """The first two of :class:`Published`."""
        ledger = self._registry.ledger
        if ledger is not None and (route.stream or (route.kept and run.qos)):
            ledger.run(route.stream or MAIN, run, first, run.origin or ("" if session is None else session.client))
            if ledger.full and session is not None:
                self._registry.pause(session, ledger, now)
        for state in route.states:
            self.keep(state, run, first, now)
        taken, accepted = len(route.states), len(run.ends)
        encoded: Encoded = {}
        for feed in route.feeds:
            if feed.by_exchange and feed.key.group is not None and (room := _room(feed, run, now)) < len(run):
                taken, accepted = taken + 1, min(accepted, room)
                if room:
                    self.append(feed, part_of(run, 0, room), first, {}, session, now)
                for queue in list(feed.queues):
                    queue.refuse(run, room, first, now)
            else:
                taken += self.append(feed, run, first, encoded, session, now)
        return taken, accepted

    def keep(self, state: State, run: Run, first: int, now: float) -> None:
        """Update the state; where the topic itself is the key, only the last record of the run matters."""
        count = len(run)
        start = count - 1 if state.by_topic else 0
        for index in range(start, count):
            state.put(run.record(index, first, now))

    def append(
        self, feed: Feed, run: Run, first: int, encoded: Encoded, session: Session | None, now: float
    ) -> int:
        """Append a run to the lane of a feed that is to have it. Returns 0 if the feed would not have any of it."""
        key = feed.key
        if session is not None and key.exclude == session.number:
            return 0
        registry = self._registry
        if feed.selector is not None:
            if not self._append_selected(feed, run, first, encoded, now):
                return 0
        else:
            frames = encoded.get(key.dialect)
            if frames is None:
                frames = encoded[key.dialect] = key.dialect.encode(run, first)
            feed.lane.append(run, frames, first, now)
        registry.dirty[feed] = None
        if session is not None:
            pool = key.pool
            if feed.gates and feed.holds_back(session):
                registry.pause(session, feed, now)
            if pool.hopeless or pool.crowded or feed.lane.full:
                self._hold_up(session, feed, now)
        return 1

    def _hold_up(self, session: Session, feed: Feed, now: float) -> None:
        """The publisher waits if there is no room for more: in the lane, or in its pool."""
        lane, pool = feed.lane, feed.key.pool
        if (lane.full or pool.hopeless) and lane.closed(now) and (pool.tight or not feed.is_read_by(session)):
            pool.close(lane)
            self._registry.pause(session, lane, now)
        if pool.full_for(lane):
            self._registry.pause(session, pool, now)

    def must_wait(self, session: Session, run: Run, now: float) -> bool:
        """There is no room for what it is about to publish."""
        for feed in self.route(run).feeds:
            self._hold_up(session, feed, now)
        return bool(session.paused_by)

    def _append_selected(self, feed: Feed, run: Run, first: int, encoded: Encoded, now: float) -> bool:
        """Append the records the feed's selector wants, each stretch of neighbours as a run of its own."""
        assert feed.selector is not None
        dialect = feed.key.dialect
        wanted = feed.selector.select(run)
        start = 0
        for at, index in enumerate(wanted, 1):
            if at < len(wanted) and wanted[at] == index + 1:
                continue
            begin, stop = wanted[start], index + 1
            piece, sequence = part_of(run, begin, stop), first + begin
            key = dialect if piece is run else (dialect, begin, stop)
            frames = encoded.get(key)
            if frames is None:
                frames = encoded[key] = dialect.encode(piece, sequence)
            feed.lane.append(piece, frames, sequence, now)
            start = at
        return bool(wanted)

    def announce(self, record: Record, now: float) -> None:
        """Publish a record of the broker's own."""
        self.publish(None, [record.run()], now)


def _room(feed: Feed, run: Run, now: float) -> int:
    """How many records of the run go into the lane of a queue that refuses what is too much."""
    return next(queue for queue in feed.queues if queue.feed is feed).room_for(run, now)


def slice_of(run: Run, route: Route, session: Session) -> int:
    """How many of the run's records are published at once."""
    count = len(run.ends)
    if count == 1 or len(route.feeds) < 2:
        return count
    most = count
    taken_bytes = len(run.data) * len(route.feeds)
    slice_bytes = session.pool.memory_limit // SLICES_PER_POOL
    if taken_bytes > slice_bytes:
        most = count * slice_bytes // taken_bytes
    work = count * (len(route.feeds) // RECORDS_A_UNIT) + count * route.selecting // SELECTED_A_UNIT
    if work > SLICE_WORK:
        most = min(most, count * SLICE_WORK // work)
    return max(1, most)


def work_of(count: int, route: Route, taken: int) -> int:
    """What it was to publish so many records of a run, which so many lanes and states took."""
    work = 1 + taken
    if route.selecting:  # to begin with a run is as much as to look at a record
        work += route.selecting * (count + 1) // SELECTED_A_UNIT
    if count > RECORDS_A_UNIT:
        work += taken * (count // RECORDS_A_UNIT)
    return work


def part_of(run: Run, start: int, stop: int) -> Run:
    """Records ``start`` … ``stop - 1`` of a run as a run."""
    if start == 0 and stop == len(run):
        return run
    begin = run.ends[start - 1] if start else 0
    piece = Run(
        run.topic, run.data[begin : run.ends[stop - 1]],
        [end - begin for end in run.ends[start:stop]], [body - begin for body in run.bodies[start:stop]],
        run.form, run.qos, run.retain, run.properties, run.expires_s,
    )  # fmt: skip
    piece.publisher, piece.journaled, piece.confirmed = run.publisher, run.journaled, run.confirmed
    piece.exchange, piece.headers = run.exchange, run.headers
    return piece

