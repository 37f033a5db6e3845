"""Streams over HTTP: programs read recorded topics, keep cursors, publish batches."""

from headway.server.streams.cursors import CursorHandlers
from headway.server.streams.records import RecordHandlers
from headway.server.streams.state import StateHandlers
from headway.server.streams.writers import WriterHandlers

__all__ = [
    "CursorHandlers", "RecordHandlers", "StateHandlers", "WriterHandlers",
]
