"""A fair part is what a consumer would have got of its connection, if all consumers of the connection were served at
once. They are served in turn, each with all that waits for it, so that each alone seems to stand still for long.
"""

from __future__ import annotations

import copy

from headway.core.policy.meters.figures import Figures


class FairPart:
    __slots__ = ("_part", "bytes")

    def __init__(self, of: Figures) -> None:
        self._part = of.part
        """The part of the connection's bytes that it had when it began to lag. Later that depends on whose turn it
        was."""
        self.bytes = 0.0

    def look(self, of: Figures) -> bool:
        """Takes in how far the connection is. Returns False if that is another connection than before."""
        before, self.bytes = self.bytes, self._part * (of.connection_bytes or 0)
        return self.bytes >= before

    def fork(self) -> FairPart:
        """Returns a copy that goes on from here by itself."""
        return copy.copy(self)
