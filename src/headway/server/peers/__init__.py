"""What each protocol's side of a connection is made of; each protocol has a room of its own, on top of this one."""

from headway.server.peers.base import BasePeer
from headway.server.peers.states import CLOSING, OPEN, WAITING, ClientState

__all__ = [
    "BasePeer", "ClientState", "CLOSING", "OPEN", "WAITING",
]
