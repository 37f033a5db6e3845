"""Governance: policies become moves of cursors."""

from headway.core.governance.governor import LATE_S, SWEEP_S, Governor, NewPolicies
from headway.core.governance.memory import Givers, Ranked, beyond_share, spills, to_give_up, to_spill
from headway.core.governance.moves import discard
from headway.core.governance.turn import Turn
from headway.core.governance.watching import conflated_by, peek, stall_s, state_of, with_peer

__all__ = [
    "beyond_share", "conflated_by", "discard", "Givers", "Governor", "LATE_S", "NewPolicies", "peek", "Ranked",
    "spills", "stall_s", "state_of", "SWEEP_S", "to_give_up", "to_spill", "Turn", "with_peer",
]
