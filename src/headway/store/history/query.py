"""Search: entries of the history that match a query, newest first, without holding a file in memory.

Files are read backwards in blocks. A block without the client's name is not parsed. A line that is no entry is skipped:
a crash may have torn it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import translate
from heapq import merge
from math import inf
from pathlib import Path
from typing import NamedTuple

import msgspec

from headway.store.history.entry import EntryKind, HistoryEntry, decode_entry
from headway.store.history.files import files_of

BLOCK_BYTES = 256 * 1024
LINE_BYTES_MAX = 1024 * 1024
"""A longer line is of no history, and is skipped."""
CLOCK_SLACK_S = 60.0
"""By so much entries may be out of order: clocks are set."""


class Query(NamedTuple):
    """A question to the history. Empty: anything."""

    since_s: float = -inf
    until_s: float = inf
    client: str = ""
    """A client's name, or a pattern with ``*``, ``?`` and ``[…]``."""
    exact: bool = False
    """``client`` is a name, whatever characters it has."""
    cause: str = ""
    action: str = ""
    kinds: tuple[EntryKind, ...] = (EntryKind.VERDICT,)

    @property
    def named(self) -> bool:
        """Whether it asks for one client."""
        return bool(self.client) and (self.exact or not any(char in self.client for char in "*?["))


class Found(NamedTuple):
    """An entry and the line that it was read from."""

    entry: HistoryEntry
    line: bytes


def search(folder: Path, query: Query) -> Iterator[Found | None]:
    """Yields entries that match, the newest first, and None after each block, so that the caller can pause. Raises
    OSError."""
    series = [_keyed(_series(folder, kind, query)) for kind in query.kinds]
    return (found for _, found in merge(*series, key=lambda pair: pair[0]))


def matcher(query: Query) -> Callable[[HistoryEntry], bool]:
    """Returns a test of one entry."""
    fits = (lambda name: name == query.client) if query.named else (
        re.compile(translate(query.client)).match if query.client else lambda name: True
    )  # fmt: skip

    def test(entry: HistoryEntry) -> bool:
        return bool(
            entry.kind in query.kinds
            and query.since_s <= entry.wall_s <= query.until_s
            and (not query.cause or entry.cause == query.cause)
            and (not query.action or entry.action == query.action)
            and (fits(entry.client) or (entry.admitted is False and fits(entry.user)))
        )

    return test


def _keyed(found: Iterable[Found | None]) -> Iterator[tuple[float, Found | None]]:
    """Yields each with its place in the order. A pause keeps the place of the entry before it."""
    place = -inf
    for one in found:
        if one is not None:
            place = max(place, -one.entry.wall_s)
        yield place, one


def _series(folder: Path, kind: EntryKind, query: Query) -> Iterator[Found | None]:
    test, needles = matcher(query), _needles(query)
    for path in reversed(files_of(folder, kind)):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # it was removed meanwhile, and so was everything older
        try:
            if os.fstat(fd).st_mtime < query.since_s - CLOCK_SLACK_S:
                return
            for lines in _blocks(fd, needles):
                for line in reversed(lines):
                    entry = decode_entry(line)
                    if entry is None:
                        continue
                    if entry.wall_s < query.since_s - CLOCK_SLACK_S:
                        return
                    if test(entry):
                        yield Found(entry, line)
                yield None
        finally:
            os.close(fd)


def _needles(query: Query) -> list[bytes]:
    """Returns what every line that matches has in it. A name in an end may be that of the user."""
    needles = [msgspec.json.encode(query.client)] if query.named else []
    return needles + ([b'"cause":' + msgspec.json.encode(query.cause)] if query.cause else [])


def _blocks(fd: int, needles: list[bytes]) -> Iterator[list[bytes]]:
    """Yields the whole lines of each block that may match, from the end of the file to its beginning."""
    position, tail = os.fstat(fd).st_size, b""
    while position > 0:
        start = max(0, position - BLOCK_BYTES)
        data = os.pread(fd, position - start, start) + tail
        position, tail = start, b""
        if start:
            tail, newline, data = data.partition(b"\n")
            if not newline:
                data = b""
            if len(tail) > LINE_BYTES_MAX:
                tail = b""
        if all(needle in data for needle in needles):
            yield [line for line in data.split(b"\n") if line and all(needle in line for needle in needles)]
        else:
            yield []
