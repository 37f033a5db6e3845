"""Queue port: what the parts of a queue (backlog, dispatch) may ask of the queue itself."""

from __future__ import annotations

from typing import Protocol

from headway.core.consumer import SharedReader


class QueuePort(SharedReader, Protocol):
    def moved_on(self) -> None:
        """Called when the backlog has gone on to another lane."""

    def source_failed(self) -> None:
        """Called when a source can no longer be read. How many records it still had is not known."""

    def miss(self, now: float) -> None:
        """Called when records wait and no consumer is there to take them."""
