"""Rules: the conditions of a policy, and its actions."""

from headway.core.policy.rules.condition import (
    CONDITIONS,
    AllOf,
    Amount,
    AnyOf,
    Comparison,
    Condition,
    PluggedCondition,
    Reading,
    plugged_condition,
)
from headway.core.policy.rules.rule import (
    ACTIONS,
    HTTP_LISTENER,
    NO_POLICY,
    SLACK_S,
    Action,
    ActionInfo,
    ActionKind,
    Move,
    Phase,
    PluggedAction,
    Policy,
    Rule,
    RuleState,
    Which,
    move,
    parse_policies,
    parse_policy,
    plugged_action,
    policy_for,
    policy_for_any,
    policy_named,
    tell,
)

__all__ = [
    "Action", "ActionInfo", "ActionKind", "ACTIONS", "AllOf", "Amount", "AnyOf", "Comparison", "Condition",
    "CONDITIONS", "HTTP_LISTENER", "Move", "move", "NO_POLICY", "parse_policies", "parse_policy", "Phase",
    "plugged_action", "plugged_condition", "PluggedAction", "PluggedCondition", "Policy", "policy_for",
    "policy_for_any", "policy_named", "Reading", "Rule", "RuleState", "SLACK_S", "tell", "Which",
]
