"""Skips: the records of its lane that a policy leaves out for one consumer.

A ``Skip`` is a rule's order, for what waits and for what comes until the rule steps back. A look applies it to the
records that wait: they are *left out* at once, which counts and tells them. The cursor passes them when it comes to
them (``LeftOut``). What came since the last look is left out when it would be sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import inf
from typing import Final

from headway.core.base import Reason
from headway.core.log import Chunk, Cursor
from headway.core.message import Record

_WAITING, _LEFT_OUT = re.compile(b"\0+"), re.compile(b"\1+")


class Predicate:
    """A test of records, or a figure of each from 0 to 255. Each chunk caches the results, and consumers with equal
    ``key`` share them."""

    __slots__ = ("key", "test")

    def __init__(self, key: tuple[object, ...], test: Callable[[Record], int]) -> None:
        self.key = key
        self.test = test


class Skip:
    """Leaves out the records for which ``predicate`` is true, or all records if it is None.

    It applies to the records from ``first`` to the one before ``stop``; while it is *open*, to all that follow.
    ``order`` is the action that it carries out."""

    __slots__ = ("first", "order", "position", "predicate", "reason", "stop", "upto")

    def __init__(self, first: int, predicate: Predicate | None, reason: Reason, order: object = None) -> None:
        self.first = self.upto = first
        """``upto``: looks have applied it to all records before this one."""
        self.stop = inf
        self.predicate = predicate
        self.reason = reason
        self.order = order
        self.position = 0
        """The lane position of record ``upto``. Only set if every record is left out: the lag ends there."""

    @property
    def open(self) -> bool:
        """Tells whether records that are published from now on are left out, too."""
        return self.stop == inf


def rest_skipped(skips: list[Skip]) -> Skip | None:
    """Returns the skip in force that leaves out everything from some record on, if there is one."""
    for skip in skips:
        if skip.predicate is None and skip.open:
            return skip
    return None


class LeftOut:
    """The records ahead of a consumer's cursor that were left out: a byte for each, in the chunks that have any."""

    __slots__ = ("_flags", "bytes", "looks", "records", "whole_bytes")

    def __init__(self) -> None:
        self._flags: dict[Chunk, bytearray] = {}
        self.records = 0
        self.bytes = 0
        self.whole_bytes = 0
        """The bytes of chunks of which nothing else is left. They are not held for this consumer."""
        self.looks: set[object] = set()
        """The orders that are being applied to what waits (deferred.py)."""

    def waiting(self, chunk: Chunk, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yields the ranges of records ``first`` … ``last - 1`` of a chunk that are not left out."""
        flags = self._flags.get(chunk)
        if flags is None:
            if first < last:
                yield first, last
            return
        flags.extend(bytes(len(chunk) - len(flags)))
        for found in _WAITING.finditer(bytes(flags), first, last):  # who stops early would keep them from growing
            yield found.span()

    def has(self, chunk: Chunk, index: int) -> bool:
        flags = self._flags.get(chunk)
        return flags is not None and index < len(flags) and flags[index] > 0

    def all_waiting(self, chunk: Chunk | None, number: int, stop: int) -> Iterator[tuple[Chunk, int, int]]:
        """Yields the ranges of records that are not left out from ``number`` on, which is in the chunk or follows it,
        before ``stop``. There may be as many as records."""
        while chunk is not None and chunk.first_number < stop:
            here = chunk.first_number
            for first, last in self.waiting(chunk, max(0, number - here), min(stop - here, len(chunk))):
                yield chunk, first, last
            chunk = chunk.next

    def add(self, chunk: Chunk, ranges: list[tuple[int, int]], size: int) -> None:
        """Adds ranges of records that wait, which have so many bytes."""
        flags = self._flags.setdefault(chunk, bytearray())
        flags.extend(bytes(len(chunk) - len(flags)))
        for first, last in ranges:
            flags[first:last] = b"\1" * (last - first)
            self.records += last - first
        self.bytes += size

    def passed(self, chunk: Chunk, number: int, stop: int) -> int:
        """Forgets what was left out from ``number`` on, which is in the chunk or follows it, before ``stop``: the
        cursor passes it. Returns how many records that is."""
        before = self.records
        one: Chunk | None = chunk
        while one is not None and one.first_number < stop:
            first, last = max(0, number - one.first_number), min(stop - one.first_number, len(one))
            if (flags := self._flags.get(one)) is not None:
                for found in _LEFT_OUT.finditer(flags, first, last):
                    self.records -= found.end() - found.start()
                    self.bytes -= one.ends[found.end() - 1] - one.record_start(found.start())
                if flags.find(1, last) < 0:
                    if self.is_whole(one):
                        self.whole_bytes = max(0, self.whole_bytes - one.size)
                    del self._flags[one]
            one = one.next
        return before - self.records

    def is_whole(self, chunk: Chunk) -> bool:
        """Tells whether nothing else is left of a chunk, to which no more is added."""
        flags = self._flags.get(chunk)
        return flags is not None and len(flags) == len(chunk) and chunk.next is not None and flags.find(0) < 0

    def whole(self) -> list[Chunk]:
        """Returns the chunks of which nothing else is left. Their bytes are counted anew."""
        found = [chunk for chunk in self._flags if self.is_whole(chunk)]
        self.whole_bytes = sum(chunk.size for chunk in found)
        return found

    def clear(self) -> None:
        self._flags.clear()
        self.records = self.bytes = self.whole_bytes = 0

    def check(self, cursor: Cursor) -> None:
        """Asserts the invariants. It visits every record."""
        found = [(chunk, index) for chunk, flags in self._flags.items() for index, flag in enumerate(flags) if flag
                 and chunk.first_number + index >= cursor.number]  # fmt: skip
        assert self.records == len(found)
        assert self.bytes == sum(chunk.size_of(index) for chunk, index in found)
        assert all(chunk.next is not None or chunk is cursor.lane.tail for chunk in self._flags)


NONE_LEFT_OUT: Final = LeftOut()
"""Shared by all consumers for which nothing is left out ahead. It is never written to."""
