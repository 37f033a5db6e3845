"""Pictures: what a view shows to its reader, in asyncio and in threads: a mapping that says how old it is."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from headway.client.changes import AsOf, Entry, Key
from headway.client.image import Image
from headway.client.request import Request
from headway.core.base import ConfigError
from headway.core.message import Properties, Record, compile_key
from headway.core.selector import compile_ordering

if TYPE_CHECKING:
    import pyarrow as pa


class Picture(Mapping[Key, Entry]):
    """The latest record per key, as of one point, and how old that is."""

    _request: Request

    @property
    @abstractmethod
    def _image(self) -> Image: ...

    def __getitem__(self, key: Key | tuple[str, str | None] | str) -> Entry:
        """Returns the entry of a key: ``view["N14228"]``, or ``view[Key("flights/ua", "N14228")]``.

        Raises KeyError if there is none, and for a text that is a key of several topics."""
        entries = self._image.entries
        return entries.find(key) if isinstance(key, str) else entries.of[Key(*key)]

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._image.entries.of))

    def __len__(self) -> int:
        return len(self._image.entries.of)

    def copy(self) -> dict[Key, Entry]:
        """Returns the entries as they are now; the view goes on, and the copy stays."""
        return self._image.entries.of.copy()

    def in_order(self) -> list[tuple[Key, Entry]]:
        """Returns the entries in the order of the page, or of their offsets where the view is no page. Of those that
        are equal, the one that came first is first."""
        request = self._request
        ordering, key_of = compile_ordering(request.order_by or "offset"), compile_key(request.key)

        def rank(one: tuple[Key, Entry]) -> bytes:
            key, entry = one
            record = Record(key.topic, entry.payload, Properties(user=entry.properties), sequence=entry.offset)
            return ordering.rank(record, key_of)

        return sorted(self._image.entries.of.items(), key=rank)

    @property
    def stale_s(self) -> float:
        """Returns for how many seconds the image has not been confirmed: it was the broker's state so long ago, and may
        be it still. Less than ``stale_after`` while all is well; infinite before the first snapshot."""
        return self._image.stale_s(time.monotonic())

    @property
    def current(self) -> bool:
        """Tells whether the image is younger than ``stale_after``, whole, and connected."""
        return self._image.is_current(time.monotonic())

    @property
    def why_stale(self) -> str:
        """Returns the reason why the image is stale; empty while it is current."""
        return self._image.why_stale

    @property
    def as_of(self) -> AsOf:
        """Returns the offset up to which all changes are in the image, and when it was last known to be the broker's
        state."""
        stale_s = self.stale_s
        when = None if stale_s == float("inf") else datetime.now(UTC) - timedelta(seconds=stale_s)
        return AsOf(self._image.offset, when)

    def to_arrow(self) -> pa.Table:
        """Returns the entries as a table: topic, key, offset, content_type, payload; its metadata has
        ``headway.offset`` and ``headway.time``, the point as of which it is. Needs pyarrow; raises ConfigError."""
        try:
            import pyarrow as pa
        except ImportError:
            raise ConfigError("to_arrow needs pyarrow: pip install 'headway[telemetry]'") from None
        as_of, entries = self.as_of, self.copy()
        columns: dict[str, Any] = {
            "topic": pa.array([key.topic for key in entries], pa.string()),
            "key": pa.array([key.key for key in entries], pa.string()),
            "offset": pa.array([entry.offset for entry in entries.values()], pa.int64()),
            "content_type": pa.array([entry.content_type for entry in entries.values()], pa.string()),
            "payload": pa.array([entry.payload for entry in entries.values()], pa.binary()),
        }
        when = "" if as_of.time is None else as_of.time.isoformat()
        told = {b"headway.offset": str(as_of.offset).encode(), b"headway.time": when.encode()}
        return pa.table(columns).replace_schema_metadata(told)
