"""Durability: the records and the positions of a log that the journal is to keep."""

from headway.core.log.durable.entries import CommittedPosition, JournaledRun, MetadataChange
from headway.core.log.durable.held_back import HELD_BACK_BYTES, HeldBack
from headway.core.log.durable.ledger import MAIN, DurablePosition, Ledger, NoLedger
from headway.core.log.durable.null_position import NOT_DURABLE
from headway.core.log.durable.out_of_order import NO_PROGRESS, OutOfOrderProgress

__all__ = [
    "CommittedPosition", "DurablePosition", "HELD_BACK_BYTES", "HeldBack", "JournaledRun", "Ledger", "MAIN",
    "MetadataChange", "NO_PROGRESS", "NoLedger", "NOT_DURABLE", "OutOfOrderProgress",
]
