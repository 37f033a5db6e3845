"""Grids: a table in which some values stand for several, written out.

``{ one_of = ["5s", "15s"] }`` stands for each of these; ``{ range = ["1s", "60s"], steps = 5 }`` for so many values in
equal proportions from the first to the last. A table with several grids stands for every combination.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headway.core.base import ConfigError, parse_duration, parse_number, parse_share, parse_size

POINTS_MAX = 10_000
Path = tuple[str | int, ...]

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


def _grids(value: Any, path: Path) -> Iterator[tuple[Path, list[Any]]]:
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


def _labels(table: Mapping[str, Any], paths: Sequence[Path]) -> list[str]:
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


def _name_around(table: Mapping[str, Any], path: Path) -> str:
    """Returns the name that stands closest around the place."""
    value: Any = table
    name = ""
    for depth, part in enumerate(path):
        value = value[part] if isinstance(part, str) else value[part - 1]
        if depth and isinstance(value, Mapping) and isinstance(value.get("name"), str):
            name = value["name"]
    return name


def _keys(path: Path, size: int) -> Path:
    """Returns the last so many names of a path; numbers of lists come along."""
    names = 0
    for start in range(len(path) - 1, -1, -1):
        names += isinstance(path[start], str)
        if names == size:
            return path[start:]
    return path


def _with(value: Any, path: Path, chosen: Mapping[Path, Any]) -> Any:
    if path in chosen:
        return chosen[path]
    if isinstance(value, Mapping):
        return {key: _with(inner, (*path, key), chosen) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with(inner, (*path, number), chosen) for number, inner in enumerate(value, 1)]
    return value
