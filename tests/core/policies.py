"""Policies and samples for tests."""

from __future__ import annotations

import tomllib

from headway.core.policy.meters.sample import Sample
from headway.core.policy.rules.rule import Policy, parse_policy


def policy_of(*rules: str, head: str = 'name = "p"') -> Policy:
    text = head + "".join(f"\n[[rule]]\n{rule}" for rule in rules)
    return parse_policy(tomllib.loads(text))


def slow(**more) -> Sample:
    """A consumer with records waiting; what else is said of it goes on top."""
    return Sample(**{"lag_records": 100, "lag_bytes": 10_000, **more})
