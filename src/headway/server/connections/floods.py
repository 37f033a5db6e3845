"""Floods: clients that publish as fast as they are read. All others wait for what is read of them in a turn."""

from __future__ import annotations

FLOOD_BYTES = 16 * 1024
"""A client that has so much read at once publishes as fast as it is read, or nearly."""


class Floods:
    """Tells whether more than one client floods the broker."""

    __slots__ = ("_changes", "_last", "several")

    def __init__(self) -> None:
        self._last = 0
        """The id of the last client that had much read."""
        self._changes = 0
        """How often it was another one in this turn."""
        self.several = False
        """Whether several had much read in the last turn."""

    def note(self, client: object) -> None:
        """Notes that much was read of a client."""
        if id(client) != self._last:
            self._last = id(client)
            self._changes += 1

    def turn(self) -> None:
        """Ends a turn."""
        self.several, self._changes = self._changes > 1, 0
