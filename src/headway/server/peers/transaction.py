"""Transactions: commands that a client puts off until its commit. A large commit takes several turns.

Rules:
- Before the commit nothing is done, and if the channel or the connection ends first, nothing ever is. Once the commit
  has begun all of it is done: if the client leaves, it goes on as deferred work of the broker.
- Whether everything can be done is found out before anything is, a share in each turn: whether its publishes are
  permitted, its client still has the deliveries that it settles, and queues that refuse what is too much have room.
- A commit that publishes begins when there is room for all of it, because it is done whatever there is from then on. If
  the client leaves before, it is dropped as a whole: clients that come and leave again and again would otherwise fill
  the broker.
- Publishes come first, then settlements. A commit of several turns is several commits of the journal. If the broker is
  killed in between, records may be there twice, but none is lost. (The client got no reply in that case.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

from headway.core.base import Reason, Refused
from headway.core.consumer import Channel, Session
from headway.core.log import TRANSACTIONS
from headway.core.message import Run
from headway.server.connections import Steps
from headway.server.peers.base import BasePeer

TRANSACTION_BYTES = 1500
"""Memory of a transaction in which nothing is."""
STEP_BYTES, ID_BYTES = 600, 100
"""Memory that counts for a step that is put off, and for each delivery that it settles."""
LOOKS, LOOKS_PER_WORK = 64, 2
"""Runs for which a commit waits for room in one step, and how many of these looks are one unit of work."""


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
        "_bytes", "_checks", "_named", "_publishing", "_session", "_settling", "_spoilt", "begun", "commit", "runs",
    )  # fmt: skip

    def __init__(self, session: Session) -> None:
        self.commit: Steps = iter(())
        """Steps of the commit, once it has begun."""
        self.begun = False
        """Whether some of it may be done: it is rolled back no more."""
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

    def check_named(self) -> None:
        """Raises :class:`Refused` if the client does not have a delivery any more that is to be settled; then it is
        forgotten. Asked when the commit begins, for a client that leaves then has none."""
        named = self._named.items()
        if any(channel.closed or not all(map(channel.holds, tags)) for channel, tags in named):
            self.forget()
            text = "a delivery that the transaction settles is not its client's any more"
            raise Refused(Reason.PRECONDITION_FAILED, text)

    def _check(self, peer: BasePeer[Any]) -> Steps:
        """Raises :class:`Refused` if not everything can be done any more."""
        for check in self._checks:
            check()
            yield 1
        yield from peer.engine.broker.intake.check_room(self.runs, peer.engine.now)

    def settle(self, steps: Steps, channel: Channel, tags: Sequence[int]) -> None:
        """Puts a settlement off. Raises :class:`Refused` like ``publish``."""
        self._settling.append((steps, self._put_on_tab(STEP_BYTES + ID_BYTES * len(tags))))
        self._named.setdefault(channel, set()).update(tags)

    def done(self, peer: BasePeer[Any], gone: Callable[[], bool]) -> Steps:
        """Does everything that was put off, in steps. Raises :class:`Refused`; what came before that stays. ``gone``
        tells whether the commit goes on without its client, and cannot wait."""
        try:
            yield from self._check(peer)
            yield from self._room(peer, gone)
            self.begun, self.runs = True, []
            for some in (self._publishing, self._settling):
                for steps, size in some:
                    yield from steps
                    self._take_off_tab(size)
        finally:
            self.forget()

    def _room(self, peer: BasePeer[Any], gone: Callable[[], bool]) -> Steps:
        """Waits until there is room for what the commit publishes. Raises :class:`Refused` if the client leaves before
        that."""
        intake, waited = peer.engine.broker.intake, False
        for at, run in enumerate(self.runs, 1):
            while not gone() and (peer.must_wait or intake.must_wait(self._session, run, peer.engine.now())):
                if peer.connection.leaving:
                    break
                waited = True
                yield 0
            waited = waited or (gone() and intake.crowds(run))
            if not at % LOOKS:
                yield LOOKS // LOOKS_PER_WORK
        if self.runs and peer.left_without_room(self._session, self.runs, gone=gone(), waited=waited):
            raise Refused(Reason.MEMORY_LIMIT, "the client leaves, and there is no room for what it published")

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
