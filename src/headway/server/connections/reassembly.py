"""Reassembly: the packets of a pool's connections that have come in part, and which connections may send the rest.

Theory of operation. A packet is put together before it is decoded. If six hundred clients each sent half a megabyte of
a packet, by accident or on purpose, they would take up 300 MB that no lane holds and no pool counts. So large packets
*reserve* memory.

Rules:
- A partial packet counts in the pool once it is large enough to matter (``connection.UNCOUNTED_BYTES``).
- A packet that comes whole, or is small (``SMALL_BYTES``), needs no reservation. A larger one needs a reservation for
  all of its bytes. All reservations of a pool together stay within ``limit_bytes``. A connection that gets none is not
  read until others are done, in the order in which they asked. So each gets its turn, and none is closed for waiting.
- One connection always has its turn: if no other is read, the first that waits is, whatever the size of its packet.
- While any connection waits, one read brings at most ``SMALL_BYTES`` from those without a reservation, and at most the
  rest of the packet from those with one. Otherwise each would have half of its next packet by then.
- A connection that has a reservation and does not use it while others wait is closed: after ``GRANT_S``, and the time
  that its packet takes at ``BYTES_PER_S_MIN``.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple, Protocol

from headway.core.base import Reason, format_size
from headway.core.log import Pool

SMALL_BYTES = 16 * 1024
SHARE = 0.25
"""Share of reservations in what clients may take up besides records."""
GRANT_S = 30.0
BYTES_PER_S_MIN = 32 * 1024
LOOKS_MAX = 64


class PartialPacket(NamedTuple):
    """Partial packets of one connection (several in AMQP: one per channel)."""

    bytes: int
    missing_bytes: int
    """Bytes of these packets that are still to come."""
    packets: int
    """Packets that have come whole before."""


class PacketSource(Protocol):
    """A connection, as far as reassembly goes."""

    partial_bytes: int
    read_bytes: int

    def pause_reading(self, why: str) -> None: ...
    def resume_reading(self, why: str) -> None: ...
    def close_gracefully(self, reason: Reason, text: str) -> None: ...


class Reservation(NamedTuple):
    since_s: float
    bytes: int
    packets: int
    """Packets that had come whole when the reservation was asked for."""
    granted_bytes: int = 0
    """Bytes that a connection which waits for more has reserved already."""


class Reassembly:
    """Partial packets of one pool's connections."""

    __slots__ = ("_granted_bytes", "_pool", "reading", "waiting")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.reading: dict[PacketSource, Reservation] = {}
        """Connections with a reservation, the oldest first. Not empty while any connection waits."""
        self.waiting: dict[PacketSource, Reservation] = {}
        """Connections that wait, and the reservation each asks for, in order."""
        self._granted_bytes = 0

    @property
    def limit_bytes(self) -> int:
        return int(self._pool.clients_limit * SHARE)

    def limit_of(self, connection: PacketSource) -> int:
        """Returns how many bytes one read may bring while any connection waits."""
        grant = self.reading.get(connection)
        missing = grant.bytes - connection.partial_bytes if grant is not None else 0
        return min(connection.read_bytes, max(SMALL_BYTES, missing))

    def update(self, connection: PacketSource, part: PartialPacket, now: float) -> None:
        """Takes note of a connection's partial packets after a read. Stops reading it if they need a reservation that
        is not to be had."""
        if part.bytes != connection.partial_bytes:
            self._count(connection, part.bytes)
        if not self.reading and part.bytes + part.missing_bytes <= SMALL_BYTES:
            return  # it needs no reservation, and has none to give back
        granted, grant = 0, self.reading.get(connection)
        if grant is not None:
            granted = grant.bytes
            if part.packets != grant.packets:  # the packet is whole; its reservation goes to others
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
        """Forgets a connection that has ended."""
        self._count(connection, 0)
        grant, wanted = self.reading.pop(connection, None), self.waiting.pop(connection, None)
        if grant is not None:
            self._granted_bytes -= grant.bytes
        if wanted is not None:
            self._granted_bytes -= wanted.granted_bytes
        self._admit(now)

    def overdue(self, now: float) -> list[tuple[PacketSource, str]]:
        """Returns connections that keep others waiting for too long, and the text to close each with."""
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
        """Reads those that wait again, in order, as far as there is room."""
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
