"""The journal at work: what is kept, in words; writing it; making everything again at start."""

from headway.server.journal.archive import PREFIX, Archive, Recorded, stream_name
from headway.server.journal.handle import Shelf
from headway.server.journal.keeper import BACKLOG_BYTES_MAX, Keeper
from headway.server.journal.opening import start, streams_in
from headway.server.journal.recovery import RETAINED, restore, restore_retained
from headway.server.journal.retained import RetainedLog
from headway.server.journal.snapshot import Snapshot
from headway.server.journal.tidying import stretches, unwanted
from headway.server.journal.words import RUN, read_runs

__all__ = [
    "Archive", "BACKLOG_BYTES_MAX", "Keeper", "PREFIX", "read_runs", "Recorded", "restore", "restore_retained",
    "RETAINED", "RetainedLog", "RUN", "Shelf", "Snapshot", "start", "stream_name", "streams_in", "stretches",
    "unwanted",
]
