"""The last hour, in memory: coarse samples of the whole broker, and of each consumer that was in trouble.

A series has one column per figure, of 4 bytes a sample, and the times, of 8. So the whole broker's hour is 40 kB, and
that of ``CONSUMERS_MAX`` consumers 4 MB, and their names: ``BYTES_MAX`` at most. What consumers cause is counted: on a
tab of its own, in the global pool. The consumer that has gone longest without a sample makes room for another.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from headway.core.consumer import Subscription
from headway.core.log import Pool, Tab
from headway.core.policy import Sample
from headway.server.console.rows import Name

HOUR_S = 3600.0
EVERY_S = 5.0
CONSUMERS_MAX = 100
BYTES_MAX = 8_000_000
SAMPLES_MAX = int(HOUR_S / EVERY_S)
METERS = (
    "lag_age", "lag_bytes", "lag_records", "drain_share", "drain_rate", "offered_rate", "blocked_time", "unread_time",
    "credit_exhausted_time", "ack_age", "in_flight",
)  # fmt: skip
"""The meters of a consumer that are kept, as ``Sample`` names them."""
BROKER = (
    "in_records", "in_bytes", "out_records", "out_bytes", "consumers", "slow", "paused", "memory_bytes", "disk_bytes",
    "rss_bytes", "late_p99_s", "late_max_s",
)  # fmt: skip
NAMES_MAX = 16
_SERIES_BYTES = 2000
"""A series besides its samples: the objects, and the names in the tables."""


class Terms(NamedTuple):
    """Terms of a consumer: all that decides which policy it has."""

    names: tuple[str, ...] = ()
    durable: bool = False
    listener: str = ""
    policy: str = ""
    """The policy that it asked for by name."""
    keyed: bool = False

    @property
    def chars(self) -> int:
        return sum(map(len, self.names))

    @classmethod
    def of(cls, one: Subscription) -> Terms:
        names = tuple(islice(one.reader.names(one), NAMES_MAX))
        return cls(names, one.durable, one.session.listener, one.request.options.policy or "", one.keyed)


class Series:
    def __init__(self, names: Sequence[str], terms: Terms | None = None) -> None:
        self.names = names
        self.terms = terms or Terms()
        self.times = array("d")
        self.columns = [array("f") for _ in names]

    def add(self, wall_s: float, values: Iterable[float]) -> None:
        """Adds a sample, and lets go of those that are more than an hour old."""
        self.times.append(wall_s)
        for column, value in zip(self.columns, values, strict=True):
            column.append(value)
        old = 0
        while self.times[old] < wall_s - HOUR_S or len(self.times) - old > SAMPLES_MAX:
            old += 1
        if old:
            for column in (self.times, *self.columns):
                del column[:old]

    def __len__(self) -> int:
        return len(self.times)

    @property
    def bytes(self) -> int:
        return _SERIES_BYTES + self.terms.chars + len(self.times) * (8 + 4 * len(self.columns))

    def as_columns(self) -> dict[str, list[float]]:
        """Returns the columns as lists, with the times first, in seconds since 1970."""
        columns = {"wall_s": [round(one, 2) for one in self.times]}
        for name, column in zip(self.names, self.columns, strict=True):
            columns[name] = [float(f"{value:.6g}") for value in column]
        return columns


class Hour:
    def __init__(self, pool: Pool) -> None:
        self.broker = Series(BROKER)
        self.consumers: OrderedDict[Name, Series] = OrderedDict()
        """Series of consumers that were in trouble; first the one that has gone longest without a sample."""
        self._tab = Tab(pool)

    def add(self, name: Name, wall_s: float, sample: Sample, terms: Terms | None = None) -> None:
        series = self.consumers.get(name)
        if series is None:
            series = self.consumers[name] = Series(METERS, terms)
            if len(self.consumers) > CONSUMERS_MAX:
                self.consumers.popitem(last=False)
        self.consumers.move_to_end(name)
        series.add(wall_s, (getattr(sample, meter) for meter in METERS))

    def tidy(self, wall_s: float) -> None:
        """Forgets consumers without a sample in the last hour, and counts what the others take up."""
        while self.consumers:
            name, oldest = next(iter(self.consumers.items()))
            if oldest.times[-1] >= wall_s - HOUR_S and self.bytes <= BYTES_MAX:
                break
            del self.consumers[name]
        self._tab.put("console", self.bytes)

    @property
    def bytes(self) -> int:
        """The bytes that the consumers' hours take up."""
        return sum(name.chars + series.bytes for name, series in self.consumers.items())

    def close(self) -> None:
        self.consumers.clear()
        self._tab.close()
