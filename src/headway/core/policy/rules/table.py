"""Tables: reads one key of a config table as a plain value, or raises an error that says what the key takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeGuard, TypeVar

from headway.core.base import ConfigError

T = TypeVar("T")
D = TypeVar("D")


def read(
    mapping: Mapping[str, object], key: str, parse: Callable[[object], T], default: D, where: str = ""
) -> T | D:
    if key not in mapping:
        return default
    try:
        return parse(mapping[key])
    except ConfigError as error:
        raise ConfigError(f"{where}{key}: {error}") from None


def read_flag(mapping: Mapping[str, object], key: str, default: bool, where: str = "") -> bool:
    value = mapping.get(key, default)
    if not isinstance(value, bool):
        raise ConfigError(f"{where}{key}: expected true or false, not {value!r}")
    return value


def read_text(mapping: Mapping[str, object], key: str, where: str = "") -> str:
    value = mapping.get(key, "")
    if not isinstance(value, str):
        raise ConfigError(f"{where}{key}: expected text, not {value!r}")
    return value.strip()


def plain_options(options: object) -> TypeGuard[Mapping[str, str | int | float]]:
    """Tells whether these are the options of a plug-in with their defaults: texts, numbers, true or false."""
    return isinstance(options, Mapping) and all(isinstance(value, str | int | float) for value in options.values())


def like(default: object, value: object, where: str) -> object:
    """Returns the value if it is of the type of the default. An integer may stand for a float."""
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(default):
        raise ConfigError(f"{where}: expected something like {default!r}, not {value!r}")
    return value
