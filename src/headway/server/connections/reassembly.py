"""Reassembly: the packets of a pool's connections that have come in part, and which connections may send the rest.

Theory of operation. A packet is put together before it is decoded. If six hundred clients each sent half a megabyte of
a packet, by accident or on purpose, they would take up 300 MB that no lane holds and no pool counts. So large packets
*reserve* memory.

Rules:
- Connections that have not logged in have one reassembly together, whatever their listeners and pools (*strangers*),
  with a small share, and smaller packets need a reservation there. Their bytes do not count as memory of clients:
  otherwise anybody could use that up, and no client with a password would be let in. What they hold without a
  reservation, ``STRANGER_BYTES`` each at most, has a share too (``HELD_SHARE``). Beyond it those are closed that have
  held something for longest, unless the broker itself makes them wait, to check their passwords.
- A partial packet counts once it is large enough to matter (``uncounted_bytes``).
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
STRANGER_BYTES = 4 * 1024
"""The same of a connection that has not logged in. No read brings more of it: it may wait with that for its turn."""
UNCOUNTED_BYTES, STRANGER_UNCOUNTED_BYTES = 1024, 128
SHARE, STRANGERS_SHARE = 0.25, 1 / 16
"""Shares of reservations in what clients may take up besides records."""
HELD_SHARE = 0.5
"""The same of what all strangers hold without a reservation."""
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
    stream_bytes: int = 0
    """Bytes that the stream holds: they count, and need no reservation."""


class PacketSource(Protocol):
    """A connection, as far as reassembly goes."""

    partial_bytes: int
    read_bytes: int
    reading_paused_by: dict[str, None]

    def pause_reading(self, why: str) -> None: ...
    def resume_reading(self, why: str) -> None: ...
    def end_soon(self, reason: Reason, text: str = "", *, told: bool = False) -> None: ...
    def close(self, reason: Reason, text: str = "") -> None: ...


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
    """Partial packets of one pool's connections that have logged in, or of all that have not (``strangers``)."""

    __slots__ = (
        "_granted_bytes", "_held", "_pool", "_small_bytes", "_strangers", "_whale", "held_bytes", "reading",
        "uncounted_bytes", "waiting",
    )  # fmt: skip

    def __init__(self, pool: Pool, *, strangers: bool = False) -> None:
        self._pool = pool
        self._strangers = strangers
        self._small_bytes = STRANGER_BYTES if strangers else SMALL_BYTES
        self.uncounted_bytes = STRANGER_UNCOUNTED_BYTES if strangers else UNCOUNTED_BYTES
        """A partial packet up to this size is not counted on its own: every connection may take up that much."""
        self._held: dict[PacketSource, None] = {}
        """Strangers that hold something, in the order in which they began to."""
        self.held_bytes = 0
        """Bytes that all strangers hold."""
        self.reading: dict[PacketSource, Reservation] = {}
        """Connections with a reservation, the oldest first. Not empty while any connection waits."""
        self.waiting: dict[PacketSource, Wish] = {}
        """Connections that wait, in order."""
        self._granted_bytes = 0
        self._whale: PacketSource | None = None

    @property
    def limit_bytes(self) -> int:
        return int(self._pool.clients_limit * (STRANGERS_SHARE if self._strangers else SHARE))

    def holds(self, connection: PacketSource, size: int) -> None:
        """Takes note of how many bytes a connection holds, of a packet or of a handshake before it."""
        if not self._strangers:
            self._pool.add_clients(size - connection.partial_bytes)
            connection.partial_bytes = size
            return
        self.held_bytes += size - connection.partial_bytes
        connection.partial_bytes = size
        if size:
            self._held[connection] = None
            self._make_room(connection)
        else:
            self._held.pop(connection, None)

    def _make_room(self, last: PacketSource) -> None:
        """Closes strangers that have held something for longest, until all hold no more than their share; or the last
        one, where that does not help."""
        most = self.held_bytes_max
        for connection in list(islice(self._held, LOOKS_MAX)) if self.held_bytes > most else ():
            if connection is last or connection in self.reading or "password" in connection.reading_paused_by:
                self._held[connection] = self._held.pop(connection)  # the next look begins behind it
                continue
            text = (f"the client had sent part of a packet only, and made room for others: {len(self._held)} clients "
                    f"that had not logged in held {format_size(self.held_bytes)}")  # fmt: skip
            connection.close(Reason.CONNECT_TIMEOUT, text)
            if self.held_bytes <= most:
                return
        if self.held_bytes > most and last not in self.reading:
            last.end_soon(Reason.CLIENT_MEMORY, "too many clients that have not logged in hold parts of packets")

    @property
    def held_bytes_max(self) -> int:
        return int(self._pool.clients_limit * HELD_SHARE)

    def limit_of(self, connection: PacketSource) -> int:
        """Returns how many bytes one read may bring while any connection waits."""
        missing = self.reading.get(connection, NO_RESERVATION).bytes - connection.partial_bytes
        return min(connection.read_bytes, max(self._small_bytes, missing))

    def update(self, connection: PacketSource, part: PartialPacket, now: float) -> None:
        """Takes note of a connection's partial packets after a read. Stops reading it if they need a reservation that
        is not to be had."""
        held_bytes = part.bytes + part.stream_bytes
        if held_bytes != connection.partial_bytes:
            self.holds(connection, held_bytes)
        if not self.reading and part.bytes + part.missing_bytes <= self._small_bytes:
            return  # it needs no reservation, and has none to give back
        granted, used_s, had, grant = 0, 0.0, part.bytes, self.reading.get(connection)
        if grant is not None:
            granted, used_s, had = grant.bytes, now - grant.since_s, grant.had_bytes
            if part.oldest != grant.oldest:  # its oldest packet is whole; that packet's reservation goes to others
                granted, used_s, had = self._shrink(connection, grant, part, now)
        whole = part.bytes + part.missing_bytes
        if part.bytes and whole > max(self._small_bytes, granted):
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
        kept = min(grant.bytes, part.bytes) if part.bytes > self._small_bytes else 0
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
        self.holds(connection, 0)
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
