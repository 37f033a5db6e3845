"""Watching: which consumers are looked at, and what is seen of them."""

from headway.core.governance.watching.glances import Glances
from headway.core.governance.watching.patience import PatienceEnd
from headway.core.governance.watching.plugged import Plugged
from headway.core.governance.watching.sampling import conflated_by, observe, peek, stall_s, state_of, with_peer
from headway.core.governance.watching.trials import Trials
from headway.core.governance.watching.verdict_log import VerdictLog
from headway.core.governance.watching.watchlist import Watchlist

__all__ = [
    "conflated_by", "Glances", "observe", "PatienceEnd", "peek", "Plugged", "stall_s", "state_of", "Trials",
    "VerdictLog", "Watchlist", "with_peer",
]
