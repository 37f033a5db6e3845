"""From the log to the socket."""

from headway.core.delivery.fanout import (
    CHUNK_WORK,
    FLUSH_BYTES,
    LOOKED_AT_WORK,
    PRIORITY,
    PUMP_BYTES,
    RANGE_WORK,
    UNREADABLE,
    Fanout,
    at_most,
    conflate_once,
    enough,
    figures_of,
    finish_half_sent,
    free_cursor,
    go_back,
    has_room,
    last_of_half_sent,
    moves,
    neighbours,
    predicate_of,
    start_conflating,
    waits_for_client,
)
from headway.core.delivery.frames import (
    EXACTLY_ONCE,
    Cuts,
    cut_of,
    durable_record,
    exactly_once_position,
    holds_back,
    lose,
    note_in_flight,
    record_at,
    take_ids,
    write,
)
from headway.core.delivery.marks import Handover, ListedRecords, MarkedSnapshot, QueriedRecords, evicted_text
from headway.core.delivery.rendering import (
    Losses,
    copy_numbered,
    delivery_record,
    drop_reason,
    leave_lane,
    set_free,
    write_frame,
)

__all__ = [
    "at_most", "CHUNK_WORK", "conflate_once", "copy_numbered", "cut_of", "Cuts", "delivery_record", "drop_reason",
    "durable_record", "enough", "evicted_text", "EXACTLY_ONCE", "exactly_once_position", "Fanout", "figures_of",
    "finish_half_sent", "FLUSH_BYTES", "free_cursor", "go_back", "Handover", "has_room", "holds_back",
    "last_of_half_sent", "leave_lane", "ListedRecords", "LOOKED_AT_WORK", "lose", "Losses", "MarkedSnapshot", "moves",
    "neighbours", "note_in_flight", "predicate_of", "PRIORITY", "PUMP_BYTES", "QueriedRecords", "RANGE_WORK",
    "record_at", "set_free", "start_conflating", "take_ids", "UNREADABLE", "waits_for_client", "write", "write_frame",
]
