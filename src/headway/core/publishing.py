"""Publishing: a run gets its sequence numbers, and goes to the state, the retained records and the lanes it is for.

Everything here happens once per run and distinct (filter, selector, dialect); never per subscriber. A run is written in
each dialect once, whatever number of lanes want it so.
"""

from __future__ import annotations

from headway.core.errors import Refused
from headway.core.feed import Feed
from headway.core.record import Dialect, Frames, Record, Run
from headway.core.registry import Registry
from headway.core.retained import Retained
from headway.core.session import Session
from headway.core.state import State

Encoded = dict[Dialect, Frames]


class Publishing:
    def __init__(self, registry: Registry, retained: Retained) -> None:
        self._registry = registry
        self._retained = retained

    def publish(self, session: Session | None, runs: list[Run], now: float) -> int:
        """Publish runs in order; ``session`` None is the broker itself. Returns how many lanes and states took them.

        Raises :class:`Refused` where a retained record cannot be kept; the run was delivered to subscribers all the
        same.
        """
        registry = self._registry
        number = session.number if session is not None else 0
        taken = 0
        refused: Refused | None = None
        for run in runs:
            count = len(run)
            run.publisher = number
            first = registry.sequence + 1
            registry.sequence += count
            registry.published_records += count
            registry.published_bytes += len(run.data)
            if session is not None:
                session.published_records += count
                session.published_bytes += len(run.data)
            if run.retain:
                try:
                    self._retained.put(run.record(count - 1, first, now))
                except Refused as error:
                    refused = error
            route = registry.router.route(run.topic)
            for state in route.states:
                self._keep(state, run, first, now)
            encoded: Encoded = {}
            for feed in route.feeds:
                taken += self._append(feed, run, first, encoded, session, now)
            taken += len(route.states)
        if refused is not None:
            raise refused
        return taken

    def _keep(self, state: State, run: Run, first: int, now: float) -> None:
        """Update the state; where the topic itself is the key, only the last record of the run matters."""
        count = len(run)
        start = count - 1 if state.by_topic else 0
        for index in range(start, count):
            state.put(run.record(index, first, now))

    def _append(
        self, feed: Feed, run: Run, first: int, encoded: Encoded, session: Session | None, now: float
    ) -> int:
        key = feed.key
        if session is not None and key.exclude == session.number:
            return 0
        registry = self._registry
        if feed.selector is not None:
            if not self._append_selected(feed, run, first, now):
                return 0
        else:
            frames = encoded.get(key.dialect)
            if frames is None:
                frames = encoded[key.dialect] = key.dialect.encode(run, first)
            feed.lane.append(run, frames, first, now)
        registry.dirty[feed] = None
        if session is not None:
            if feed.gates and any(gate.session is not session for gate in feed.gates):
                registry.pause(session, feed, now)  # nobody waits for itself: its acknowledgements would not be read
            if key.pool.full:
                registry.pause(session, key.pool, now)
        return 1

    def _append_selected(self, feed: Feed, run: Run, first: int, now: float) -> bool:
        """Append the records the feed's selector wants, each stretch of neighbours as a run of its own."""
        assert feed.selector is not None
        wanted = feed.selector.select(run)
        start = 0
        for at, index in enumerate(wanted, 1):
            if at < len(wanted) and wanted[at] == index + 1:
                continue
            piece = _slice(run, wanted[start], index + 1)
            sequence = first + wanted[start]
            feed.lane.append(piece, feed.key.dialect.encode(piece, sequence), sequence, now)
            start = at
        return bool(wanted)

    def announce(self, record: Record, now: float) -> None:
        """Publish a record of the broker's own."""
        self.publish(None, [record.run()], now)


def _slice(run: Run, start: int, stop: int) -> Run:
    """Records ``start`` … ``stop - 1`` of a run as a run."""
    if start == 0 and stop == len(run):
        return run
    begin = run.ends[start - 1] if start else 0
    piece = Run(
        run.topic, run.data[begin : run.ends[stop - 1]],
        [end - begin for end in run.ends[start:stop]], [body - begin for body in run.bodies[start:stop]],
        run.form, run.qos, run.retain, run.properties, run.expires_s,
    )  # fmt: skip
    piece.publisher = run.publisher
    return piece

