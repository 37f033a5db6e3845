"""Compares the terms of two queues, in the words of AMQP's arguments."""

from __future__ import annotations

from headway.core.consumer import QueueTerms


def difference(there: QueueTerms, asked: QueueTerms) -> str:
    """Returns the first argument that differs; empty if none does."""
    for field, words in _WORDS.items():
        if getattr(there, field) != getattr(asked, field):
            return words
    return ""


_WORDS = {
    "durable": "durable", "auto_delete": "auto-delete", "ttl_s": "x-message-ttl",
    "idle_s": "x-expires", "records_max": "x-max-length", "bytes_max": "x-max-length-bytes", "refuses": "x-overflow",
    "dead_letter_refused": "x-overflow", "dead_letter_exchange": "x-dead-letter-exchange",
    "dead_letter_key": "x-dead-letter-routing-key", "priorities": "x-max-priority",
    "single_active": "x-single-active-consumer", "returns_max": "x-delivery-limit", "selector": "selector",
}  # fmt: skip

