"""The served configuration with other policies: what a recommendation changes, and nothing else.

The file is changed as text, so its comments and the order of its tables stay; then it is read again, and has to say the
same but for its policies, and for the limits of ``[pool]`` that the candidate sets itself.
"""

from __future__ import annotations

import re
from typing import Any

from headway.core.base import ConfigError
from headway.pipeline.lab.plans.candidates import Candidate
from headway.store.toml import BadConfig, parse_toml, policy_text

_HEADER = re.compile(r"\[\[?\s*([A-Za-z0-9_-]+)[^=]*\]\s*(#.*)?$")


def with_policies(text: str, candidate: Candidate) -> str:
    """Returns a configuration with the candidate's policies, and with its limits of the pool. Raises ConfigError."""
    before = parse_toml(text, "--config: ")
    wanted: dict[str, Any] = {**before, "policy": parse_toml(candidate.policy_toml).get("policy", [])}
    gone, added = {"policy"}, candidate.policy_toml
    if candidate.pool_toml:
        wanted["pool"] = before.get("pool", {}) | parse_toml(candidate.pool_toml)["pool"]
        gone, added = gone | {"pool"}, "\n".join((policy_text((), wanted["pool"]), added))
    changed = _without(text, gone).rstrip("\n") + "\n\n" + added
    try:
        found: dict[str, Any] = {"policy": [], **parse_toml(changed)}
    except BadConfig:
        found = {}
    if found != wanted:
        raise ConfigError("--config: its policies cannot be told from the rest; write them as [[policy]] tables")
    return changed


def _without(text: str, names: set[str]) -> str:
    """Leaves out tables by the first part of their names; comments that stand before another table stay."""
    kept: list[str] = []
    after: list[str] = []
    inside = False
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header is not None:
            stays = header[1] not in names
            if inside and stays:
                kept += after
            inside, after = not stays, []
        if not inside:
            kept.append(line)
        elif line.strip() and not line.lstrip().startswith("#"):
            after = []
        else:
            after.append(line)
    return "\n".join([*kept, *after])
