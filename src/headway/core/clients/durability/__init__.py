"""The objects that outlive the process: their changes, all of them, and what is left of them after a crash."""

from headway.core.clients.durability.durable_metadata import DurableMetadata, Handoff
from headway.core.clients.durability.durable_objects import (
    DurableQueueTerms,
    SessionTerms,
    SubscriptionTerms,
    WriterBatch,
)
from headway.core.clients.durability.folding import Folding, RecoveredChange
from headway.core.clients.durability.recovered_position import RecoveredPosition

__all__ = [
    "DurableMetadata", "DurableQueueTerms", "Folding", "Handoff", "RecoveredChange", "RecoveredPosition",
    "SessionTerms", "SubscriptionTerms", "WriterBatch",
]
