"""Sampling: which records the broker follows for their traces.

The publisher decides first: a record is followed only if its ``traceparent`` says that its trace is sampled. Of these
traces the broker follows a share, chosen by the trace's id: all records of one trace, or none. Beyond ``per_second``
records in a second none is followed, so that a publisher that has every record sampled costs the broker no more.
"""

from __future__ import annotations

from headway.core.message import TraceContext

_RANGE = 1 << 64
SECOND_S = 1.0


class TraceSampling:
    def __init__(self, ratio: float = 1.0, per_second: int = 100, wait_s: float = 30.0) -> None:
        self.wait_s = wait_s
        """The time for which a record is followed."""
        self.followed = 0
        self.skipped = 0
        """Sampled records that were not followed, because there were too many in their second."""
        self._bound = int(ratio * _RANGE)
        self._per_second = per_second
        self._second_s = float("-inf")
        self._in_second = 0

    def wants(self, context: TraceContext, now: float) -> bool:
        """Tells whether a record of a sampled trace is followed, and counts it."""
        if context.trace_id % _RANGE >= self._bound:
            return False
        if now - self._second_s >= SECOND_S:
            self._second_s, self._in_second = now, 0
        if self._in_second >= self._per_second:
            self.skipped += 1
            return False
        self._in_second += 1
        self.followed += 1
        return True
