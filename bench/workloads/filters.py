"""Filters: subscribers over ever more distinct wildcard filters that all match the same topic."""

from __future__ import annotations

from bench.driver.flood import Crowd, flood
from bench.peers.peer import Running
from bench.wires.wire import Levels
from bench.workloads.workload import FLOOD_COLUMNS, Case, Figures, Workload

TOPIC = ("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
"""Levels of one letter: with a wildcard in the place of any of them a filter keeps its length."""


def distinct_filters(count: int) -> list[Levels]:
    """The number in binary says which levels are wildcards; at least one is."""
    return [
        tuple("+" if number >> place & 1 else level for place, level in enumerate(TOPIC))
        for number in range(1, count + 1)
    ]


class Filters(Workload):
    name = "filters"
    about = "1,000 subscribers over 1, 10 and 1,000 distinct wildcard filters that all match the topic; 128 B"
    columns = FLOOD_COLUMNS
    base_case = "1 filter"

    def cases(self, tiny: bool) -> list[Case]:
        subscribers = 10 if tiny else 1_000
        return [
            Case("1 filter" if count == 1 else f"{count:,} filters", {"subscribers": subscribers, "filters": count})
            for count in ((1, 5) if tiny else (1, 10, 1_000))
        ]

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        filters = distinct_filters(case.values["filters"])
        return flood(running, Crowd(TOPIC, filters, case.values["subscribers"]), seconds)
