"""Transactions: commands that a client puts off until its commit. A large commit takes several turns.

Rules:
- Before the commit nothing is done, and if the channel or the connection ends first, nothing ever is. Once the commit
  has begun all of it is done: if the client leaves, it goes on as deferred work of the broker.
- Whether everything can be done is found out before anything is.
- Publishes come first, then settlements. A commit of several turns is several commits of the journal. If the broker is
  killed in between, records may be there twice, but none is lost. (The client got no reply in that case.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headway.core.consumer import Session
from headway.core.log import TRANSACTIONS
from headway.server.connections import Steps

TRANSACTION_BYTES = 1500
"""Memory of a transaction in which nothing is."""
STEP_BYTES, ID_BYTES = 600, 100
"""Memory that counts for a step that is put off, and for each delivery that it settles."""


class NoTransaction:
    """The null transaction of a channel without tx.select: nothing is put off."""

    __slots__ = ()

    named: frozenset[int] = frozenset()

    def publish(self, steps: Steps, size: int) -> None:
        raise AssertionError("a channel without transactions puts nothing off")

    def check_at_commit(self, check: Callable[[], None]) -> None:
        raise AssertionError("a channel without transactions puts nothing off")

    def settle(self, steps: Steps, tags: Sequence[int]) -> None:
        raise AssertionError("a channel without transactions puts nothing off")

    def forget(self) -> None: ...


NO_TRANSACTION = NoTransaction()


class Transaction:
    __slots__ = ("_bytes", "_checks", "_publishing", "_session", "_settling", "commit", "named")

    def __init__(self, session: Session) -> None:
        self.named: set[int] = set()
        """Deliveries that the commit will settle."""
        self.commit: Steps = iter(())
        """Steps of the commit, once it has begun."""
        self._session = session
        self._bytes = 0
        self._publishing: list[tuple[Steps, int]] = []
        self._checks: list[Callable[[], None]] = []
        """Permissions of publishes, for a reload may change them before the commit."""
        self._settling: list[tuple[Steps, int]] = []
        self._put_on_tab(TRANSACTION_BYTES)

    def publish(self, steps: Steps, size: int) -> None:
        """Puts a publish off. Raises :class:`Refused` if there is no memory for it; that closes the channel."""
        self._publishing.append((steps, self._put_on_tab(STEP_BYTES + size)))

    def check_at_commit(self, check: Callable[[], None]) -> None:
        self._checks.append(check)

    def check(self) -> None:
        """Raises :class:`Refused` if a publish is not permitted any more."""
        for check in self._checks:
            check()

    def settle(self, steps: Steps, tags: Sequence[int]) -> None:
        """Puts a settlement off. Raises :class:`Refused` like ``publish``."""
        self._settling.append((steps, self._put_on_tab(STEP_BYTES + ID_BYTES * len(tags))))
        self.named.update(tags)

    def done(self) -> Steps:
        """Does everything that was put off, in steps."""
        for some in (self._publishing, self._settling):
            for steps, size in some:
                yield from steps
                self._take_off_tab(size)
        self.forget()

    def forget(self) -> None:
        """Gives its memory back, because it is dropped or its session has ended."""
        self._take_off_tab(self._bytes)

    def _put_on_tab(self, size: int) -> int:
        """Counts the memory; without that, a transaction could grow without limit. Raises :class:`Refused`."""
        self._session.tab.check(size)
        self._session.tab.add(TRANSACTIONS, size)
        self._bytes += size
        return size

    def _take_off_tab(self, size: int) -> None:
        size = min(size, self._bytes)
        self._session.tab.add(TRANSACTIONS, -size)
        self._bytes -= size
