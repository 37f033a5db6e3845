"""Peers: the base of every protocol's side of a connection. Each protocol has a room of its own above this."""

from headway.server.peers.base import BasePeer
from headway.server.peers.states import CLOSING, OPEN, WAITING, ClientState

__all__ = [
    "BasePeer", "ClientState", "CLOSING", "OPEN", "WAITING",
]
