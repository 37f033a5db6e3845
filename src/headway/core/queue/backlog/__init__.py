"""The backlog of a queue: what it has still to hand out."""

from headway.core.queue.backlog.backlog import Backlog
from headway.core.queue.backlog.port import QueuePort

__all__ = [
    "Backlog", "QueuePort",
]
