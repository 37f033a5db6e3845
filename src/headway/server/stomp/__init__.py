"""STOMP's side of a connection."""

from headway.server.stomp.peer import StompPeer

PEER = StompPeer

__all__ = [
    "PEER", "StompPeer",
]
