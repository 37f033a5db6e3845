"""``headway consumer``: moves that an operator makes on one consumer."""

from headway.cli.consumer.command import consumer

__all__ = [
    "consumer",
]
