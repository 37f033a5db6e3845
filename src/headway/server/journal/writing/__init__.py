"""Writing: writes the ledger's commits in a thread of its own, and tells the clients that wait for them."""

from headway.server.journal.writing.journal_writer import BACKLOG_BYTES_MAX, JournalStats, JournalWriter

__all__ = [
    "BACKLOG_BYTES_MAX", "JournalStats", "JournalWriter",
]
