"""Recovery: finds what is on disk after a crash or damage, repairs it for a start, and verifies it for an operator."""

from headway.store.journal.recovery.recovery_scan import RecoveryScan, recovery_scan
from headway.store.journal.recovery.repair import repair_stream
from headway.store.journal.recovery.verify import StreamReport, check, streams_of

__all__ = [
    "check", "recovery_scan", "RecoveryScan", "repair_stream", "StreamReport", "streams_of",
]
