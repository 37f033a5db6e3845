"""Governance: policies become moves of cursors."""

from headway.core.governance import pressure
from headway.core.governance.governor import LATE_S, SWEEP_S, Governor
from headway.core.governance.moves import discard
from headway.core.governance.new_policies import NewPolicies
from headway.core.governance.pressure import beyond_share, to_give_up, to_spill
from headway.core.governance.sampling import conflated_by, peek, stall_s, state_of, with_peer
from headway.core.governance.turn import Turn

__all__ = [
    "beyond_share", "conflated_by", "discard", "Governor", "LATE_S", "NewPolicies", "peek", "pressure", "stall_s",
    "state_of", "SWEEP_S", "to_give_up", "to_spill", "Turn", "with_peer",
]
