"""A queue cursor is a queue's position in the lane of one feed. It ends where the queue went on to another feed,
because its bindings changed. Most queues have one cursor, without an end.
"""

from __future__ import annotations

from typing import Any, Protocol

from headway.core.consumer import Feed, SharedReader
from headway.core.log import Chunk, Cursor, Lane


class LaneSource(Protocol):
    """Fills a lane with records that do not come from publishers."""

    def fill(self, lane: Lane) -> bool:
        """Appends some more records, or searches for them for one step. Returns False if there are no more. Raises
        OSError."""


class QueueCursor(Cursor):
    """Reads the lane of ``feed`` up to record ``stop_number`` (None: without an end)."""

    __slots__ = ("feed", "first_number", "order", "source", "stop_number", "stop_position")

    def __init__(self, reader: SharedReader, feed: Feed, order: int, source: LaneSource | None = None) -> None:
        super().__init__(feed.lane, reader)
        self.source = source
        """Fills the lane; None once it has no more records."""
        self.feed = feed
        self.order = order
        self.stop_number: int | None = None
        self.stop_position = 0
        self.first_number = feed.lane.count
        """The number of the first record that it reads."""

    @property
    def end_number(self) -> int:
        return self.lane.count if self.stop_number is None or self.source is not None else self.stop_number

    @property
    def end_position(self) -> int:
        return self.lane.end if self.stop_number is None or self.source is not None else self.stop_position

    @property
    def finished(self) -> bool:
        """Tells whether all records up to the stop were read, so that the queue goes on with its next cursor."""
        return self.source is None and self.stop_number is not None and self.position >= self.stop_position

    def fill(self) -> None:
        """Lets the source append more records if the lane was read to its end. Raises OSError."""
        if self.source is not None and self.position >= self.lane.end and not self.source.fill(self.lane):
            self.source = None
            self.stop_number, self.stop_position = self.lane.count, self.lane.end

    def start_at(self, chunk: Chunk, index: int) -> None:
        super().start_at(chunk, index)
        self.first_number = self.number

    @property
    def passed_records(self) -> int:
        """The number of records that it has read."""
        return self.number - self.first_number


class PresentCursor:
    """Stands for the cursor that a queue reads now, whichever it is. All members have it as theirs, so that none has to
    be visited when the queue goes on to another lane."""

    __slots__ = ("_cursors",)

    def __init__(self, cursors: list[QueueCursor]) -> None:
        self._cursors = cursors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursors[0], name)
