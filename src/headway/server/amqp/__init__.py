"""AMQP's side of a connection."""

from headway.server.amqp.peer import AmqpPeer as PEER

__all__ = ["PEER"]
