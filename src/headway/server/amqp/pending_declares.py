"""Pending declares: a reply that something durable is declared, or deleted, is sent once the journal has that.

While such a reply is pending, only further declarations of the client are handled. So all replies keep their order, and
a hundred declarations in a row wait for one commit. Without a journal, or if nothing durable is asked for, no reply
waits.
"""

from __future__ import annotations

from headway.server.amqp.declaring import METHODS
from headway.server.connections import Connection, PendingReplies
from headway.server.journal import JournalWriter
from headway.wire.amqp.items import Item, Method


class PendingDeclares(PendingReplies):
    __slots__ = ("_held",)

    def __init__(self, connection: Connection, journal: JournalWriter | None) -> None:
        super().__init__(connection, journal)
        self._held = False

    def hold_up(self, item: Item) -> bool:
        """Returns whether an item has to wait for pending replies; stops reading if so."""
        if type(item) is Method and type(item.command) in METHODS:
            return False
        self._held = True
        self._connection.pause_reading("journal")
        return True

    def fewer(self) -> None:
        if self._held and not self.waiting:
            self._held = False
            self._connection.resume_reading("journal")
