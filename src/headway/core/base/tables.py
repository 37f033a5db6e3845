"""History: the latest entries about each name. Entries per name, names, and entries in all have limits.

The name that has gone longest without a new entry makes room: it loses its oldest entry, or all of them when there are
too many names. Reading changes no order.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, count
from typing import Any, Generic, TypeVar

# -- runs ------------------------------------------------------------------------------------------------------------


def consecutive(numbers: Sequence[int], at: int, most: int) -> int:
    """Returns how many numbers from index ``at`` on, ``most`` at most, are consecutive. There is one."""
    found, most = 0, min(most, len(numbers) - at)
    if most > 1 and numbers[at + 1] != numbers[at] + 1:
        return 1
    while found < most:
        first = numbers[at] + found
        some = tuple(numbers[at + found : at + min(most, 2 * found + 256)])  # what is looked at in vain is not much
        if some != tuple(range(first, first + len(some))):
            return found + next(n for n, one in enumerate(some) if one != first + n)
        found += len(some)
    return most


# -- history -----------------------------------------------------------------------------------------------------------


T = TypeVar("T")

PER_NAME_MAX = 32
NAMES_MAX = 10_000
ENTRIES_MAX = 20_000


class History(Generic[T]):
    def __init__(self, per_name: int = PER_NAME_MAX, names_max: int = NAMES_MAX, entries_max: int = ENTRIES_MAX
                 ) -> None:
        self._per_name = max(1, per_name)
        self._names_max = max(1, names_max)
        self._entries_max = max(1, entries_max)
        self._names: OrderedDict[str, deque[T]] = OrderedDict()
        self._held = 0

    def put(self, name: str, entry: T) -> None:
        kept = self._names.setdefault(name, deque())
        self._names.move_to_end(name)
        kept.append(entry)
        self._held += 1
        if len(kept) > self._per_name:
            kept.popleft()
            self._held -= 1
        while len(self._names) > self._names_max:
            _, dropped = self._names.popitem(last=False)
            self._held -= len(dropped)
        while self._held > self._entries_max:
            name, oldest = next(iter(self._names.items()))
            oldest.popleft()
            self._held -= 1
            if not oldest:
                del self._names[name]

    def of(self, name: str) -> tuple[T, ...]:
        """Returns the entries of one name, the newest last."""
        return tuple(self._names.get(name, ()))

    def last(self, name: str) -> T | None:
        kept = self._names.get(name)
        return kept[-1] if kept else None

    def names(self) -> Sequence[str]:
        """Returns the names that have entries, the one with the latest entry last."""
        return tuple(self._names)

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._names.values())

    def __len__(self) -> int:
        return self._held


# -- ranking -----------------------------------------------------------------------------------------------------------
#
# A ranking finds the lane (or client) of a pool that holds the most, without a look at all of them.
#
# Theory of operation, told of lanes. A heap has the last known figure of each lane. A lane that grows reports it
# (``put``). A lane that shrinks reports nothing, so its figure may be too large; it is corrected only when it comes to
# the top of the heap. A lane at the top whose figure is correct holds the most. Lanes below the top cost nothing, and
# each chunk that comes or goes costs one heap operation.
#
# A lane in which a look found nothing to do *rests*: it is skipped for a while.


PUT_RIGHT_MAX = 1000
"""The number of figures that one call corrects; the next call corrects the others."""
SLACK = 64


class Ranking(Generic[T]):
    """``holds`` returns the current figure of a lane. ``told`` is called with each new known figure; 0 means none."""

    def __init__(
        self, holds: Callable[[T], int], lanes: Iterable[T] = (), *,
        told: Callable[[T, int], None] = lambda lane, known: None,
    ) -> None:  # fmt: skip
        self.holds = holds
        self._tell = told
        self._numbers = count()
        self._known: dict[T, tuple[int, int, T]] = {}
        self._resting: dict[T, float] = {}
        self._wakes: deque[tuple[float, T]] = deque()
        self._heap: list[tuple[int, int, T]] = []
        """Known figures, the largest first, among outdated ones that are dropped when they come to the top."""
        for lane in lanes:
            self.put(lane)

    def __len__(self) -> int:
        return len(self._known)

    def put(self, lane: T) -> None:
        """Records the figure of a lane that may have grown."""
        held = self.holds(lane)
        known = self._known.get(lane)
        if lane not in self._resting and held > (0 if known is None else -known[0]):
            heappush(self._heap, self._note(lane, held))
            if len(self._heap) > 2 * len(self._known) + SLACK:
                self._heap = list(self._known.values())
                heapify(self._heap)

    def forget(self, lane: T) -> None:
        """Removes a lane until it is put again."""
        self._resting.pop(lane, None)
        if self._known.pop(lane, None) is not None:
            self._tell(lane, 0)

    def known(self, lane: T) -> int | None:
        """Returns the last known figure of the lane; None if it rests."""
        return None if lane in self._resting else -self._known.get(lane, (0,))[0]

    def most(self, at_least: int = 1) -> T | None:
        """Returns the lane that holds the most, if it holds ``at_least``. Returns None also while too many figures need
        correction."""
        heap, known = self._heap, self._known
        for _ in range(PUT_RIGHT_MAX):
            if not heap or -heap[0][0] < at_least:
                return None
            entry = heap[0]
            figure, _, lane = entry
            if known.get(lane) is not entry:
                heappop(heap)
                continue
            held = self.holds(lane)
            if held >= -figure:
                return lane
            if held > 0:
                heapreplace(heap, self._note(lane, held))
            else:
                heappop(heap)
                del known[lane]
                self._tell(lane, 0)
        return None

    def rest(self, lane: T, until_s: float) -> None:
        """Skips the lane until ``until_s``. All lanes rest for equally long, so ``_wakes`` is in order."""
        self.forget(lane)
        self._resting[lane] = until_s
        self._wakes.append((until_s, lane))

    def wake(self, now: float) -> None:
        """Puts the lanes back whose rest has ended."""
        while self._wakes and self._wakes[0][0] <= now:
            until_s, lane = self._wakes.popleft()
            if self._resting.get(lane) == until_s:
                del self._resting[lane]
                self.put(lane)

    def _note(self, lane: T, held: int) -> tuple[int, int, T]:
        entry = self._known[lane] = (-held, next(self._numbers), lane)
        self._tell(lane, held)
        return entry


# -- recent cache ------------------------------------------------------------------------------------------------------
#
# A cache with a limit in bytes.
#
# ``functools.lru_cache`` counts entries, and clients choose how large an entry is: a header of a thousand properties, a
# selector of a thousand names. So a cache that clients can fill is one of two:
#
# - an ``lru_cache`` that is asked only for keys of a few hundred bytes, where larger ones are rare;
# - a :class:`RecentCache`, which counts bytes.
#
# ``tests/test_caches.py`` lists all caches, each with its limit.
#
# Theory of operation. There are two generations. New values go into the young one, which is the dictionary itself. When
# it has half of the limit, it becomes the old one, and what was in the old one is forgotten. A value that is found in
# the old one is young again. So what is used stays; a hit in the young one is a look-up in C, less than with
# ``lru_cache``, and no list of uses has to be kept in order.


K = TypeVar("K")
V = TypeVar("V")
_NOTHING: Any = object()
SHARE = 4
"""A value that takes more than this part of the limit is not kept: it would push out too many others."""


class RecentCache(dict[K, V]):
    """``cache[key]`` is ``make(key)``, made anew unless it was asked for lately. ``size_of`` returns the bytes that a
    key and its value take up."""

    __slots__ = ("_make", "_old", "_size_of", "bytes_max", "young_bytes")

    def __init__(self, make: Callable[[K], V], bytes_max: int, size_of: Callable[[K, V], int]) -> None:
        super().__init__()
        self._make = make
        self._size_of = size_of
        self._old: dict[K, V] = {}
        self.bytes_max = bytes_max
        self.young_bytes = 0

    def __missing__(self, key: K) -> V:
        kept = self._old.pop(key, _NOTHING)  # in one step, for threads share caches
        value = self._make(key) if kept is _NOTHING else kept
        size = self._size_of(key, value)
        if size * SHARE <= self.bytes_max:
            if (self.young_bytes + size) * 2 > self.bytes_max:
                self._old = dict(self)
                self.clear()
            self[key] = value
            self.young_bytes += size
        return value

    def clear(self) -> None:
        """Forgets the young generation."""
        super().clear()
        self.young_bytes = 0

    def forget(self) -> None:
        """Forgets everything."""
        self.clear()
        self._old.clear()


# -- packet ids --------------------------------------------------------------------------------------------------------
#
# Packet ids of one client, one bit each: a client that publishes at QoS 2 may have all 65,535 in use.


PAGE_BITS = 8
_PAGE = (1 << PAGE_BITS) - 1


class PacketIds:
    """A set of packet ids. Ids of one page of 256 share an integer, so all ids together take 30 kB."""

    __slots__ = ("_pages", "_size")

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}
        """Bits of the lower 8 bits of each id, by the upper bits."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, packet_id: int) -> bool:
        return bool(self._pages.get(packet_id >> PAGE_BITS, 0) >> (packet_id & _PAGE) & 1)

    def __iter__(self) -> Iterator[int]:
        for page, bits in list(self._pages.items()):
            for low in range(_PAGE + 1):
                if bits >> low & 1:
                    yield page << PAGE_BITS | low

    def add(self, packet_id: int) -> None:
        if packet_id not in self:
            page = packet_id >> PAGE_BITS
            self._pages[page] = self._pages.get(page, 0) | 1 << (packet_id & _PAGE)
            self._size += 1

    def discard(self, packet_id: int) -> bool:
        """Removes the id. Returns False if the set did not have it."""
        if packet_id not in self:
            return False
        page = packet_id >> PAGE_BITS
        self._pages[page] ^= 1 << (packet_id & _PAGE)
        if not self._pages[page]:
            del self._pages[page]
        self._size -= 1
        return True
