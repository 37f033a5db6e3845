"""The queue port: the methods of a queue that its parts (backlog, dispatch) may call."""

from __future__ import annotations

from typing import Protocol

from headway.core.consumer import SharedReader


class QueuePort(SharedReader, Protocol):
    def moved_on(self) -> None:
        """Called when the backlog has gone on to another lane."""

    def source_failed(self) -> None:
        """Called when a source can no longer be read. The number of its remaining records is unknown."""

    def miss(self, now: float) -> None:
        """Called when records wait and the queue has no members."""
