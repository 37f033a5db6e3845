"""An outlet is the receiver of one session's bytes. In the server it is a socket, in the simulator a model of one.

There is no write buffer for records: they go from the lane to the outlet, or they stay in the lane. ``out`` holds only
whole frames that are for this client alone: replies, and records that were rendered for it. It stays small, because the
core renders no further record while there is something in it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf
from typing import Final, NamedTuple, NoReturn

from headway.core.log import SpillHandle


class Pace(NamedTuple):
    """How a client takes bytes, for the meters of its consumers."""

    stands_since_s: float
    """Since when bytes have waited and none was taken; ``inf``: none wait."""
    usual_pause_s: float = 0.0
    """How long the client usually stands still between two steps; 0: not known."""
    unacknowledged_bytes: int = 0
    """Bytes that were taken from here and have not reached the client."""
    lump_bytes: float = 0.0
    """So much may the client have read of what it has not acknowledged; ``ANY_LUMP_BYTES``: nobody can tell."""
    unread_since_s: float = inf
    """Since when the client is known to have read nothing, while bytes wait; ``inf``: no longer than it stands still.
    """
    unread_pause_s: float = 0.0
    """How long it usually reads nothing; no less than ``usual_pause_s`` counts."""


class Outlet(ABC):
    """One connection. Times are seconds on the broker's clock."""

    __slots__ = ("blocked", "out", "progress_s", "taken_bytes")
    told_of_ends = False
    """Whether the client is told of each of its subscriptions that ends while it is connected (``Cancelled``)."""
    is_one_stream = False
    """Whether the client has one subscription and nothing else, and leaves with it."""
    keeps_its_name = False
    """Whether a client of another protocol that connects under this one's name is refused, instead of taking over."""

    def __init__(self, now: float) -> None:
        self.out = bytearray()
        self.blocked = False
        """The last offer was not taken whole. The server calls ``Broker.writable`` when there is room again."""
        self.progress_s = now
        """When bytes were last taken, or when they last began to wait."""
        self.taken_bytes = 0

    @abstractmethod
    def send(self, views: Sequence[bytes | bytearray | memoryview], total: int) -> int:
        """Offers ``total`` bytes, one at least. Returns how many were taken: 0 when there was no room, or the peer is
        gone."""

    @abstractmethod
    def send_file(self, handle: SpillHandle, start: int, count: int) -> int:
        """Offers part of a spilled chunk, without copying it through this process. Raises OSError if the disk fails."""

    @property
    def closes_consumers(self) -> bool:
        """Tells whether its protocol can close one of the client's subscriptions, and tell the client so."""
        return False

    @abstractmethod
    def wait_writable(self) -> None:
        """Asks to be called once when there is room again."""

    def freshen(self, *, soon: bool = False) -> None:  # noqa: B027
        """Lets only few bytes wait below here, from now on, where no client gets less by that: records that wait in a
        lane or a state can still be replaced by newer ones. Called often. ``soon``: they may be, as soon as the client
        is slow; what two kernels hold by then is too late."""

    @property
    def room_bytes(self) -> float:
        """Returns how much is taken at once, for a client that wants what is new: no more need be rendered for it."""
        return inf

    @abstractmethod
    def peer(self) -> PeerState:
        """Returns what the transport knows about a peer that does not read. Called only for a verdict."""

    def seen_bytes(self) -> int:
        """Returns how many of the taken bytes the client has read, about."""
        return self.taken_bytes

    def pace(self, now: float) -> Pace:
        """Returns how the client takes bytes. Asked at each look at a consumer that lags."""
        return Pace(self.blocked_since_s)

    def took(self, count: int, total: int, now: float) -> bool:
        """Notes the outcome of an offer. Returns whether everything was taken."""
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

    @property
    def blocked_since_s(self) -> float:
        """Returns since when bytes have waited and none was taken; ``inf``: none wait."""
        return self.progress_s if self.blocked else inf

    def blocked_s(self, now: float) -> float:
        """Returns for how many seconds bytes have waited and none was taken."""
        return max(0.0, now - self.blocked_since_s)


class NullOutlet(Outlet):
    """The outlet of every client that is not connected. It is always blocked, so nothing is ever offered to it.

    Its properties are constants of the class: to write to ``out``, or to unblock it, raises AttributeError. So no byte
    is lost here unnoticed."""

    __slots__ = ()
    out = b""  # type: ignore[assignment]  # not a bytearray, to which one could add
    blocked = True
    progress_s = -inf
    """A byte was never taken."""
    taken_bytes = 0
    blocked_since_s = inf
    """A client that is away is not slow: no bytes wait for it here."""

    def __init__(self) -> None:
        pass

    def send(self, views: Sequence[bytes | bytearray | memoryview], total: int) -> NoReturn:
        raise AssertionError("bytes for a client that is not connected")

    def send_file(self, handle: SpillHandle, start: int, count: int) -> NoReturn:
        raise AssertionError("a file for a client that is not connected")

    def wait_writable(self) -> NoReturn:
        raise AssertionError("a client that is not connected never has room")

    def peer(self) -> PeerState:
        return PeerState()

    def took(self, count: int, total: int, now: float) -> NoReturn:
        raise AssertionError("nothing is offered to a client that is not connected")


NO_OUTLET: Final = NullOutlet()
"""The outlet of all clients that are not connected."""


class PeerState:
    """Hints for the cause in a verdict: what a transport knows about its peer."""

    __slots__ = ("retransmitting", "window_closed")

    def __init__(self, retransmitting: bool = False, window_closed: bool = False) -> None:
        self.retransmitting = retransmitting
        """The peer's host does not confirm the bytes that were sent: the network is broken, or the host is down."""
        self.window_closed = window_closed
        """The peer's host is up, but its application does not read."""
