"""Kept aggregates: a row of figures for each group of a state's records, kept up to date.

Theory of operation. Records are added as a pass over the state comes to them, and taken out again when they leave the
state, whether they are replaced, deleted or evicted; the state tells of each. So there is nothing to be kept per key,
but for what ``min`` and ``max`` need. A row is a record of its own: its payload is JSON, its key is what it is grouped
by, and its topic is the filter with ``-`` for each wildcard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice

import msgspec

from headway.core.base import Reason, Refused, WorkSteps, format_size
from headway.core.live.live_query import Key, LiveQuery, Told, left, told_key
from headway.core.log import State, StateEntry
from headway.core.message import TOLD_KEY, KeyExtractor, Properties, Record, Run
from headway.core.query import AGGREGATES, Aggregate, Groups, Match, Row, Selection, with_order
from headway.core.routing import Registry
from headway.core.selector import place_of

# -- extremes ----------------------------------------------------------------------------------------------------------
#
# Least and greatest values of a group whose records come and go.
#
# Each value is there with the number of records that have it, and a heap has them by their places. What has no order is
# null there, and its place is the last. What is gone is taken out of the heap when it comes to the top, or when most of
# the heap is gone.


VALUE_BYTES = 300
"""The memory of a value beside its own bytes, about."""
GONE_MAX = 64


class KeptLeast(Aggregate):
    __slots__ = ("_counts", "_heap")
    down = False

    def __init__(self) -> None:
        self._counts: dict[bytes, tuple[object, int]] = {}
        self._heap: list[bytes] = []

    def add(self, value: object) -> int:
        value = with_order(value)
        place = place_of(value, down=self.down)
        kept, count = self._counts.get(place, (value, 0))
        self._counts[place] = kept, count + 1
        if count:
            return 0
        heappush(self._heap, place)
        return VALUE_BYTES + 2 * len(place)

    def remove(self, value: object) -> int:
        place = place_of(with_order(value), down=self.down)
        kept, count = self._counts[place]
        if count > 1:
            self._counts[place] = kept, count - 1
            return 0
        del self._counts[place]
        if len(self._heap) > 2 * len(self._counts) + GONE_MAX:
            self._heap = list(self._counts)
            heapify(self._heap)
        return -VALUE_BYTES - 2 * len(place)

    @property
    def value(self) -> object:
        while self._heap and self._heap[0] not in self._counts:
            heappop(self._heap)
        return self._counts[self._heap[0]][0] if self._heap else None


class KeptGreatest(KeptLeast):
    __slots__ = ()
    down = True


KEPT: Mapping[str, type[Aggregate]] = {**AGGREGATES, "min": KeptLeast, "max": KeptGreatest}
"""Aggregates from which values can be taken out again."""


# -- kept groups -------------------------------------------------------------------------------------------------------
#
# Groups whose records come and go.


class KeptGroups(Groups):
    def __init__(self, selection: Selection, bytes_max: int) -> None:
        super().__init__(selection, KEPT)
        self.bytes_max = bytes_max
        self.others_bytes = 0
        """The bytes of the groups of all other kept aggregates, which have the same limit together with these."""
        self._records: dict[bytes, int] = {}
        """The number of records in each group; one without any is no more."""
        self._all = not selection.group_by
        """There is one group, of all records, which is there without any, too."""
        self.touched: dict[bytes, None] = {b"": None} if self._all else {}
        """The groups that may have changed."""

    def add(self, record: Record, key_of: KeyExtractor | None) -> None:
        """Raises :class:`Refused` if there are too many groups, or too much in them."""
        key, by, values = self.values(record, key_of)
        group = self._groups.get(key) or self._begin(key, by)
        for aggregate, value in zip(group[1], values, strict=True):
            self.bytes += aggregate.add(value)
        self._records[key] = self._records.get(key, 0) + 1
        self.touched[key] = None
        if self.bytes + self.others_bytes > self.bytes_max:
            text = (f"group_by: the groups of all aggregates together take up more than {format_size(self.bytes_max)}; "
                    "group by fewer values")  # fmt: skip
            raise Refused(Reason.CLIENT_MEMORY, text)

    def remove(self, record: Record, key_of: KeyExtractor | None) -> None:
        """Takes a record out that was added."""
        key, _, values = self.values(record, key_of)
        for aggregate, value in zip(self._groups[key][1], values, strict=True):
            self.bytes += aggregate.remove(value)
        self._records[key] -= 1
        self.touched[key] = None
        if not self._records[key]:
            del self._records[key]
            if not self._all:
                self._drop(key)

    def row(self, key: bytes) -> tuple[list[object], Row] | None:
        """Returns the values that a group is of, and its row; None if it is no more."""
        group = self._groups.get(key)
        return None if group is None else (group[0], self._row(*group))


# -- kept rows ---------------------------------------------------------------------------------------------------------


STEP_RECORDS = 32
COLUMNS_A_LOOK = 4
"""So many columns of an aggregate are brought up to date in the time of one look at a record."""
POOL_SHARE = 0.25
"""The share of the memory for clients that all of these may take up."""
_NOT_PLAIN = frozenset('"[{-0123456789')
_WORDS = frozenset({"", "true", "false", "null"})


class RowKey(KeyExtractor):
    def __init__(self) -> None:
        super().__init__(f"property:{TOLD_KEY}")

    def find(self, topic: str, properties: Properties, payload: bytes) -> str | None:
        return properties.user_value(TOLD_KEY)

    def of_run(self, run: Run) -> list[str | None]:
        return [run.properties.user_value(TOLD_KEY)] * len(run)


class KeptRows(LiveQuery):
    ends = False

    def __init__(
        self,
        source: State,
        topic: str,
        selection: Selection,
        match: Match,
        every_s: float,
        registry: Registry,
        over: Callable[[LiveQuery], None],
        cost: int = 1,
    ) -> None:
        """``cost``: the work of a look at a record with the selector; 1 for a few terms."""
        super().__init__(source, RowKey(), every_s, registry, over)
        self.look_work = cost + len(selection.names) // COLUMNS_A_LOOK
        self._topic = topic
        self._match = match
        self._groups = KeptGroups(selection, int(source.pool.clients_limit * POOL_SHARE))
        self._pass = source.read(0, 0)
        self._added_sequence = 0
        """All records up to this sequence are added, as far as they match."""
        self._gone: list[Record] = []
        """Records that were added and have left the state."""
        self._rows: dict[bytes, Record] = {}
        """The rows that are shown."""
        self._counted_bytes = 0
        source.readings[self] = None

    @property
    def held_bytes(self) -> int:
        return self.shown.bytes + self._groups.bytes

    def leaves(self, entry: StateEntry) -> None:
        record = entry.record
        if not entry.deleted and record.sequence <= self._added_sequence:
            self._gone.append(record)

    def give_up(self, why: str) -> None:
        self.source.readings.pop(self, None)
        self.broken = why

    def close(self) -> None:
        self.source.readings.pop(self, None)
        self._pass.close()
        self._count(0)

    def is_current(self, upto: int) -> bool:
        return not self.broken and not self._gone and self._pass.upto >= upto and self._pass.at_end

    def catch_up(self, upto: int, most: int) -> int:
        """Puts in changes up to the sequence ``upto``, about ``most`` of them. Returns how many it looked at."""
        looked = 0
        self._groups.others_bytes = self.source.pool.groups_bytes - self._counted_bytes
        try:
            for work in self._catch_up(upto):
                looked += work
                if looked >= most:
                    break
        except Refused as refused:
            self.broken = str(refused)
        self._count(self._groups.bytes)
        return looked

    def _count(self, size: int) -> None:
        """Counts its groups as so many bytes."""
        pool, change = self.source.pool, size - self._counted_bytes
        pool.add_clients(change)
        pool.groups_bytes += change
        self._counted_bytes = size

    def _catch_up(self, upto: int) -> WorkSteps:
        groups, key_of, accepts = self._groups, self.source.key, self._match.accepts
        if upto > self._pass.upto:
            self._pass.extend(upto)
        while self._gone:
            record = self._gone.pop()
            if accepts(record):
                groups.remove(record, key_of)
            yield self.look_work
        while not self._pass.at_end:
            entries = self._pass.take(max(1, STEP_RECORDS // self.look_work))
            for entry in entries:
                self._added_sequence = entry.record.sequence
                if not entry.deleted and accepts(entry.record):
                    groups.add(entry.record, key_of)
            yield 1 + self.look_work * len(entries)

    @property
    def has_changed(self) -> bool:
        return bool(self._groups.touched)

    def _changes(self, most: int) -> Iterable[Told]:
        touched = self._groups.touched
        for key in list(islice(touched, most)):
            del touched[key]
            found, known = self._groups.row(key), self._rows.get(key)
            if found is not None:
                by, row = found
                payload = msgspec.json.encode(row)
                if known is None or payload != known.payload:
                    user = told_key(key_of_row(by))
                    self._rows[key] = record = Record(self._topic, payload, Properties(user=user))
                    yield Told(record)
            elif known is not None:
                del self._rows[key]
                yield left(self._topic, known.properties.user_value(TOLD_KEY), "no_records", known)

    def _keys_in_order(self) -> list[Key]:
        return [(self._topic, self._rows[key].properties.user_value(TOLD_KEY)) for key in sorted(self._rows)]


def key_of_row(by: Sequence[object]) -> str | None:
    """Returns the key of the row of a group: its one value as a text, or what JSON has for it; None: it is of all."""
    if not by:
        return None
    if len(by) > 1:
        return msgspec.json.encode(by).decode()
    (value,) = by
    if isinstance(value, str) and value not in _WORDS and value[0] not in _NOT_PLAIN:
        return value
    return msgspec.json.encode(value).decode()
