"""Candidates: the policies and pools a lab is to compare, read from a file; or every mistake in it, one line each.

``as it ran`` (what the recorded broker did) and ``nothing`` (no policy, the recorded pool) are always among them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec

from headway.core.base import ConfigError, parse_duration, parse_number, parse_share, parse_size, unknown
from headway.core.policy import ACTIONS, METERS, ActionKind, Policy, Which, parse_policies
from headway.server.config import default_text, preset_text
from headway.store.toml import BadConfig, parse_toml, policy_text, read_text

# -- grid --------------------------------------------------------------------------------------------------------------
#
# Grids: a table in which some values stand for several, written out.
#
# ``{ one_of = ["5s", "15s"] }`` stands for each of these; ``{ range = ["1s", "60s"], steps = 5 }`` for so many values
# in equal proportions from the first to the last. A table with several grids stands for every combination.


POINTS_MAX = 10_000
SettingPath = tuple[str | int, ...]

_SIGNS = (">=", "<=", ">", "<")


def expand(table: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields a name and a table for every combination; one without a name if there is no grid in it."""
    grids = list(_grids(table, ()))
    count = math.prod(len(values) for _, values in grids)
    if count > POINTS_MAX:
        raise ConfigError(f"its grid has {count:,} points; {POINTS_MAX:,} at most")
    labels = _labels(table, [path for path, _ in grids])
    for values in itertools.product(*(values for _, values in grids)):
        name = ", ".join(f"{label}={value}" for label, value in zip(labels, values, strict=True))
        chosen = dict(zip((path for path, _ in grids), values, strict=True))
        yield name, _with(table, (), chosen)


def _grids(value: Any, path: SettingPath) -> Iterator[tuple[SettingPath, list[Any]]]:
    if isinstance(value, Mapping):
        if "one_of" in value or "range" in value:
            yield path, _values(value, ".".join(str(part) for part in path))
            return
        for key, inner in value.items():
            yield from _grids(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value, 1):
            yield from _grids(inner, (*path, number))


def _values(grid: Mapping[str, Any], where: str) -> list[Any]:
    keys = set(grid)
    if keys == {"one_of"}:
        values = grid["one_of"]
        if not isinstance(values, list) or not values:
            raise ConfigError(f'{where}: one_of: expected a list of values such as ["5s", "15s"]')
        if any(isinstance(value, Mapping | list) for value in values):
            raise ConfigError(f"{where}: one_of: plain values only")
        return list(values)
    if keys == {"range", "steps"}:
        return _range(grid["range"], grid["steps"], where)
    raise ConfigError(f'{where}: a grid is {{ one_of = [...] }} or {{ range = ["1s", "60s"], steps = 5 }}')


def _range(ends: Any, steps: Any, where: str) -> list[Any]:
    if not isinstance(ends, list) or len(ends) != 2:
        raise ConfigError(f'{where}: range: expected two values such as ["1s", "60s"]')
    if isinstance(steps, bool) or not isinstance(steps, int) or not 2 <= steps <= POINTS_MAX:
        raise ConfigError(f"{where}: steps: a whole number from 2 to {POINTS_MAX:,}")
    (sign, low, unit), (other_sign, high, other_unit) = (_amount(end, where) for end in ends)
    if (sign, unit) != (other_sign, other_unit):
        raise ConfigError(f"{where}: range: {ends[0]!r} and {ends[1]!r} are not of one kind")
    if not 0 < low < high:
        raise ConfigError(f"{where}: range: from a value above 0 to a larger one, not {ends[0]!r} to {ends[1]!r}")
    found = [low * (high / low) ** (step / (steps - 1)) for step in range(steps)]
    return [ends[0], *(_text(sign, value, unit) for value in found[1:-1]), ends[1]]


def _amount(value: Any, where: str) -> tuple[str, float, str]:
    """Returns (sign, number, kind) of one end of a range."""
    if not isinstance(value, str):
        return "", parse_number(value), "number"
    text = value.strip()
    sign = next((sign for sign in _SIGNS if text.startswith(sign)), "")
    rest = text.removeprefix(sign).strip()
    try:
        if rest.endswith("/s"):
            return sign, float(parse_size(rest.removesuffix("/s"))), "rate"
        if rest.endswith("%"):
            return sign, parse_share(rest), "share"
        if rest.replace("_", "").isdecimal():
            return sign, float(rest), "number"
        try:
            return sign, parse_duration(rest), "duration"
        except ConfigError:
            return sign, float(parse_size(rest)), "size"
    except ConfigError:
        raise ConfigError(f"{where}: range: {value!r} is not a time, size, rate, share or number") from None


def _text(sign: str, value: float, kind: str) -> Any:
    """Writes a value in between, to three digits."""
    value = float(f"{value:.3g}")
    if kind == "number" and not sign:
        return round(value) if value >= 10 else value
    plain = f"{value * 1000:g}ms" if kind == "duration" and value < 1 else f"{value:g}s"
    words = {
        "number": f"{value:g}", "duration": plain, "size": f"{round(value)}B", "rate": f"{round(value)}B/s",
        "share": f"{value * 100:g}%",
    }  # fmt: skip
    return f"{sign}{words[kind]}"


def _labels(table: Mapping[str, Any], paths: Sequence[SettingPath]) -> list[str]:
    """The last key of each path; if that does not tell them apart, with the name of the rule (or policy) in front; or
    else with as many keys before it as it takes."""
    named = [f"{_name_around(table, path)} {_keys(path, 1)[-1]}".strip() for path in paths]
    plain = [".".join(str(part) for part in _keys(path, 1)) for path in paths]
    sizes = range(2, max((len(path) for path in paths), default=0) + 1)
    longer = ([".".join(str(part) for part in _keys(path, size)) for path in paths] for size in sizes)
    for labels in itertools.chain((plain, named), longer):
        if len(set(labels)) == len(labels):
            return labels
    return [".".join(str(part) for part in path) for path in paths]


def _name_around(table: Mapping[str, Any], path: SettingPath) -> str:
    """Returns the name that stands closest around the place."""
    value: Any = table
    name = ""
    for depth, part in enumerate(path):
        value = value[part] if isinstance(part, str) else value[part - 1]
        if depth and isinstance(value, Mapping) and isinstance(value.get("name"), str):
            name = value["name"]
    return name


def _keys(path: SettingPath, size: int) -> SettingPath:
    """Returns the last so many names of a path; numbers of lists come along."""
    names = 0
    for start in range(len(path) - 1, -1, -1):
        names += isinstance(path[start], str)
        if names == size:
            return path[start:]
    return path


def _with(value: Any, path: SettingPath, chosen: Mapping[SettingPath, Any]) -> Any:
    if path in chosen:
        return chosen[path]
    if isinstance(value, Mapping):
        return {key: _with(inner, (*path, key), chosen) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with(inner, (*path, number), chosen) for number, inner in enumerate(value, 1)]
    return value


# -- plugged -----------------------------------------------------------------------------------------------------------
#
# Plugged-in meters and actions, which a lab cannot replay: samples have no column of such a meter, and do not say how
# the plug-in decides.


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


# -- candidates --------------------------------------------------------------------------------------------------------


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


# -- served ------------------------------------------------------------------------------------------------------------
#
# The served configuration with other policies: what a recommendation changes, and nothing else.
#
# The file is changed as text, so its comments and the order of its tables stay; then it is read again, and has to say
# the same but for its policies, and for the limits of ``[pool]`` that the candidate sets itself.


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
