"""Reachability of rules: conditions that can never hold, and rules that come too late because an earlier one has ended
the subscription.

A condition is looked at as alternatives: lists of comparisons that hold together. Only what is certain is reported: of
conditions with very many alternatives, and of plugged-in meters' relations, nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import ceil, floor, inf, prod

from headway.core.policy import METERS, ActionKind, AllOf, AnyOf, Comparison, Condition, Policy, Rule

ALTERNATIVES_MAX = 256
_COUNTS = ("lag_records", "slow_count")
_SHARES = ("pool_share", "slow_fraction")
_MARKS = ("slow_count", "slow_fraction")
"""Meters of what other rules have marked slow."""
_CONNECTED = ("blocked_time", "unread_time", "credit_exhausted_time", "unacknowledged_time")
"""Meters that begin anew with each connection."""
_FOR_AWAY = (ActionKind.DISCARD, ActionKind.OFFLINE)

Alternative = tuple[Comparison, ...]


def alternatives(condition: Condition) -> list[Alternative]:
    """Returns the lists of comparisons of which one must hold as a whole; none where there are too many."""
    if isinstance(condition, Comparison):
        return [(condition,)]
    parts = [alternatives(part) for part in condition.parts]
    counts = [len(part) for part in parts]
    if not all(counts) or (sum(counts) if isinstance(condition, AnyOf) else prod(counts)) > ALTERNATIVES_MAX:
        return []
    if isinstance(condition, AnyOf):
        return [one for part in parts for one in part]
    return [tuple(leaf for one in chosen for leaf in one) for chosen in product(*parts)]


# -- conditions that can never hold -----------------------------------------------------------------------------------


def contradiction(condition: Condition) -> str:
    """Returns why a condition can never hold, or a part of it cannot; empty: it can."""
    found = alternatives(condition)
    whys = [why for why in map(_contradiction, found) if why]
    if whys and len(whys) == len(found):
        return f"{condition} can never hold: {whys[0]}"
    if whys and isinstance(condition, AnyOf | AllOf):
        return f"a part of {condition} can never hold: {whys[0]}"
    return ""


def _contradiction(leaves: Alternative) -> str:
    for meter in dict.fromkeys(leaf.meter for leaf in leaves):
        those = [leaf for leaf in leaves if leaf.meter == meter]
        low, high = _bounds(those)
        if low is not None and high is not None and _empty(meter, *low, *high):
            return f"no {METERS[meter].meaning} can be {those[0]}" if len(those) == 1 else (
                f"{' and '.join(str(leaf).partition(' ')[2] for leaf in those)} exclude each other for {meter}"
            )  # fmt: skip
    idle = next((leaf for leaf in leaves if _says_nothing_waits(leaf)), None)
    lags = next((leaf for leaf in leaves if leaf.needs_lag), None)
    if idle is not None and lags is not None:
        return f"{lags} needs records that wait, and {idle} says that none do"
    return ""


def _bounds(leaves: Sequence[Comparison]) -> tuple[tuple[float, bool] | None, tuple[float, bool] | None]:
    """Returns the highest lower and the lowest upper bound, each with whether the bound itself belongs to it, as far as
    they are certain for any prefetch."""
    lows = [(leaf.amount.least, leaf.op == ">=") for leaf in leaves if leaf.op[0] == ">"]
    uppers = [leaf for leaf in leaves if leaf.op[0] == "<" and not leaf.amount.per_prefetch]
    highs = [(leaf.amount.base, leaf.op == "<=") for leaf in uppers]
    if len(leaves) == 1 and leaves[0].meter in _SHARES:
        highs = highs or [(1.0, True)]
    low = max(lows, key=lambda bound: (bound[0], not bound[1]), default=None)
    high = min(highs, key=lambda bound: (bound[0], bound[1]), default=None)
    return low, high


def _empty(meter: str, low: float, low_in: bool, high: float, high_in: bool) -> bool:
    if meter in _COUNTS:  # whole numbers
        least = ceil(low) if low_in else floor(low) + 1
        most = floor(high) if high_in else ceil(high) - 1
        return least > most
    return low > high or (low == high and not (low_in and high_in))


def _says_nothing_waits(leaf: Comparison) -> bool:
    if leaf.meter not in ("lag_records", "lag_bytes") or leaf.op[0] != "<" or leaf.amount.per_prefetch:
        return False
    return leaf.amount.base == 0 or (leaf.meter == "lag_records" and leaf.op == "<" and leaf.amount.base <= 1)


def marks_nobody(policy: Policy) -> list[int]:
    """Returns the indexes of rules that can hold only once another rule has marked a consumer as slow, if no rule of
    the policy marks one by itself."""
    counts = [_needs_a_mark(rule.when) for rule in policy.rules]
    return [index for index, needs in enumerate(counts) if needs] if all(counts) else []


def _needs_a_mark(when: Condition) -> bool:
    found = alternatives(when)
    return bool(found) and all(any(leaf.meter in _MARKS and leaf.op[0] == ">" for leaf in one) for one in found)


# -- rules that come too late -----------------------------------------------------------------------------------------


def too_late(policy: Policy, index: int) -> tuple[int, bool] | None:
    """Returns the index of an earlier rule that has always ended the subscription by the time at which this rule could
    fire, and whether that holds for transient subscriptions only; None: there is none."""
    rule = policy.rules[index]
    for number, earlier in enumerate(policy.rules[:index]):
        if not earlier.enforce or not earlier.then.kind.ends_subscription:
            continue
        if not _no_slower(earlier, rule) or not _implies(rule.when, earlier.when):
            continue
        durable = policy.covers(durable=True)
        if not durable or _ends_durable(earlier):
            return number, False
        if not policy.covers(durable=False):
            continue  # a durable subscription that is away goes on to lag
        keeps_away_ones_small = rule.then.kind in _FOR_AWAY or (
            rule.then.kind is ActionKind.DELETE_SUBSCRIPTION and rule.then.durable
        )
        if not keeps_away_ones_small:
            return number, True
    return None


def _ends_durable(rule: Rule) -> bool:
    """A durable subscription is gone, too, or stands as a new one would when its client is back."""
    if rule.then.kind is ActionKind.DELETE_SUBSCRIPTION:
        return rule.then.durable
    found = alternatives(rule.when)
    return bool(found) and all(any(_begins_anew(leaf) for leaf in one) for one in found)


def _begins_anew(leaf: Comparison) -> bool:
    return leaf.meter in _CONNECTED and leaf.op[0] == ">"


def _no_slower(earlier: Rule, rule: Rule) -> bool:
    """Whether the earlier rule fires no later than the other when its condition holds as long."""
    if earlier.times > 1 or earlier.excuse_pauses != rule.excuse_pauses:
        return False
    if not earlier.retries:
        return earlier.for_s == 0 or (not rule.retries and earlier.for_s <= rule.for_s)
    if rule.retries:
        return (earlier.retries, earlier.for_s) == (rule.retries, rule.for_s)
    return earlier.for_s <= rule.for_s


def _implies(narrow: Condition, wide: Condition) -> bool:
    """Whether the wide condition holds wherever the narrow one does, as far as that is certain."""
    inner, outer = alternatives(narrow), alternatives(wide)
    if len(inner) * len(outer) > ALTERNATIVES_MAX * 4:
        return False
    possible = [one for one in inner if not _contradiction(one)]
    return bool(possible) and all(
        any(all(_follows(leaf, one) for leaf in other) for other in outer) for one in possible
    )


def _follows(leaf: Comparison, known: Alternative) -> bool:
    """Whether a comparison holds wherever all of the known ones do."""
    if _says_something_waits(leaf) and any(other.needs_lag for other in known):
        return True
    return any(other.meter == leaf.meter and _tighter(other, leaf) for other in known)


def _says_something_waits(leaf: Comparison) -> bool:
    if leaf.meter not in ("lag_records", "lag_bytes") or leaf.op[0] != ">" or leaf.amount.per_prefetch:
        return False
    return leaf.amount.base < 1 or (leaf.op == ">=" and leaf.amount.base <= 1)


def _tighter(one: Comparison, other: Comparison) -> bool:
    """Whether every value that fits the one comparison fits the other; both are of one meter."""
    if one.op[0] != other.op[0]:
        return False
    up = one.op[0] == ">"
    same = one.amount.per_prefetch == other.amount.per_prefetch
    if other.amount.per_prefetch and bool(one.amount.base) != bool(other.amount.base):
        return False  # a client without a window has a threshold in the one and none in the other
    if one.amount.otherwise != other.amount.otherwise:
        return False
    if one.amount.otherwise is not None and one.op != other.op and other.op in (">", "<"):
        return False  # such a client has the same threshold in both
    if not same and not (up and not other.amount.per_prefetch and one.amount.base):
        return False
    left, right = one.amount.base, other.amount.base
    if left == right and same:
        return one.op == other.op or other.op in (">=", "<=")
    return (left > right if up else left < right) and abs(left) < inf
