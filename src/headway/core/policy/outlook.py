"""The outlook: what a policy would do next about a consumer, and how far each of its rules is from that."""

from __future__ import annotations

import msgspec

from headway.core.policy.evaluation import PolicyState
from headway.core.policy.meters import Sample
from headway.core.policy.rules import Action, Phase, Policy, Reading


class Prospect(msgspec.Struct, frozen=True):
    """One rule, as a consumer stands with it."""

    rule: int
    """The rule's number, from 1."""
    name: str
    action: Action
    enforced: bool
    applies: bool
    """False for a rule that is for other consumers only (``keyed``)."""
    phase: str
    """``idle``, ``pending`` (its condition holds), ``counted`` (it held often, and not often enough) or ``active``."""
    held_s: float
    """For how long the condition has held, or the rule is active."""
    window_s: float
    """For how long the condition has to hold."""
    readings: tuple[Reading, ...]
    """All comparisons of its condition, as they are now."""


def outlook(policy: Policy, state: PolicyState, sample: Sample, now: float) -> list[Prospect]:
    """Returns how a consumer stands with each rule of its policy."""
    phases = state.phases or [(Phase.IDLE, now)] * len(policy.rules)
    return [
        Prospect(
            rule=number, name=rule.name, action=rule.then, enforced=rule.enforce, applies=state.keyed or not rule.keyed,
            phase=phase.name.lower(), held_s=max(0.0, now - since) if phase is not Phase.IDLE else 0.0,
            window_s=rule.for_s, readings=rule.when.readings(rule.judged(sample)),
        )
        for number, (rule, (phase, since)) in enumerate(zip(policy.rules, phases, strict=True), 1)
    ]  # fmt: skip
