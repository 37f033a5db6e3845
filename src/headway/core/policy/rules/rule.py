"""Rules: when a condition holds for so long, or so often, then do something.

A rule as it is written::

    when = { drain_rate = "<5000B/s" }    the condition (see condition.py)
    for = "500ms"                         it must hold for so long without a break
    retries = 3                           ... or be found true in 3 tests spread evenly over that time
    times = 30                            fire only the 30th separate time
    within = "1h"                         ... counting only times that began within the last hour
    excuse_pauses = false                 a client's usual pauses are no excuse
    until = { lag_records = "< 10" }      when to step back; default: when ``when``, eased by a fifth, no longer holds
    then = "disconnect"                   the action, or with options:
    then = { action = "discard", which = "oldest", keep_records = 50 }
    enforce = false                       a dry run: everything happens but the action
    keyed = true                          only for transient subscriptions to topics of a [[topic]], which have a key
    name = "too slow for too long"        shown beside the number

A rule that makes no sense is refused when the config is read: one that would act on a consumer for what others do, a
discard that does not say how much to keep, or an ``until`` that holds already when the rule fires.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from headway.core.base import ConfigError, Mistakes, parse_count, parse_duration, unknown
from headway.core.policy.meters import METERS, Sample
from headway.core.policy.rules.action import Action, ActionKind, parse_action
from headway.core.policy.rules.condition import Comparison, Condition, parse_condition
from headway.core.policy.rules.table import read, read_flag, read_text

TIMES_MAX = 1000
RETRIES_MAX = 1000


class Rule(msgspec.Struct, frozen=True):
    """One rule; see the top of this file. ``for_s`` is ``for``, which is a keyword of Python."""

    when: Condition
    then: Action
    for_s: float = 0.0
    times: int = 1
    within_s: float = 0.0
    """Seconds; 0: times count however long ago they began."""
    retries: int = 0
    until: Condition | None = None
    enforce: bool = True
    name: str = ""
    keyed: bool = False
    """The rule is only for subscriptions of which the latest record per key is kept anyway."""
    excuse_pauses: bool = True
    """A client that takes nothing for no longer than usual is not late."""

    def judged(self, sample: Sample) -> Sample:
        """Returns the sample as this rule sees it."""
        return sample if self.excuse_pauses else sample.unexcused()

    @property
    def marks(self) -> bool:
        """True if it finds slow consumers by itself, and not only by what other rules have marked slow."""
        return any(leaf.meter not in ("slow_count", "slow_fraction") for leaf in self.when.leaves())

    def leaves(self) -> tuple[Comparison, ...]:
        """Returns the comparisons of both conditions."""
        return self.when.leaves() + (self.until.leaves() if self.until is not None else ())


_RULE_KEYS = ["when", "for", "times", "within", "retries", "until", "then", "enforce", "keyed", "name",
              "excuse_pauses"]  # fmt: skip


def parse_rule(mapping: object) -> Rule:
    """Returns the rule of a table. Raises a ConfigError with all mistakes, which name their keys; ``parse_policy`` adds
    the policy and the rule's number."""
    if not isinstance(mapping, Mapping):
        raise ConfigError('a rule is a table with "when" and "then"')
    found = Mistakes()
    found.lines += [str(unknown("key", key, _RULE_KEYS)) for key in mapping if key not in _RULE_KEYS]
    found.lines += [f"{key!r} is missing" for key in ("when", "then") if key not in mapping]
    when = found.attempt(parse_condition, mapping["when"], "when") if "when" in mapping else None
    until = found.attempt(parse_condition, mapping["until"], "until") if "until" in mapping else None
    then = found.attempt(parse_action, mapping["then"]) if "then" in mapping else None
    if then is not None and when is not None:
        then = found.attempt(_with_default_keep, then, when)
    options = {
        "for_s": found.attempt(read, mapping, "for", parse_duration, 0.0),
        "times": found.attempt(read, mapping, "times", parse_count, 1),
        "within_s": found.attempt(read, mapping, "within", parse_duration, 0.0),
        "retries": found.attempt(read, mapping, "retries", parse_count, 0),
        "enforce": found.attempt(read_flag, mapping, "enforce", True),
        "name": found.attempt(read_text, mapping, "name"),
        "keyed": found.attempt(read_flag, mapping, "keyed", False),
        "excuse_pauses": found.attempt(read_flag, mapping, "excuse_pauses", True),
    }
    found.check()
    assert when is not None
    assert then is not None
    rule = Rule(when, then, until=until, **cast("dict[str, Any]", options))
    found.lines += _contradictions(rule)
    found.check()
    return rule


def _with_default_keep(action: Action, when: Condition) -> Action:
    """Returns the action. A discard that does not say how much to keep, keeps what its condition allows to wait."""
    if not action.lacks_limit:
        return action
    limits = {leaf.meter: leaf for leaf in when.leaves() if leaf.op[0] == ">"}
    records, size = limits.get("lag_records"), limits.get("lag_bytes")
    if records is None and size is None:
        raise ConfigError(
            f'then: discard which = "{action.which}" needs keep_records or keep_bytes: how much may wait '
            "(or a limit on lag_records or lag_bytes in when, which is taken then)"
        )
    return msgspec.structs.replace(
        action,
        keep_records=records.amount if records is not None else None,
        keep_bytes=int(size.amount.base) if size is not None else None,
    )


def _contradictions(rule: Rule) -> Iterator[str]:
    """Finds values that are valid by themselves but not together."""
    if not 1 <= rule.times <= TIMES_MAX:
        yield f"times: from 1 to {TIMES_MAX:,}, not {rule.times}"
    if rule.within_s and rule.times == 1:
        yield "within: says how old the counted times may be, so it needs times = 2 or more"
    if rule.retries > RETRIES_MAX:
        yield f"retries: at most {RETRIES_MAX:,}, not {rule.retries}"
    if rule.retries and not rule.for_s:
        yield 'retries: the tests are spread over "for", which is missing'
    if rule.within_s and rule.within_s < rule.for_s * rule.times:
        yield "within: is too short for so many times of that length; the rule could never fire"
    if rule.then.kind is not ActionKind.BLOCK_PUBLISHERS and not rule.when.own:
        yield (
            f"when: {rule.when} holds nothing against the consumer itself, so it could hit a healthy one; "
            "add a limit of its own, such as lag_age or blocked_time"
        )
    if rule.until is not None:
        if rule.then.kind.ends_subscription and rule.times == 1:
            yield f"until: there is no stepping back from {rule.then.kind}"
        yield from _bad_until(rule.when, rule.until)


def _bad_until(when: Condition, until: Condition) -> Iterator[str]:
    """Finds an ``until`` that compares the meter of ``when`` and can hold while the rule fires."""
    if not isinstance(when, Comparison) or not isinstance(until, Comparison) or when.meter != until.meter:
        return
    form = METERS[when.meter].unit.format
    if when.op[0] == until.op[0]:
        yield f"until: {until} points the same way as when: {when}; to step back write the other way round"
        return
    if when.amount.per_prefetch != until.amount.per_prefetch:
        return
    beyond = until.amount.base > when.amount.base if when.op[0] == ">" else until.amount.base < when.amount.base
    if beyond:
        side = "at most" if when.op[0] == ">" else "at least"
        yield f"until: {until} overlaps when: {when}; its limit should be {side} {when.amount.text(form)}"
