"""Places: where the records of a queue wait that are not handed out yet, and how far each cursor has read."""

from headway.core.queue.places.found import Finder, FoundHeap, FoundRecord
from headway.core.queue.places.queue_cursor import LaneSource, PresentCursor, QueueCursor, Row
from headway.core.queue.places.requeued import BEFORE_ALL, BEHIND_ALL, Key, Place, Requeued, RequeuedRecord
from headway.core.queue.places.standing import Standing, StandingRecord

__all__ = [
    "BEFORE_ALL", "BEHIND_ALL", "Finder", "FoundHeap", "FoundRecord", "Key", "LaneSource",
    "Place", "PresentCursor", "QueueCursor", "Requeued", "RequeuedRecord", "Row",
    "Standing", "StandingRecord",
]
