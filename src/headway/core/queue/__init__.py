"""Many consumers share one position: each message goes to one of them."""

from headway.core.queue.acks import Acks
from headway.core.queue.binding_set import BindingSet, filter_of, quote_name
from headway.core.queue.dispatch import FetchedRecord
from headway.core.queue.drops import letter_work
from headway.core.queue.queue import Queue, queue_behind, queue_of
from headway.core.queue.writing import larger_than

__all__ = [
    "Acks", "BindingSet", "FetchedRecord", "filter_of", "larger_than", "letter_work", "Queue",
    "queue_behind", "queue_of", "quote_name",
]
