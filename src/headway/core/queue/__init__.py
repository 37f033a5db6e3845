"""Many consumers share one position: each message goes to one of them."""

from headway.core.queue.acks import Acks
from headway.core.queue.dispatch import FetchedRecord, larger_than
from headway.core.queue.drops import letter_work
from headway.core.queue.queue import BindingSet, Queue, filter_of, queue_behind, queue_of, quote_name

__all__ = [
    "Acks", "BindingSet", "FetchedRecord", "filter_of", "larger_than", "letter_work", "Queue",
    "queue_behind", "queue_of", "quote_name",
]
