"""Many consumers share one position: each message goes to one of them."""

from headway.core.queue.acks import Acks
from headway.core.queue.bound import Bound, filter_of, word_of
from headway.core.queue.dispatch import Got
from headway.core.queue.queue import Queue, queue_of

__all__ = [
    "Bound", "filter_of", "Got", "Queue", "queue_of", "Acks", "word_of",
]
