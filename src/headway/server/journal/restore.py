"""Start: everything the journal has is made again (core/restoring.py), and the journal goes on from there."""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from headway.core.broker import Broker
from headway.core.effects import Spill
from headway.core.errors import Refused
from headway.core.keeping import Batch, QueueKeptTerms, SubscriptionTerms
from headway.core.ledger import MAIN, Fact
from headway.core.record import Dialect, Run
from headway.core.restoring import Standing
from headway.server.journal import words
from headway.server.journal.handle import JournalChunk, Shelf
from headway.server.journal.words import (
    FACT,
    FACTS,
    PLACES,
    SNAPSHOT_FACT,
    SNAPSHOT_PLACES,
    read_fact,
    read_places,
    read_run,
    read_runs,
)
from headway.store.journal.stream import Stream

RETAINED = "retained"
"""The stream of retained records: of each topic's, the last one counts."""
log = logging.getLogger("headway")

RUNS_A_STEP = 500
SAY_EVERY_S = 2.0


class Restored(NamedTuple):
    sessions: int
    subscriptions: int
    queues: int
    records: int
    reserved: int
    """Sequences up to this one may have been used."""
    snapshots: list[int]
    """Where they are."""


class _Timed(NamedTuple):
    """A run, or a fact; ordered by sequence, a fact behind the run that ends with it."""

    sequence: float
    run: Run | None
    fact: Fact | None
    publisher: str
    time_s: float
    recorded: bool = False


class _Story:
    """What the main stream tells, the runs aside."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.standings: dict[int, Standing] = {}
        self.reserved = 0
        self.snapshots: list[int] = []
        self._known: set[tuple[str, object]] = set()

    def read(self, stream: Stream, wall_offset_s: float) -> None:
        for _, batch in stream.scan(FACTS | {words.SNAPSHOT_MARK}):
            for stored in batch:
                match stored.kind:
                    case words.SNAPSHOT_MARK:
                        self.snapshots.append(stored.sequence)
                    case kind if kind in (FACT, SNAPSHOT_FACT):
                        self._fact(read_fact(stored, wall_offset_s), again=kind == SNAPSHOT_FACT)
                    case kind if kind in (PLACES, SNAPSHOT_PLACES):
                        for place in read_places(stored):
                            standing = self.standings.get(place.number)
                            if standing is None:
                                self.standings[place.number] = Standing(place)
                            elif kind == PLACES:
                                standing.add(place)
                            else:
                                standing.replace(place)

        last = {fact.name: fact.terms for fact in self.facts if isinstance(fact.terms, SubscriptionTerms)}
        self.facts = [
            fact._replace(terms=last[fact.name]) if isinstance(fact.terms, SubscriptionTerms) else fact
            for fact in self.facts
        ]  # fmt: skip

    def _fact(self, fact: Fact, *, again: bool) -> None:
        """``again``: it is from a snapshot, and is news only if something was lost before."""
        if fact.what == "reserved":
            assert isinstance(fact.terms, int)
            self.reserved = max(self.reserved, fact.terms)
            return
        what = fact.what, fact.name
        if again and what in self._known:
            return
        if fact.terms is None:
            self._known.discard(what)
        else:
            self._known.add(what)
        self.facts.append(fact)

    def alive(self) -> dict[int, Fact]:
        """Places that somebody has at the end, each with the fact it began with."""
        by_name: dict[tuple[str, object], tuple[int, Fact]] = {}
        for fact in self.facts:
            what = fact.what, fact.name
            match fact.terms:
                case None:
                    by_name.pop(what, None)
                case SubscriptionTerms(place=place) | QueueKeptTerms(place=place):
                    by_name.setdefault(what, (place, fact))
        return {place: fact for place, fact in by_name.values() if place}

    def needed(self) -> int:
        """The first sequence that somebody wants; 0: nobody wants anything."""
        firsts = [
            self.standings[place].upto if place in self.standings else fact.sequence + 1
            for place, fact in self.alive().items()
        ]
        batches = {fact.name: fact.terms for fact in self.facts if fact.what == "batch"}
        firsts += [batch.sequence + 1 for batch in batches.values() if isinstance(batch, Batch) and batch.parts]
        return min(firsts, default=0)


def restore(
    broker: Broker, streams: dict[str, Stream], shelf: Shelf, now: Callable[[], float], wall_offset_s: float,
    dialect: Dialect,
) -> Restored:  # fmt: skip
    """``dialect``: that of queues. Raises Corrupt, OSError."""
    story = _Story()
    story.read(streams[MAIN], wall_offset_s)
    restoring = broker.restoring(dialect, story.standings)
    facts = iter(_Timed(fact.sequence + 0.5, None, fact, "", 0.0) for fact in story.facts)
    apart = {fact.sequence for fact in story.facts}
    runs = [_runs(broker, MAIN, streams[MAIN], story.needed(), wall_offset_s, apart)]
    runs += [
        _runs(broker, name, stream, stream.first_sequence, wall_offset_s, apart)
        for name, stream in streams.items() if name not in (MAIN, RETAINED)
    ]  # fmt: skip
    said = time.monotonic()
    for at, timed in enumerate(heapq.merge(facts, *runs, key=lambda timed: timed.sequence)):
        if timed.run is not None:
            restoring.run(timed.run, int(timed.sequence), timed.publisher, timed.time_s,
                          recorded=timed.recorded)  # fmt: skip
        elif timed.fact is not None:
            restoring.fact(timed.fact, now())
        if at % RUNS_A_STEP == 0:
            _spill(broker, shelf, now())
            if time.monotonic() - said > SAY_EVERY_S:
                said = time.monotonic()
                log.info("reading the journal: %d records are back", restoring.records)
    restoring.finish(now())
    registry = broker.registry
    last = max(stream.last_sequence for name, stream in streams.items() if name != RETAINED)
    registry.sequence = max(registry.sequence, story.reserved, last)
    broker.restored(now())
    _spill(broker, shelf, now())
    subscriptions = sum(len(session.subscriptions) for session in registry.sessions.values())
    return Restored(len(registry.sessions), subscriptions, len(registry.router.queues), restoring.records,
                    registry.sequence, story.snapshots)  # fmt: skip


def restore_retained(broker: Broker, stream: Stream, now: float, wall_offset_s: float) -> int:
    """Returns how many there are. Raises Corrupt, OSError."""
    for time_us, batch in stream.scan(None):
        for stored in batch:
            run, _, _ = read_run(stored, wall_offset_s)
            if run.expires_s is None or run.expires_s > now:
                with suppress(Refused):  # the limits are others now
                    broker.retained.put(run.record(0, 1, time_us / 1e6 - wall_offset_s))
    return len(broker.retained)


def _runs(
    broker: Broker, name: str, stream: Stream, first: int, wall_offset_s: float, apart: set[int]
) -> Iterator[_Timed]:
    if not first:
        return
    for time_us, batch in stream.read(first, stream.last_sequence):
        time_s = time_us / 1e6 - wall_offset_s
        for run, sequence, publisher in read_runs(batch, wall_offset_s, apart):
            broker.writers.found(name, publisher, len(run))
            yield _Timed(sequence, run, None, publisher, time_s, name != MAIN)


def _spill(broker: Broker, shelf: Shelf, now: float) -> None:
    """What pools have no memory for is left to the journal, which has it already."""
    broker.spill(now)
    for effect in broker.take_effects():
        if isinstance(effect, Spill):
            for chunk in effect.chunks:
                handle = JournalChunk(shelf, chunk, effect.lane.dialect) if chunk.kept else None
                broker.spilled(effect.lane, chunk, chunk.size, handle, "it is not in the journal", now)
