"""What each protocol's side of a connection is made of; each protocol has a room of its own, on top of this one."""

from headway.server.peers.base import BasePeer

__all__ = [
    "BasePeer",
]
