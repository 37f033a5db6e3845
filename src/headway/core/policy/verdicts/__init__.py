"""Verdicts: what was decided about a consumer, and why."""

from headway.core.policy.verdicts.causes import (
    BLOCKED_S,
    BURST_FACTOR,
    LATE_ACK_S,
    NO_CREDIT_S,
    ON_ITS_WAY_BYTES,
    STEADY_SHARE,
    explain,
    explain_cause,
    find_cause,
    find_reason,
)
from headway.core.policy.verdicts.decision import Decision, DecisionKind, leading
from headway.core.policy.verdicts.verdict import Verdict, VerdictBook, judge, judge_pressure

__all__ = [
    "BLOCKED_S", "BURST_FACTOR", "Decision", "DecisionKind", "explain", "explain_cause", "find_cause",
    "find_reason", "judge", "judge_pressure", "LATE_ACK_S", "leading", "NO_CREDIT_S", "ON_ITS_WAY_BYTES",
    "STEADY_SHARE", "Verdict", "VerdictBook",
]
