"""Appending puts a run into the lane of a feed, in its dialect, and holds the publisher up if the lane has no room.

A run is encoded once in each dialect for all lanes; so is each part of it that a selector accepts.
"""

from __future__ import annotations

from headway.core.consumer import Feed, Session
from headway.core.message import Dialect, EncodedRun, Run
from headway.core.routing.matching import Befores, part_of, worked_out_parts
from headway.core.routing.registry import Registry
from headway.core.selector import Decoded, Selector

Encoded = dict[Dialect | tuple[Dialect, int, int], EncodedRun]
"""The frames of a run by dialect, and of parts of it by dialect, start and stop."""


class Appending:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

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
