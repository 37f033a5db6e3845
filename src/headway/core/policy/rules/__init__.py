"""Rules: the conditions of a policy, and its actions."""

from headway.core.policy.rules.action import (
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
from headway.core.policy.rules.condition import AllOf, Amount, AnyOf, Comparison, Condition, Reading
from headway.core.policy.rules.plugged_condition import CONDITIONS, PluggedCondition, plugged_condition
from headway.core.policy.rules.policy import (
    HTTP_LISTENER,
    NO_POLICY,
    Policy,
    parse_policies,
    parse_policy,
    policy_for,
    policy_for_any,
    policy_named,
)
from headway.core.policy.rules.rule import Rule
from headway.core.policy.rules.rule_state import SLACK_S, Phase, RuleState

__all__ = [
    "Action", "ActionInfo", "ActionKind", "ACTIONS", "AllOf", "Amount", "AnyOf", "Comparison", "Condition",
    "CONDITIONS", "HTTP_LISTENER", "Move", "move", "NO_POLICY", "parse_policies", "parse_policy", "Phase",
    "plugged_action", "plugged_condition", "PluggedAction", "PluggedCondition", "Policy", "policy_for",
    "policy_for_any", "policy_named", "Reading", "Rule", "RuleState", "SLACK_S", "tell", "Which",
]
