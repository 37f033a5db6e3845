"""Groups whose records come and go."""

from __future__ import annotations

from headway.core.base import Reason, Refused, format_size
from headway.core.live.extremes import KEPT
from headway.core.message import KeyExtractor, Record
from headway.core.query import Groups, Row, Selection


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
