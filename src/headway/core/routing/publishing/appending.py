"""Appending puts a run into the lane of a feed, in its dialect, and holds the publisher up if the lane has no room.

A run is encoded once in each dialect for all lanes; so is each part of it that a selector accepts.

A run for very many lanes is *spread* over them: some in each turn, as deferred work (base/deferred.py). It has its
sequence, is in the states and in the journal, and is confirmed, before the first lane has it. Until all have it:

- its publisher waits, and so do others whose next record goes to very many lanes (``Publishing.lacks_room``);
- what others publish to a lane that it has not reached yet has it appended to this lane first;
- so has a reader that begins or stops at the lane's end. For a durable reader it is unsent.

So nobody can tell this from a run that took its time to come. (Rejected: to hold up all publishers meanwhile, which is
what it did to others before; and to write runs down for lanes to fetch, which every reader of a lane would pay for.)
"""

from __future__ import annotations

from headway.core.base import WorkSteps
from headway.core.consumer import Feed, Session
from headway.core.log import Coming, Lane
from headway.core.message import Dialect, EncodedRun, Run
from headway.core.routing.matching import (
    RECORDS_A_UNIT,
    SEARCHED_A_UNIT,
    Befores,
    part_of,
    selecting_work,
    worked_out_parts,
)
from headway.core.routing.registry import Registry, WideRecords
from headway.core.selector import Decoded, Selector

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

    def spread(self, feeds: list[Feed], run: Run, first: int, before: Befores, session: Session | None, now: float
               ) -> None:  # fmt: skip
        """Begins to append a run to the lanes of very many feeds."""
        registry = self._registry
        spread = Spread(self, feeds, run, first, before, session, now)
        registry.wide.coming[spread] = None
        registry.router.searched += SEARCHED_A_UNIT * len(feeds) // SPREAD_PER_WORK
        registry.deferred.begin(spread.steps(registry.wide), now, client=registry.wide, whole=True)
        if registry.wide.coming and session is not None:
            registry.pause(session, registry.wide, now)

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
                registry.pause(session, feed, now)
            if pool.hopeless or pool.crowded or feed.lane.full:
                self.hold_up(session, feed, now)

    def hold_up(self, session: Session, feed: Feed, now: float) -> None:
        """Pauses the publisher if the lane or its pool has no room for more."""
        lane, pool = feed.lane, feed.key.pool
        if (lane.full or pool.hopeless) and lane.closed(now) and (pool.tight or not feed.is_read_by(session)):
            pool.close(lane)
            self._registry.pause(session, lane, now)
        if pool.full_for(lane):
            self._registry.pause(session, pool, now)


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
