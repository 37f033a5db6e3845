"""From the log to the socket."""

from headway.core.delivery.conflating import conflate_once, start_conflating
from headway.core.delivery.fanout import FLUSH_BYTES, PUMP_BYTES, Fanout
from headway.core.delivery.frames import (
    EXACTLY_ONCE,
    Cuts,
    cut_of,
    durable_record,
    exactly_once_position,
    holds_back,
    lose,
    marked,
    note_in_flight,
    record_at,
    take_ids,
    write,
)
from headway.core.delivery.half_sent import finish_half_sent, free_cursor, go_back, last_of_half_sent
from headway.core.delivery.handover import Handover
from headway.core.delivery.marks import ListedRecords, MarkedSnapshot, QueriedRecords
from headway.core.delivery.readiness import has_room, moves, waits_for_client
from headway.core.delivery.rendering import Losses, delivery_record, drop_reason, write_frame

__all__ = [
    "conflate_once", "cut_of", "Cuts", "delivery_record", "drop_reason", "durable_record", "EXACTLY_ONCE",
    "exactly_once_position", "Fanout", "finish_half_sent", "FLUSH_BYTES", "free_cursor", "go_back", "Handover",
    "has_room", "holds_back", "last_of_half_sent", "ListedRecords", "lose", "Losses", "marked", "MarkedSnapshot",
    "moves", "note_in_flight", "PUMP_BYTES", "QueriedRecords", "record_at", "start_conflating", "take_ids",
    "waits_for_client", "write", "write_frame",
]
