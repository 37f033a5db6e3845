"""Policies: ordered rules for the consumers of some topics, and what becomes of them over time.

Theory of operation. ``evaluate(policy, state, sample, now)`` looks at one consumer once. It is pure arithmetic on the
sample, ``now`` and the consumer's :class:`PolicyState`; the broker and the Spark lab run the very same code. It says
what is to be done, and does nothing. Each rule goes through these phases, independently of the others:

    IDLE ---- when holds ----> PENDING ---- held for long enough ----> COUNTED or ACTIVE ---- steps back ----> IDLE
               (onset)            |                                    (times not reached / fired)
                                  +---- fails, or the lag was gone in between ----> IDLE

1. **for**: ``when`` must hold at every look from the onset on, for that long by the clock. Time is measured, not looks.
2. **retries = n**: from the onset on it is tested n times, ``for / n`` apart, and not minded between the tests. One
   test that finds it false clears. A look never serves for two tests, so looks that come late make the rule later.
3. **times = n**: the n-th separate time that ``when`` held long enough fires, and counting begins anew. A time is
   separate when the rule has stepped back in between. **within**: only times that began so recently count.
4. **Stepping back**: an explicit ``until`` holds and ``when`` does not; without ``until``, ``when`` fails even with its
   thresholds eased by a fifth. Stateful actions get a ``clear`` then; actions done once end without one.
5. **An idle consumer is never slow**: with nothing waiting and nothing in flight no ``when`` holds and every rule
   steps back, so nobody stays marked after recovering.
6. **Clocks restart when the lag was really gone**, also between two looks: a condition that needs lag has held no
   longer than records have waited (``Sample.waited``).
7. **Dry run**: ``enforce = false`` changes nothing but ``Decision.enforced``.
8. **Ladders**: rules are judged in order; after an enforced ``disconnect`` or ``delete_subscription`` nothing follows.
9. **The broker's own lateness**: while its loop is late the caller does not evaluate, and then calls
   ``state.shift(seconds)``: running clocks move by that much and nobody is charged.

The caller keeps looking at a consumer while it lags or its state is not ``settled``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, StrEnum

import msgspec

from headway.core.base import ConfigError
from headway.core.message import BadTopic, covers, validate_filter
from headway.core.policy.action import Action, ActionKind, Move, Which, parse_action
from headway.core.policy.condition import Condition, Reading, parse_condition
from headway.core.policy.decision import Decision, DecisionKind
from headway.core.policy.meter import Sample
from headway.core.policy.meters import METERS
from headway.core.policy.names import unknown
from headway.core.policy.rule import Rule, parse_rule

__all__ = [
    "NO_POLICY", "Action", "ActionKind", "Condition", "Decision", "DecisionKind", "Policy", "PolicyState", "Reading",
    "Rule", "Subscriptions", "Which", "evaluate", "parse_action", "parse_condition", "parse_policies", "parse_policy",
    "parse_rule", "policy_for", "policy_named", "release", "replace_policy",
]  # fmt: skip

EASE = 0.2
"""How far a value must be back on the right side of its threshold before a rule steps back by itself."""
_SLACK_S = 1e-6
"""Sums of floating-point times may differ by this much and still be the same instant."""
RULES_MAX = 64


class Subscriptions(StrEnum):
    """Which subscriptions a policy is for."""

    TRANSIENT = "transient"
    DURABLE = "durable"
    ALL = "all"


class Policy(msgspec.Struct, frozen=True):
    """Rules for the subscriptions that read these topics."""

    name: str
    topics: tuple[str, ...] = ("#",)
    subscriptions: Subscriptions = Subscriptions.ALL
    rules: tuple[Rule, ...] = ()

    def covers(self, durable: bool) -> bool:
        """Whether it is for subscriptions of this kind."""
        return self.subscriptions == Subscriptions.ALL or (self.subscriptions == Subscriptions.DURABLE) == durable

    def plugged_meters(self) -> tuple[str, ...]:
        """Names of the plugged-in meters that its conditions compare."""
        conditions = [part for rule in self.rules for part in (rule.when, rule.until) if part is not None]
        named = dict.fromkeys(leaf.meter for condition in conditions for leaf in condition.leaves())
        return tuple(name for name in named if METERS[name].plugged is not None)


NO_POLICY = Policy(name="none")


def policy_for(policies: Iterable[Policy], filter: str, durable: bool) -> Policy:
    """The first policy, in the order of the file, whose topics include everything the filter can match."""
    for policy in policies:
        if policy.covers(durable) and any(covers(topics, filter) for topics in policy.topics):
            return policy
    return NO_POLICY


def policy_for_any(policies: Iterable[Policy], filters: Iterable[str], durable: bool) -> Policy:
    """The first policy, in the order of the file, that covers any of the names a queue goes by."""
    for policy in policies:
        if policy.covers(durable) and any(covers(topics, name) for topics in policy.topics for name in filters):
            return policy
    return NO_POLICY


def policy_named(policies: Iterable[Policy], name: str) -> Policy | None:
    """The policy a subscriber asked for."""
    return next((policy for policy in policies if policy.name == name), None)


class _Phase(Enum):
    IDLE = 0
    PENDING = 1
    COUNTED = 2
    ACTIVE = 3


class _RuleState:
    """Where one rule stands for one consumer."""

    __slots__ = ("fired_at", "moves", "next_test", "onsets", "phase", "since", "tests")

    def __init__(self) -> None:
        self.phase = _Phase.IDLE
        self.since = 0.0
        self.fired_at = 0.0
        self.next_test = 0.0
        self.tests = 0
        self.onsets: list[float] = []
        self.moves: tuple[Move, ...] = ()
        """What its plugged-in action answered when it fired."""


class PolicyState:
    """Where the rules of one policy stand for one consumer."""

    __slots__ = ("_rules", "late_s", "minds_acks", "plugged")

    def __init__(self, policy: Policy) -> None:
        self._rules = [_RuleState() for _ in policy.rules]
        self.late_s: float | None = None
        """How late the broker had been in all when the clocks were last put right; None: they never ran."""
        self.minds_acks = any(leaf.meter == "ack_age" for rule in policy.rules for leaf in rule.when.leaves())
        """A consumer is to be looked at while it has something to acknowledge, though nothing waits for it."""
        self.plugged = policy.plugged_meters()
        """To be measured before each look."""

    @property
    def settled(self) -> bool:
        """No clock runs and no rule is active: while the consumer does not lag there is nothing to evaluate."""
        return all(state.phase is _Phase.IDLE for state in self._rules)

    @property
    def steady(self) -> bool:
        """No clock runs: each rule is idle or active. Until a ``when`` comes true, or an active rule steps back, a look
        changes nothing."""
        return all(state.phase in (_Phase.IDLE, _Phase.ACTIVE) for state in self._rules)

    def active(self) -> Iterator[int]:
        """Indexes of the rules that fired and have not stepped back."""
        return (index for index, state in enumerate(self._rules) if state.phase is _Phase.ACTIVE)

    def hold(self, index: int, moves: tuple[Move, ...]) -> None:
        """What the plugged-in action of this rule answered, when it fired."""
        self._rules[index].moves = moves

    def lasting(self, policy: Policy) -> Iterator[Action]:
        """What is being done to the consumer: the enforced actions of its active rules."""
        for rule, state in zip(policy.rules, self._rules, strict=True):
            if state.phase is _Phase.ACTIVE and rule.enforce:
                if rule.then.kind is ActionKind.PLUGIN:
                    yield from (move.action for move in state.moves if move.action is not None)
                else:
                    yield rule.then

    def keep_up(self, late_s: float) -> None:
        """To be told before each look how late the broker has been in all: that is nothing against anybody."""
        if self.late_s is not None and late_s > self.late_s:
            self.shift(late_s - self.late_s)
        self.late_s = late_s

    def shift(self, seconds: float) -> None:
        """Move all running clocks by the seconds that were the broker's own fault."""
        for state in self._rules:
            state.since += seconds
            state.fired_at += seconds
            state.next_test += seconds
            state.onsets = [onset + seconds for onset in state.onsets]


def evaluate(policy: Policy, state: PolicyState, sample: Sample, now: float) -> list[Decision]:
    """One look at one consumer: what the policy decides now, in the order of its rules."""
    decisions: list[Decision] = []
    for index, (rule, rule_state) in enumerate(zip(policy.rules, state._rules, strict=True)):
        decision = _look(index, rule, rule_state, sample, now)
        if decision is not None:
            decisions.append(decision)
            if decision.kind is DecisionKind.FIRE and decision.enforced and decision.action.kind.ends_subscription:
                break
    return decisions


def release(policy: Policy, state: PolicyState, sample: Sample, now: float) -> list[Decision]:
    """Step all rules back, whatever the meters say: the policy no longer governs this consumer."""
    decisions = [
        _clear(index, rule, rule_state, sample, now)
        for index, (rule, rule_state) in enumerate(zip(policy.rules, state._rules, strict=True))
        if rule_state.phase is _Phase.ACTIVE and rule.then.kind.stateful
    ]
    state._rules = [_RuleState() for _ in policy.rules]
    return decisions


def replace_policy(
    old: Policy, state: PolicyState, new: Policy, sample: Sample, now: float
) -> tuple[PolicyState, list[Decision]]:
    """Another policy takes over (a reload). Rules that stand in both go on where they are; the rest step back."""
    fresh = PolicyState(new)
    taken: set[int] = set()
    for index, rule in enumerate(new.rules):
        same = [at for at, known in enumerate(old.rules) if known == rule and at not in taken]
        if same:
            taken.add(same[0])
            fresh._rules[index] = state._rules[same[0]]
            state._rules[same[0]] = _RuleState()
    return fresh, release(old, state, sample, now)


def _look(index: int, rule: Rule, state: _RuleState, sample: Sample, now: float) -> Decision | None:
    holds = not sample.idle and rule.when.holds(sample)
    if state.phase is _Phase.ACTIVE:
        if not _steps_back(rule, sample, holds):
            return None
        decision = _clear(index, rule, state, sample, now) if rule.then.kind.stateful else None
        state.phase = _Phase.IDLE
        return decision
    if state.phase is not _Phase.IDLE:
        waiting_since = now - sample.waited if sample.waited is not None else state.since
        lag_was_gone = rule.when.needs_lag and waiting_since > state.since + _SLACK_S
        if lag_was_gone or sample.idle or (state.phase is _Phase.COUNTED and _steps_back(rule, sample, holds)):
            state.phase = _Phase.IDLE
    if state.phase is _Phase.IDLE and holds:
        state.phase, state.since, state.tests = _Phase.PENDING, now, 0
        state.next_test = now + (rule.for_s / rule.retries if rule.retries else 0.0)
    if state.phase is not _Phase.PENDING or not _held_long_enough(rule, state, holds, now):
        return None
    return _count(index, rule, state, sample, now)


def _held_long_enough(rule: Rule, state: _RuleState, holds: bool, now: float) -> bool:
    """Rules 1 and 2 at the top; goes back to IDLE when it has not."""
    if rule.retries:
        if now + _SLACK_S < state.next_test:
            return False
        step = rule.for_s / rule.retries
        state.tests += 1
        state.next_test = max(state.next_test + step, now + step / 2)
    if not holds:
        state.phase = _Phase.IDLE
        return False
    return state.tests >= rule.retries if rule.retries else now - state.since + _SLACK_S >= rule.for_s


def _count(index: int, rule: Rule, state: _RuleState, sample: Sample, now: float) -> Decision | None:
    """Rule 3 at the top: one more time that it held; fires if that makes enough."""
    state.onsets.append(state.since)
    if rule.within_s:
        state.onsets = [onset for onset in state.onsets if now - onset <= rule.within_s]
    if len(state.onsets) < rule.times:
        state.phase = _Phase.COUNTED
        return None
    state.onsets, state.moves = [], ()
    state.phase, state.fired_at = _Phase.ACTIVE, now
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
    )


def _steps_back(rule: Rule, sample: Sample, holds: bool) -> bool:
    """Rules 4 and 5 at the top."""
    if sample.idle:
        return True
    if rule.until is not None:
        return not holds and rule.until.holds(sample)
    return not rule.when.holds(sample, EASE)


def _clear(index: int, rule: Rule, state: _RuleState, sample: Sample, now: float) -> Decision:
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
        moves=state.moves,
    )


_POLICY_KEYS = ["name", "topics", "subscriptions", "rule"]


def parse_policy(mapping: object) -> Policy:
    """The policy a ``[[policy]]`` table says; errors name the policy, the rule's number and the key."""
    if not isinstance(mapping, Mapping):
        raise ConfigError("a policy is a table with a name, topics and rules: [[policy]]")
    name = mapping.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ConfigError('a policy needs a name: name = "market data"')
    where = f"policy {name!r}"
    for key in mapping:
        if key not in _POLICY_KEYS:
            raise ConfigError(f"{where}: {unknown('key', key, _POLICY_KEYS)}")
    try:
        subscriptions = Subscriptions(mapping.get("subscriptions", "all"))
    except ValueError:
        kinds = ", ".join(f'"{kind}"' for kind in Subscriptions)
        raise ConfigError(f"{where}: subscriptions: one of {kinds}, not {mapping['subscriptions']!r}") from None
    policy = Policy(name.strip(), _topics(mapping, where), subscriptions, _rules(mapping, where))
    for number, rule in enumerate(policy.rules, 1):
        if rule.then.durable and not policy.covers(durable=True):
            raise ConfigError(
                f"{where}, rule {number}: then.durable: the policy is for transient subscriptions only, "
                'so there is no durable one to delete (subscriptions = "all"?)'
            )
    return policy


def parse_policies(tables: object) -> tuple[Policy, ...]:
    """All policies of a file, in its order; names are unique."""
    if not isinstance(tables, list | tuple):
        raise ConfigError("policies are written as [[policy]] tables")
    policies = tuple(parse_policy(table) for table in tables)
    seen: set[str] = set()
    for policy in policies:
        if policy.name in seen:
            raise ConfigError(f"policy {policy.name!r}: there are two of that name")
        seen.add(policy.name)
    return policies


def _topics(mapping: Mapping[str, object], where: str) -> tuple[str, ...]:
    topics = mapping.get("topics", ["#"])
    if isinstance(topics, str) or not isinstance(topics, list | tuple) or not topics:
        raise ConfigError(f'{where}: topics: expected a list of topic filters such as ["stocks/us/#"]')
    for number, topic in enumerate(topics, 1):
        if not isinstance(topic, str):
            raise ConfigError(f"{where}: topics[{number}]: expected a topic filter, not {topic!r}")
        try:
            validate_filter(topic)
        except BadTopic as error:
            raise ConfigError(f"{where}: topics[{number}]: {error}") from None
    return tuple(topics)


def _rules(mapping: Mapping[str, object], where: str) -> tuple[Rule, ...]:
    tables = mapping.get("rule", [])
    if not isinstance(tables, list | tuple):
        raise ConfigError(f"{where}: rules are written as [[policy.rule]] tables")
    if len(tables) > RULES_MAX:
        raise ConfigError(f"{where}: more than {RULES_MAX} rules")
    rules: list[Rule] = []
    for number, table in enumerate(tables, 1):
        try:
            rules.append(parse_rule(table))
        except ConfigError as error:
            raise ConfigError(f"{where}, rule {number}: {error}") from None
    return tuple(rules)
