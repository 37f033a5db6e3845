"""Plug-ins: meters, conditions and actions of other distributions, found by entry points when a config names them.

Only plug-ins that a config names are imported. They stay imported until the process ends.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from typing import Any, TypeVar

from headway.core.base import ConfigError
from headway.core.policy import (
    ACTIONS,
    CONDITIONS,
    METERS,
    ActionKind,
    Policy,
    plugged_action,
    plugged_condition,
    plugged_meter,
)

METERS_GROUP, CONDITIONS_GROUP, ACTIONS_GROUP = "headway.meters", "headway.conditions", "headway.actions"

T = TypeVar("T")


def look_for_plugins() -> None:
    """Has names that are not built in looked up among the installed plug-ins from now on."""
    METERS.elsewhere = lambda: _installed(METERS_GROUP, plugged_meter)
    CONDITIONS.elsewhere = lambda: _installed(CONDITIONS_GROUP, plugged_condition)
    ACTIONS.elsewhere = lambda: _installed(ACTIONS_GROUP, plugged_action)


def plugins_of(policies: Iterable[Policy]) -> list[tuple[str, str]]:
    """Returns the plug-ins that the policies use: the name, and the kind and origin of each."""
    found: dict[str, str] = {}
    for policy in policies:
        found |= {METERS[name].condition or name: METERS[name].plugin for name in policy.plugged}
        actions = [rule.then.name for rule in policy.rules if rule.then.kind is ActionKind.PLUGIN]
        found |= {name: f"action of {ACTIONS[name].origin}" for name in actions}
    return list(found.items())


def _installed(group: str, plug_in: Callable[[str, Any, str], T]) -> Mapping[str, Callable[[], T]]:
    importlib.invalidate_caches()
    found: dict[str, list[metadata.EntryPoint]] = {}
    for point in metadata.entry_points(group=group):
        found.setdefault(point.name, []).append(point)
    return {name: _loader(name, points, plug_in) for name, points in sorted(found.items())}


def _loader(name: str, points: list[metadata.EntryPoint], plug_in: Callable[[str, Any, str], T]) -> Callable[[], T]:
    def load() -> T:
        origins = [_origin(point) for point in points]
        if len(points) > 1:
            raise ConfigError(f"{name} is plugged in more than once, by {' and '.join(origins)}")
        try:
            there = points[0].load()
            return plug_in(name, there() if isinstance(there, type) else there, origins[0])
        except ConfigError as error:
            raise ConfigError(f"{name} of {origins[0]}: {error}") from None
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{name} of {origins[0]} cannot be loaded ({why})") from error

    return load


def _origin(point: metadata.EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value
