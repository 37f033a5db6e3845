"""AMQP 1.0's side of a connection."""

from headway.server.amqp1.peer import Amqp1Peer

PEER = Amqp1Peer

__all__ = ["PEER"]
