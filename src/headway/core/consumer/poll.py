"""A poll is a consumer that reads the archive by itself and only reports its progress. A Spark query is one.

Theory of operation. A poll's cursor is an offset in the recorded topics, not a position in a lane. So the broker holds
no records in memory for it and sends none to it. Its lag is the part of the archive from its offset on. In all else it
is like any consumer: the governor looks at it and judges it, it shows up in statistics, and it can be disconnected. Its
offset outlives the process, and the archive keeps the records that it still needs.

- Its *blocked* time is the time since it last moved on while there were records to read. Its usual pause is that
  between two moves; as long as it has moved once at most nobody knows it, and the most counts that it can be.
- Its lag is counted in records and bytes of the recorded topics that its filter touches. That is an upper bound,
  because the filter may match only some of these records, and to the precision of a batch of the journal.
- Of the actions of a policy, ``discard`` of the oldest moves its offset. Conflating it, sending its chunks to disk and
  holding back its publishers have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple, Protocol

from headway.core.base import Reason
from headway.core.consumer.connection import Outlet, Pace, PeerState
from headway.core.consumer.feed import Feed
from headway.core.consumer.reader import Reader
from headway.core.consumer.request import SubscribeRequest
from headway.core.consumer.session import Session
from headway.core.consumer.subscription import Subscription
from headway.core.log import Cursor, SpillHandle
from headway.core.message import Gap
from headway.core.policy import ANY_LUMP_BYTES, USUAL_MAX_S, Action, Case, UsualPause, Which

UNKNOWN_PAUSE_S = USUAL_MAX_S


class ArchiveLag(NamedTuple):
    """The records of an archive from some offset on."""

    last: int
    """The last assigned offset; its record may not be on disk yet."""
    records: int
    """Not more than there are, but for those of the batch that has the offset. Offsets have holes."""
    bytes: int
    time_s: float
    """The time when the oldest of these records was published, on the broker's clock; ``inf`` if there is none."""


class ArchiveIndex(Protocol):
    """The part of the archive that a poll needs."""

    def lag(self, filter: str, offset: int) -> ArchiveLag:
        """Returns the lag, from this offset on, in the topics that the filter touches."""


class ConnectionlessOutlet(Outlet):
    """The outlet of a client without a connection, such as one that calls over HTTP. It takes nothing. ``last_word``
    is why the broker ended the session, for the client's next call."""

    __slots__ = ("_lump_bytes", "_pause", "_step_bytes", "last_word")

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self.blocked = True
        self._pause = UsualPause(UNKNOWN_PAUSE_S)
        self._step_bytes, self._lump_bytes = -1, 0
        """Bytes of its last step (-1: it has taken none), and of its last two (0: it has taken one at most): one may be
        read and not yet reported, and one be read now."""
        self.last_word: tuple[Reason, str] | None = None

    def send(self, views: Sequence[bytes | bytearray | memoryview], total: int) -> int:
        return 0

    def send_file(self, handle: SpillHandle, start: int, count: int) -> int:
        return 0

    def wait_writable(self) -> None:
        return

    def ended(self, reason: Reason, text: str, rest: bytes | memoryview | None) -> None:
        """Is told that the broker has ended the session. ``rest``: the rest of a half-sent record; None: it is lost."""
        self.last_word = reason, text

    def cancelled(self) -> None:
        """Is told that a subscription has ended, if ``told_of_ends``."""

    def moved(self, size: int, now: float) -> None:
        """Notes that the client has read so many bytes more."""
        if self._step_bytes >= 0:
            self._pause.note(now - self.progress_s, now)
            self._lump_bytes = max(1, size + self._step_bytes)
        self._step_bytes = size
        self.progress_s = now
        self.taken_bytes += size

    def pace(self, now: float) -> Pace:
        return Pace(self.progress_s, self._pause.seconds(self.progress_s),
                    lump_bytes=self._lump_bytes or ANY_LUMP_BYTES)

    def peer(self) -> PeerState:
        return PeerState()


class PollCursor(Cursor):
    """A position in the recorded topics that match ``filter``. ``offset`` is the offset of the next record to read."""

    __slots__ = ("archive", "filter", "offset")
    filter: str
    offset: int
    archive: ArchiveIndex

    @property
    def lag(self) -> ArchiveLag:
        return self.archive.lag(self.filter, self.offset)

    def unsent_sequence(self) -> int:
        return self.offset if self.offset <= self.lag.last else 0

    def unsettled_ranges(self, last: int) -> list[tuple[int, int]]:
        return [(self.offset, max(last, self.offset))]


class ArchiveReader(Reader):
    __slots__ = ("archive_cursor",)
    counts_apart = True
    reads_itself = True

    def __init__(self, archive_cursor: PollCursor) -> None:
        self.archive_cursor = archive_cursor

    def has_more(self, subscription: Subscription) -> bool:
        return self.lag_records(subscription) > 0

    def lag_records(self, subscription: Subscription) -> int:
        return self.archive_cursor.lag.records

    def lag_bytes(self, subscription: Subscription) -> int:
        return self.archive_cursor.lag.bytes

    def gating_bytes(self, subscription: Subscription) -> int:
        return 0

    def oldest_time(self, subscription: Subscription) -> float:
        return self.archive_cursor.lag.time_s


class Poll(Subscription):
    """A subscription that reads the archive by itself and reports its progress.

    It overrides nothing of ``Subscription``, whose ``ArchiveReader`` says what waits. The class adds only the calls
    that its client alone makes; if the reader had them, every caller would have to test the reader's type."""

    __slots__ = ("archive_cursor",)

    def __init__(self, session: Session, request: SubscribeRequest, feed: Feed, case: Case, archive: ArchiveIndex,
                 offset: int) -> None:
        super().__init__(session, request, feed, case)
        self.cursor.close()
        self.archive_cursor = PollCursor(feed.lane, self)
        self.archive_cursor.offset = offset
        self.archive_cursor.filter, self.archive_cursor.archive = feed.key.filter, archive
        self.cursor = self.archive_cursor
        self.reader = ArchiveReader(self.archive_cursor)

    @property
    def offset(self) -> int:
        return self.archive_cursor.offset

    @property
    def lag(self) -> ArchiveLag:
        return self.archive_cursor.lag

    # -- moves ------------------------------------------------------------------------------------------------------

    def move(self, offset: int, now: float) -> None:
        """Notes that the consumer has read everything before ``offset``."""
        at = self.offset
        records, size = self._move(offset)
        self.counters.handed_bytes += size
        self.counters.write(records, size)
        if self.offset > at and isinstance(self.session.outlet, ConnectionlessOutlet):
            self.session.outlet.moved(size, now)

    def discard(self, action: Action) -> None:
        """Moves past the oldest records until no more wait than the action allows."""
        kept, size, first, end = action.records_kept(0), action.bytes_kept, self.offset, self.lag.last + 1
        if action.which is not Which.OLDEST:
            return
        upto = end if kept == size == inf else self._offset_with(kept, size)
        records, size = self._move(upto)
        self.counters.skipped_bytes += size
        self.note_gap(records, first, upto - 1, Reason.DISCARDED)

    def take_gap(self) -> Gap | None:
        """Returns and removes the gap that was not announced yet."""
        gap, self.gap = self.gap, None
        return gap

    def _move(self, offset: int) -> tuple[int, int]:
        """Moves the cursor forward. Returns how many records and bytes it passed."""
        before = self.lag
        offset = min(offset, before.last + 1)
        if offset <= self.offset:
            return 0, 0
        self.archive_cursor.offset = offset
        self.archive_cursor.durable_position.moved()
        after = self.lag
        return max(0, before.records - after.records), max(0, before.bytes - after.bytes)

    def _offset_with(self, records: float, size: float) -> int:
        """Returns the first offset from which on at most so many records and bytes are recorded."""
        filter = self.feed.key.filter
        low, high = self.offset, self.lag.last + 1
        while low < high:
            middle = (low + high) // 2
            lag = self.archive_cursor.archive.lag(filter, middle)
            if lag.records > records or lag.bytes > size:
                low = middle + 1
            else:
                high = middle
        return low
