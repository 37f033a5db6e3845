"""Reassembly: the packets of a pool's connections that have come in part, and which connections may send the rest.

Theory of operation. A packet is put together before it is decoded. If six hundred clients each sent half a megabyte of
a packet, by accident or on purpose, they would take up 300 MB that no lane holds and no pool counts. So large packets
*reserve* memory.

Rules:
- Connections that have not logged in have a small share of their own (``STRANGERS_SHARE``), and need no reservation. If
  it is used up, those that have sent nothing for the longest are ended. Their bytes are memory of the pool, but do not
  count as memory of clients. Otherwise anybody could use that up, and no client with a password would be let in.
- A partial packet counts in the pool once it is large enough to matter (``connection.UNCOUNTED_BYTES``).
- A packet that comes whole, or is small (``SMALL_BYTES``), needs no reservation. A larger one needs a reservation for
  all of its bytes. All reservations of a pool together stay within ``limit_bytes``. A connection that gets none is not
  read until others are done, in the order in which they asked. So each gets its turn, and none is closed for waiting.
- One connection always has its turn: if no other is read, the first that waits is, whatever the size of its packet.
- While any connection waits, one read brings at most ``SMALL_BYTES`` from those without a reservation, and at most the
  rest of the packet from those with one. Otherwise each would have half of its next packet by then.
- Of some packets nobody knows the size before their end. They reserve as much again as has come, and more when that is
  used up.
- If all wait for more, the first of them gets all that its packets can need. It is the *whale*: no other one gets so
  much, and it keeps that, until all reservations together are within the limit again.
- A connection that puts several packets together keeps the reservation for what it holds when one of them is whole.
- A connection that has a reservation and does not use it while others wait is closed: after its *patience*, and the
  time that what has come since takes at ``BYTES_PER_S_MIN``. The time in which it had to wait itself does not count.
  The patience is ``GRANT_S``, or less while more wait than are read. Otherwise a thousand clients that send nothing
  more would keep others waiting for half a minute each.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple, Protocol

from headway.core.base import Reason, format_size
from headway.core.log import Pool

SMALL_BYTES = 16 * 1024
SHARE = 0.25
"""Share of reservations in what clients may take up besides records."""
STRANGERS_SHARE = 1 / 16
"""Share of connections that have not logged in, beside what clients may take up."""
GRANT_S, GRANT_LEAST_S = 30.0, 3.0
BYTES_PER_S_MIN = 32 * 1024
LOOKS_MAX = 64


class PartialPacket(NamedTuple):
    """Partial packets of one connection (several in AMQP: one per channel, or per link)."""

    bytes: int
    missing_bytes: int
    """Bytes of these packets that are still to come, as far as their sizes are known."""
    oldest: int
    """Number of the packet that began first. It is another one when that packet is whole."""
    unknown_bytes: int = 0
    """The most that may come besides, of packets whose sizes are not known."""


class PacketSource(Protocol):
    """A connection, as far as reassembly goes."""

    admitted: bool
    partial_bytes: int
    read_bytes: int

    def pause_reading(self, why: str) -> None: ...
    def resume_reading(self, why: str) -> None: ...
    def end_soon(self, reason: Reason, text: str = "", *, told: bool = False) -> None: ...


class Reservation(NamedTuple):
    since_s: float
    """When the packet was first read with a reservation; later by the time in which it has waited since then."""
    bytes: int
    oldest: int
    had_bytes: int
    """Bytes of the packet that had come then."""


NO_RESERVATION = Reservation(0.0, 0, 0, 0)


class Wish(NamedTuple):
    """A reservation that a connection waits for."""

    bytes: int
    most_bytes: int
    """The most that its packets can need."""
    oldest: int
    granted_bytes: int
    """Bytes that it has reserved already."""
    used_s: float
    """How long its packet was read with a reservation before."""
    had_bytes: int


class Reassembly:
    """Partial packets of one pool's connections."""

    __slots__ = ("_granted_bytes", "_pool", "_strangers", "_whale", "reading", "strangers_bytes", "waiting")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.reading: dict[PacketSource, Reservation] = {}
        """Connections with a reservation, the oldest first. Not empty while any connection waits."""
        self.waiting: dict[PacketSource, Wish] = {}
        """Connections that wait, in order."""
        self._strangers: dict[PacketSource, None] = {}
        """Connections with a partial packet that have not logged in, in the order in which they last sent some of it.
        """
        self.strangers_bytes = 0
        self._granted_bytes = 0
        self._whale: PacketSource | None = None

    @property
    def limit_bytes(self) -> int:
        return int(self._pool.clients_limit * SHARE)

    @property
    def strangers_limit_bytes(self) -> int:
        return int(self._pool.clients_limit * STRANGERS_SHARE)

    def limit_of(self, connection: PacketSource) -> int:
        """Returns how many bytes one read may bring while any connection waits."""
        missing = self.reading.get(connection, NO_RESERVATION).bytes - connection.partial_bytes
        return min(connection.read_bytes, max(SMALL_BYTES, missing))

    def update(self, connection: PacketSource, part: PartialPacket, now: float) -> None:
        """Takes note of a connection's partial packets after a read. Stops reading it if they need a reservation that
        is not to be had."""
        if part.bytes != connection.partial_bytes or connection in self._strangers:
            self._count(connection, part.bytes)
        if not connection.admitted:
            self._end_strangers()
            return
        if not self.reading and part.bytes + part.missing_bytes <= SMALL_BYTES:
            return  # it needs no reservation, and has none to give back
        granted, used_s, had, grant = 0, 0.0, part.bytes, self.reading.get(connection)
        if grant is not None:
            granted, used_s, had = grant.bytes, now - grant.since_s, grant.had_bytes
            if part.oldest != grant.oldest:  # its oldest packet is whole; that packet's reservation goes to others
                granted, used_s, had = self._shrink(connection, grant, part, now)
        whole = part.bytes + part.missing_bytes
        if part.bytes and whole > max(SMALL_BYTES, granted):
            self.reading.pop(connection, None)
            wanted = whole + min(part.unknown_bytes, part.bytes)
            most = whole + part.unknown_bytes
            self.waiting[connection] = Wish(wanted, most, part.oldest, granted, used_s, had)
            self._admit(now)
            if connection in self.waiting:
                connection.pause_reading("memory")

    def _shrink(
        self, connection: PacketSource, grant: Reservation, part: PartialPacket, now: float
    ) -> tuple[int, float, int]:
        """Leaves a connection whose oldest packet is whole what it needs for what it holds. Returns its reservation,
        how long that is used already, and what had come then."""
        kept = min(grant.bytes, part.bytes) if part.bytes > SMALL_BYTES else 0
        if kept and self._granted_bytes - grant.bytes + kept > self.limit_bytes:
            self.reading[connection] = grant._replace(oldest=part.oldest)
            return grant.bytes, now - grant.since_s, grant.had_bytes
        del self.reading[connection]
        self._granted_bytes -= grant.bytes - kept
        if kept:
            self.reading[connection] = Reservation(now, kept, part.oldest, part.bytes)
        self._admit(now)
        return kept, 0.0, part.bytes

    def remove(self, connection: PacketSource, now: float) -> None:
        """Forgets a connection that has ended."""
        self._count(connection, 0)
        self._granted_bytes -= self.reading.pop(connection, NO_RESERVATION).bytes
        wanted = self.waiting.pop(connection, None)
        if wanted is not None:
            self._granted_bytes -= wanted.granted_bytes
        self._admit(now)

    def overdue(self, now: float) -> list[tuple[PacketSource, str]]:
        """Returns connections that keep others waiting for too long, and the text to close each with."""
        if not self.waiting:
            return []
        found = []
        patience_s = max(GRANT_LEAST_S, GRANT_S * min(1.0, len(self.reading) / len(self.waiting)))
        for connection in list(islice(self.reading, LOOKS_MAX)):
            grant = self.reading[connection] = self.reading.pop(connection)  # the next look begins behind it
            used_s = now - grant.since_s
            if used_s > patience_s + max(0, connection.partial_bytes - grant.had_bytes) / BYTES_PER_S_MIN:
                text = (f"a packet of {format_size(grant.bytes)} has not come whole in {used_s:.0f} s, "
                        f"and {len(self.waiting)} others wait for the memory")  # fmt: skip
                found.append((connection, text))
        return found

    def _admit(self, now: float) -> None:
        """Reads those that wait again, in order, as far as there is room."""
        if self._granted_bytes <= self.limit_bytes:
            self._whale = None
        while self.waiting:
            connection, wanted = next(iter(self.waiting.items()))
            size = wanted.bytes
            if self._granted_bytes + size - wanted.granted_bytes > self.limit_bytes:
                if self.reading:
                    return
                if self._whale is not None and self._whale in self.waiting:
                    connection, wanted = self._whale, self.waiting[self._whale]
                self._whale, size = connection, wanted.most_bytes
            del self.waiting[connection]
            self.reading[connection] = Reservation(now - wanted.used_s, size, wanted.oldest, wanted.had_bytes)
            self._granted_bytes += size - wanted.granted_bytes
            connection.resume_reading("memory")

    def _end_strangers(self) -> None:
        """Ends connections that have not logged in while they take up more than their share."""
        while self.strangers_bytes > self.strangers_limit_bytes:
            connection = next(iter(self._strangers))
            text = (f"packets of clients that have not logged in take up {format_size(self.strangers_bytes)} of "
                    f"{format_size(self.strangers_limit_bytes)}; this one has not grown for the longest")  # fmt: skip
            self._count(connection, 0)  # it is not found again while its end waits for its turn
            connection.end_soon(Reason.CLIENT_MEMORY, text, told=True)

    def _count(self, connection: PacketSource, partial_bytes: int) -> None:
        before, connection.partial_bytes = connection.partial_bytes, partial_bytes
        if connection in self._strangers:
            del self._strangers[connection]
            self._count_strangers(-before)
            before = 0
        if connection.admitted:
            self._pool.add_clients(partial_bytes - before)
        elif partial_bytes:
            self._strangers[connection] = None
            self._count_strangers(partial_bytes)

    def _count_strangers(self, size: int) -> None:
        self.strangers_bytes += size
        self._pool.add_memory(size)
