"""Published: what became of a run, of runs, or of a slice of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headway.core.base import Refused
from headway.core.consumer import Feed
from headway.core.message import Run

FULL_QUEUE = "a queue that these records are for is full, and refuses more"


class Published(NamedTuple):
    """The result of publishing a run: the number of lanes and states that took records of it, the number of its first
    records that no queue refused, and the work."""

    taken: int
    accepted: int
    work: int
    refused: Refused | None = None
    """The reason why a patch was refused."""


class PublishedRuns(NamedTuple):
    """The result of publishing runs: the number of runs published, the number of lanes and states that took them, the
    work, the last refusal, the part of the last run that is still to be published, and the feeds of the last one."""

    runs: int
    taken: int
    work: int
    refused: Refused | None
    rest: Run | None = None
    feeds: Sequence[Feed] = ()


class PublishedSlice(NamedTuple):
    """The result of publishing a slice of a run. ``run`` has its records; ``stop`` is the index in the whole run of the
    first record that was not published. ``feeds``: those that it went to."""

    run: Run
    taken: int
    accepted: int
    work: int
    stop: int
    refused: Refused | None = None
    feeds: Sequence[Feed] = ()
