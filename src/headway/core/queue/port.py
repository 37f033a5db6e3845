"""The owner of a backlog: what the parts of a queue ask of the whole. They know the queue by this alone."""

from __future__ import annotations

from typing import Protocol

from headway.core.consumer import SharedReader


class QueuePort(SharedReader, Protocol):
    def moved_on(self) -> None:
        """It reads in another lane now."""

    def source_failed(self) -> None:
        """What fills its lane cannot be read on; nobody knows how many records there still were."""

    def miss(self, now: float) -> None:
        """Something waits, and nobody is there to be given it."""
