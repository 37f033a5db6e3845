"""Holdings: the bytes of lanes that are held for one client, which its pool and its user's allowance count."""

from __future__ import annotations

from headway.core.allowance.allowance import UNLIMITED, Allowance


class Holdings:
    """The bytes of lanes that are held for one client: sums over its subscriptions and queues, as of their last looks.

    The sums are exact for a client with few subscriptions. They lag for a client with ten thousand, because a look
    visits only some of them."""

    __slots__ = ("_known", "allowance", "disk_bytes", "gating_bytes")

    def __init__(self) -> None:
        self._known: dict[object, tuple[int, int]] = {}
        self.gating_bytes = 0
        self.disk_bytes = 0
        """The part of ``gating_bytes`` that is on disk."""
        self.allowance = UNLIMITED
        """Where the bytes are counted for the client's user, too."""

    def charge(self, allowance: Allowance) -> None:
        """Counts the bytes for another user."""
        self.allowance.hold(-self.gating_bytes, -self.disk_bytes)
        self.allowance = allowance
        allowance.hold(self.gating_bytes, self.disk_bytes)

    def note(self, holder: object, gating_bytes: int, spilled_bytes: int) -> None:
        """Notes the bytes that one holder holds of its lane. ``spilled_bytes`` of the lane are on disk."""
        gating, disk = self._known.pop(holder, (0, 0))
        more_gating, more_disk = gating_bytes - gating, min(gating_bytes, spilled_bytes) - disk
        if gating_bytes:
            self._known[holder] = gating_bytes, disk + more_disk
        if more_gating or more_disk:
            self.gating_bytes += more_gating
            self.disk_bytes += more_disk
            self.allowance.hold(more_gating, more_disk)
