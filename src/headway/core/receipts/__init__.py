"""Receipts tell a publisher what became of one record: who was owed it, who got it, and who did not, and why."""

from headway.core.receipts.receipt import Receipt, ReceiptState
from headway.core.receipts.receipts import OPEN_MAX, Receipts

__all__ = [
    "OPEN_MAX", "Receipt", "Receipts", "ReceiptState",
]
