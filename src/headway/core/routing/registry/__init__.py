"""The registry: all that there is (sessions, feeds, queues), and what is to be woken."""

from headway.core.routing.registry.overdue import (
    DEAD_LETTER_WORK,
    DROPPED_WORK,
    EXPIRED_WORK,
    REFUSED_WORK,
    REQUEUED_WORK,
    SORTED_WORK,
    Overdue,
)
from headway.core.routing.registry.recharging import AllowanceOf, Recharging
from headway.core.routing.registry.recorded_topics import NothingRecorded, RecordedRecords, RecordedTopics
from headway.core.routing.registry.registry import Limits, Registry, WideRecords, is_out_of_room, pause_reason
from headway.core.routing.registry.session_round import SessionRound

__all__ = [
    "AllowanceOf", "DEAD_LETTER_WORK", "DROPPED_WORK", "EXPIRED_WORK", "is_out_of_room", "Limits",
    "NothingRecorded", "Overdue", "pause_reason", "Recharging", "RecordedRecords", "RecordedTopics", "REFUSED_WORK",
    "Registry", "REQUEUED_WORK", "SessionRound", "SORTED_WORK", "WideRecords",
]
