"""The linter: finds places of a valid config that cannot do what they seem to say, for ``headway check``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from math import ceil, floor, inf, prod
from typing import NamedTuple

from headway.core.message import covers, spellings
from headway.core.permission import EXCHANGES, QUEUES, Operation, Permission, fill
from headway.core.policy import METERS, ActionKind, AllOf, AnyOf, Comparison, Condition, Policy, Rule
from headway.server.config.fields import meant
from headway.server.config.linting.writable import folders, why_not_writable
from headway.server.config.settings import Settings
from headway.server.config.tls.files import doubtful_certificates
from headway.server.config.tls.users import known_users, users_are_elsewhere

# -- findings ----------------------------------------------------------------------------------------------------------
#
# Findings: doubtful places of a valid config, each with its line, what is wrong there, and what to do.


class Finding(NamedTuple):
    """One finding."""

    key: str
    """The key, or the policy and the rule."""
    text: str
    """The fault, and the remedy."""
    line: int | None = None
    """The line of the file, from 1; None: it is not known."""

    def __str__(self) -> str:
        return f"{'' if self.line is None else f'line {self.line}: '}{self.key}: {self.text}"


class Lines:
    """Finds the line of a policy, a rule, or a key in the text of a file. TOML's own reader does not tell lines."""

    def __init__(self, text: str) -> None:
        self._found: dict[tuple[str, int, int, str], int] = {}
        """By table, its number, the number of the rule (0: none), and the key (empty: the header)."""
        table, numbers, rule, quotes = "", {"policy": 0, "trial": 0, "topic": 0, "permission": 0, "limit": 0}, 0, ""
        for number, line in enumerate(text.splitlines(), 1):
            if quotes:
                quotes = "" if quotes in line else quotes
                continue
            header = _HEADER.match(line)
            if header is not None:
                table = re.sub(r"[\s\"']", "", header[2])
                if header[1] == "[[":
                    rule = rule + 1 if table.endswith(".rule") else 0
                    if table in numbers:
                        numbers[table] += 1
                self._put(table, numbers, rule, "", number)
                continue
            key = _KEY.match(line)
            if key is not None:
                self._put(table, numbers, rule, key[1].strip("\"'"), number)
            quotes = next((mark for mark in ('"""', "'''") if line.count(mark) % 2), "")

    def _put(self, table: str, numbers: dict[str, int], rule: int, key: str, line: int) -> None:
        name = table.removesuffix(".rule")
        self._found.setdefault((name, numbers.get(name, 0), rule if table != name else 0, key), line)

    def policy(self, policy: int, rule: int = 0, key: str = "", kind: str = "policy") -> int | None:
        """Returns the line of a policy (or trial: ``kind``), of one of its rules, or of a key in either; numbers are
        from 1. None: the file has them in another form."""
        return self._first((kind, policy, rule, key), (kind, policy, rule, ""), (kind, policy, 0, ""))

    def key(self, table: str, key: str = "", number: int = 0) -> int | None:
        """Returns the line of a key, or of its table; ``number``: of a table in double brackets, from 1."""
        return self._first((table, number, 0, key), (table, number, 0, ""))

    def _first(self, *places: tuple[str, int, int, str]) -> int | None:
        return next((self._found[place] for place in places if place in self._found), None)


_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*(\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+)\s*=")


# -- reachability ------------------------------------------------------------------------------------------------------
#
# Reachability of rules: conditions that can never hold, and rules that come too late because an earlier one has ended
# the subscription.
#
# A condition is looked at as alternatives: lists of comparisons that hold together. Only what is certain is reported:
# of conditions with very many alternatives, and of plugged-in meters' relations, nothing is said.


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


# -- linter ------------------------------------------------------------------------------------------------------------


_WITH_FILTERS = (Operation.CONNECT, Operation.PUBLISH, Operation.SUBSCRIBE, Operation.DECLARE)
NARROW = "list narrow policies first, and those for more topics after them"

UNMARKED = (
    "it counts consumers that a rule has marked as slow, and no rule of this policy marks one without that: put a "
    "notify rule with a limit such as lag_age or blocked_time first"
)


def lint(settings: Settings) -> list[Finding]:
    """Returns the findings in the order of the file."""
    lines = Lines(settings.text)
    found = [
        *_rules(settings, lines), *_shadowed(settings, lines), *_uncovered(settings, lines),
        *_filters(settings, lines), *_permissions(settings, lines), *_limits(settings, lines), *_paths(settings, lines),
        *_certificates(settings, lines), *_in_clear(settings, lines),
    ]  # fmt: skip
    return sorted(dict.fromkeys(found), key=lambda one: (one.line is None, one.line or 0))


# -- rules ------------------------------------------------------------------------------------------------------------


def _rules(settings: Settings, lines: Lines) -> Iterator[Finding]:
    for kind, policies in (("policy", settings.policies), ("trial", settings.trials)):
        for number, policy in enumerate(policies, 1):
            if not policy.rules:
                text = "it has no rules, so nobody judges the consumers that it covers: give it rules, or remove it"
                yield Finding(f"{kind} {policy.name!r}", text, lines.policy(number, kind=kind))
            for index, key, text in _bad_rules(policy):
                where = f"{kind} {policy.name!r}, rule {index + 1}"
                yield Finding(where, text, lines.policy(number, index + 1, key, kind))


def _bad_rules(policy: Policy) -> Iterator[tuple[int, str, str]]:
    """Yields the index of a rule, the key, and the text of a finding."""
    unmarked = marks_nobody(policy)
    for index, rule in enumerate(policy.rules):
        never = contradiction(rule.when)
        if never:
            yield index, "when", f"when: {never}; correct the limits, or remove the rule"
            continue
        if rule.until is not None and (never := contradiction(rule.until)):
            yield index, "until", f"until: {never}, so the rule would never step back; correct the limits"
        if index in unmarked:
            yield index, "when", f"when: {UNMARKED}"
        earlier = too_late(policy, index)
        if earlier is not None:
            yield index, "", _late(policy, *earlier)


def _late(policy: Policy, earlier: int, transient: bool) -> str:
    rule = policy.rules[earlier]
    whose = "no transient subscription ever reaches it" if transient else "it can never be reached"
    advice = "put it first, give it a lower limit, or remove it"
    if transient:
        advice += '; if it is for durable ones that are away, say so: subscriptions = "durable", in a policy of its own'
    return f"{whose}: rule {earlier + 1} has ended the subscription before ({rule.when} -> {rule.then.word}); {advice}"


# -- policies ---------------------------------------------------------------------------------------------------------


def _shadowed(settings: Settings, lines: Lines) -> Iterator[Finding]:
    for number, policy in enumerate(settings.policies, 1):
        before = settings.policies[: number - 1]
        covered = {filter: _covering(filter, policy, before) for filter in policy.topics}
        hidden = {filter: by for filter, by in covered.items() if by is not None}
        by = " and ".join(repr(name) for name in dict.fromkeys(name for names in hidden.values() for name in names))
        if len(hidden) == len(covered):
            text = f"it governs nobody who does not ask for it by name: {by} comes first and covers the same; {NARROW}"
            yield Finding(f"policy {policy.name!r}", text, lines.policy(number))
        elif hidden:
            text = f"{', '.join(hidden)}: covered by {by} already, which comes first; {NARROW}, or leave it out"
            yield Finding(f"policy {policy.name!r}, topics", text, lines.policy(number, 0, "topics"))


def _covering(filter: str, policy: Policy, before: tuple[Policy, ...]) -> list[str] | None:
    """Returns the names of earlier policies that take every subscription to this filter; None: some are left."""
    names: list[str] = []
    for durable in (False, True):
        for listener in (policy.listeners or ("",)) if policy.covers(durable) else ():
            name = next((one.name for one in before if one.covers(durable) and one.serves(listener)
                         and any(covers(wide, each) for each in spellings(filter) for wide in one.topics)), None)
            if name is None:
                return None
            names.append(name)
    return names


def _uncovered(settings: Settings, lines: Lines) -> Iterator[Finding]:
    """Finds subscriptions that have no policy because the file's own ones have replaced the default."""
    everywhere = sorted(settings.listener_names)
    kinds: dict[str, list[str]] = {}
    for kind, durable in (("transient", False), ("durable", True)):
        wide = [one for one in settings.policies if one.covers(durable) and "#" in one.topics]
        if without := [name for name in everywhere if not any(one.serves(name) for one in wide)]:
            kinds[kind] = without
    if kinds:
        which = "subscriptions" if len(kinds) == 2 else f"{next(iter(kinds))} subscriptions"
        where = sorted({name for names in kinds.values() for name in names})
        if where != everywhere:
            which += f" of clients of {' and '.join(where)}"
        covered = ", ".join(dict.fromkeys(topic for one in settings.policies for topic in one.topics)) or "none"
        text = (
            "the default policy is switched off, because the file has policies of its own, and none of them is for all "
            f"{which} (covered: {covered}): nobody calls the others slow until a pool is full; add a policy with "
            'topics = ["#"] at the end (headway serve --print-config has the default one)'
        )
        yield Finding("policy", text, lines.policy(1))


# -- permissions ------------------------------------------------------------------------------------------------------


def _permissions(settings: Settings, lines: Lines) -> Iterator[Finding]:
    known, groups = known_users(settings), settings.auth.groups
    for name, members in groups.items():
        for member in members:
            if member not in known:
                text = f'"{member}" is neither in [auth.users] nor in [auth.tokens]; add the user, or correct the name'
                yield Finding(f"auth.groups.{name}", text, lines.key("auth.groups", name))
    for number, rule in enumerate(settings.permissions, 1):
        for key, text in _permission_faults(settings, rule, known):
            yield Finding(f"permission[{number}]{key and '.' + key}", text, lines.key("permission", key, number))
    if settings.permissions and settings.server.admin is not None and not _somebody_administers(settings):
        text = 'nobody may use the admin API (top, why, metrics): add a [[permission]] with admin = ["read"]'
        yield Finding("permission", text, lines.key("permission", number=1))


def _limits(settings: Settings, lines: Lines) -> Iterator[Finding]:
    known, for_all = known_users(settings), 0
    for number, one in enumerate(settings.limits, 1):
        if one.user is not None and one.user not in known and not users_are_elsewhere(settings):
            text = f'"{one.user}" is neither in [auth.users] nor in [auth.tokens], so it limits nobody'
            yield Finding(f"{one.name}.user", text, lines.key("limit", "user", number))
        if one.group is not None and one.group not in settings.auth.groups and not settings.auth.vouched:
            text = f'there is no group "{one.group}" in [auth.groups], so it limits nobody'
            yield Finding(f"{one.name}.group", text, lines.key("limit", "group", number))
        if for_all:
            text = f"it limits nobody, because limit[{for_all}] comes first and is for every user: put that last"
            yield Finding(one.name, text, lines.key("limit", number=number))
        elif one.user is None and one.group is None:
            for_all = number
    if settings.limits and not known and not users_are_elsewhere(settings):
        text = "there are no users whose names are checked, so nobody has limits: add [auth.users]"
        yield Finding("limit", text, lines.key("limit", number=1))


def _permission_faults(settings: Settings, rule: Permission, known: list[str]) -> Iterator[tuple[str, str]]:
    """Yields the key of a fault, and what is wrong there."""
    if rule.user is not None and rule.user not in known:
        yield "user", f'"{rule.user}" is neither in [auth.users] nor in [auth.tokens], so it applies to nobody'
    if rule.group is not None and rule.group not in settings.auth.groups and not settings.auth.vouched:
        yield "group", f'there is no group "{rule.group}" in [auth.groups], so it applies to nobody'
    if not any(rule.filters(operation) for operation in Operation):
        yield "", "it gives nothing: add publish, subscribe, declare, connect or admin"
    others = settings.auth.vouched if rule.group else rule.user is None and users_are_elsewhere(settings)
    whom = [rule.user] if rule.user else settings.auth.groups.get(rule.group, []) if rule.group else known
    for operation in _WITH_FILTERS:
        for filter in rule.filters(operation):
            if why := _never(operation, filter, whom, others=others):
                yield operation, f'"{filter}": {why}'


def _never(operation: Operation, filter: str, users: list[str], *, others: bool) -> str:
    """Returns why a filter can never apply; empty if it can. ``others``: whether there may be more users."""
    if text := meant(filter.replace("%u", "u").replace("%c", "c")):
        return text
    if filter.startswith("$share/"):
        return "it is for the topics: write the filter without $share/GROUP, which any subscription may have"
    if operation is Operation.PUBLISH and filter.startswith("$") and not filter.startswith((QUEUES, EXCHANGES)):
        return "topics that begin with $ are the broker's own, and nobody may publish to them"
    if "%u" in filter and not users and not others:
        return "there are no users that %u could be: add [auth.users]"
    for name in users:
        if fill(filter, "%u", name) is None:
            which = '".", "/", "+" or "#"' if filter.startswith(QUEUES) else '"/", "+" or "#"'
            return f'%u is never "{name}", because it has {which} in it or begins with $'
    return ""


def _somebody_administers(settings: Settings) -> bool:
    admin = settings.auth.admin
    return bool(admin.read or admin.change) or any(rule.admin for rule in settings.permissions)


# -- topics and paths -------------------------------------------------------------------------------------------------


def _filters(settings: Settings, lines: Lines) -> Iterator[Finding]:
    for kind, policies in (("policy", settings.policies), ("trial", settings.trials)):
        for number, policy in enumerate(policies, 1):
            for filter in policy.topics:
                if text := meant(filter):
                    line = lines.policy(number, 0, "topics", kind)
                    yield Finding(f"{kind} {policy.name!r}, topics", f'"{filter}": {text}', line)
            for index, rule in enumerate(policy.rules):
                for filter in rule.then.topics:
                    if text := meant(filter):
                        where = f"{kind} {policy.name!r}, rule {index + 1}, then"
                        line = lines.policy(number, index + 1, "then", kind)
                        yield Finding(where, f'"{filter}": {text}', line)
    views = {view.topic for view in settings.views.values()}
    for number, topic in enumerate((one for one in settings.topics if one.filter not in views), 1):
        if text := meant(topic.filter):
            yield Finding(f"topic[{number}].filter", f'"{topic.filter}": {text}', lines.key("topic", "filter", number))
        if topic.conflate_s is not None and "key" not in topic.model_fields_set:
            text = (
                "there is no key, so subscribers get the latest record of each topic; say so with key = \"topic\", or "
                "name the key of the records, such as key = \"/id\""
            )
            yield Finding(f"topic[{number}].conflate", text, lines.key("topic", "conflate", number))
    for name, table in settings.tables.items():
        if table.topic is not None and (text := meant(table.topic)):
            yield Finding(f"tables.{name}.topic", f'"{table.topic}": {text}', lines.key(f"tables.{name}", "topic"))


def _paths(settings: Settings, lines: Lines) -> Iterator[Finding]:
    for key, folder in folders(settings).items():
        why = why_not_writable(folder)
        if why:
            table, _, name = key.rpartition(".")
            text = f"{folder}: a broker of this user cannot write there: {why}; choose another, or let this user write"
            yield Finding(key, text, lines.key(table, name))


# -- TLS --------------------------------------------------------------------------------------------------------------


def _certificates(settings: Settings, lines: Lines) -> Iterator[Finding]:
    for where, key, text in doubtful_certificates(settings):
        yield Finding(f"{where}.{key}", text, lines.key(where, key.rpartition(".")[2]))


def _in_clear(settings: Settings, lines: Lines) -> Iterator[Finding]:
    """Finds listeners beyond this machine to which passwords are sent in clear."""
    for name, listener in settings.listeners.items():
        url = listener.url
        if settings.auth.checks_names and not url.loopback and not url.secure:
            text = f"{url}: passwords go over the network in clear: use {url.scheme}s:// (see `headway certs`)"
            yield Finding(f"listeners.{name}.url", text, lines.key(f"listeners.{name}", "url"))


def uncovered_finding(rows: list[dict[str, object]], total: int, consumers: int) -> Finding:
    """Returns the finding about consumers of a running broker that no policy would cover."""
    some = ", ".join(f"{row.get('client')} ({row.get('filter')})" for row in rows[:10])
    more = f", and {total - 10} more" if total > 10 else ""
    whose = f"{total} of the {consumers} consumers there are now would have none"
    return Finding("policy", f"{whose}: {some}{more}; add a policy whose topics cover their filters")
