"""When a consumer is slow, and what follows. Numbers in, decisions out."""

from headway.core.policy.action import (
    ACTIONS,
    Action,
    ActionInfo,
    ActionKind,
    Move,
    PluggedAction,
    Which,
    move,
    plugged_action,
    tell,
)
from headway.core.policy.case import Case
from headway.core.policy.causes import (
    BLOCKED_S,
    BURST_FACTOR,
    LATE_ACK_S,
    NO_CREDIT_S,
    STEADY_SHARE,
    explain,
    find_reason,
)
from headway.core.policy.condition import AllOf, AnyOf, Comparison, Condition, Reading
from headway.core.policy.decision import Decision, DecisionKind, leading
from headway.core.policy.flap import FlapControl
from headway.core.policy.look import Look
from headway.core.policy.meter import UNSEEN_S, Lateness, Meter
from headway.core.policy.meters import METERS, MeterInfo, PluggedMeter, plugged_meter
from headway.core.policy.names import Names, unknown
from headway.core.policy.policy import (
    EASE,
    NO_POLICY,
    Policy,
    PolicyState,
    evaluate,
    parse_policies,
    parse_policy,
    policy_for,
    policy_for_any,
    policy_named,
    replace_policy,
)
from headway.core.policy.rule import Rule
from headway.core.policy.sample import PAUSES, RATE_WINDOW_S, Sample
from headway.core.policy.trial import Trial, minds_acks, parse_trials, try_out
from headway.core.policy.verdict import Verdict, VerdictBook, judge, judge_pressure

__all__ = [
    "Action", "ActionInfo", "ActionKind", "ACTIONS", "AllOf", "AnyOf", "BLOCKED_S", "BURST_FACTOR", "Case",
    "Comparison", "Condition", "Decision", "DecisionKind", "EASE", "evaluate", "explain", "find_reason",
    "FlapControl", "judge", "judge_pressure", "LATE_ACK_S", "Lateness", "leading", "Look", "Meter", "MeterInfo",
    "METERS", "minds_acks", "Move", "move", "Names", "NO_CREDIT_S", "NO_POLICY", "parse_policies", "parse_policy",
    "parse_trials", "PAUSES", "plugged_action", "plugged_meter", "PluggedAction", "PluggedMeter", "Policy",
    "policy_for", "policy_for_any", "policy_named", "PolicyState", "RATE_WINDOW_S", "Reading", "replace_policy",
    "Rule", "Sample", "STEADY_SHARE", "tell", "Trial", "try_out", "unknown", "UNSEEN_S", "Verdict", "VerdictBook",
    "Which",
]
