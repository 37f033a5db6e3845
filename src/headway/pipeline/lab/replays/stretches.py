"""Stretches: when a consumer stood still, since when, and for how long it usually does, as its samples tell."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from headway.pipeline.lab.replays.curves import ROUNDING_S, STUCK_S, went_on
from headway.pipeline.lab.replays.reach import SAME_LOOK_S

STANDS = {
    "blocked_ms": "usual_pause_ms", "unread_ms": "unread_pause_ms", "credit_exhausted_ms": "",
    "unacknowledged_ms": "ack_pause_ms",
}  # fmt: skip
"""For how long a consumer has taken, read or acknowledged nothing; and for how long it usually does."""
_SAME_S = 0.05
"""The most by which two samples of one blocked stretch differ in its beginning."""


class Stretches:
    """Times at which a condition held, and since when: its socket was blocked, or its window full."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], column: str, end: float) -> None:
        """``column``: for how many milliseconds it has been so, 0 if it is not. What has long been so in the last row
        stays so up to ``end``; any other stretch ends where the consumer went on, or at the last row that says so."""
        self._seen = [row["time"] for row in rows]
        self._pauses = seconds_of(rows, STANDS[column])
        self._since: list[float] = []
        self._until: list[float] = []
        before: Mapping[str, Any] | None = None
        for row in rows:
            moved = went_on(before, row) if before is not None and column == "blocked_ms" else None
            was_so = before is not None and before[column] > 0
            of_last_look = row["ended"] and before is not None and 0 < before[column] <= row[column]
            before = row
            if moved is not None and self._until:
                self._until[-1] = max(self._until[-1], moved)
            if row[column] <= 0:
                continue
            time = row["time"]
            since = time - row[column] / 1000
            if self._since and (since <= self._since[-1] + _SAME_S or of_last_look):
                self._until[-1] = time
            else:
                if was_so and column == "credit_exhausted_ms":
                    self._until[-1] = max(self._until[-1], since)  # it gets a record for each it settles
                self._since.append(since)
                self._until.append(time)
        if self._until and rows[-1][column] >= STUCK_S * 1000:
            self._until[-1] = max(end, self._until[-1])

    def pause(self, time: float) -> float:
        """Returns for how long the client usually stood so between two steps, as of that time.

        It grows only with a step. So where the client has stood still up to the next sample, that sample has it; it may
        be the first that does, because only a consumer that lags is measured."""
        following = bisect_left(self._seen, time)
        if following < len(self._seen) and self.since(self._seen[following]) <= time:
            return self._pauses[following]
        return self._pauses[max(0, bisect_right(self._seen, time) - 1)]

    def since(self, time: float) -> float:
        """Returns since when it has been so at that time; ``inf`` if it is not."""
        k = bisect_right(self._since, time) - 1
        following = k + 1
        if following < len(self._since) and self._since[following] <= time + SAME_LOOK_S:
            seen = bisect_left(self._seen, time - ROUNDING_S)
            if self._seen[seen] > self._since[following]:
                return self._since[following]  # the look that saw it begin, and none that did not yet
        return self._since[k] if k >= 0 and time <= self._until[k] else inf


def seconds_of(rows: Sequence[Mapping[str, Any]], column: str) -> list[float]:
    """Returns a column in seconds; 0 where an older lake does not have it."""
    return [(row.get(column) or 0.0) / 1000 for row in rows]
