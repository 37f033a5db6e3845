"""Transactions: commands that a client puts off until its commit. A large commit takes several turns.

Rules:
- Before the commit nothing is done, and if the channel or the connection ends first, nothing ever is. Once the commit
  has begun all of it is done: if the client leaves, it goes on as deferred work of the broker.
- Whether everything can be done is found out before anything is: whether its publishes are permitted, its client still
  has the deliveries that it settles, and queues that refuse what is too much have room.
- Publishes come first, then settlements. A commit of several turns is several commits of the journal. If the broker is
  killed in between, records may be there twice, but none is lost. (The client got no reply in that case.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from headway.core.base import Reason, Refused
from headway.core.clients import Intake
from headway.core.consumer import Channel, Session
from headway.core.log import TRANSACTIONS
from headway.core.message import Run
from headway.server.connections import Steps

TRANSACTION_BYTES = 1500
"""Memory of a transaction in which nothing is."""
STEP_BYTES, ID_BYTES = 600, 100
"""Memory that counts for a step that is put off, and for each delivery that it settles."""


class NoTransaction:
    """The null transaction of a channel without tx.select: nothing is put off."""

    __slots__ = ()

    def named(self, channel: Channel) -> Set[int]:
        return frozenset()

    def publish(self, steps: Steps, runs: Sequence[Run], size: int) -> None:
        raise AssertionError("a channel without transactions puts nothing off")

    def check_at_commit(self, check: Callable[[], None]) -> None:
        raise AssertionError("a channel without transactions puts nothing off")

    def settle(self, steps: Steps, channel: Channel, tags: Sequence[int]) -> None:
        raise AssertionError("a channel without transactions puts nothing off")

    def forget(self) -> None: ...


NO_TRANSACTION = NoTransaction()


class Transaction:
    __slots__ = (
        "_bytes", "_checks", "_named", "_publishing", "_session", "_settling", "_spoilt", "commit", "runs",
    )  # fmt: skip

    def __init__(self, session: Session) -> None:
        self.commit: Steps = iter(())
        """Steps of the commit, once it has begun."""
        self._session = session
        self._bytes = 0
        self._named: dict[Channel, set[int]] = {}
        """Deliveries that the commit will settle."""
        self._publishing: list[tuple[Steps, int]] = []
        self.runs: list[Run] = []
        """Records that the commit will publish."""
        self._checks: list[Callable[[], None]] = []
        """Permissions of publishes, for a reload may change them before the commit."""
        self._settling: list[tuple[Steps, int]] = []
        self._spoilt: Refused | None = None
        self._put_on_tab(TRANSACTION_BYTES)

    def named(self, channel: Channel) -> Set[int]:
        """Returns the deliveries of a channel that the commit will settle."""
        return self._named.get(channel, frozenset())

    def publish(self, steps: Steps, runs: Sequence[Run], size: int) -> None:
        """Puts a publish off. Raises :class:`Refused` if there is no memory for it; that closes the channel."""
        self._publishing.append((steps, self._put_on_tab(STEP_BYTES + size)))
        self.runs += runs

    def check_at_commit(self, check: Callable[[], None]) -> None:
        self._checks.append(check)

    def spoil(self, fault: Refused) -> None:
        """Notes that something in it was refused. Its commit is, too, for the client may not have waited for an
        answer."""
        if not self._spoilt:
            self._spoilt = fault
            self._checks.insert(0, self._refuse)

    def _refuse(self) -> None:
        assert self._spoilt is not None
        raise self._spoilt

    def check(self, intake: Intake, now: float) -> None:
        """Raises :class:`Refused` if not everything can be done any more; then it is forgotten."""
        try:
            self._check(intake, now)
        except Refused:
            self.forget()
            raise

    def _check(self, intake: Intake, now: float) -> None:
        for check in self._checks:
            check()
        named = self._named.items()
        if any(channel.closed or not all(map(channel.holds, tags)) for channel, tags in named):
            text = "a delivery that the transaction settles is not its client's any more"
            raise Refused(Reason.PRECONDITION_FAILED, text)
        intake.check_room(self.runs, now)

    def must_wait(self, intake: Intake, now: float) -> bool:
        """Tells whether there is no room yet for what the commit will publish."""
        return intake.short_of_room and any(intake.must_wait(self._session, run, now) for run in self.runs)

    def settle(self, steps: Steps, channel: Channel, tags: Sequence[int]) -> None:
        """Puts a settlement off. Raises :class:`Refused` like ``publish``."""
        self._settling.append((steps, self._put_on_tab(STEP_BYTES + ID_BYTES * len(tags))))
        self._named.setdefault(channel, set()).update(tags)

    def done(self) -> Steps:
        """Does everything that was put off, in steps."""
        self.runs = []
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
