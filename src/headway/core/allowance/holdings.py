"""Holdings: the bytes of lanes that are held for one client, which its pool and its user's allowance count."""

from __future__ import annotations

from headway.core.allowance.allowance import UNLIMITED, Allowance


class Holdings:
    """The bytes of lanes that are held for one client: sums over its lanes and queues, as of its last looks.

    Several subscriptions to one lane hold the same bytes, so only the one that holds the most counts.

    The sums are exact for a client with few subscriptions. They lag for a client with ten thousand, because a look
    visits only some of them."""

    __slots__ = ("_known", "allowance", "disk_bytes", "gating_bytes", "memory_bytes")

    def __init__(self) -> None:
        self._known: dict[object, tuple[object, int, int, int]] = {}
        """For each source (a lane, or a queue of the client's own) the holder that counts, and its three figures."""
        self.gating_bytes = 0
        self.disk_bytes = 0
        """The part of ``gating_bytes`` that is on disk."""
        self.memory_bytes = 0
        """The part that is in memory, and is not being written to disk."""
        self.allowance = UNLIMITED
        """Where the bytes are counted for the client's user, too."""

    def __len__(self) -> int:
        """Returns the number of lanes and queues of which something is held."""
        return len(self._known)

    def charge(self, allowance: Allowance) -> None:
        """Counts the bytes for another user."""
        self.allowance.hold(-self.gating_bytes, -self.disk_bytes)
        self.allowance = allowance
        allowance.hold(self.gating_bytes, self.disk_bytes)

    def note(self, source: object, holder: object, gating_bytes: int, disk_bytes: int, memory_bytes: int) -> None:
        """Notes the bytes that one holder holds of a source."""
        counts, gating, disk, memory = self._known.get(source, (holder, 0, 0, 0))
        if counts is not holder and gating_bytes < gating:
            return
        if gating_bytes:
            self._known[source] = holder, gating_bytes, disk_bytes, memory_bytes
        elif gating:
            del self._known[source]
        self.memory_bytes += memory_bytes - memory
        if gating_bytes != gating or disk_bytes != disk:
            self.gating_bytes += gating_bytes - gating
            self.disk_bytes += disk_bytes - disk
            self.allowance.hold(gating_bytes - gating, disk_bytes - disk)
