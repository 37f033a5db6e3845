"""Pretended sockets: a buffer of limited size that the client on the far side empties at its own pace, or never."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from headway.core.consumer.connection.outlet import Outlet, PeerState
from headway.core.log.lanes.chunk import SpillHandle


class PretendedOutlet(Outlet):
    """``sink`` gets every byte that was taken, in order. ``taken - drained`` bytes are in the buffer."""

    __slots__ = ("_rng", "_shy", "capacity", "drained", "open", "sink", "taken", "waits")

    def __init__(self, now: float, capacity: int, rng: Random, shy: float, sink: Callable[[bytes], None]) -> None:
        super().__init__(now)
        self.capacity = capacity
        self.sink = sink
        self.open = True
        self.waits = False
        """The broker wants to be told when there is room."""
        self.taken = 0
        self.drained = 0
        self._rng = rng
        self._shy = shy
        """How often less is taken than there is room for."""

    def _take(self, data: bytes) -> int:
        if not self.open:
            return 0
        count = min(len(data), self.capacity - (self.taken - self.drained))
        if count and self._rng.random() < self._shy:
            count = self._rng.randint(0, count)
        if count:
            self.taken += count
            self.sink(data[:count])
        return count

    def send(self, views: Sequence[bytes | bytearray | memoryview], total: int) -> int:
        data = b"".join(views)
        assert 0 < len(data) == total, f"{total} bytes announced, {len(data)} offered"
        return self._take(data)

    def send_file(self, handle: SpillHandle, start: int, count: int) -> int:
        assert count > 0
        return self._take(handle.read(start, start + count))

    def wait_writable(self) -> None:
        self.waits = True

    def peer(self) -> PeerState:
        return PeerState(self._rng.random() < 0.2, self._rng.random() < 0.5)
