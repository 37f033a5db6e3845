"""One consumer of JMS, with its core channel and the subscriptions that it reads.

Rules:
- The prefetch is the credit. A consumer of queues settles deliveries by their numbers, which are those of its channel.
  A consumer of topics settles records by how many they are (``CountedWindow``).
- An acknowledgement of the type *delivered* settles nothing: it makes the window larger, until the same messages are
  acknowledged for good. So a transaction may be larger than the prefetch.
- A consumer with a prefetch of 0 asks for each message (MessagePull): its window is opened by one.
"""

from __future__ import annotations

from asyncio import TimerHandle

from headway.core.consumer import NO_LIMIT, Channel, CountedWindow, Session, Subscription
from headway.wire.openwire.commands import ConsumerInfo
from headway.wire.openwire.marshalling import ConsumerId


class Consumer:
    __slots__ = ("channel", "extra", "id", "info", "pull", "slot", "subscriptions", "windows", "wishes", "written")

    def __init__(self, info: ConsumerInfo, slot: int, written: bytes, session: Session) -> None:
        self.info = info
        self.id: ConsumerId = info.consumer
        self.slot = slot
        """The consumer's number on the connection, from 1 on; one that was free."""
        self.written = written
        """The consumer's id as it is written in deliveries."""
        self.channel = Channel(info.prefetch, NO_LIMIT, slot, session.number, session.channel.in_flight_bytes)
        self.channel.whole = session.channel
        self.subscriptions: list[Subscription] = []
        self.windows: list[CountedWindow] = []
        """Those of its subscriptions to topics."""
        self.wishes: tuple[list[tuple[str, str]], str | None] = [], None
        """The hints and the condition of its selector."""
        self.extra = 0
        """By how much the window is larger than the prefetch, for messages that are delivered and not settled."""
        self.pull: TimerHandle | None = None
        """Ends the wait for a message that was asked for."""

    @property
    def prefetch(self) -> int:
        return self.info.prefetch

    @property
    def limit(self) -> int:
        return self.info.prefetch + self.extra

    @property
    def in_flight(self) -> int:
        """Deliveries that are not settled."""
        for subscription in self.subscriptions:
            subscription.note_sent()
        return self.channel.used + sum(window.used for window in self.windows)

    def stop_waiting(self) -> None:
        if self.pull is not None:
            self.pull.cancel()
            self.pull = None
