"""Backpressure: what holds a publisher back, and what lets it go on.

A publisher that is held back is *not read*: its socket fills up, and its own ``send`` has to wait. Nothing is lost by
that. ``Backpressure`` alone decides it, and knows all publishers for which it is so, with the causes:

============= =============== =============================================== ======================================
cause         held back by    found by                                        goes on
============= =============== =============================================== ======================================
slow_consumer ``Feed``        ``Appending``: the policy of a consumer, or of  with ``gate_opened``: the consumer has
                              a queue, is to ``block_publishers``             caught up, or ended, or another came
promised      ``Lane``        ``Appending``: confirmed records that nobody    with ``Relief``: they were taken
                              takes use up a lane's share of memory and disk
memory        ``Pool``        ``Appending``: a pool is above its marks        with ``Relief``: records went to disk,
                              (log/lanes/pool.py)                             or consumers were disconnected
large_record  ``RoomWanted``  ``Publishing.lacks_room``: the next record,     with ``Relief``: there is room for it,
                              times its lanes, does not fit in                or there never will be
wide_record   ``WideRecords`` ``Publishing.lacks_room``: a record before it   in each turn one publisher, when none
                              is on its way to very many lanes                is on its way any more
journal       ``Ledger``      ``Publishing``: the journal cannot follow       when half of what waits is written
publish_rate  ``Allowance``   ``keep_to_rate``: the user has published as     with a timer, when that is paid for
                              much as a ``[[limit]]`` permits
============= =============== =============================================== ======================================

``headway_publishers_waiting{cause}`` counts them. The console, ``GET /v1/publishers``, ``headway top`` and protocols
that have a word for it (AMQP's ``connection.blocked``) tell each publisher's causes.

What a publisher sent may also be *put off* to the next turns. That is no cause: it ends by itself, and nobody is told.
It happens when its connection's share of the turn is used up (server/connections/turn_budget.py), and while records
before it are not yet offered to all consumers, or queues have records to drop first (``Intake.must_wait``).

Nor is a connection read while its client does not read its replies, while its password is checked, and while its last
bytes are handled (``Connection.reading_paused_by``). No consumer and no memory has a part in that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from headway.core.allowance import Allowance
from headway.core.base import DeferredWork, Timers, WorkSteps, format_size
from headway.core.consumer import Effect, Feed, Pause, Resume, Session
from headway.core.log import Coming, Lane, Ledger, Pool, RoomWanted


class WideRecords:
    """Records on their way to very many lanes (routing/publishing.py). Publishers whose next record goes to as many
    wait for them, and go on one by one, in the order in which they came."""

    def __init__(self) -> None:
        self.coming: dict[Coming, None] = {}


Holdup = Feed | Lane | Pool | RoomWanted | WideRecords | Ledger | Allowance
"""An object that holds publishers back."""
CAUSES: dict[type, str] = {
    Feed: "slow_consumer", Lane: "promised", Pool: "memory", RoomWanted: "large_record", WideRecords: "wide_record",
    Ledger: "journal", Allowance: "publish_rate",
}  # fmt: skip
RESUME_WORK = 4
"""The work of resuming one publisher."""


def cause_of(by: object) -> str:
    """Returns the name of a cause; ``by`` is a ``Holdup``."""
    return next(name for kind, name in CAUSES.items() if isinstance(by, kind))


def pause_reason(by: object) -> str:
    """Returns, in words, why a publisher has to wait; ``by`` is a ``Holdup``."""
    match by:
        case Feed():
            return "consumers cannot keep up"
        case Lane():
            return f"records that consumers do not take use up their room ({format_size(by.memory_bytes)} of memory)"
        case WideRecords():
            return "a record before its next one is on its way to very many consumers"
        case Allowance():
            return by.wait_reason
        case Pool():
            return f"the memory for {by.topic[:100]!a} is used up" if by.topic else "memory is used up"
        case RoomWanted():
            return (f"its next record takes up {format_size(by.size)} in all lanes together, for which there is no "
                    f"room yet")  # fmt: skip
        case _:
            return "the journal cannot follow"


def is_out_of_room(paused_by: Iterable[object]) -> bool:
    """Returns whether publishers wait for memory, and not for consumers that gate them or for a rate."""
    return any(isinstance(by, Lane | Pool | RoomWanted) for by in paused_by)


class Backpressure:
    """All publishers that are held back. A publisher goes on when nothing holds it back any more."""

    def __init__(self, tell: Callable[[Effect], None], timers: Timers, deferred: DeferredWork) -> None:
        """``tell`` has an effect carried out."""
        self._tell = tell
        self._timers = timers
        self._deferred = deferred
        self.wide = WideRecords()
        self.waiting: dict[Holdup, dict[Session, None]] = {}
        """Publishers that are not read, by what holds them back, in the order in which they came."""
        self.publishers = 0
        """The number of publishers that are held back."""
        self.by_cause = dict.fromkeys(CAUSES.values(), 0)
        """So many are held back by a cause. One that is held back by two things counts for both."""

    def pause(self, session: Session, by: Holdup, now: float) -> None:
        """Holds a publisher back until ``resume(by)``."""
        if not session.connected:
            return
        if not session.paused_by:
            session.paused_since_s = now
            session.pauses += 1
            self.publishers += 1
            self._tell(Pause(session, session.outlet, pause_reason(by)))
        if by not in session.paused_by:
            session.paused_by[by] = None
            self.by_cause[cause_of(by)] += 1
        if isinstance(by, Feed):
            self.gate_shut(by, now)
        self.waiting.setdefault(by, {})[session] = None

    def resume(self, by: Holdup, now: float) -> None:
        """Lets publishers go on that waited only for this: as many as this turn has work left for, and the others in
        the turns to come."""
        waiting = self.waiting.pop(by, None)
        if waiting:
            self._deferred.begin(self._resume_all(waiting, by), now, client=by)

    def _resume_all(self, waiting: dict[Session, None], by: Holdup) -> WorkSteps:
        for session in waiting:
            self._resume(session, by, self._deferred.now)
            yield RESUME_WORK

    def _resume(self, session: Session, by: Holdup, now: float) -> None:
        if self._let_go(session, by, now):
            self._tell(Resume(session))

    def _let_go(self, session: Session, by: object, now: float) -> bool:
        """Ends one cause for a publisher. Returns whether it was the last."""
        if by not in session.paused_by:
            return False  # its connection has ended meanwhile
        del session.paused_by[by]
        self.by_cause[cause_of(by)] -= 1
        if session.paused_by:
            return False
        self.publishers -= 1
        session.stalled_s += now - session.paused_since_s
        return True

    def leaves(self, session: Session, now: float) -> None:
        """Forgets a publisher whose connection ends. One that comes back is held back anew by its first record."""
        for by in list(session.paused_by):
            self._let_go(session, by, now)
            waiting = self.waiting.get(by, {})
            waiting.pop(session, None)
            if not waiting:
                self.waiting.pop(by, None)

    # -- wide records -------------------------------------------------------------------------------------------------

    @property
    def next_is_due(self) -> bool:
        """Whether a publisher waits for wide records."""
        return self.wide in self.waiting

    def resume_next(self, now: float) -> None:
        """Lets the publisher go on that has waited longest for wide records, if none is on its way any more."""
        waiting = self.waiting.get(self.wide)
        if waiting is None or self.wide.coming:
            return
        session = next(iter(waiting))
        del waiting[session]
        if not waiting:
            del self.waiting[self.wide]
        self._resume(session, self.wide, now)

    # -- gates --------------------------------------------------------------------------------------------------------

    def gate_shut(self, feed: Feed, now: float) -> None:
        """Notes since when publishers to a feed are held back, if they are."""
        if feed.gated and not feed.was_gated:
            feed.was_gated, feed.gated_since_s = True, now

    def gate_opened(self, feed: Feed, now: float) -> None:
        """Lets publishers go on, after a gate of the feed was opened or its queue got another consumer."""
        if feed.gated:
            self.gate_shut(feed, now)  # by those that are left
            own = next(gate.session for gate in feed.gates if gate.reader.gates)
            waiting = self.waiting.get(feed, {})
            if own in waiting and not feed.holds_back(own):  # a publisher never waits for itself
                del waiting[own]
                if not waiting:
                    del self.waiting[feed]
                self._resume(own, feed, now)
            return
        if feed.was_gated:
            feed.was_gated = False
            feed.gated_s += now - feed.gated_since_s
        self.resume(feed, now)

    # -- rates --------------------------------------------------------------------------------------------------------

    def spend(self, session: Session, now: float) -> None:
        """Counts what the client has published since the last call, and has it wait if its user may publish no more."""
        records, size = session.published_records, session.published_bytes
        session.allowance.spend(records - session.spent_records, size - session.spent_bytes, now)
        session.spent_records, session.spent_bytes = records, size
        self.keep_to_rate(session, now)

    def keep_to_rate(self, session: Session, now: float) -> None:
        """Has the publisher wait if its user has published as much as it may for now."""
        allowance = session.allowance
        wait_s = allowance.wait_s(now)
        if wait_s > 0 and session.connected:
            if allowance not in session.paused_by:
                allowance.waits()
            self.pause(session, allowance, now)
            if not allowance.timer.waits:
                allowance.timer = self._timers.at(now + wait_s, partial(self._paid, allowance))

    def _paid(self, allowance: Allowance, now: float) -> None:
        """Lets publishers go on if what their user has published is paid for; others may have published meanwhile."""
        wait_s = allowance.wait_s(now)
        if wait_s > 0:
            allowance.timer = self._timers.at(now + wait_s, partial(self._paid, allowance))
        else:
            self.resume(allowance, now)

    def resume_rates(self, now: float) -> None:
        """Lets all go on that wait for a rate, which may be another now. They wait again if they have to."""
        for by in [by for by in self.waiting if isinstance(by, Allowance)]:
            self.resume(by, now)
