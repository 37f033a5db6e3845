"""Pools: a memory and a disk budget, global or of one listener, and what is used of them.

Water marks, as shares of the memory limit:

======= ====== ==========================================================================================
high    0.90   above it the oldest chunks of the lane that holds the most begin to leave for the disk …
low     0.75   … until, once they are all written, no more than this is resident
crowded 0.95   above it who publishes to a lane that has fallen behind is not read …
full    1.00   … and above it no publisher is, until the disk (or a disconnect) has made room again
======= ====== ==========================================================================================

What clients take up besides records (tab.py) counts as well, but for the first ``CLIENTS_FREE_BYTES``: a pool of one
megabyte can have clients, too. It cannot be written to disk, so it is refused where it would be more than
``CLIENTS_SHARE`` of the memory.

A lane has *fallen behind* if some of it is on disk, or much of it (``BEHIND_SHARE`` of the limit) in memory. Those who
fill the memory wait first: what they leave is for lanes whose readers keep up, and need it for a moment.

So memory never exceeds the limit by more than what each publisher's last slice brought (publishing.py). Where what is
above the mark cannot leave (it was promised, and there is no disk for it) the pool is *tight*: lanes that hold such
take no more, and the others have ``RESERVE`` of the limit above what stays, so that they go on. What stays counts up to
``STAYS_MAX`` of the limit, or a thousand lanes that close one after the other would each make room for the next.

A lane belongs to one pool; a chunk's bytes are counted once, however many cursors stand in it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from headway.core.base import Ranking

if TYPE_CHECKING:
    from headway.core.log.lane import Lane

HIGH_WATER = 0.90
LOW_WATER = 0.75
CROWDED = 0.95
BEHIND_SHARE = 1 / 64
RESERVE = 0.10
STAYS_MAX = 2.0
STATES_SHARE = 0.5
CLIENTS_SHARE = 0.5
CLIENTS_FREE_BYTES = 16_000_000
DISK_RETRY_S = 30.0
GRACE_S = 1.0
"""Nobody is given up for what came less than this ago: the healthy must have had the time to take it. Meanwhile
publishers that are not read keep the memory in bounds."""

KNOWN_WITHIN_BYTES = 8 * 1024
"""So far a lane's memory may have grown beyond what is known of it: to twice that, if it is less than this."""
_SMALL_BYTES = 512


def _resident_known(lane: Lane, known: int) -> None:
    more = min(max(known, _SMALL_BYTES), KNOWN_WITHIN_BYTES)
    lane.known_bytes = known + lane.spilling_bytes + more if known else 0


class Pool:
    """Limits in bytes, usage in bytes. ``disk_limit`` 0: nothing may be spilled."""

    def __init__(self, name: str, memory_limit: int, disk_limit: int, client_share: float = 0.5,
                 clients_free_bytes: int = CLIENTS_FREE_BYTES) -> None:
        self.name = name
        self.memory_limit = memory_limit
        self.disk_limit = disk_limit
        self.client_share = client_share
        self.clients_free_bytes = clients_free_bytes
        self.memory_bytes = 0
        """Resident chunks, what is kept in memory about spilled ones, state, and what clients take up."""
        self.clients_bytes = 0
        """What clients take up besides records; beyond ``clients_free_bytes`` it is part of ``memory_bytes``."""
        self.state_bytes = 0
        """Part of ``memory_bytes`` that is state."""
        self.spilling_bytes = 0
        """Part of ``memory_bytes`` that a worker is writing at this moment."""
        self.disk_bytes = 0
        self.memory_peak_bytes = 0
        self.disk_peak_bytes = 0
        self.disk_broken_until_s = 0.0
        """After a failed write nothing is spilled before this time."""
        self.disk_error = ""
        """What went wrong at the last failed write."""
        self.hopeless = False
        """All was sent to disk that could be, all were given up who could be, and it is not enough."""
        self.closed: dict[Lane, int] = {}
        """Lanes that were closed when last looked at, and those that may be, with what they held then ..."""
        self.closed_bytes = 0
        """... together."""
        self.resident: Ranking[Lane] = Ranking(lambda lane: lane.staying_bytes, told=_resident_known)
        self.spilled: Ranking[Lane] = Ranking(lambda lane: lane.spilled_bytes)
        """Its lanes, by what they hold in memory and on disk ..."""
        self.indexed: Ranking[Lane] = Ranking(lambda lane: lane.index_bytes)
        """... and by what is in memory of what has left it; of small records that is as much as they are."""

    def add_memory(self, size: int) -> None:
        self.memory_bytes += size
        if self.memory_bytes > self.memory_peak_bytes:
            self.memory_peak_bytes = self.memory_bytes

    def add_disk(self, size: int) -> None:
        self.disk_bytes += size
        if self.disk_bytes > self.disk_peak_bytes:
            self.disk_peak_bytes = self.disk_bytes

    def add_state(self, size: int) -> None:
        self.state_bytes += size
        assert self.state_bytes >= 0
        self.add_memory(size)

    def add_clients(self, size: int) -> None:
        before = self.clients_counted_bytes
        self.clients_bytes += size
        assert self.clients_bytes >= 0
        self.add_memory(self.clients_counted_bytes - before)

    @property
    def clients_counted_bytes(self) -> int:
        return max(0, self.clients_bytes - self.clients_free_bytes)

    @property
    def clients_limit(self) -> int:
        """All clients together may take up so much besides records,"""
        return self.clients_free_bytes + int(self.memory_limit * CLIENTS_SHARE)

    @property
    def client_limit(self) -> int:
        """... and one of them so much."""
        return int(self.clients_limit * self.client_share)

    @property
    def states_full(self) -> bool:
        """The states of this pool take up more memory than they may together."""
        return self.state_bytes > (self.memory_limit - self.clients_counted_bytes) * STATES_SHARE

    def close(self, lane: Lane) -> None:
        """The lane takes no more, or may not."""
        self.open(lane)
        self.closed[lane] = lane.memory_bytes
        self.closed_bytes += lane.memory_bytes

    def open(self, lane: Lane) -> None:
        self.closed_bytes -= self.closed.pop(lane, 0)
        assert self.closed_bytes >= 0

    def to_spill_bytes(self) -> int:
        """How much more should leave memory now; 0 below the high-water mark."""
        staying = self.memory_bytes - self.spilling_bytes
        if staying <= self.memory_limit * HIGH_WATER:
            return 0
        return staying - int(self.memory_limit * LOW_WATER)

    @property
    def strained(self) -> bool:
        """Something has to leave, memory or disk, and is not on its way yet; if it is known that nothing can, the next
        tick is soon enough to try again."""
        return not self.hopeless and (self.disk_full or self.to_spill_bytes() > 0)

    @property
    def tight(self) -> bool:
        """Something has to leave memory, and cannot."""
        return self.hopeless and self.to_spill_bytes() > 0

    def disk_broken(self, now: float) -> bool:
        """There is a disk, and it could not be written to a moment ago."""
        return self.disk_limit > 0 and now < self.disk_broken_until_s

    def can_spill(self, now: float) -> bool:
        return self.disk_limit > 0 and now >= self.disk_broken_until_s

    def room_bytes(self, now: float) -> int:
        """What may still be written to its disk; less than 0: nothing."""
        return self.disk_limit - self.disk_bytes - self.spilling_bytes if self.can_spill(now) else -1

    @property
    def full(self) -> bool:
        """Nobody may publish into it."""
        if self.memory_bytes <= self.memory_limit or not self.closed_bytes:
            return self.memory_bytes > self.memory_limit
        stays = self.closed_bytes + self.state_bytes + self.clients_counted_bytes
        return self.memory_bytes > min(stays, self.memory_limit * STAYS_MAX) + self.memory_limit * RESERVE

    @property
    def crowded(self) -> bool:
        """Whoever publishes to a lane that has fallen behind has to wait."""
        return self.memory_bytes > self.memory_limit * CROWDED and (self.full or not self.closed_bytes)

    def full_for(self, lane: Lane) -> bool:
        """Whoever publishes to this lane has to wait."""
        if self.full:
            return True
        behind = lane.spilled_bytes > 0 or lane.memory_bytes > self.memory_limit * BEHIND_SHARE
        return behind and self.crowded

    @property
    def disk_full(self) -> bool:
        return self.disk_bytes > self.disk_limit

    def check(self, lanes: Collection[Lane]) -> None:
        """Assert that the counts add up. ``lanes``: all that there are in it."""
        counts = (self.clients_bytes, self.state_bytes, self.spilling_bytes, self.disk_bytes, self.closed_bytes)
        assert min(counts) >= 0, "nothing takes up less than nothing"
        memory = self.state_bytes + self.clients_counted_bytes + sum(lane.memory_bytes for lane in lanes)
        assert self.memory_bytes == memory, f"{self.memory_bytes} bytes counted, {memory} there"
        disk = sum(lane.spilled_bytes for lane in lanes)
        assert self.disk_bytes == disk, f"{self.disk_bytes} bytes on disk counted, {disk} there"
        assert self.spilling_bytes == sum(lane.spilling_bytes for lane in lanes)
        assert self.closed_bytes == sum(self.closed.values())
        assert self.memory_bytes <= self.memory_peak_bytes
        assert self.disk_bytes <= self.disk_peak_bytes
        for lane in lanes:
            assert lane.pool is self
            memory_known, disk_known = self.resident.known(lane), self.spilled.known(lane)
            if memory_known is not None:
                most = memory_known + KNOWN_WITHIN_BYTES if memory_known else 0
                assert lane.staying_bytes <= most, "a lane holds more than its pool knows"
            assert disk_known is None or lane.spilled_bytes <= disk_known, "its pool does not know of all on disk"
