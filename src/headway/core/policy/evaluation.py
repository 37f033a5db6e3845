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
   for longer each time (rule.py).
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

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from math import ceil, inf

import msgspec

from headway.core.policy.meters import Holding, Meter, Sample
from headway.core.policy.rules import SLACK_S, Action, Move, Phase, Policy, Reading, Rule, RuleState, parse_policies
from headway.core.policy.verdicts import Decision, DecisionKind, Verdict

# -- evaluation --------------------------------------------------------------------------------------------------------


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


# -- flap --------------------------------------------------------------------------------------------------------------
#
# Flap control: a client that is disconnected for slowness again and again has to wait longer each time.
#
# After the first disconnect the client may come straight back. After the second one within ``forgive_s`` it is shut out
# for ``base_s``, then for twice as long each time, up to ``max_s``. ``forgive_s`` without a disconnect clears the
# record.


CLIENTS_MAX = 10_000


class FlapControl:
    def __init__(self, base_s: float = 1.0, max_s: float = 300.0, forgive_s: float = 600.0) -> None:
        self.base_s = base_s
        self.max_s = max_s
        self.forgive_s = forgive_s
        self._strikes: OrderedDict[str, tuple[int, float, float]] = OrderedDict()
        """By client: (strikes, time of the last strike, shut out until)."""

    def strike(self, client: str, now: float) -> float:
        """Notes that a client was disconnected for slowness. Returns for how many seconds it is shut out."""
        strikes, last, _ = self._strikes.pop(client, (0, now, now))
        strikes = 1 if now - last > self.forgive_s else strikes + 1
        out_s = 0.0 if strikes == 1 else min(self.max_s, self.base_s * 2.0 ** min(strikes - 2, 32))
        self._strikes[client] = (strikes, now, now + out_s)
        if len(self._strikes) > CLIENTS_MAX:
            self._strikes.popitem(last=False)
        return out_s

    def wait_s(self, client: str, now: float) -> float:
        """Returns for how many more seconds the client is shut out, rounded up to tenths; 0: it may connect."""
        entry = self._strikes.get(client)
        return max(0.0, ceil((entry[2] - now) * 10 - 1e-6) / 10) if entry else 0.0

    def strikes(self, client: str) -> int:
        entry = self._strikes.get(client)
        return entry[0] if entry else 0


# -- outlook -----------------------------------------------------------------------------------------------------------
#
# The outlook: what a policy would do next about a consumer, and how far each of its rules is from that.


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


# -- trial -------------------------------------------------------------------------------------------------------------
#
# Trials: policies that judge consumers beside the policy in force, and change nothing.
#
# A trial judges the same samples as the policy in force, by a state of its own. None of its rules is enforced. The
# meter ``slow_count`` counts what the trial itself has marked slow, as it would if it were in force; ``slow_fraction``
# is that of the policies in force.


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


# -- case --------------------------------------------------------------------------------------------------------------
#
# A case is the governor's data on one consumer: policy, meter, last sample, last verdict, and last announcements.


IDLE = Sample()
GAP_TOLD_EVERY_S = 1.0


class Case:
    __slots__ = (
        "_gap_told", "_gap_told_s", "_offline_told", "blocked_publishers_s", "holding", "last_sample", "last_verdict",
        "meter", "patient_until_s", "policies_version", "policy", "state", "trials", "tried",
    )  # fmt: skip

    def __init__(self, policy: Policy, meter: Meter) -> None:
        self.policy = policy
        self.policies_version = 0
        """The version of the broker's policies from which its own was chosen."""
        self.state = PolicyState()
        self.meter = meter
        self.last_sample = IDLE
        """The sample of the governor's last look."""
        self.holding: Holding | None = None
        """The holding of its unacknowledged deliveries; None: it was not looked at for that."""
        self.last_verdict: Verdict | None = None
        self.blocked_publishers_s = 0.0
        """The seconds for which publishers were not read because of this consumer."""
        self.trials: tuple[Trial, ...] = ()
        """The trials that judge it beside its policy."""
        self.tried: tuple[Policy, ...] | None = ()
        """The trials of the broker from which they were chosen; None: they are to be chosen anew."""
        self.patient_until_s = -inf
        """Until then no rule judges the consumer, because an operator has said so."""
        self._gap_told = 0
        self._gap_told_s = 0.0
        self._offline_told = False

    # -- its policy -------------------------------------------------------------------------------------------------

    def govern_by(self, policy: Policy) -> None:
        """Sets the policy. Its rules begin anew."""
        self.policy, self.state = policy, PolicyState()

    def evaluate(self, sample: Sample, now: float) -> list[Decision]:
        """Returns the policy's decisions now; none while an operator's patience lasts."""
        if now < self.patient_until_s:
            return []
        decisions = evaluate(self.policy, self.state, sample, now)
        if self.state.slow_anew:
            self.meter.slow_again()
        return decisions

    def give_patience(self, until_s: float) -> None:
        """Has no rule judge the consumer until then. Rules that have not fired begin anew."""
        self.patient_until_s = until_s
        self.state.calm_down()

    @property
    def plugged(self) -> tuple[str, ...]:
        """Returns the plugged-in meters that its policy and its trials compare."""
        named = dict.fromkeys(self.policy.plugged)
        for trial in self.trials:
            named |= dict.fromkeys(trial.policy.plugged)
        return tuple(named)

    def lasting(self) -> Iterator[Action]:
        """Yields the actions that are in force for the consumer."""
        return self.state.lasting(self.policy)

    # -- how it fares -----------------------------------------------------------------------------------------------

    @property
    def slow(self) -> bool:
        return self.meter.slow

    @property
    def slow_count(self) -> int:
        """Returns how often the consumer was slow, as a rule found."""
        return self.meter.slow_count

    @property
    def calm(self) -> bool:
        """Tells whether the consumer is not slow and no clock of its rules runs."""
        return not self.meter.slow and self.state.settled and all(trial.state.settled for trial in self.trials)

    def recover(self, now: float) -> bool:
        """Marks the consumer as recovered if no rule is active any more. Returns whether it was slow until now. A rule
        whose action is done once ends without a decision, so this is called at each look."""
        if not self.meter.slow or any(True for _ in self.state.active()):
            return False
        self.meter.mark_recovered(now)
        return True

    # -- what was announced -----------------------------------------------------------------------------------------

    def gap_to_tell(self, total: int, now: float) -> int:
        """Returns how many skipped records are to be announced now, which happens once a second at most."""
        if total == self._gap_told or now - self._gap_told_s < GAP_TOLD_EVERY_S:
            return 0
        fresh, self._gap_told, self._gap_told_s = total - self._gap_told, total, now
        return fresh

    def offline_to_tell(self, offline: bool) -> bool:
        """Returns whether it is to be announced that the consumer now reads from disk, or no longer does."""
        before, self._offline_told = self._offline_told, offline
        return before != offline
