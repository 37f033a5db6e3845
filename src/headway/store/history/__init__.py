"""The history: verdicts and ends of connections in files that outlive the process, one JSON object a line."""

from headway.store.history.entry import (
    EntryKind,
    HistoryEntry,
    decode_entry,
    encode_entry,
    end_entry,
    utc,
    verdict_entry,
)
from headway.store.history.files import FolderLock, FolderLocked, Series, files_of
from headway.store.history.moment import parse_moment
from headway.store.history.query import Found, Query, matcher, search

__all__ = [
    "decode_entry", "encode_entry", "end_entry", "EntryKind", "files_of", "FolderLock", "FolderLocked", "Found",
    "HistoryEntry", "matcher", "parse_moment", "Query", "search", "Series", "utc", "verdict_entry",
]
