"""Reading of a whole state as of one sequence, in slices, while the state goes on changing.

Theory of operation. A reading walks the entries, oldest change first or newest first, and stands at one entry between
two slices. An entry that is unlinked (updated, evicted) before the reading has come to it hands its record over: it is
*saved*, and is read in its place among the others. Records that came after the beginning are left out. So the records
that a reading yields are exactly those of the state at ``upto``, in the order of their sequences, and the state is
never copied: what a reading costs is the records that are replaced while it lasts. These are on the tab of its client.
"""

from __future__ import annotations

from heapq import heappop, heappush

from headway.core.base import Reason, Refused, format_size
from headway.core.log.lanes import QUERIES, Tab
from headway.core.log.states.state import State
from headway.core.log.states.state_pass import StateEntry
from headway.core.message import Record

SAVED_RECORD_BYTES = 300
"""The memory of a saved record beside its payload, topic and properties, about."""
TAKEN_BYTES = 256 * 1024
"""The bytes at which one look ends: an answer may hold what it brings for as long as its client does not read."""
SAVED_BYTES_MAX = 64 * 1024 * 1024
"""A reading that is so slow that more than this is replaced before it comes there is given up."""


class StateReading:
    ends, look_work = True, 0
    __slots__ = ("_at", "_newest_first", "_saved", "given_up", "left", "saved_bytes", "state", "tab", "taken", "upto")

    def __init__(self, state: State, upto: int, tab: Tab, *, newest_first: bool = False) -> None:
        """``tab`` is that of the client."""
        self.state = state
        self.tab = tab
        self.upto = upto
        """The state is read as of this sequence."""
        self.given_up = ""
        """The reason why this reading yields no more records although it is not at the end; empty: it does."""
        self.saved_bytes = 0
        self.left, self.taken = len(state), 0
        """The numbers of records that are still to be taken, and that were."""
        self._newest_first = newest_first
        self._at = state.newest if newest_first else state.oldest
        self._saved: list[tuple[int, Record]] = []
        """Saved records, by their places in the order."""
        state.readings[self] = None

    @property
    def closed(self) -> bool:
        return self not in self.state.readings

    def take(self, most: int) -> list[Record]:
        """Returns the next records, ``most`` of them, or fewer if these have ``TAKEN_BYTES``. At the end, or if it is
        given up, the reading is ``closed``."""
        found: list[Record] = []
        size = 0
        at, saved, down, upto = self._at, self._saved, self._newest_first, self.upto
        while len(found) < most and size < TAKEN_BYTES and not self.given_up:
            record = at.record
            over = record.sequence > upto  # from here on all came after the beginning
            if saved and (over or saved[0][0] < (-record.sequence if down else record.sequence)):
                earlier = heappop(saved)[1]
                self._hold(-SAVED_RECORD_BYTES - earlier.size)
                found.append(earlier)
                size += earlier.size
            elif over:
                self.close()
                break
            else:
                if not at.deleted:
                    found.append(record)
                    size += record.size
                at = at.before if down else at.after
        self._at = at
        self.left = max(0, self.left - len(found))
        self.taken += len(found)
        return found

    def leaves(self, entry: StateEntry) -> None:
        """Saves the record of an entry that is being unlinked, unless it was read or came after the beginning."""
        record, here = entry.record, self._at.record
        unread = record.sequence <= here.sequence if self._newest_first else record.sequence >= here.sequence
        if unread and record.sequence <= self.upto and not entry.deleted and self._at is not self.state.ends:
            self._save(record)
        if entry is self._at:
            self._at = entry.before if self._newest_first else entry.after

    def _save(self, record: Record) -> None:
        size = SAVED_RECORD_BYTES + record.size
        try:
            if self.saved_bytes + size > SAVED_BYTES_MAX:
                raise Refused(Reason.CLIENT_MEMORY, f"{format_size(SAVED_BYTES_MAX)} of it were replaced meanwhile")
            self.tab.check(size)
        except Refused as refused:
            self.give_up(f"the state changes faster than this answer is read: {refused}")
            return
        heappush(self._saved, (-record.sequence if self._newest_first else record.sequence, record))
        self._hold(size)

    def _hold(self, change: int) -> None:
        self.saved_bytes += change
        self.tab.add(QUERIES, change)

    def give_up(self, why: str) -> None:
        self.given_up = why
        self.close()

    def close(self) -> None:
        self.state.readings.pop(self, None)
        self._at = self.state.ends
        self._saved.clear()
        self.left = 0
        self._hold(-self.saved_bytes)
