"""Frames: the bytes of a record for one consumer, and when they may go out."""

from headway.core.delivery.frames.addressing import Cuts, address, address_each, cut_of, take_ids
from headway.core.delivery.frames.decoded import marked, record_at
from headway.core.delivery.frames.exactly_once import (
    EXACTLY_ONCE,
    durable_record,
    exactly_once_position,
    holds_back,
    lose,
    note_in_flight,
    write,
)

__all__ = [
    "address", "address_each", "cut_of", "Cuts", "durable_record", "EXACTLY_ONCE", "exactly_once_position",
    "holds_back", "lose", "marked", "note_in_flight", "record_at", "take_ids", "write",
]
