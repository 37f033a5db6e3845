"""Writing: commits what the ledger collects, in a thread of its own, and tells those who wait for it."""

from headway.server.journal.writing.journal_writer import BACKLOG_BYTES_MAX, JournalStats, JournalWriter

__all__ = [
    "BACKLOG_BYTES_MAX", "JournalStats", "JournalWriter",
]
