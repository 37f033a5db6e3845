"""A topic is one log, a consumer is one position in it. Pools bound what all logs take up."""

from headway.core.log.chunk import CHUNK_BYTES, Chunk, SpillHandle
from headway.core.log.cursor import Cursor
from headway.core.log.focus import FOCUS_BYTES, Focus
from headway.core.log.held_back import HELD_BACK_BYTES, HeldBack
from headway.core.log.lane import SPILL_BYTES_MIN, Lane
from headway.core.log.ledger import (
    MAIN,
    CommittedPosition,
    DurablePosition,
    JournaledRun,
    Ledger,
    MetadataChange,
    NoLedger,
)
from headway.core.log.null_position import NOT_DURABLE
from headway.core.log.open_receipts import OpenReceipts
from headway.core.log.out_of_order import OutOfOrderProgress
from headway.core.log.pool import DISK_RETRY_S, GRACE_S, HIGH_WATER, Pool
from headway.core.log.retained import Retained
from headway.core.log.state import State, StateTerms
from headway.core.log.state_pass import StateEntry, StatePass
from headway.core.log.state_reading import SAVED_RECORD_BYTES, StateReading
from headway.core.log.tab import (
    ANSWERS,
    CONSUMER_BYTES,
    DECLARED,
    DELIVERY_BYTES,
    LEVEL_BYTES,
    QUERIES,
    QUEUE_BYTES,
    RECEIPT_BYTES,
    RECEIPT_READER_BYTES,
    RECEIPTS,
    RIGHTS,
    SELECTOR_BYTES,
    SESSION,
    SESSION_BYTES,
    SUBSCRIPTION_BYTES,
    SUBSCRIPTIONS,
    TRANSACTIONS,
    UNSETTLED,
    WILD_LEVEL_BYTES,
    WILL,
    Tab,
)

__all__ = [
    "ANSWERS", "Chunk", "CHUNK_BYTES", "CommittedPosition", "CONSUMER_BYTES", "Cursor", "DECLARED", "DELIVERY_BYTES",
    "DISK_RETRY_S", "DurablePosition", "Focus", "FOCUS_BYTES", "GRACE_S", "HELD_BACK_BYTES", "HeldBack", "HIGH_WATER",
    "JournaledRun", "Lane", "Ledger", "LEVEL_BYTES", "MAIN", "MetadataChange", "NoLedger", "NOT_DURABLE",
    "OpenReceipts", "OutOfOrderProgress", "Pool", "QUERIES", "QUEUE_BYTES", "RECEIPT_BYTES", "RECEIPT_READER_BYTES",
    "RECEIPTS", "Retained", "RIGHTS", "SAVED_RECORD_BYTES", "SELECTOR_BYTES", "SESSION", "SESSION_BYTES",
    "SPILL_BYTES_MIN", "SpillHandle", "State", "StateEntry", "StatePass", "StateReading", "StateTerms",
    "SUBSCRIPTION_BYTES", "SUBSCRIPTIONS", "Tab", "TRANSACTIONS", "UNSETTLED", "WILD_LEVEL_BYTES", "WILL",
]
