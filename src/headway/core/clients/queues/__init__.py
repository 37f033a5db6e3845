"""Queues and exchanges, as clients declare, bind and delete them."""

from headway.core.clients.queues.object_names import (
    check_binding,
    check_exchange,
    check_known,
    check_known_exchange,
    check_queue,
    is_own,
    may_know_exchange,
    published_to,
    queue_object,
    read_by,
)
from headway.core.clients.queues.queues import Queues

__all__ = [
    "check_binding", "check_exchange", "check_known", "check_known_exchange", "check_queue", "is_own",
    "may_know_exchange", "published_to", "queue_object", "Queues", "read_by",
]
