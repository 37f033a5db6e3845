"""Reassembly: packets that have come in part, of all connections of a pool, and who may send the rest.

A packet is put together before it is looked at, so six hundred clients that each send half of a megabyte, by accident
or on purpose, would take up 300 MB that no lane has and no pool knows.

Rules:
- What has come in part counts in the pool, as soon as it is worth counting (``connection.UNCOUNTED_BYTES``).
- A packet that comes whole, or is small (``SMALL_BYTES``), asks nobody. A larger one needs a *grant* for all of it. All
  grants of a pool together are ``limit_bytes``; who gets none is not read until others are done, in the order they
  came. So everybody gets his turn, and nobody is cut for having to wait.
- Somebody always has a turn: where nobody else is read the first in the line is, whatever the size of its packet.
- While anybody waits, no more than ``SMALL_BYTES`` are read at once from those who have no grant, nor more from those
  who have one than their packet lacks: or each would have half of the next by then.
- Who has a grant and does not use it, while others wait, loses its connection: ``GRANT_S``, and the time the packet
  takes at ``BYTES_PER_S_MIN``.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple, Protocol

from headway.core.base import Reason, format_size
from headway.core.log import Pool

SMALL_BYTES = 16 * 1024
SHARE = 0.25
"""Of what clients may take up besides records."""
GRANT_S = 30.0
BYTES_PER_S_MIN = 32 * 1024
LOOKS_MAX = 64


class PartialPacket(NamedTuple):
    """What one connection has sent of packets that are not whole."""

    bytes: int
    missing_bytes: int
    """Of these packets is still to come."""
    packets: int
    """Have come whole before."""


class PacketSource(Protocol):
    """Who brings packets: a connection."""

    partial_bytes: int
    read_bytes: int

    def pause_reading(self, why: str) -> None: ...
    def resume_reading(self, why: str) -> None: ...
    def close_gracefully(self, reason: Reason, text: str) -> None: ...


class Reservation(NamedTuple):
    since_s: float
    bytes: int
    packets: int
    """Had come when it was asked for."""
    granted_bytes: int = 0
    """Of one that waits: it has so much already."""


class Reassembly:
    """Those of one pool."""

    __slots__ = ("_granted_bytes", "_pool", "reading", "waiting")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.reading: dict[PacketSource, Reservation] = {}
        """Who has a grant and is read, the oldest first; somebody, if anybody waits."""
        self.waiting: dict[PacketSource, Reservation] = {}
        """Who waits, for what; in the order they came."""
        self._granted_bytes = 0

    @property
    def limit_bytes(self) -> int:
        return int(self._pool.clients_limit * SHARE)

    def limit_of(self, connection: PacketSource) -> int:
        """So much may be read from it at once, while anybody waits."""
        grant = self.reading.get(connection)
        missing = grant.bytes - connection.partial_bytes if grant is not None else 0
        return min(connection.read_bytes, max(SMALL_BYTES, missing))

    def update(self, connection: PacketSource, part: PartialPacket, now: float) -> None:
        """What it has sent of packets that are not whole."""
        if part.bytes != connection.partial_bytes:
            self._count(connection, part.bytes)
        if not self.reading and part.bytes + part.missing_bytes <= SMALL_BYTES:
            return  # it asks nobody, and brings nothing that somebody waits for
        granted, grant = 0, self.reading.get(connection)
        if grant is not None:
            granted = grant.bytes
            if part.packets != grant.packets:  # that is brought, and others may want to bring theirs
                del self.reading[connection]
                self._granted_bytes -= granted
                granted = 0
                self._admit(now)
        whole = part.bytes + part.missing_bytes
        if part.bytes and whole > max(SMALL_BYTES, granted):
            self.reading.pop(connection, None)
            self.waiting[connection] = Reservation(now, whole, part.packets, granted)
            self._admit(now)
            if connection in self.waiting:
                connection.pause_reading("memory")

    def remove(self, connection: PacketSource, now: float) -> None:
        """Its connection has ended."""
        self._count(connection, 0)
        grant, wanted = self.reading.pop(connection, None), self.waiting.pop(connection, None)
        if grant is not None:
            self._granted_bytes -= grant.bytes
        if wanted is not None:
            self._granted_bytes -= wanted.granted_bytes
        self._admit(now)

    def overdue(self, now: float) -> list[tuple[PacketSource, str]]:
        """Who keeps others waiting, and what that is to be told."""
        if not self.waiting:
            return []
        found = []
        for connection, grant in islice(self.reading.items(), LOOKS_MAX):
            if now - grant.since_s > GRANT_S + grant.bytes / BYTES_PER_S_MIN:
                text = (f"a packet of {format_size(grant.bytes)} has not come whole in {now - grant.since_s:.0f} s, "
                        f"and {len(self.waiting)} others wait for the memory")  # fmt: skip
                found.append((connection, text))
        return found

    def _admit(self, now: float) -> None:
        """On with those who wait, as far as there is room."""
        while self.waiting:
            connection, wanted = next(iter(self.waiting.items()))
            more = wanted.bytes - wanted.granted_bytes
            if self.reading and self._granted_bytes + more > self.limit_bytes:
                return
            del self.waiting[connection]
            self.reading[connection] = Reservation(now, wanted.bytes, wanted.packets)
            self._granted_bytes += more
            connection.resume_reading("memory")

    def _count(self, connection: PacketSource, partial_bytes: int) -> None:
        self._pool.add_clients(partial_bytes - connection.partial_bytes)
        connection.partial_bytes = partial_bytes
