"""Trials: policies that judge consumers beside the policy in force, and change nothing.

A trial judges the same samples as the policy in force, by a state of its own. None of its rules is enforced. The meter
``slow_count`` counts what the trial itself has marked slow, as it would if it were in force; ``slow_fraction`` is that
of the policies in force.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headway.core.policy.evaluation import PolicyState, evaluate
from headway.core.policy.meters import Sample
from headway.core.policy.rules import Policy, parse_policies
from headway.core.policy.verdicts import Decision, DecisionKind


class Trial:
    """Where one trial stands with one consumer."""

    __slots__ = ("_counts", "policy", "slow", "slow_count", "state")

    def __init__(self, policy: Policy, late_s: float) -> None:
        self.policy = policy
        self.state = PolicyState()
        self.state.late_s = late_s
        self.slow = False
        self.slow_count = 0
        self._counts = policy.compares("slow_count")

    def evaluate(self, sample: Sample, now: float, late_s: float, *, connected: bool = True) -> list[Decision]:
        """Returns what the trial decides now. ``late_s``: the sum of the broker's lateness. ``connected``: the client
        is there, so that it can be disconnected."""
        self.state.keep_up(late_s)
        if self._counts:
            sample = msgspec.structs.replace(sample, slow_count=self.slow_count)
        decisions = [
            decision for decision in evaluate(self.policy, self.state, sample, now)
            if connected or not decision.action.kind.needs_connection
        ]
        self.slow_count += self.slow and self.state.slow_anew
        if any(decision.kind is DecisionKind.FIRE for decision in decisions) and not self.slow:
            self.slow, self.slow_count = True, self.slow_count + 1
        elif self.slow and not any(True for _ in self.state.active()):
            self.slow = False
        return decisions


def parse_trials(tables: object) -> tuple[Policy, ...]:
    """Returns the policies of a file's ``[[trial]]`` tables, in its order. None of their rules is enforced."""
    policies = parse_policies(tables, kind="trial")
    return tuple(
        msgspec.structs.replace(
            policy, rules=tuple(msgspec.structs.replace(rule, enforce=False) for rule in policy.rules)
        )
        for policy in policies
    )


def try_out(policies: Iterable[Policy], running: Iterable[Trial], late_s: float) -> tuple[Trial, ...]:
    """Returns the trials of a consumer, one for each policy. Those that run already go on."""
    known = {trial.policy.name: trial for trial in running}
    found = []
    for policy in policies:
        trial = known.get(policy.name)
        if trial is None or trial.policy != policy:
            trial = Trial(policy, late_s)
        trial.state.keep_up(late_s)
        found.append(trial)
    return tuple(found)
