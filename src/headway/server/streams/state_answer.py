"""The bytes of an answer with the state: JSON, JSON lines or Arrow; whole records, or rows of what was selected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from headway.core.message import Record
from headway.core.query import Row, RowsQuery, StateQuery
from headway.server.recorded import RunPart, records_of

_encode = msgspec.json.Encoder().encode


class StateAnswer:
    def __init__(self, query: StateQuery, filter: str, format: str, wall_offset_s: float) -> None:
        self.filter = filter
        self._query = query
        self._columns = query.columns
        self._format = format
        self._wall_offset_s = wall_offset_s
        self._is_first = True
        self._rows: list[bytes] = []
        """The rows of an answer in Arrow, as JSON: all of them tell the types."""

    @property
    def given_up(self) -> str:
        return self._query.given_up

    @property
    def ends_long(self) -> bool:
        """Tells whether ``end`` takes so long that it is for a worker thread."""
        return bool(self._rows)

    def headers(self) -> dict[str, str]:
        query = self._query
        since = {"Headway-Earliest-Offset": str(query.moment.since)} if query.moment.since else {}
        return {
            "Headway-Offset": str(query.as_of), "Headway-Keys": str(len(query.state)),
            "Headway-Evicted-Keys": str(query.evicted_records),
        } | since  # fmt: skip

    @property
    def _metadata(self) -> dict[str, str]:
        return {"headway.offset": str(self._query.as_of)}

    def start(self) -> bytes:
        query = self._query
        if self._format == "json":
            head: dict[str, object] = {
                "filter": self.filter, "offset": query.as_of, "keys": len(query.state),
                "evicted_keys": query.evicted_records,
            }  # fmt: skip
            if query.moment.since:
                head["earliest"] = query.moment.since
            if self._columns:
                head["columns"] = self._columns
            return _encode(head)[:-1] + b',"records":['
        if self._format == "arrow" and not self._columns:
            from headway.store.records import stream_start

            return stream_start(self._metadata)
        return b""

    def parts(self) -> Iterator[bytes]:
        """Yields the next bytes after each step of the query, maybe none."""
        if isinstance(self._query, RowsQuery):
            for rows in self._query.rows():
                yield self._of_rows(rows) if rows else b""
        else:
            for found in self._query.steps():
                yield self._of_records(found) if found else b""

    def _of_records(self, found: list[Record]) -> bytes:
        if self._format == "arrow":
            return self._batch(found)
        return self._lines([_encode(one) for part in self._parts(found) for one in records_of(part)])

    def _of_rows(self, rows: list[Row]) -> bytes:
        lines = [_encode(row) for row in rows]
        if self._format != "arrow":
            return self._lines(lines)
        self._rows += lines
        self._query.hold(sum(map(len, lines)))
        return b""

    def _lines(self, lines: list[bytes]) -> bytes:
        if self._format == "jsonl":
            return b"\n".join(lines) + b"\n"
        first, self._is_first = self._is_first, False
        return (b"" if first else b",") + b",".join(lines)

    def end(self) -> bytes:
        """Returns the last bytes."""
        if self._format == "json":
            return _encode({"looked_at": self._query.looked_at}).replace(b"{", b"],", 1)
        if self._format == "jsonl":
            return b""
        if not self._columns:
            from headway.store.records import STREAM_END

            return STREAM_END
        from headway.store.selected import rows_stream

        return rows_stream(self._columns, self._rows, self._metadata)

    def _parts(self, found: Iterable[Record]) -> Iterator[RunPart]:
        for record in found:
            sequence, time_us = record.sequence, int((record.time_s + self._wall_offset_s) * 1e6)
            yield RunPart(sequence, sequence, record.run(), time_us, self._query.key_of, 0)

    def _batch(self, found: Iterable[Record]) -> bytes:
        from headway.store.records import Columns, stream_part

        columns = Columns()
        for part in self._parts(found):
            columns.add(part.run, part.first, part.time_us, part.keys)
        return bytes(stream_part(columns.batch()))
