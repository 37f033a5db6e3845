"""A live page: the records of a state from one place of an order to another, kept up to date.

A page notes which keys may have entered, left or changed. When it tells, it looks at these alone. So what it costs is
what crosses its ends or happens within them, whatever its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from headway.core.live.head import Head, Key
from headway.core.live.live_query import LiveQuery, Told, left
from headway.core.log import State
from headway.core.message import is_delete
from headway.core.query import Match
from headway.core.routing import Registry


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
