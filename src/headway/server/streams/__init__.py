"""Streams over HTTP: programs read recorded topics, keep cursors, publish batches."""

from headway.server.streams.cursors import Cursors
from headway.server.streams.records import Records
from headway.server.streams.writers import Writers

__all__ = [
    "Cursors", "Records", "Writers",
]
