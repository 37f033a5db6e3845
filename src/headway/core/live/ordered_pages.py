"""The live pages of one kept order: which of them a change is for.

Theory of operation. A key that changes moves from one place of the order to another. All between these two move by one.
So a page is concerned only if it lies there, and what crosses its ends is at its ends afterwards. Pages stand in the
order of their ends; the first that may be concerned is searched for, and the others are behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice

from headway.core.live.live_query import Head, Key, LiveQuery, Progress, Told, left
from headway.core.log import State, StateEntry
from headway.core.message import is_delete
from headway.core.query import KeptOrder, Match
from headway.core.routing import Registry

# -- page --------------------------------------------------------------------------------------------------------------
#
# A live page: the records of a state from one place of an order to another, kept up to date.
#
# A page notes which keys may have entered, left or changed. When it tells, it looks at these alone. So what it costs is
# what crosses its ends or happens within them, whatever its size.


class Page(LiveQuery):
    """Shows the records in the places from ``start`` to ``stop``, without it; ``head`` is that of their order."""

    def __init__(
        self,
        source: State,
        start: int,
        stop: int,
        head: Head,
        match: Match,
        every_s: float,
        registry: Registry,
        over: Callable[[LiveQuery], None],
    ) -> None:
        super().__init__(source, source.key, every_s, registry, over)
        self.start, self.stop = start, stop
        self.is_new = True
        """Not all of its keys are noted, because they have not been looked at yet."""
        self._head = head
        self._match = match
        self._touched: dict[Key, None] = {}
        """The keys that may have entered, left or changed."""
        self._members: dict[Key, bytes] = {}
        """The keys that are shown, with their ranks."""

    def touch(self, keys: Iterable[Key]) -> None:
        self._touched.update(dict.fromkeys(keys))

    @property
    def size(self) -> int:
        return self.stop - self.start

    @property
    def has_changed(self) -> bool:
        return bool(self._touched)

    def _changes(self, most: int) -> Iterable[Told]:
        touched, head, members = self._touched, self._head, self._members
        for key in list(islice(touched, most)):
            del touched[key]
            found, known = head.within(key, self.start, self.stop), members.get(key)
            if found is not None and found.rank != known:
                members[key] = found.rank
                yield Told(found.record)
            elif found is None and known is not None:
                del members[key]
                last = self.shown.get(*key)
                assert last is not None
                yield left(*key, self._why_left(key), last)

    def _why_left(self, key: Key) -> str:
        record = self.source.get(*key)
        if record is None:
            return "evicted" if self.source.evicted_records else "deleted"
        if self.source.tombstones and is_delete(record, key[1]):
            return record.properties.user_value("headway-why") or "deleted"
        return "left_page" if self._match.accepts(record) else "changed"

    def _keys_in_order(self) -> list[Key]:
        return sorted(self._members, key=self._members.__getitem__)

    def check(self) -> None:
        """Asserts that it shows what is in its places, if it has told all."""
        if self.ready and not self._touched:
            assert sorted(self._members, key=self._members.__getitem__) == self._head.keys(self.start, self.stop)
            assert len(self.shown) == len(self._members)


# -- ordered pages -----------------------------------------------------------------------------------------------------


PAGE_STEP_RECORDS = 128
KEYS_A_LOOK = 64
"""So many keys of a new page are noted in the time of a look at a record."""
TOUCHED_MAX = 2048
"""A turn notes changes for so many pages of one order, counted once for each change."""


class OrderedPages:
    """Follows a kept order, and its state: it is told of each record that leaves that."""

    ends = False

    def __init__(self, order: KeptOrder) -> None:
        self.order = order
        self.look_work = order.cost
        self.progress = Progress()
        self.declared = False
        """Set if it is kept without pages, too."""
        self.built = False
        """Set when the order had all of its records for the first time."""
        self.head = Head(order)
        self._left: dict[Key, None] = {}
        """Keys of the head whose records have left the state."""
        self._pages: list[Page] = []
        self._changed: dict[Page, None] = {}
        """The pages that may have something to tell, those first that were not asked the longest."""
        self._touched = 0
        """How often a page has had a change in this turn."""
        self._stops: list[int] = []
        self._first_start_from: list[int] = []
        """For each page, the first start among it and all behind it."""
        order.followers.append(self)
        order.state.readings[self] = None

    @property
    def pages(self) -> list[Page]:
        return self._pages

    def add(self, page: Page) -> None:
        page.progress = self.progress
        self._changed[page] = None
        self._arrange([*self._pages, page])

    def remove(self, page: Page) -> None:
        self._changed.pop(page, None)
        self._arrange([one for one in self._pages if one is not page])

    def _arrange(self, pages: list[Page]) -> None:
        self._pages = sorted(pages, key=lambda page: page.stop)
        self._stops = [page.stop for page in self._pages]
        starts = [page.start for page in reversed(self._pages)]
        self._first_start_from = list(accumulate(starts, min))[::-1]
        self.head.needed = max(self._stops, default=-1) + 1

    def close(self) -> None:
        self.order.followers.remove(self)
        self.order.state.readings.pop(self, None)

    def give_up(self, why: str) -> None:
        """The state is no more; so is the order."""
        self.order.state.readings.pop(self, None)

    # -- changes ----------------------------------------------------------------------------------------------------

    def leaves(self, entry: StateEntry) -> None:
        if entry.key in self.head:
            self._left[entry.key] = None

    def put(self, entry: StateEntry, rank: bytes | None) -> None:
        if self.built:
            self._touch(entry.key, *self.head.put(entry, rank))

    @property
    def broken(self) -> str:
        return self.order.gone and f"its order is not kept any more: {self.order.gone}"

    def is_current(self, upto: int) -> bool:
        return not self.order.gone and self.order.is_current(upto)

    def catch_up(self, upto: int, most: int) -> int:
        """Brings the order up to date, with about ``most`` changes. Returns how many it looked at."""
        order, looked = self.order, 0
        self._touched = 0
        half = TOUCHED_MAX // 2
        step = max(1, min(PAGE_STEP_RECORDS, half // (len(self._pages) + 1)))  # any change may be for all pages
        while looked < most and self._touched <= half and not order.gone and not order.is_current(upto):
            looked += 1 + order.catch_up(upto, min(step, most - looked))
        if not self.is_current(upto):
            return looked
        self.built = True
        self.head.fill()
        for entry in self.head.without_record(self._left):
            self.put(entry, None)
        self._left.clear()
        return looked

    def turn(self, now: float, most: int) -> int:
        """Has pages tell what has changed in them, until ``most`` records are looked at. Returns how many were; if that
        is ``most`` or more, other pages may have something to tell. The order is up to date."""
        looked = 0
        for page in list(self._changed):
            if looked >= most:
                break
            del self._changed[page]
            if page.is_new:
                page.is_new = False
                page.touch(self.head.keys(page.start, page.stop))
                looked += page.size // KEYS_A_LOOK
            looked += 1 + page.turn(now, most)
            if page.has_changed:
                self._changed[page] = None
        return looked

    def _touch(self, key: Key, before: int, after: int) -> None:
        for page in self._between(min(before, after), max(before, after)):
            self._changed[page] = None
            self._touched += 1
            page.touch((key, *self.head.beside(page.start), *self.head.beside(page.stop)))

    def _between(self, first: int, last: int) -> Iterator[Page]:
        """Yields the pages that have a place from ``first`` to ``last``."""
        pages = self._pages
        for at in range(bisect_right(self._stops, first), len(pages)):
            if self._first_start_from[at] > last:
                return
            if pages[at].start <= last:
                yield pages[at]

    def check(self) -> None:
        """Asserts the invariants. It visits every record."""
        self.head.check()
        for page in self._pages:
            page.check()
