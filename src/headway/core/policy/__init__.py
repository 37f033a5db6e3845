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
    AHEAD,
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
from headway.core.policy.condition import AllOf, Amount, AnyOf, Comparison, Condition, Reading
from headway.core.policy.decision import Decision, DecisionKind, leading
from headway.core.policy.evaluation import EASE, PolicyState, evaluate, replace_policy
from headway.core.policy.flap import FlapControl
from headway.core.policy.meters import (
    ANY_LUMP_BYTES,
    METERS,
    PAUSES,
    RARE_S,
    RATE_WINDOW_S,
    UNSEEN_S,
    Figures,
    Lateness,
    Look,
    Meter,
    MeterInfo,
    PluggedMeter,
    Sample,
    UsualPause,
    plugged_meter,
    waiting,
)
from headway.core.policy.outlook import Prospect, outlook
from headway.core.policy.plugged_condition import CONDITIONS, PluggedCondition, plugged_condition
from headway.core.policy.policy import (
    HTTP_LISTENER,
    NO_POLICY,
    Policy,
    parse_policies,
    parse_policy,
    policy_for,
    policy_for_any,
    policy_named,
)
from headway.core.policy.rule import Rule
from headway.core.policy.trial import Trial, minds_acks, parse_trials, try_out
from headway.core.policy.verdict import Verdict, VerdictBook, judge, judge_pressure

__all__ = [
    "Action", "ActionInfo", "ActionKind", "ACTIONS", "AHEAD", "AllOf", "Amount", "ANY_LUMP_BYTES", "AnyOf",
    "BLOCKED_S", "BURST_FACTOR", "Case", "Comparison", "Condition", "CONDITIONS", "Decision", "DecisionKind", "EASE",
    "evaluate", "explain", "explain_cause", "Figures", "find_cause", "find_reason", "FlapControl", "HTTP_LISTENER",
    "judge", "judge_pressure", "LATE_ACK_S", "Lateness", "leading", "Look", "Meter", "MeterInfo", "METERS",
    "minds_acks", "Move", "move", "NO_CREDIT_S", "NO_POLICY", "ON_ITS_WAY_BYTES", "outlook", "parse_policies",
    "parse_policy", "parse_trials", "PAUSES", "plugged_action", "plugged_condition", "plugged_meter", "PluggedAction",
    "PluggedCondition", "PluggedMeter", "Policy", "policy_for", "policy_for_any", "policy_named", "PolicyState",
    "Prospect", "RARE_S", "RATE_WINDOW_S", "Reading", "replace_policy", "Rule", "Sample", "STEADY_SHARE", "tell",
    "Trial", "try_out", "UNSEEN_S", "UsualPause", "Verdict", "VerdictBook", "waiting", "Which",
]
