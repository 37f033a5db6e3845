"""Commits as the writer's thread does them: steps that are written to the journal one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from headway.core.log import MAIN
from headway.store.journal import Entry, Journal

UNSYNCED_BYTES_MAX = 16 * 1024 * 1024
"""With ``sync = false`` so much is confirmed before it is synced; it stays in memory until then."""

Work = dict[str, list[Entry]]
"""Entries by stream."""


class CommitStep(NamedTuple):
    """Entries that are written and synced together."""

    work: Work
    rolled: list[str]
    """Streams that begin a new segment with it."""
    snapshot: Callable[[], list[Entry]] | None = None
    """Makes the entries of a snapshot, for the main stream."""


class CommitResult(NamedTuple):
    error: Exception | None
    snapshot_bytes: int
    """0: there was no snapshot."""


def commit_steps(store: Journal, steps: Sequence[CommitStep], time_us: int, *, sync: bool) -> CommitResult:
    """Writes the steps in order; after an error the later ones are only remembered. Without steps it mends the journal.
    Never raises: the result is for the loop's thread."""
    error: Exception | None = None
    size = 0
    for work, rolled, snapshot in steps or [CommitStep({}, [])]:
        try:
            if snapshot is not None:
                work[MAIN] = snapshot()
                size = sum(len(data) for entry in work[MAIN] for data in entry.data)
            if work:
                store.commit(work, time_us, sync=sync, roll=rolled)
            elif not steps:
                store.mend()
        except Exception as failed:  # noqa: BLE001  the loop's thread tells a failing disk from a bug
            if error is None or not isinstance(failed, OSError):  # a bug is told: mending the disk does not mend it
                error = failed
    return CommitResult(error, size)


def sync_if_much(store: Journal, time_us: int) -> None:
    """Bounds what is in memory because it was confirmed without a sync."""
    if store.unsynced_bytes > UNSYNCED_BYTES_MAX:
        with suppress(OSError):  # the stream is broken then, and the next commit reports it
            store.commit({}, time_us)
