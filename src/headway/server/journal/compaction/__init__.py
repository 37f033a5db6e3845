"""Compaction: keeps the journal small. Snapshots repeat what still counts; unneeded segments are removed."""

from headway.server.journal.compaction.retained import RETAINED, RetainedLog
from headway.server.journal.compaction.slices import SlicePacer
from headway.server.journal.compaction.snapshot import Snapshot
from headway.server.journal.compaction.snapshot_schedule import SnapshotSchedule
from headway.server.journal.compaction.tidying import Tidying, free_expired
from headway.server.journal.compaction.unneeded import UnneededRanges, snapshot_ranges

__all__ = [
    "free_expired", "RETAINED", "RetainedLog", "SlicePacer", "Snapshot", "snapshot_ranges", "SnapshotSchedule",
    "Tidying", "UnneededRanges",
]
