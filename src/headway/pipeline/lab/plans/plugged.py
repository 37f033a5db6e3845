"""Plugged-in meters and actions, which a lab cannot replay: samples have no column of such a meter, and do not say how
the plug-in decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headway.core.policy import ACTIONS, METERS, ActionKind, Policy

NEVER = {"lag_records": 10**15}


def plugged_in(policies: Sequence[Policy]) -> Iterator[tuple[str, str]]:
    """Yields the place and the name of each meter and action that is not built in."""
    for policy in policies:
        for number, rule in enumerate(policy.rules, 1):
            where = f"policy {policy.name!r}, rule {number}"
            meters = (leaf.meter for leaf in rule.leaves())
            yield from ((where, f"meter {meter!r}") for meter in meters if not _built_in_meter(meter))
            if rule.then.kind is ActionKind.PLUGIN:
                yield where, f"action {rule.then.name!r}"


def without_plugged(tables: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns policies as they were written, and notes: a rule with a meter that is not built in never holds, one with
    such an action only tells. What was plugged in there need not be installed here."""
    notes: list[str] = []
    found = []
    for table in tables:
        rules = []
        for number, rule in enumerate(table.get("rule", ()), 1):
            where = f"policy {table.get('name')!r}, rule {number}"
            meters = [name for key in ("when", "until") for name in _meters(rule.get(key)) if not _built_in_meter(name)]
            then = rule.get("then")
            word = then.get("action") if isinstance(then, Mapping) else then
            if meters:
                notes.append(f"{where}: meter {meters[0]!r} was plugged in and is not replayed: samples do not have it")
                rule = {"when": NEVER, "then": "notify"}
            elif isinstance(word, str) and (word not in ACTIONS or ACTIONS[word].plugged is not None):
                notes.append(f"{where}: action {word!r} was plugged in and is not replayed; the rule only tells")
                rule = {**rule, "then": "notify"}
            rules.append(rule)
        found.append({**table, "rule": rules})
    return found, notes


def _meters(condition: Any) -> Iterator[str]:
    if isinstance(condition, Mapping):
        for key, value in condition.items():
            if key in ("all", "any"):
                for part in value:
                    yield from _meters(part)
            else:
                yield key


def _built_in_meter(name: str) -> bool:
    return name in METERS and METERS[name].plugged is None
