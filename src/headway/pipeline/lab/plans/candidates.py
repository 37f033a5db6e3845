"""Candidates: the policies and pools a lab is to compare, read from a file; or every mistake in it, one line each.

``as it ran`` (what the recorded broker did) and ``nothing`` (no policy, the recorded pool) are always among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec

from headway.core.base import ConfigError, parse_duration, parse_share, parse_size, unknown
from headway.core.policy import ActionKind, Policy, Which, parse_policies
from headway.pipeline.lab.plans.grid import POINTS_MAX, expand
from headway.pipeline.lab.plans.plugged import plugged_in, without_plugged
from headway.server.config import default_text, preset_text
from headway.store.toml import BadConfig, parse_toml, policy_text, read_text

Kind = Literal["ran", "nothing", "preset", "grid"]
PRESETS = ("headway", "xap", "amps", "activemq", "a-mq", "qpid")
RAN, NOTHING = "as it ran", "nothing"
_FILE_KEYS = ["presets", "goal", "candidate"]
_CANDIDATE_KEYS = ["name", "pool", "policy"]
_Readers = Mapping[str, tuple[str, Callable[[Any], Any]]]
"""Readers by key: the field that it sets, and the function that reads its value."""
_SIZES: _Readers = {"memory": ("memory_bytes", parse_size), "disk": ("disk_bytes", parse_size)}
_POOL: _Readers = {**_SIZES, "max_client_share": ("client_share", parse_share)}
_GOAL: _Readers = {
    **_SIZES, "stall": ("stall_s", parse_duration), "cut_stuck": ("cut_stuck_s", parse_duration),
}  # fmt: skip
_NOT_IN_SAMPLES = (Which.SELECTOR, Which.TOPICS, Which.OLDER_PER_KEY)


class CandidatePool(msgspec.Struct, frozen=True):
    """A pool's limits; None: as recorded. Bytes, and a share."""

    memory_bytes: int | None = None
    disk_bytes: int | None = None
    client_share: float | None = None


class Candidate(msgspec.Struct, frozen=True):
    name: str
    kind: Kind
    policies: tuple[Policy, ...] = ()
    """Empty for the one that ran: each run has its own."""
    pool: CandidatePool = CandidatePool()
    policy_toml: str = ""
    pool_toml: str = ""
    """The limits that the candidate sets itself."""

    @property
    def toml(self) -> str:
        return "\n".join(filter(None, (self.pool_toml, self.policy_toml)))


class Goal(msgspec.Struct, frozen=True):
    """The limits of a candidate that may be recommended; None: those that follow from the recorded pool."""

    memory_bytes: int | None = None
    disk_bytes: int | None = None
    stall_s: float = 0.0
    cut_stuck_s: float | None = None
    """The longest time after which a consumer that takes nothing any more has been cut off; None: it need not be."""


class Plan(msgspec.Struct, frozen=True):
    candidates: tuple[Candidate, ...]
    goal: Goal = Goal()


def load_plan(path: str | Path) -> Plan:
    """Reads a plan from a file. Raises :class:`BadConfig`."""
    path = Path(path)
    return parse_plan(read_text(path), f"{path}: ")


def parse_plan(text: str, where: str = "") -> Plan:
    """Reads a plan from a TOML text; ``where`` is put in front of each mistake."""
    tables = parse_toml(text, where)
    errors = [str(unknown("key", key, _FILE_KEYS)) for key in tables if key not in _FILE_KEYS]
    candidates = [Candidate(RAN, "ran"), Candidate(NOTHING, "nothing")]
    candidates += _presets(tables.get("presets", []), errors)
    candidates += _own(tables.get("candidate", []), errors)
    goal = Goal(**_fields("goal", "[goal]", tables.get("goal", {}), _GOAL, errors))
    if len(candidates) == 2 and not errors:
        errors.append("there is nothing to compare: add a [[candidate]], or presets = [...]")
    if len(candidates) > POINTS_MAX + 2:
        errors.append(f"{len(candidates) - 2:,} candidates; {POINTS_MAX:,} at most")
    seen: set[str] = set()
    for candidate in candidates:
        if candidate.name in seen:
            errors.append(f"candidate {candidate.name!r}: there are two of that name")
        seen.add(candidate.name)
    if errors:
        raise BadConfig([where + line for line in dict.fromkeys(errors)])
    return Plan(tuple(candidates), goal)


@cache
def _preset_tables() -> list[dict[str, Any]]:
    text = resources.files("headway.pipeline.lab.plans").joinpath("presets.toml").read_text(encoding="utf-8")
    tables: list[dict[str, Any]] = parse_toml(text)["candidate"]
    for table in tables:
        name = table["preset"]
        if name == "headway":
            table["policy"] = parse_toml(default_text())["policy"]
        elif table.pop("as_served", False):
            table["policy"] = parse_toml(preset_text(name))["policy"]
    return tables


def _presets(names: Any, errors: list[str]) -> list[Candidate]:
    if not isinstance(names, list):
        errors.append(f'presets: expected a list such as ["xap", "qpid"]; there are {", ".join(PRESETS)}')
        return []
    found = []
    for name in dict.fromkeys(map(str, names)):
        if name not in PRESETS:
            errors.append(f"presets: {unknown('preset', name, PRESETS)}")
        for table in _preset_tables():
            if table["preset"] == name:
                plain = {key: value for key, value in table.items() if key != "preset"}
                found.append(read_candidate(plain["name"], plain, "preset"))
    return found


def _own(tables: Any, errors: list[str]) -> list[Candidate]:
    if not isinstance(tables, list):
        errors.append("candidates are written as [[candidate]] tables, in double brackets")
        return []
    found: list[Candidate] = []
    for number, table in enumerate(tables, 1):
        name = table.get("name") if isinstance(table, Mapping) else None
        if not isinstance(name, str) or not name.strip():
            errors.append(f'candidate[{number}]: needs a name: name = "cut the blocked"')
            continue
        name = name.strip()
        wrong = [str(unknown("key", key, _CANDIDATE_KEYS)) for key in table if key not in _CANDIDATE_KEYS]
        if name in (RAN, NOTHING):
            wrong.append("is always there by itself; choose another name")
        try:
            for label, plain in expand(table) if not wrong else ():
                try:
                    found.append(read_candidate(f"{name}: {label}" if label else name, plain, "grid"))
                except ConfigError as error:
                    wrong.append(f"{label}: {error}" if label else str(error))
                    break
        except ConfigError as error:
            wrong.append(str(error))
        errors += [f"candidate {name!r}: {line}" for line in wrong]
    return found


def read_candidate(name: str, table: Mapping[str, Any], kind: Kind) -> Candidate:
    """Reads a candidate without grids. Raises ConfigError."""
    policies = parse_policies(table.get("policy", []))
    for where, what in plugged_in(policies):
        raise ConfigError(f"{where}: {what} is plugged in and cannot be replayed: samples do not have it")
    for policy in policies:
        for number, rule in enumerate(policy.rules, 1):
            if rule.then.which in _NOT_IN_SAMPLES:
                raise ConfigError(
                    f"policy {policy.name!r}, rule {number}: discard which = {str(rule.then.which)!r} cannot be "
                    "replayed: samples do not say which records those are"
                )
    pool = table.get("pool", {})
    limits = read_pool(pool)
    return Candidate(name, kind, policies, limits, policy_text(table.get("policy", [])), policy_text((), pool))


def read_pool(table: Any) -> CandidatePool:
    errors: list[str] = []
    fields = _fields("pool", "[candidate.pool]", table, _POOL, errors)
    if isinstance(table, Mapping) and "%" in str(table.get("memory", "")):
        errors = ['pool.memory: write a size such as "64MB": a share of which machine?']
    if errors:
        raise ConfigError(errors[0])
    return CandidatePool(**fields)


def _fields(where: str, header: str, table: Any, known: _Readers, errors: list[str]) -> dict[str, Any]:
    """Returns the fields that a table has values for. Adds what is wrong with it to ``errors``."""
    if not isinstance(table, Mapping):
        errors.append(f"{where}: is written as {header}")
        return {}
    found = {}
    for key, text in table.items():
        try:
            if key not in known:
                raise ConfigError(str(unknown("key", key, list(known))))
            field, read = known[key]
            found[field] = read(text)
        except ConfigError as error:
            errors.append(f"{where}: {error}")
    return found


def as_recorded(tables: Sequence[Mapping[str, Any]]) -> tuple[tuple[Policy, ...], list[str]]:
    """Reads the policies a broker ran with, and notes which rules cannot be replayed: those only tell."""
    known, notes = without_plugged(tables)
    policies = []
    for policy in parse_policies(known):
        rules = []
        for number, rule in enumerate(policy.rules, 1):
            if rule.then.which in _NOT_IN_SAMPLES and rule.then.kind is ActionKind.DISCARD:
                notes.append(f"policy {policy.name!r}, rule {number}: discard which = {str(rule.then.which)!r} "
                             "is not replayed: samples do not say which records those are")  # fmt: skip
                rule = msgspec.structs.replace(rule, enforce=False)
            rules.append(rule)
        policies.append(msgspec.structs.replace(policy, rules=tuple(rules)))
    return tuple(policies), notes
