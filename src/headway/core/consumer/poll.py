"""Polls: consumers that read what is recorded by themselves, and only say how far they have come. A Spark query is one.

Theory of operation. A poll's cursor stands in the recorded stream, not in a lane: nothing is held for it, and nothing
is sent to it. What waits for it is what the archive has from its offset on. All else is as with any consumer: it is
looked at, judged, shown, cut off; and its place outlives the process, so what it still needs is not trimmed.

- *Blocked* is the time since it last moved on, while records wait.
- What waits is counted in offsets, and in bytes of the recorded topics that its filter touches: at least what it will
  be given, and more where it wants only some of it.
- Of what a policy may do, ``discard`` of the oldest moves its offset; conflation, spooling and
  waiting publishers have nothing to act on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headway.core.base import Reason
from headway.core.consumer.feed import Feed
from headway.core.consumer.options import SubscribeRequest
from headway.core.consumer.outlet import Outlet, PeerState
from headway.core.consumer.reader import Reader
from headway.core.consumer.session import Session
from headway.core.consumer.subscription import Subscription
from headway.core.log import Cursor, SpillHandle
from headway.core.message import Gap
from headway.core.policy import Action, Case, Which


class ArchiveLag(NamedTuple):
    """What is recorded from some offset on."""

    last: int
    """The last offset there is, whether its record is on disk or not."""
    bytes: int
    time_s: float | None
    """When the first of it was published, on the broker's clock; None: there is nothing."""


class ArchiveIndex(Protocol):
    """As much of the archive as a poll needs."""

    def lag(self, filter: str, offset: int) -> ArchiveLag:
        """What is recorded of the topics that the filter touches from this offset on."""


class ConnectionlessOutlet(Outlet):
    """The outlet of somebody who takes nothing, and only tells. ``last_word``: why the broker ended it."""

    __slots__ = ("last_word",)

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self.blocked = True
        self.last_word: tuple[Reason, str] | None = None

    def send(self, views: Sequence[bytes | bytearray | memoryview], total: int) -> int:
        return 0

    def send_file(self, handle: SpillHandle, start: int, count: int) -> int:
        return 0

    def wait_writable(self) -> None:
        return

    def peer(self) -> PeerState:
        return PeerState()


class PollCursor(Cursor):
    """``offset``: of the next record that is wanted, of those in ``archive`` that match ``filter``."""

    __slots__ = ("archive", "filter", "offset")
    filter: str
    offset: int
    archive: ArchiveIndex

    @property
    def lag(self) -> ArchiveLag:
        return self.archive.lag(self.filter, self.offset)

    def fresh_sequence(self) -> int:
        return self.offset if self.offset <= self.lag.last else 0

    def wanted_sequences(self, last: int) -> list[tuple[int, int]]:
        return [(self.offset, max(last, self.offset))]


class ArchiveReader(Reader):
    __slots__ = ("place",)
    counts_apart = True
    reads_itself = True

    def __init__(self, place: PollCursor) -> None:
        self.place = place

    def has_more(self, subscription: Subscription) -> bool:
        return self.lag_records(subscription) > 0

    def lag_records(self, subscription: Subscription) -> int:
        return max(0, self.place.lag.last + 1 - self.place.offset)

    def lag_bytes(self, subscription: Subscription) -> int:
        return self.place.lag.bytes

    def gating_bytes(self, subscription: Subscription) -> int:
        return 0

    def oldest_time(self, subscription: Subscription) -> float | None:
        return self.place.lag.time_s


class Poll(Subscription):
    """A subscription that reads by itself, and what it tells of that."""

    __slots__ = ("place",)

    def __init__(self, session: Session, request: SubscribeRequest, feed: Feed, case: Case, archive: ArchiveIndex,
                 offset: int) -> None:
        super().__init__(session, request, feed, case)
        self.cursor.close()
        self.place = PollCursor(feed.lane, self)
        self.place.offset = offset
        self.place.filter, self.place.archive = feed.key.filter, archive
        self.cursor = self.place
        self.reader = ArchiveReader(self.place)

    @property
    def offset(self) -> int:
        return self.place.offset

    @property
    def lag(self) -> ArchiveLag:
        return self.place.lag

    # -- moves ------------------------------------------------------------------------------------------------------

    def move(self, offset: int, now: float) -> None:
        """It has everything before this one."""
        records, size = self._move(offset)
        self.counters.handed_bytes += size
        self.counters.write(records, size)
        if records and isinstance(self.session.outlet, ConnectionlessOutlet):
            self.session.outlet.progress_s = now
            self.session.outlet.taken_bytes += size

    def discard(self, action: Action) -> None:
        """Leave out the oldest of what waits."""
        kept = action.records_kept(0)
        if action.which is not Which.OLDEST:
            return
        upto = self.offset
        if kept is not None:
            upto = max(upto, self.lag.last + 1 - kept)
        if action.keep_bytes is not None:
            upto = max(upto, self._offset_with(action.keep_bytes))
        if kept is None and action.keep_bytes is None:
            upto = self.lag.last + 1
        first = self.offset
        records, size = self._move(upto)
        self.counters.skipped_bytes += size
        self.note_gap(records, first, upto - 1, Reason.DISCARDED)

    def take_gap(self) -> Gap | None:
        """What it is to be told of."""
        gap, self.gap = self.gap, None
        return gap

    def _move(self, offset: int) -> tuple[int, int]:
        """Returns how many offsets and bytes that is."""
        before = self.lag
        records = min(offset, before.last + 1) - self.offset
        if records <= 0:
            return 0, 0
        self.place.offset += records
        if self.place.kept is not None:
            self.place.kept.moved()
        return records, max(0, before.bytes - self.lag.bytes)

    def _offset_with(self, size: int) -> int:
        """The first from which on no more than so much is recorded."""
        filter = self.feed.key.filter
        low, high = self.offset, self.lag.last + 1
        while low < high:
            middle = (low + high) // 2
            if self.place.archive.lag(filter, middle).bytes > size:
                low = middle + 1
            else:
                high = middle
        return low
