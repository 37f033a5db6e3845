"""Outlets: where one session's bytes go. The server's is a socket, the simulator's a pretended one.

There is no write buffer for records: they go from the lane to the outlet, or they stay in the lane. ``out`` holds only
whole frames that are this consumer's alone (replies, and records rendered for it), and the core renders no further
record while any of them wait, so it stays small.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from headway.core.log import SpillHandle


class Outlet(ABC):
    """One connection, as the core sees it. Times are seconds on the broker's clock."""

    __slots__ = ("blocked", "out", "progress_s", "taken_bytes")

    def __init__(self, now: float) -> None:
        self.out = bytearray()
        self.blocked = False
        """The last attempt took less than was offered; the server calls ``Broker.writable`` when there is room."""
        self.progress_s = now
        """When bytes were last taken, or last began to wait."""
        self.taken_bytes = 0

    @abstractmethod
    def send(self, views: Sequence[bytes | bytearray | memoryview], total: int) -> int:
        """Offer ``total`` bytes; returns how many were taken (0 when none could be, or the peer is gone)."""

    @abstractmethod
    def send_file(self, handle: SpillHandle, start: int, count: int) -> int:
        """Offer part of a spilled chunk, without copying it through this process. Raises OSError if the disk fails."""

    @abstractmethod
    def wait_writable(self) -> None:
        """Ask to be told, once, when there is room again."""

    @abstractmethod
    def peer(self) -> PeerState:
        """What the transport knows about a peer that does not read; asked only for a verdict."""

    def took(self, count: int, total: int, now: float) -> bool:
        """Note the outcome of an offer. Returns whether everything was taken."""
        if count:
            self.taken_bytes += count
            self.progress_s = now
        if count == total:
            return True
        if not self.blocked:
            self.blocked = True
            self.progress_s = now
            self.wait_writable()
        return False

    def blocked_s(self, now: float) -> float:
        """For how long nothing has been taken while something waited."""
        return now - self.progress_s if self.blocked else 0.0


class PeerState:
    """Hints for a verdict's cause."""

    __slots__ = ("retransmitting", "window_closed")

    def __init__(self, retransmitting: bool = False, window_closed: bool = False) -> None:
        self.retransmitting = retransmitting
        """Bytes are on their way and the peer's host does not confirm them: the network, or a dead host."""
        self.window_closed = window_closed
        """The peer's host is there, but its application does not read."""
