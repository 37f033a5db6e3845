"""Receipts tell what became of one record: who was owed it, who got it, and who did not, and why. Its publisher asked,
or the broker follows it for its trace."""

from headway.core.receipts.receipt import Receipt, ReceiptState
from headway.core.receipts.receipts import ENDED_MAX, OPEN_MAX, Receipts
from headway.core.receipts.sampling import TraceSampling
from headway.core.receipts.trace import DELIVERED_MAX, OTHERS_MAX, Fate, Outcome, Trace

__all__ = [
    "DELIVERED_MAX", "ENDED_MAX", "Fate", "OPEN_MAX", "OTHERS_MAX", "Outcome", "Receipt", "Receipts", "ReceiptState",
    "Trace", "TraceSampling",
]
