"""From the publisher to the logs."""

from headway.core.routing.backpressure import Backpressure, is_out_of_room, pause_reason
from headway.core.routing.matching import (
    COPIES,
    EXCHANGE_BYTES,
    KINDS,
    PREDECLARED,
    SEARCHED_A_UNIT,
    AmqTopic,
    Binding,
    Destination,
    Exchange,
    Exchanges,
    Route,
    Router,
    frozen,
    part_of,
)
from headway.core.routing.publishing import (
    FULL_QUEUE,
    Advisories,
    Encoded,
    Expiring,
    Published,
    PublishedRuns,
    PublishedSlice,
    Publishing,
    ReceiptReplies,
    Replay,
    seen_before,
)
from headway.core.routing.registry import (
    DEAD_LETTER_WORK,
    DROPPED_WORK,
    EXPIRED_WORK,
    REFUSED_WORK,
    REQUEUED_WORK,
    SORTED_WORK,
    AllowanceOf,
    Limits,
    Overdue,
    Recharging,
    RecordedRecords,
    RecordedTopics,
    Registry,
    SessionRound,
)

__all__ = [
    "Advisories", "AllowanceOf", "AmqTopic", "Backpressure", "Binding", "COPIES", "DEAD_LETTER_WORK", "Destination",
    "DROPPED_WORK", "Encoded", "Exchange", "EXCHANGE_BYTES", "Exchanges", "EXPIRED_WORK", "Expiring", "frozen",
    "FULL_QUEUE",
    "is_out_of_room", "KINDS", "Limits", "Overdue", "part_of", "pause_reason", "PREDECLARED", "Published",
    "PublishedRuns", "PublishedSlice", "Publishing", "ReceiptReplies", "Recharging", "RecordedRecords",
    "RecordedTopics", "REFUSED_WORK", "Registry", "Replay", "REQUEUED_WORK", "Route", "Router", "SEARCHED_A_UNIT",
    "seen_before", "SessionRound", "SORTED_WORK",
]
