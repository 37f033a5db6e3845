"""Pending attaches: a durable subscription is confirmed once the journal has it. Until then its link is sent nothing,
for a client knows no link before it is attached."""

from __future__ import annotations

from typing import Protocol

from headway.core.consumer import Subscription
from headway.server.connections import Connection, PendingReplies
from headway.server.journal import JournalWriter


class Beginning(Protocol):
    """A link whose attach is not sent yet."""

    consumer: Subscription

    def let_on(self) -> None: ...


class PendingAttaches(PendingReplies):
    __slots__ = ("_links",)

    def __init__(self, connection: Connection, journal: JournalWriter | None) -> None:
        super().__init__(connection, journal)
        self._links: list[Beginning] = []

    def attach(self, frame: bytes, link: Beginning, channel: int) -> None:
        """Sends an attach once the journal has what was said to it so far."""
        link.consumer.let_flow(False)
        self._links.append(link)
        self.send(frame, kept=True, channel=channel)
        self.fewer()

    def fewer(self) -> None:
        if not self.waiting:
            links, self._links = self._links, []
            for link in links:
                if not link.consumer.ended:
                    link.consumer.let_flow(True)
                    link.let_on()
