"""A pretended socket that takes apart what it is offered: a delivery counts from its first byte that was taken.

What is left of a delivery half taken must wait in ``out``, as it was, and nothing else of the queue's with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random

from tests.core.queue_wire import Delivered, delivery_length, read_delivery
from tests.sim.outlet import PretendedOutlet


class QueueOutlet(PretendedOutlet):
    """``given`` hears of each delivery as it is handed out. Read ones are in ``unread`` until their client takes them.
    """

    __slots__ = ("_given", "_written", "owed", "unread")

    def __init__(self, now: float, capacity: int, rng: Random, shy: float, given: Callable[[Delivered], None]) -> None:
        super().__init__(now, capacity, rng, shy, lambda data: None)
        self.owed = b""
        """What ``out`` must hold."""
        self.unread: deque[tuple[int, Delivered]] = deque()
        """Deliveries, and where in the stream each ends."""
        self._given = given
        self._written = 0
        """Where in the stream that ends which is taken or owed."""

    def answer(self, frame: bytes) -> None:
        """The server writes something of its own."""
        self.out += frame
        self.owed += frame
        self._written += len(frame)

    def send(self, views: Sequence[bytes | bytearray | memoryview], total: int) -> int:
        data = b"".join(views)
        assert 0 < len(data) == total, f"{total} bytes announced, {len(data)} offered"
        if self.owed:
            assert data == self.owed, "something else before the rest of a record half sent"
            count = self._take(data)
            self.owed = self.owed[count:]
            return count
        assert not self.blocked, "offered while it is known to be full"
        count = self._take(data)
        at = 0
        while at < count:
            size = delivery_length(data[at:])
            assert 0 < size <= total - at, "half a delivery offered"
            one = read_delivery(data[at : at + size])
            at += size
            self.unread.append((self._written + at, one))
            self._given(one)
        self.owed = data[count:at]
        self._written += at
        return count

    def check(self) -> None:
        assert bytes(self.out) == self.owed, f"{len(self.out)} bytes are kept, {len(self.owed)} should be"
