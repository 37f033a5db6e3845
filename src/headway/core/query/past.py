"""A state as it was at an offset, built from recorded records.

It is a state of its own, for one query, with the memory of that query's client: what is needed of it is asked of it as
of the present one (present.py). It holds the records up to that offset that a query's filter matches, so it is as large
as the state then; if it is larger than ``PAST_BYTES_MAX``, or than its client may have, there is no answer. Nothing is
evicted in silence.
"""

from __future__ import annotations

from headway.core.base import Reason, Refused, WorkSteps, format_size
from headway.core.log import QUERIES, Pool, State, Tab
from headway.core.message import Run, may_delete
from headway.core.query.kept_order import KeptOrder, RankOf
from headway.core.query.kept_orders import OrderName

PAST_BYTES_MAX = 256 * 1024 * 1024


class Past:
    """The state at ``as_of``. ``now`` is the state that there is now, ``tab`` is the client's."""

    is_kept = True

    def __init__(self, now: State, as_of: int, tab: Tab, since: int = 0) -> None:
        self.state = State(now.filter, now.key, Pool("", 8 * PAST_BYTES_MAX, 0), declared=now.declared)
        self.state.tombstones = now.tombstones
        self.as_of = as_of
        self.since = since
        """Records before this offset are deleted, and the keys are missing that have not changed since. 0: none are."""
        self._tab = tab
        self._counted_bytes = 0

    def add(self, run: Run, first: int, time_s: float) -> None:
        """Adds a run whose first record has the offset ``first``. Any thread may do so, one at a time."""
        state = self.state
        change = state.change if state.tombstones and may_delete(run) else state.put
        for index in range(len(run) - 1 if state.by_topic else 0, len(run)):
            change(run.record(index, first, time_s))

    @property
    def held_bytes(self) -> int:
        return self._counted_bytes

    def count(self) -> None:
        """Counts its memory on the tab, from the loop. Raises :class:`Refused` if there is no room for it."""
        grown = self.state.bytes - self._counted_bytes
        if self.state.bytes > PAST_BYTES_MAX or self.state.evicted_records:
            text = f"at: the state as it was takes up more than {format_size(PAST_BYTES_MAX)}; ask for fewer topics"
            raise Refused(Reason.CLIENT_MEMORY, text)
        self._tab.check(grown)
        self._tab.add(QUERIES, grown)
        self._counted_bytes += grown

    def order(self, name: OrderName, rank_of: RankOf) -> KeptOrder | None:
        """Returns None: it is read once."""

    def close(self) -> WorkSteps:
        """Takes it off the tab. The returned steps free its memory."""
        self._tab.add(QUERIES, -self._counted_bytes)
        self._counted_bytes = 0
        return self.state.close()
