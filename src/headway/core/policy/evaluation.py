"""Policies: ordered rules for the consumers of some topics, and the state of these rules for each consumer.

Theory of operation. ``evaluate(policy, state, sample, now)`` looks at one consumer once. It is pure arithmetic on the
sample, ``now`` and the consumer's :class:`PolicyState`, so the broker and the Spark lab run the same code. It decides,
and leaves the doing to the caller. Each rule goes through these phases, independently of the others:

    IDLE ---- when holds ----> PENDING ---- held for long enough ----> COUNTED or ACTIVE ---- steps back ----> IDLE
               (onset)            |                                    (times not reached / fired)
                                  +---- fails, or the lag was gone in between ----> IDLE

1. **for**: ``when`` must hold at every look from the onset on, for so long by the clock. The number of looks does not
   matter.
2. **retries = n**: from the onset on ``when`` is tested n times, ``for / n`` apart, and ignored between the tests. If
   one test finds it false, the rule is idle again. A look counts for one test only, so late looks delay the rule.
3. **times = n**: the rule fires the n-th separate time that ``when`` held long enough. Then counting begins anew. Two
   times are separate if the rule has stepped back in between. With **within**, only times that began so recently count.
   A full window counts each time, even if the consumer's usual pause is as long: what comes again and again becomes
   usual, and the rule is about what comes again and again. (What the socket tells comes in lumps, and stays excused.)
4. **Stepping back**: a rule with ``until`` steps back when ``until`` holds and ``when`` does not. Without ``until``, it
   steps back when ``when`` fails even with its thresholds eased by a fifth. Then an action that lasts gets a ``clear``
   decision; an action that is done once gets none. A consumer that goes to and fro is judged once, and has to be well
   for longer each time (rule_state.py).
5. **An idle consumer is never slow**: while nothing waits and nothing is in flight, no ``when`` holds and every rule
   steps back, at once unless it wavers. So no consumer stays marked after it has recovered.
6. **Clocks restart when the lag was gone**, even if it was gone only between two looks: a condition that needs lag has
   held no longer than records have waited (``Sample.waited``).
7. **Dry run**: ``enforce = false`` changes nothing but ``Decision.enforced``.
8. **Marks**: a consumer is slow anew whenever the condition of a rule that has fired holds, and none did at the look
   before. A rule that wavers makes no decision of that, so it is counted here (``PolicyState.slow_anew``). Conditions
   about marks alone do not count: they hold for what other rules have found.
9. **No excuse**: a rule with ``excuse_pauses = false`` sees samples without what is usual for the client.
10. **Ladders**: rules are judged in order. After an enforced ``disconnect`` or ``delete_subscription`` no rule follows.
11. **The broker's own lateness**: while its loop is late the caller does not evaluate. Afterwards it calls
   ``state.shift(seconds)``, which moves running clocks, so no consumer is charged for that time.

The caller looks at a consumer for as long as it lags or its state is not ``settled``.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import msgspec

from headway.core.policy.meters import Sample
from headway.core.policy.rules import SLACK_S, Action, Move, Phase, Policy, Rule, RuleState
from headway.core.policy.verdicts import Decision, DecisionKind

EASE = 0.2
"""The share of its threshold by which a value must be back on the right side before a rule steps back."""


class PolicyState:
    """The states of a policy's rules for one consumer. There are none until the consumer is first looked at while it
    is not idle: until then every rule is idle, so a consumer who keeps up costs one small object."""

    __slots__ = ("_rules", "_slow", "keyed", "late_s", "slow_anew")

    def __init__(self) -> None:
        self._rules: list[RuleState] = []
        self.keyed = False
        """The consumer is one for whom rules with ``keyed`` are. Set before each look."""
        self.late_s = inf
        """The broker's summed lateness when the clocks were last moved; ``inf``: they never ran."""
        self._slow = self.slow_anew = False
        """At the last look the condition of a rule that has fired held; and at the look before none did."""

    @property
    def begun(self) -> bool:
        """Tells whether the rules have states."""
        return bool(self._rules)

    def begin(self, policy: Policy) -> None:
        self._rules = [RuleState() for _ in policy.rules]

    @property
    def phases(self) -> list[tuple[Phase, float]]:
        """Returns the phase of each rule, and since when it is in it; nothing if they have no states."""
        return [(one.phase, one.fired_at if one.phase is Phase.ACTIVE else one.since) for one in self._rules]

    def calm_down(self) -> None:
        """Stops the clocks of rules that have not fired."""
        for state in self._rules:
            if state.phase is not Phase.ACTIVE:
                state.phase, state.onsets = Phase.IDLE, []

    @property
    def settled(self) -> bool:
        """Tells whether no clock runs and no rule is active. Then there is nothing to evaluate until the consumer lags.
        """
        return all(state.phase is Phase.IDLE for state in self._rules)

    @property
    def steady(self) -> bool:
        """Tells whether each rule is idle or active, so that no clock runs. A look changes nothing until a ``when``
        becomes true or an active rule steps back."""
        return all(state.steady for state in self._rules)

    def active(self) -> Iterator[int]:
        """Yields the indexes of the rules that have fired and not stepped back."""
        return (index for index, state in enumerate(self._rules) if state.phase is Phase.ACTIVE)

    def hold(self, index: int, moves: tuple[Move, ...]) -> None:
        """Remembers the answer of a rule's plugged-in action."""
        self._rules[index].actions = tuple(move.action for move in moves if move.action is not None)

    def lasting(self, policy: Policy) -> Iterator[Action]:
        """Yields the actions in force: the enforced actions of active rules."""
        for rule, state in zip(policy.rules, self._rules, strict=self.begun):
            if state.phase is Phase.ACTIVE and rule.enforce:
                yield from state.actions

    def keep_up(self, late_s: float) -> None:
        """Moves running clocks by the broker's lateness since the last call. Called before each look with the sum of
        all lateness."""
        if late_s > self.late_s:
            self.shift(late_s - self.late_s)
        self.late_s = late_s

    def shift(self, seconds: float) -> None:
        """Moves all running clocks by so many seconds, which were the broker's own fault."""
        for state in self._rules:
            state.shift(seconds)


def evaluate(policy: Policy, state: PolicyState, sample: Sample, now: float) -> list[Decision]:
    """Returns the policy's decisions about one consumer now, in the order of its rules."""
    if not state.begun:
        if sample.idle:
            return []
        state.begin(policy)
    decisions: list[Decision] = []
    slow = False
    for index, (rule, rule_state) in enumerate(zip(policy.rules, state._rules, strict=True)):
        if rule.keyed and not state.keyed and rule_state.phase is not Phase.ACTIVE:
            continue
        decision = _look(index, rule, rule_state, sample, now)
        slow = slow or (rule_state.holds and rule.marks)
        if decision is not None:
            decisions.append(decision)
            if decision.kind is DecisionKind.FIRE and decision.enforced and decision.action.kind.ends_subscription:
                break
    state._slow, state.slow_anew = slow, slow and not state._slow
    return decisions


def release(policy: Policy, state: PolicyState, sample: Sample, now: float) -> list[Decision]:
    """Steps all rules back, without a look at the meters, because the policy no longer governs the consumer."""
    decisions = [
        _clear(index, rule, rule_state, sample, now)
        for index, (rule, rule_state) in enumerate(zip(policy.rules, state._rules, strict=True))
        if rule_state.phase is Phase.ACTIVE and rule.then.kind.stateful
    ]
    state._rules = []
    return decisions


def replace_policy(
    old: Policy, state: PolicyState, new: Policy, sample: Sample, now: float
) -> tuple[PolicyState, list[Decision]]:
    """Replaces a policy after a reload, where its rules have begun. Rules that both policies have keep their state; the
    others step back."""
    fresh = PolicyState()
    fresh.begin(new)
    fresh._slow = state._slow
    taken: set[int] = set()
    for index, rule in enumerate(new.rules):
        same = [at for at, known in enumerate(old.rules) if known == rule and at not in taken]
        if same:
            taken.add(same[0])
            fresh._rules[index] = state._rules[same[0]]
            state._rules[same[0]] = RuleState()
    return fresh, release(old, state, sample, now)


def _look(index: int, rule: Rule, state: RuleState, sample: Sample, now: float) -> Decision | None:
    sample = rule.judged(sample)
    if rule.times > 1 and sample.credit_exhausted:
        sample = msgspec.structs.replace(sample, usual_pause=0.0)
    holds = not sample.idle and rule.when.holds(sample)
    if state.phase is Phase.ACTIVE:
        if not state.steps_back(rule.then, holds, _is_gone(rule, sample, holds), now):
            return None
        return _clear(index, rule, state, sample, now) if rule.then.kind.stateful else None
    if state.phase is not Phase.IDLE:
        waiting_since = now - sample.waited if sample.waited is not None else state.since
        lag_was_gone = rule.when.needs_lag and waiting_since > state.since + SLACK_S
        if lag_was_gone or sample.idle or (state.phase is Phase.COUNTED and _is_gone(rule, sample, holds)):
            state.phase = Phase.IDLE
    if state.phase is Phase.IDLE and holds:
        state.phase, state.since, state.tests = Phase.PENDING, now, 0
        state.next_test = now + (rule.for_s / rule.retries if rule.retries else 0.0)
    if state.phase is not Phase.PENDING or not _held_long_enough(rule, state, holds, now):
        return None
    return _count(index, rule, state, sample, now)


def _held_long_enough(rule: Rule, state: RuleState, holds: bool, now: float) -> bool:
    """Applies rules 1 and 2 of this file. The rule goes back to IDLE if its condition fails."""
    if rule.retries:
        if now + SLACK_S < state.next_test:
            return False
        step = rule.for_s / rule.retries
        state.tests += 1
        state.next_test = max(state.next_test + step, now + step / 2)
    if not holds:
        state.phase = Phase.IDLE
        return False
    return state.tests >= rule.retries if rule.retries else now - state.since + SLACK_S >= rule.for_s


def _count(index: int, rule: Rule, state: RuleState, sample: Sample, now: float) -> Decision | None:
    """Applies rule 3 of this file: counts one more time, and fires if that makes enough."""
    state.onsets.append(state.since)
    if rule.within_s:
        state.onsets = [onset for onset in state.onsets if now - onset <= rule.within_s]
    if len(state.onsets) < rule.times:
        state.phase = Phase.COUNTED
        return None
    state.onsets = []
    state.fire(rule.then, now)
    return Decision(
        rule=index,
        kind=DecisionKind.FIRE,
        action=rule.then,
        enforced=rule.enforce,
        readings=rule.when.readings(sample),
        window_s=rule.for_s,
        held_s=max(0.0, now - state.since),
        tests=rule.retries,
        times=rule.times,
        rule_name=rule.name,
        relapses=state.relapses,
    )


def _is_gone(rule: Rule, sample: Sample, holds: bool) -> bool:
    """Applies rules 4 and 5 of this file."""
    if sample.idle:
        return True
    if rule.until is not None:
        return not holds and rule.until.holds(sample)
    return not rule.when.holds(sample, EASE)


def _clear(index: int, rule: Rule, state: RuleState, sample: Sample, now: float) -> Decision:
    readings = rule.when.readings(sample, EASE) if rule.until is None else rule.until.readings(sample)
    return Decision(
        rule=index,
        kind=DecisionKind.CLEAR,
        action=rule.then,
        enforced=rule.enforce,
        readings=readings,
        window_s=rule.for_s,
        held_s=max(0.0, now - state.fired_at),
        rule_name=rule.name,
        undone=state.actions,
        relapses=state.relapses,
    )
