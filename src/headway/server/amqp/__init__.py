"""AMQP's side of a connection."""

from headway.server.amqp.peer import AmqpPeer

__all__ = [
    "AmqpPeer",
]
