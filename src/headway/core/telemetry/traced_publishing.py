"""Publishing where the broker makes traces: a record of a sampled trace is followed by a receipt of the broker's own.

A broker without traces has plain ``Publishing`` instead, so that nothing at all is asked there. Here a run without
properties costs one comparison. Neighbouring records with one trace context are one batch: its last record is followed.
"""

from __future__ import annotations

from headway.core.consumer import Session
from headway.core.log import Retained
from headway.core.message import NO_PROPERTIES, Run, sampled_context
from headway.core.receipts import Trace, TraceSampling
from headway.core.routing import Publishing, Registry, Route


class TracedPublishing(Publishing):
    def __init__(self, registry: Registry, retained: Retained, sampling: TraceSampling) -> None:
        super().__init__(registry, retained)
        self._sampling = sampling

    def _take_part(self, session: Session | None, run: Run, first: int, route: Route, now: float) -> tuple[int, int]:
        done = super()._take_part(session, run, first, route, now)
        if session is not None and (run.properties is not NO_PROPERTIES or run.headers):
            self._follow(session, run, first, route, now)
        return done

    def _follow(self, session: Session, run: Run, first: int, route: Route, now: float) -> None:
        context = sampled_context(run)
        if context is None or not self._sampling.wants(context, now):
            return
        trace = Trace(context, run, session.client, first + len(run) - 1, now)
        registry = self._registry
        if route.wide:
            route.receive()
        registry.router.searched += registry.receipts.follow(
            session, run, route.feeds, route.states, now, trace, self._sampling.wait_s
        )
