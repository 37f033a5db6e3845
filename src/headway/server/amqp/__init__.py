"""AMQP's side of a connection."""

from headway.server.amqp.peer import AmqpPeer

PEER = AmqpPeer

__all__ = [
    "AmqpPeer", "PEER",
]
