"""Recent lateness: how late the loop was, which everybody feels, in the probes between two looks at the pulse."""

from __future__ import annotations

from headway.server.loop import BOUNDS_S, Pulse


class RecentLateness:
    """Reads the pulse's histogram. It has bounds, so a share of it is known as the bound that it lies below."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self._before = list(pulse.counts)
        self.p99_s = self.most_s = 0.0
        """99 of 100 probes, and all of them, were late by less; above the last bound: the longest lateness ever."""

    def look(self) -> None:
        """Takes in the probes since the last look."""
        counts = self._pulse.counts
        fresh = [now - before for now, before in zip(counts, self._before, strict=True)]
        self._before = list(counts)
        total = sum(fresh)
        if not total:
            return
        seen, self.p99_s = 0, -1.0
        for count, bound_s in zip(fresh, (*BOUNDS_S, self._pulse.longest_s), strict=True):
            seen += count
            if count:
                self.most_s = bound_s
            if self.p99_s < 0 and seen * 100 >= total * 99:
                self.p99_s = bound_s
