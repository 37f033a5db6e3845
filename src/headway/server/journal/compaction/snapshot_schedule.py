"""The schedule of snapshots: when the next one is due, and the one that is being collected."""

from __future__ import annotations

from collections.abc import Callable

from headway.server.journal.compaction.snapshot import SLICE_ITEMS, Snapshot

METADATA_BYTES = 2 * 1024 * 1024
METADATA_FACTOR = 4
"""A snapshot is due when more metadata was written since the last one than ``METADATA_BYTES``, and than so many times
the last one's size. So what a start reads is proportional to what is alive, and snapshots add a constant share to what
is written anyway."""
POSITIONS_WEIGHT = 4
"""Positions count for a quarter of their bytes: they are read faster, and written with every acknowledgement."""


class SnapshotSchedule:
    def __init__(self, make: Callable[[], Snapshot]) -> None:
        self.requested = True
        """The next write begins a snapshot, however little was written."""
        self.current: Snapshot | None = None
        """The snapshot that is being collected, or that is to be written next."""
        self._make = make
        self._bytes = 0
        """Metadata since the last snapshot, weighed."""
        self._bytes_max = 0

    @property
    def ready(self) -> bool:
        """A snapshot can be written."""
        return self.current is not None and self.current.done

    @property
    def collecting(self) -> bool:
        return self.current is not None and not self.current.done

    def on_metadata(self, size: int) -> None:
        self._bytes += size

    def on_positions(self, size: int) -> None:
        self._bytes += size // POSITIONS_WEIGHT

    def begin_if_due(self, *, segment_full: bool) -> bool:
        """Returns whether a snapshot was begun."""
        due = self.requested or segment_full or self._bytes > self._bytes_max
        if self.current is not None or not due:
            return False
        self.current = self._make()
        self.current.advance(SLICE_ITEMS)
        return True

    def advance(self) -> None:
        """Looks at another slice."""
        if self.current is not None:
            self.current.advance(SLICE_ITEMS)

    def take(self) -> Snapshot | None:
        """Takes the snapshot that is ready, to be written now."""
        if not self.ready:
            return None
        snapshot, self.current = self.current, None
        self.requested, self._bytes = False, 0
        return snapshot

    def written(self, size: int) -> None:
        """Notes how many bytes the last snapshot has."""
        self._bytes_max = max(METADATA_BYTES, METADATA_FACTOR * size)
