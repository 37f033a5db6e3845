"""STOMP's side of a connection."""

from headway.server.stomp.peer import StompPeer as PEER

__all__ = ["PEER"]
