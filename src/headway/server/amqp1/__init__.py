"""AMQP 1.0's side of a connection."""

from headway.server.amqp1.peer import Amqp1Peer as PEER

__all__ = ["PEER"]
