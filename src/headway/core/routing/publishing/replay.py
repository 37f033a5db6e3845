"""A replay is recorded records that a queue hands out before new ones, because a binding asked for them (``from``).

Records are read from disk as the queue hands them out, a batch at a time, into a lane of the queue's own. So a replay
takes up no more memory than a batch, however long it is. It is not durable: after a crash the client asks for it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headway.core.consumer import SubscriptionOptions
from headway.core.log import Lane
from headway.core.message import SCAN_MAX, Run
from headway.core.routing.matching import part_of
from headway.core.routing.registry import RecordedTopics

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
