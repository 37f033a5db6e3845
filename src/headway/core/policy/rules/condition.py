"""Conditions: comparisons of meters with thresholds, joined by all and any.

How they are written (TOML, or any mapping)::

    { lag_age = "1s" }                              a meter and its limit; exceeding it fires
    { lag_records = ">= 10_000", lag_age = "5s" }   several keys in one mapping: ALL must hold
    { any = [ { lag_bytes = "64MB" }, { lag_age = "10m" } ] }     at least one must hold
    { all = [ ... ] }                               for nesting; the same as keys side by side
    { lag_records = "> 2 x prefetch" }              a multiple of the client's own window
    { lag_records = "prefetch + 50" }               50 more than the client's own window
    { lag_records = "2 x prefetch, else 1000" }     1000 for a client without a window

Rules:

1. A value may start with ``>``, ``>=``, ``<`` or ``<=``. Without one it is a limit: ``>`` for every meter except
   ``drain_rate``, which is a floor: ``<``.
2. Units go by the meter: bytes, seconds, bytes per second, shares, or plain counts.
3. A rate floor counts only while records wait *and* the consumer, not the supply, sets the pace
   (:attr:`Sample.rate_judged`). Otherwise the rate counts as fast enough: ``<`` fails and ``>`` holds. A client that
   stands still may have read a lump that nobody knows of yet, and counts as if it had (:attr:`Sample.drain_slack`).
4. Where a plugged-in meter has no value (or failed to measure one), the comparison fails.
5. ``2 x prefetch`` fails for a client without a window. ``prefetch + 50`` is 50 for such a client, and
   ``2 x prefetch, else 1000`` is 1000.
6. ``holds(sample, ease=0.2)`` makes every threshold a fifth easier to reach. A rule steps back only when the condition
   fails even so (hysteresis). Otherwise a value that wavers around its limit would cause one verdict after another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import isnan, nan
from typing import Any, ClassVar, Literal, Protocol, TypeGuard, TypeVar

import msgspec

from headway.core.base import ConfigError, Mistakes, Names, Reason, format_count, unknown
from headway.core.policy.meters import METERS, NUMBER, SHARE, Look, MeterInfo, Sample, read_plugged

# -- table -------------------------------------------------------------------------------------------------------------
#
# Tables: reads one key of a config table as a plain value, or raises an error that says what the key takes.


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


# -- plugged condition -------------------------------------------------------------------------------------------------
#
# Plugged-in conditions. Each is compared as a meter of its own, which reads 1 while it holds and 0 while it does not.
#
# So all that knows meters knows conditions: they are measured at each look at a consumer whose policy names them, and a
# condition that fails has no value and does not hold.


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


# -- condition ---------------------------------------------------------------------------------------------------------


Op = Literal[">", ">=", "<", "<="]
DEPTH_MAX = 8
LEAVES_MAX = 64


class Amount(msgspec.Struct, frozen=True):
    """``base + per_prefetch x the client's window``, or ``otherwise`` for a client without one."""

    base: float
    per_prefetch: float = 0.0
    otherwise: float | None = None
    """None: the base; if that is 0, there is no number for such a client."""

    def of(self, prefetch: int) -> float:
        """Returns the number for a client with this window; ``nan`` if it needs a window and there is none, for then no
        comparison holds."""
        if self.per_prefetch and prefetch <= 0:
            return (self.base or nan) if self.otherwise is None else self.otherwise
        return self.base + self.per_prefetch * prefetch

    @property
    def least(self) -> float:
        """The least number that any client has."""
        return self.base if self.otherwise is None else min(self.base, self.otherwise)

    def text(self, form: Callable[[float], str] = format_count) -> str:
        if not self.per_prefetch:
            return form(self.base)
        multiple = "prefetch" if self.per_prefetch == 1 else f"{self.per_prefetch:g} x prefetch"
        multiple = f"{multiple} + {form(self.base)}" if self.base else multiple
        return multiple if self.otherwise is None else f"{multiple}, else {form(self.otherwise)}"


class Reading(msgspec.Struct, frozen=True):
    """The outcome of one comparison: the measured value, the threshold, and whether the comparison held."""

    meter: str
    value: float
    op: str
    threshold: float
    held: bool = True

    @property
    def exceeds(self) -> bool:
        """Tells whether the comparison held against the consumer: above a limit, or below the rate floor."""
        return self.held and (self.op[0] == "<") == METERS[self.meter].floor


class Comparison(msgspec.Struct, frozen=True, tag="compare"):
    """A comparison of a meter with a threshold."""

    meter: str
    op: Op
    amount: Amount

    def threshold(self, prefetch: int, ease: float = 0.0) -> float:
        """Returns the threshold for a client with this window; ``nan``: there is none."""
        amount = self.amount
        limit = amount.of(prefetch) if amount.per_prefetch else amount.base
        if not ease:
            return limit
        return limit * (1 - ease if self.op[0] == ">" else 1 + ease)

    def holds(self, sample: Sample, ease: float = 0.0) -> bool:
        limit = self.threshold(sample.prefetch, ease)
        meter = METERS[self.meter]
        value = meter.read(sample)
        if meter.floor and not sample.rate_judged:
            return self.op[0] == ">"
        if meter.slack is not None:
            value += meter.slack(sample)
        if self.op == ">":
            return value > limit
        if self.op == ">=":
            return value >= limit
        return value < limit if self.op == "<" else value <= limit

    def readings(self, sample: Sample, ease: float = 0.0) -> tuple[Reading, ...]:
        limit = self.threshold(sample.prefetch, ease)
        value = METERS[self.meter].read(sample)
        if isnan(limit) or isnan(value):
            return ()
        return (Reading(self.meter, value, self.op, limit, self.holds(sample, ease)),)

    @property
    def needs_lag(self) -> bool:
        """Tells whether it can hold only while records wait, so no longer than they have waited."""
        meter = METERS[self.meter]
        return meter.needs_lag and (self.op[0] == "<") == meter.floor

    @property
    def own(self) -> bool:
        """Tells whether it speaks against this consumer, not against others and not in its favour."""
        meter = METERS[self.meter]
        return meter.own and (self.op[0] == "<") == meter.floor

    def leaves(self) -> tuple[Comparison, ...]:
        return (self,)

    def __str__(self) -> str:
        if METERS[self.meter].condition:
            return self.meter
        return f"{self.meter} {self.op} {self.amount.text(METERS[self.meter].unit.format)}"


class _Parts(msgspec.Struct, frozen=True):
    parts: tuple[Comparison | AllOf | AnyOf, ...]
    needed: ClassVar[Callable[[Iterable[bool]], bool]]
    """Whether all of its parts have to hold, or any."""
    tells: ClassVar[Callable[[Iterable[bool]], bool]]
    """Whether any of its parts tells what holds of the whole, or only all do."""
    word: ClassVar[str]

    def holds(self, sample: Sample, ease: float = 0.0) -> bool:
        return type(self).needed(part.holds(sample, ease) for part in self.parts)

    @property
    def needs_lag(self) -> bool:
        return type(self).tells(part.needs_lag for part in self.parts)

    @property
    def own(self) -> bool:
        return type(self).tells(part.own for part in self.parts)

    def readings(self, sample: Sample, ease: float = 0.0) -> tuple[Reading, ...]:
        return tuple(reading for part in self.parts for reading in part.readings(sample, ease))

    def leaves(self) -> tuple[Comparison, ...]:
        return tuple(leaf for part in self.parts for leaf in part.leaves())

    def __str__(self) -> str:
        plain = (Comparison, type(self))
        return f" {self.word} ".join(str(part) if isinstance(part, plain) else f"({part})" for part in self.parts)


class AllOf(_Parts, frozen=True, tag="all"):
    """Every part holds."""

    needed, tells, word = all, any, "and"


class AnyOf(_Parts, frozen=True, tag="any"):
    """At least one part holds."""

    needed, tells, word = any, all, "or"


Condition = Comparison | AllOf | AnyOf

_OPS: tuple[Op, ...] = (">=", "<=", ">", "<")
_TIMES_PREFETCH = re.compile(r"(?:(\d+(?:\.\d+)?)\s*(?:x|\*|×)\s*)?prefetch(?:\s*\+\s*(.+?))?(?:\s*,\s*else\s+(.+))?")


def parse_condition(mapping: object, where: str = "when") -> Condition:
    """Returns the condition that a mapping describes. ``where`` names its place, for errors."""
    condition = _parse(mapping, where, 0)
    if len(condition.leaves()) > LEAVES_MAX:
        raise ConfigError(f"{where}: more than {LEAVES_MAX} comparisons")
    return condition


def parse_amount(value: object, parse: Callable[[object], float], relative: bool) -> Amount:
    """Returns an amount in the unit that ``parse`` reads. If ``relative``, ``2 x prefetch``, ``prefetch + 50`` and
    ``2 x prefetch, else 1000`` are amounts, too."""
    if isinstance(value, str) and "prefetch" in value:
        match = _TIMES_PREFETCH.fullmatch(value.strip())
        if not relative:
            raise ConfigError(f'"{value}": only counts of records can be relative to prefetch')
        if match is None:
            raise ConfigError(f'"{value}" is not understood: write "2 x prefetch" or "prefetch + 50", and '
                              '", else 1000" behind it for clients without a window')
        multiple = float(match[1]) if match[1] else 1.0
        if multiple == 0:
            raise ConfigError(f'"{value}": a multiple of prefetch has to be more than 0')
        otherwise = parse(match[3]) if match[3] else None
        return Amount(parse(match[2]) if match[2] else 0.0, multiple, otherwise)
    return Amount(parse(value))


def _parse(mapping: object, where: str, depth: int) -> Condition:
    if not isinstance(mapping, Mapping):
        raise ConfigError(f'{where}: a condition is a table such as {{ lag_age = "30s" }}, not {_kind(mapping)}')
    if not mapping:
        raise ConfigError(f"{where}: the condition is empty; it would always hold")
    if depth > DEPTH_MAX:
        raise ConfigError(f"{where}: conditions nested more than {DEPTH_MAX} deep")
    found = Mistakes()
    parts = tuple(
        found.attempt(_parse_list, key, value, f"{where}.{key}", depth)
        if key in ("all", "any")
        else found.attempt(_parse_comparison, key, value, f"{where}.{key}")
        for key, value in mapping.items()
    )
    found.check()
    return _joined(AllOf, parts)


def _parse_list(key: str, value: object, where: str, depth: int) -> Condition:
    if not isinstance(value, list | tuple) or not value:
        example = '[ { lag_bytes = "64MB" }, { lag_age = "10m" } ]'
        raise ConfigError(f"{where}: expected a list of conditions such as {example}")
    found = Mistakes()
    parts = tuple(
        found.attempt(_parse, entry, f"{where}[{number}]", depth + 1) for number, entry in enumerate(value, 1)
    )
    found.check()
    return _joined(AllOf if key == "all" else AnyOf, parts)


def _joined(kind: type[AllOf | AnyOf], parts: tuple[Condition | None, ...]) -> Condition:
    found = tuple(part for part in parts if part is not None)
    return found[0] if len(found) == 1 else kind(found)


def _parse_comparison(meter: str, value: object, where: str) -> Comparison:
    if not METERS.knows(meter) and CONDITIONS.knows(meter):
        return Comparison(condition_meter(meter, value, where), ">", Amount(0.0))
    info = METERS.find(meter, CONDITIONS.known)
    op: Op = "<" if info.floor else ">"
    amount: object = value
    if isinstance(value, str):
        sign = next((sign for sign in _OPS if value.strip().startswith(sign)), None)
        op = sign or op
        amount = value.strip().removeprefix(sign or "").strip()
        if str(amount)[:1] in ("=", "!", ">", "<"):
            raise ConfigError(f'{where}: "{value}": a comparison is one of >, >=, <, <=')
    try:
        parsed = parse_amount(amount, info.unit.parse, relative=meter == "lag_records")
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    if op == "<" and parsed == Amount(0.0):
        raise ConfigError(f"{where}: nothing is less than 0; this can never hold")
    if op == ">" and info.unit is SHARE and parsed.base >= 1:
        raise ConfigError(f'{where}: a share is never more than 100%; write ">= 100%"')
    if op == ">=" and parsed == Amount(0.0):
        raise ConfigError(f'{where}: ">= 0" always holds; write "> 0"')
    return Comparison(meter, op, parsed)


def _kind(value: object) -> str:
    names: dict[type, str] = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return names.get(type(value), "that")
