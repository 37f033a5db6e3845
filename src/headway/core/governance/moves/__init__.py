"""Moves: what is done with the cursor of a slow consumer."""

from headway.core.governance.moves.cutting import Cutter
from headway.core.governance.moves.moves import discard, stop_discarding
from headway.core.governance.moves.write_off import write_off

__all__ = [
    "Cutter", "discard", "stop_discarding", "write_off",
]
