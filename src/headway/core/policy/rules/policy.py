"""Policies: ordered rules for the consumers of some topics, as a config file has them; evaluation.py applies them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property

import msgspec

from headway.core.base import ConfigError, Mistakes, parse_duration, unknown
from headway.core.message import BadTopic, covers, validate_filter
from headway.core.policy.meters import METERS
from headway.core.policy.rules.rule import Rule, parse_rule
from headway.core.policy.rules.table import read

RULES_MAX = 64
PATIENCE_MAX_S = 3600.0
HTTP_LISTENER = "http"
"""The listener of clients of the admin API."""


class Subscriptions(StrEnum):
    """The subscriptions that a policy is for."""

    TRANSIENT = "transient"
    DURABLE = "durable"
    ALL = "all"


class Policy(msgspec.Struct, frozen=True, dict=True):
    """Ordered rules for the subscriptions that read some topics."""

    name: str
    topics: tuple[str, ...] = ("#",)
    subscriptions: Subscriptions = Subscriptions.ALL
    listeners: tuple[str, ...] = ()
    """The listeners through which its consumers came; empty: through any, or none yet."""
    rules: tuple[Rule, ...] = ()
    patience_max_s: float = PATIENCE_MAX_S
    """The longest patience that a client may ask for (meter.py, rule 8)."""

    def covers(self, durable: bool) -> bool:
        """Tells whether the policy is for subscriptions of this kind."""
        return self.subscriptions == Subscriptions.ALL or (self.subscriptions == Subscriptions.DURABLE) == durable

    def serves(self, listener: str) -> bool:
        """Tells whether the policy is for clients of this listener; ``""``: a queue that nobody consumes."""
        return not self.listeners or listener in self.listeners

    def compares(self, meter: str) -> bool:
        """Tells whether a rule can fire for what this meter reads."""
        return any(leaf.meter == meter for rule in self.rules for leaf in rule.when.leaves())

    @cached_property
    def minds_acks(self) -> bool:
        """Tells whether it compares ``ack_age``. Then a consumer is watched while it has something to acknowledge, even
        if nothing waits for it."""
        return self.compares("ack_age")

    @cached_property
    def minds_silence(self) -> bool:
        """Tells whether it compares ``unacknowledged_time``. Then its consumers are glanced at, even if nothing
        waits for them."""
        return self.compares("unacknowledged_time")

    @cached_property
    def plugged(self) -> tuple[str, ...]:
        """Returns the names of the plugged-in meters that its conditions compare, which are measured at each look."""
        named = dict.fromkeys(leaf.meter for rule in self.rules for leaf in rule.leaves())
        return tuple(name for name in named if METERS[name].plugged is not None)


NO_POLICY = Policy(name="none")


def policy_for(policies: Iterable[Policy], filter: str, durable: bool, listener: str) -> Policy:
    """Returns the first policy of the file whose topics include everything that the filter can match."""
    return policy_for_any(policies, (filter,), durable, listener)


def policy_for_any(policies: Iterable[Policy], filters: Iterable[str], durable: bool, listener: str) -> Policy:
    """Returns the first policy of the file that covers any of the filters of a queue, for clients of this listener."""
    for policy in policies:
        if not policy.covers(durable) or not policy.serves(listener):
            continue
        if any(covers(topics, name) for topics in policy.topics for name in filters):
            return policy
    return NO_POLICY


def policy_named(policies: Iterable[Policy], name: str) -> Policy | None:
    """Returns the policy of this name; None: there is none."""
    return next((policy for policy in policies if policy.name == name), None)


_POLICY_KEYS = ["name", "topics", "subscriptions", "listeners", "patience_max", "rule"]
_IN_FORCE = ("patience_max",)
"""Keys that say what a client gets, so only the policy in force can have them."""


def parse_policy(mapping: object, kind: str = "policy") -> Policy:
    """Returns the policy of a ``[[policy]]`` table. Raises a ConfigError with all mistakes, each with the policy, the
    rule's number and the key. ``kind``: the table's name, for errors."""
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"a {kind} is a table with a name, topics and rules: [[{kind}]]")
    name = mapping.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f'a {kind} needs a name: name = "market data"')
    where = f"{kind} {name!r}"
    keys = _POLICY_KEYS if kind == "policy" else [key for key in _POLICY_KEYS if key not in _IN_FORCE]
    found = Mistakes()
    found.lines += [f"{where}: {unknown('key', key, keys)}" for key in mapping if key not in keys]
    topics = found.attempt(_topics, mapping, where) or ()
    subscriptions = found.attempt(_subscriptions, mapping, where) or Subscriptions.ALL
    listeners = found.attempt(_listeners, mapping, where) or ()
    patience_max_s = found.attempt(read, mapping, "patience_max", parse_duration, PATIENCE_MAX_S, f"{where}: ") or 0.0
    rules = found.attempt(_rules, mapping, where, kind) or ()
    policy = Policy(name.strip(), topics, subscriptions, listeners, rules, patience_max_s)
    found.lines += [
        f"{where}, rule {number}: then.durable: the {kind} is for transient subscriptions only, "
        'so there is no durable one to delete (subscriptions = "all"?)'
        for number, rule in enumerate(rules, 1)
        if rule.then.durable and not policy.covers(durable=True)
    ]
    found.check()
    return policy


def parse_policies(tables: object, kind: str = "policy") -> tuple[Policy, ...]:
    """Returns all policies of a file, in its order. Names are unique."""
    if not isinstance(tables, list | tuple):
        raise ConfigError(f"{kind}: written as [[{kind}]] tables")
    policies = tuple(parse_policy(table, kind) for table in tables)
    seen: set[str] = set()
    for policy in policies:
        if policy.name in seen:
            raise ConfigError(f"{kind} {policy.name!r} is defined twice")
        seen.add(policy.name)
    return policies


def _subscriptions(mapping: Mapping[str, object], where: str) -> Subscriptions:
    try:
        return Subscriptions(str(mapping.get("subscriptions", "all")))
    except ValueError:
        kinds = ", ".join(f'"{kind}"' for kind in Subscriptions)
        raise ConfigError(f"{where}: subscriptions: one of {kinds}, not {mapping['subscriptions']!r}") from None


def _topics(mapping: Mapping[str, object], where: str) -> tuple[str, ...]:
    topics = mapping.get("topics", ["#"])
    if isinstance(topics, str) or not isinstance(topics, list | tuple) or not topics:
        raise ConfigError(f'{where}: topics: expected a list of topic filters such as ["stocks/us/#"]')
    found = Mistakes()
    for number, topic in enumerate(topics, 1):
        if not isinstance(topic, str):
            found.lines.append(f"{where}: topics[{number}]: expected a topic filter, not {topic!r}")
            continue
        try:
            validate_filter(topic)
        except BadTopic as error:
            found.lines.append(f"{where}: topics[{number}]: {error}")
    found.check()
    return tuple(topics)


def _listeners(mapping: Mapping[str, object], where: str) -> tuple[str, ...]:
    if "listeners" not in mapping:
        return ()
    names = mapping["listeners"]
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f'{where}: listeners: expected a list of listeners\' names such as ["desk"]')
    return tuple(dict.fromkeys(names))


def _rules(mapping: Mapping[str, object], where: str, kind: str) -> tuple[Rule, ...]:
    tables = mapping.get("rule", [])
    if not isinstance(tables, list | tuple):
        raise ConfigError(f"{where}: rules are written as [[{kind}.rule]] tables")
    if len(tables) > RULES_MAX:
        raise ConfigError(f"{where}: more than {RULES_MAX} rules")
    found, rules = Mistakes(), []
    for number, table in enumerate(tables, 1):
        in_rule = Mistakes()
        rules.append(in_rule.attempt(parse_rule, table))
        found.lines += [f"{where}, rule {number}: {line}" for line in in_rule.lines]
    found.check()
    return tuple(rule for rule in rules if rule is not None)
