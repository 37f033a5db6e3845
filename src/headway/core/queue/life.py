"""The life of a queue: its states, and the legal moves between them."""

from __future__ import annotations

from enum import StrEnum


class QueueLife(StrEnum):
    OPEN = "open"
    ENDED = "ended"
    """The queue was deleted, or its last member has left a group. It reads nothing more. Deliveries that are still with
    its clients belong to nobody."""


MOVES = {
    QueueLife.OPEN: {QueueLife.ENDED},
    QueueLife.ENDED: set[QueueLife](),
}
