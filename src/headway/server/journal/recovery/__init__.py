"""Recovery: opens the journal at a start, and restores the broker from it."""

from headway.server.journal.recovery.opening import start, streams_in
from headway.server.journal.recovery.replay import restore, restore_retained
from headway.server.journal.recovery.set_aside import SetAside

__all__ = [
    "restore", "restore_retained", "SetAside", "start", "streams_in",
]
