"""Plugged-in conditions. Each is compared as a meter of its own, which reads 1 while it holds and 0 while it does not.

So all that knows meters knows conditions: they are measured at each look at a consumer whose policy names them, and a
condition that fails has no value and does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from headway.core.base import ConfigError, Names, Reason, unknown
from headway.core.policy.meters import METERS, NUMBER, Look, MeterInfo, read_plugged
from headway.core.policy.rules.table import like, plain_options

MADE_MAX = 10_000
"""Conditions with different options since the start, those of previews included."""


class PluggedCondition(Protocol):
    """The interface of a plugged-in condition."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The options with their defaults: texts, numbers, true or false."""

    def holds(self, look: Look, options: Mapping[str, Any], now: float) -> bool:
        """Tells whether it holds for this consumer. ``now`` is in seconds of a clock that only goes forward."""


class ConditionInfo(msgspec.Struct, frozen=True):
    plugged: PluggedCondition
    origin: str
    """The distribution it was plugged in from."""


CONDITIONS: Names[ConditionInfo] = Names("condition", {})


def plugged_condition(name: str, plugged: PluggedCondition, origin: str) -> ConditionInfo:
    """Makes a plug-in a condition. Raises ConfigError."""
    if not plain_options(getattr(plugged, "options", None)) or not callable(getattr(plugged, "holds", None)):
        raise ConfigError("it is not a condition: a condition has holds(look, options, now) and plain options")
    return ConditionInfo(plugged, origin)


def condition_meter(name: str, value: object, where: str) -> str:
    """Returns the name of the meter of a condition with the options that are written. Raises ConfigError."""
    info = CONDITIONS.find(name)
    defaults = info.plugged.options
    written = {} if value is True else value
    if not isinstance(written, Mapping):
        raise ConfigError(f"{where}: expected true, or a table of its options: {', '.join(defaults) or 'it has none'}")
    for key in written:
        if key not in defaults:
            raise ConfigError(f"{where}: {unknown('option', key, list(defaults))}")
    options = {key: like(default, written.get(key, default), f"{where}.{key}") for key, default in defaults.items()}
    meter = f"{name}({', '.join(f'{key} = {option!r}' for key, option in options.items())})"
    if len(METERS.made) >= MADE_MAX and meter not in METERS.made:
        raise ConfigError(f"{where}: more than {MADE_MAX} conditions with other options since the start")
    METERS.made[meter] = MeterInfo(
        read_plugged(meter), NUMBER, Reason.PLUGIN, meter,
        lambda value, limit, sample: f"{meter} holds", plugged=_AsMeter(info.plugged, options), origin=info.origin,
        condition=name,
    )  # fmt: skip
    return meter


class _AsMeter:
    unit = "number"

    def __init__(self, plugged: PluggedCondition, options: Mapping[str, Any]) -> None:
        self._plugged = plugged
        self._options = options

    def measure(self, look: Look, now: float) -> float:
        held = self._plugged.holds(look, dict(self._options), now)
        if not isinstance(held, bool):
            raise TypeError(f"holds() returned {held!r}, which is neither True nor False")
        return float(held)
