"""Parts of a peer, which know it until its connection has ended."""

from __future__ import annotations

from typing import Generic, TypeVar

from headway.server.peers.login_side import LoginSide

Side = TypeVar("Side", bound=LoginSide)


class PeerPart(Generic[Side]):
    __slots__ = ("_peer",)

    def __init__(self, peer: Side) -> None:
        self._peer = peer

    def over(self) -> None:
        """Drops the peer when the connection has ended, so that no cycle is left."""
        del self._peer
