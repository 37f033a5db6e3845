"""Lanes: the logs themselves, the cursors in them, and the pools that limit what they take up."""

from headway.core.log.lanes.chunk import (
    CHUNK_BYTES,
    NO_RECEIPTS,
    Chunk,
    OpenReceipts,
    SpillHandle,
    read_stretch,
    records_between,
    stretch_bytes,
)
from headway.core.log.lanes.cursor import Cursor
from headway.core.log.lanes.lane import SPILL_BYTES_MIN, Coming, Lane
from headway.core.log.lanes.pool import (
    ANSWERS,
    CHANNELS,
    CONSUMER_BYTES,
    DECLARED,
    DELIVERY_BYTES,
    DISK_RETRY_S,
    GRACE_S,
    HIGH_WATER,
    LEVEL_BYTES,
    PARTS,
    QUERIES,
    QUEUE_BYTES,
    RECEIPT_BYTES,
    RECEIPT_READER_BYTES,
    RECEIPTS,
    REMEMBERED,
    RIGHTS,
    SELECT_BYTES,
    SESSION,
    SESSION_BYTES,
    SUBSCRIPTION_BYTES,
    SUBSCRIPTIONS,
    TRANSACTIONS,
    UNSETTLED,
    WILD_LEVEL_BYTES,
    WILL,
    Client,
    Owners,
    Pool,
    RoomWanted,
    Shares,
    Tab,
)

__all__ = [
    "ANSWERS", "CHANNELS", "Chunk", "CHUNK_BYTES", "Client", "Coming", "CONSUMER_BYTES", "Cursor", "DECLARED",
    "DELIVERY_BYTES", "DISK_RETRY_S", "GRACE_S", "HIGH_WATER", "Lane", "LEVEL_BYTES", "NO_RECEIPTS", "OpenReceipts",
    "Owners", "PARTS", "Pool", "QUERIES", "QUEUE_BYTES", "read_stretch", "RECEIPT_BYTES", "RECEIPT_READER_BYTES",
    "RECEIPTS", "records_between", "REMEMBERED", "RIGHTS", "RoomWanted", "SELECT_BYTES", "SESSION", "SESSION_BYTES",
    "Shares", "SPILL_BYTES_MIN", "SpillHandle", "stretch_bytes", "SUBSCRIPTION_BYTES", "SUBSCRIPTIONS", "Tab",
    "TRANSACTIONS", "UNSETTLED", "WILD_LEVEL_BYTES", "WILL",
]
