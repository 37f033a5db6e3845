"""Pending replies: the broker confirms a record to its publisher only when the journal has it."""

from __future__ import annotations

from collections import deque

from headway.server.connections.connection import Connection
from headway.server.journal import JournalWriter


class PendingReplies:
    """Pending replies of one connection, in the order in which they are sent. Without a journal none of them waits."""

    __slots__ = ("_connection", "_journal", "_waiting")

    def __init__(self, connection: Connection, journal: JournalWriter | None) -> None:
        self._connection = connection
        self._journal = journal
        self._waiting: deque[tuple[int, bytes, int]] = deque()
        """Replies that wait: the commit, the frame, and the channel it is sent on."""

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def send(self, frame: bytes, *, kept: bool, channel: int = 0) -> None:
        """Sends a reply; if ``kept``, once everything told to the journal so far is there. Order is preserved."""
        number = 0 if self._journal is None or not kept else self._journal.wait(self)
        if number or self._waiting:
            self._waiting.append((max(number, self._waiting[-1][0] if self._waiting else 0), frame, channel))
        else:
            self._connection.out += frame

    def drop_channel(self, channel: int) -> None:
        """Drops the replies of a channel that is closed: nothing more may be sent on it."""
        if self._waiting:
            self._waiting = deque(answer for answer in self._waiting if answer[2] != channel)
        self.fewer()

    def fewer(self) -> None:
        """Called when some of the replies may have gone."""

    def on_commit(self, number: int) -> None:
        """Sends what waited for commits up to this one, which the journal now has."""
        waiting, connection = self._waiting, self._connection
        if not connection.open:
            waiting.clear()
            self.fewer()
            return
        while waiting and waiting[0][0] <= number:
            connection.out += waiting.popleft()[1]
        if waiting and self._journal is not None:
            self._journal.wait(self)
        connection.out_soon()
        self.fewer()


class HoldingReplies(PendingReplies):
    """Pending replies that hold up what the client asks for behind them: that something durable is there, or is gone.

    While one is pending, only more requests of its kind are handled. So all replies keep their order, and a hundred
    such requests in a row wait for one commit. Without a journal, or if nothing durable is asked for, none waits."""

    __slots__ = ("_held",)

    def __init__(self, connection: Connection, journal: JournalWriter | None) -> None:
        super().__init__(connection, journal)
        self._held = False

    def hold(self) -> bool:
        """Stops reading until no reply is pending. Returns True."""
        self._held = True
        self._connection.pause_reading("journal")
        return True

    def fewer(self) -> None:
        if self._held and not self.waiting:
            self._held = False
            self._connection.resume_reading("journal")
