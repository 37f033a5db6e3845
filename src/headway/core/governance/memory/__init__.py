"""Memory: what leaves it, and who gives way, when it or the disk runs out."""

from headway.core.governance.memory.pressure import Givers, Ranked, beyond_share, spill_of, spills, to_give_up, to_spill
from headway.core.governance.memory.relief import Relief, why_unreadable

__all__ = [
    "beyond_share", "Givers", "Ranked", "Relief", "spill_of", "spills", "to_give_up", "to_spill", "why_unreadable",
]
