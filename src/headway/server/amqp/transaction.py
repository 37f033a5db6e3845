"""Transactions: what a client puts off until its commit, which is done as far as its share goes, a part each turn.

Rules:
- Until the commit nothing of it is done, and nothing if the channel or the connection ends. From the commit on all of
  it is, whoever is still there to see it: if nobody is, it goes on as deferred work of the broker.
- Whether all of it can be done is found out before any of it is.
- What is published comes first, then what is settled. A transaction of more than one turn is more than one commit of
  the journal: a kill of the broker in between may leave records twice, and loses none. (It was not answered.)
"""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.consumer import Session
from headway.core.log import TRANSACTIONS
from headway.server.connections import Steps

STEP_BYTES = 600
ID_BYTES = 100
"""What a step that is put off takes up, and a delivery that it settles."""


class NoTransaction:
    """What a channel has instead of a transaction: nothing is put off."""

    __slots__ = ()

    @property
    def named(self) -> frozenset[int]:
        return frozenset()

    def publish(self, steps: Steps, size: int) -> None:
        raise AssertionError("a channel without transactions puts nothing off")

    def settle(self, steps: Steps, tags: Sequence[int]) -> None:
        raise AssertionError("a channel without transactions puts nothing off")

    def forget(self) -> None: ...


NO_TRANSACTION = NoTransaction()


class Transaction:
    __slots__ = ("_bytes", "_publishing", "_session", "_settling", "commit", "named")

    def __init__(self, session: Session) -> None:
        self.named: set[int] = set()
        """Deliveries that are to be settled."""
        self.commit: Steps = iter(())
        """Its commit."""
        self._session = session
        self._bytes = 0
        self._publishing: list[tuple[Steps, int]] = []
        self._settling: list[tuple[Steps, int]] = []

    def publish(self, steps: Steps, size: int) -> None:
        """Raises :class:`Refused` if there is no memory for it; then the channel ends, and the transaction too."""
        self._publishing.append((steps, self._put_on_tab(STEP_BYTES + size)))

    def settle(self, steps: Steps, tags: Sequence[int]) -> None:
        """Raises :class:`Refused`, too."""
        self._settling.append((steps, self._put_on_tab(STEP_BYTES + ID_BYTES * len(tags))))
        self.named.update(tags)

    def done(self) -> Steps:
        """Do all of it."""
        for some in (self._publishing, self._settling):
            for steps, size in some:
                yield from steps
                self._take_off_tab(size)

    def forget(self) -> None:
        """Nothing of it is done, or it is nobody's any more."""
        self._take_off_tab(self._bytes)

    def _put_on_tab(self, size: int) -> int:
        """A transaction has no end of its own."""
        self._session.tab.check(size)
        self._session.tab.add(TRANSACTIONS, size)
        self._bytes += size
        return size

    def _take_off_tab(self, size: int) -> None:
        size = min(size, self._bytes)
        self._session.tab.add(TRANSACTIONS, -size)
        self._bytes -= size
