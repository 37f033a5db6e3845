"""Meters by name: what a condition may compare, and how each meter is read, written and described.

A built-in meter is a field of :class:`Sample` and an entry here. A plugged-in meter is measured by its plug-in at each
look, if the consumer's policy names it, and its value is in ``Sample.plugged``. Above this file they are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from operator import attrgetter
from typing import Protocol

import msgspec

from headway.core.base import (
    ConfigError,
    Names,
    Reason,
    format_count,
    format_duration,
    format_rate,
    format_share,
    format_size,
    parse_count,
    parse_duration,
    parse_number,
    parse_rate,
    parse_share,
    parse_size,
)
from headway.core.policy.meters.look import Look
from headway.core.policy.meters.sample import Sample


class Unit(msgspec.Struct, frozen=True):
    """How a value is written in a config, and in a verdict."""

    parse: Callable[[object], float]
    format: Callable[[float], str]


COUNT = Unit(parse_count, format_count)
BYTES = Unit(parse_size, format_size)
SECONDS = Unit(parse_duration, format_duration)
RATE = Unit(parse_rate, format_rate)
SHARE = Unit(parse_share, format_share)
NUMBER = Unit(parse_number, "{:g}".format)
UNITS = {"number": NUMBER, "count": COUNT, "bytes": BYTES, "seconds": SECONDS, "bytes/s": RATE, "share": SHARE}
"""The units by the names that plug-ins use."""


class PluggedMeter(Protocol):
    """The interface of a plugged-in meter."""

    @property
    def unit(self) -> str:
        """One of ``UNITS``."""

    def measure(self, look: Look, now: float) -> float | None:
        """Returns the value for this consumer; None: there is none, so no comparison holds. ``now`` is in seconds of a
        clock that only goes forward."""


class MeterInfo(msgspec.Struct, frozen=True):
    """All that conditions and verdicts need to know of a meter."""

    read: Callable[[Sample], float]
    """Reads the meter from a sample; ``nan``: it has no value, so no comparison holds."""
    unit: Unit
    reason: Reason
    meaning: str
    """The meter in a few words."""
    finding: Callable[[str, str, Sample], str]
    """Describes a reading that speaks against the consumer, from its value and limit in words."""
    needs_lag: bool = False
    """The meter is 0 while nothing waits; a rate is not judged."""
    own: bool = True
    """The meter is about this consumer, not about the other consumers of its topic."""
    floor: bool = False
    """The meter is a rate: too little of it speaks against the consumer (condition.py, rule 3)."""
    slack: Callable[[Sample], float] | None = None
    """How much more than it reads the meter may be."""
    tells_lag: bool = False
    """The finding says how many records wait."""
    plugged: PluggedMeter | None = None
    origin: str = ""
    """The distribution it was plugged in from."""
    condition: str = ""
    """The plugged-in condition that it tells of."""

    @property
    def plugin(self) -> str:
        """The kind of plug-in and its distribution, in words."""
        return f"{'condition' if self.condition else 'meter'} of {self.origin}"


def records(count: int) -> str:
    return "1 record" if count == 1 else f"{format_count(count)} records"


def waiting(sample: Sample) -> str:
    return f"{records(sample.lag_records)} ({format_size(sample.lag_bytes)})"


def plugged_meter(name: str, plugged: PluggedMeter, origin: str) -> MeterInfo:
    """Makes a plug-in a meter. Raises ConfigError."""
    unit = UNITS.get(str(getattr(plugged, "unit", None)))
    if unit is None or not callable(getattr(plugged, "measure", None)):
        raise ConfigError(f"it is not a meter: a meter has measure(look, now) and a unit, one of {', '.join(UNITS)}")
    return MeterInfo(
        read_plugged(name), unit, Reason.PLUGIN, name,
        lambda value, limit, sample: f"{name} {value} (limit {limit})", plugged=plugged, origin=origin,
    )  # fmt: skip


def read_plugged(name: str) -> Callable[[Sample], float]:
    """Returns what reads the plugged-in meter of this name."""
    return lambda sample: nan if sample.plugged is None else sample.plugged.get(name, nan)


def _drained(value: str, limit: str, sample: Sample) -> str:
    if sample.drain_rate >= 1 and value == RATE.format(0):  # by a rule that excuses no pauses
        return f"nothing taken for {format_duration(sample.stood)} (at least {limit} asked)"
    over = f" over {format_duration(sample.rate_window)}" if sample.rate_window else ""
    taken = f"only {value}" if sample.drain_rate >= 1 else "nothing"
    return f"{taken} taken{over} (at least {limit} asked)"


def _blocked(value: str, limit: str, sample: Sample) -> str:
    usual = f", its usual pause is {format_duration(sample.usual_pause)}" if sample.usual_pause >= 1 else ""
    return f"{'it has not moved on' if sample.reads_itself else 'no bytes taken'} for {value} (limit {limit}{usual})"


def _unread(value: str, limit: str, sample: Sample) -> str:
    usual = f", its usual pause counts as {format_duration(sample.unread_pause)}" if sample.unread_pause >= 1 else ""
    return f"nothing read for {value} (limit {limit}{usual})"


def _unacknowledged(value: str, limit: str, sample: Sample) -> str:
    usual = f", its usual pause is {format_duration(sample.ack_pause)}" if sample.ack_pause >= 1 else ""
    return f"nothing of {records(sample.in_flight)} acknowledged for {value} (limit {limit}{usual})"


def _catch_up(value: str, limit: str, sample: Sample) -> str:
    when = f"in {value}" if sample.catching_up < inf else "never"
    return f"at this pace it will have taken the {waiting(sample)} that wait {when} (limit {limit})"


NEVER = Unit(parse_duration, lambda value: format_duration(value) if value < inf else "never")


METERS: Names[MeterInfo] = Names("meter", {
    "lag_records": MeterInfo(
        attrgetter("lag_records"), COUNT, Reason.LAG_RECORDS, "records waiting",
        lambda value, limit, sample: f"{value} records ({format_size(sample.lag_bytes)}) waited (limit {limit})",
        needs_lag=True, tells_lag=True,
    ),
    "lag_bytes": MeterInfo(
        attrgetter("lag_bytes"), BYTES, Reason.LAG_BYTES, "bytes waiting",
        lambda value, limit, sample: f"{value} waited in {records(sample.lag_records)} (limit {limit})",
        needs_lag=True, tells_lag=True,
    ),
    "lag_age": MeterInfo(
        attrgetter("lag_age"), SECONDS, Reason.LAG_AGE, "age of the oldest waiting record",
        lambda value, limit, sample: f"the oldest of {waiting(sample)} had waited {value} (limit {limit})",
        needs_lag=True, tells_lag=True,
    ),
    "drain_rate": MeterInfo(
        attrgetter("drain_rate"), RATE, Reason.DRAIN_RATE, "drain rate", _drained, needs_lag=True, floor=True,
        slack=attrgetter("drain_slack"),
    ),
    "blocked_time": MeterInfo(
        attrgetter("overdue_time"), SECONDS, Reason.BLOCKED, "time without a byte taken", _blocked, needs_lag=True,
    ),
    "unread_time": MeterInfo(
        attrgetter("overdue_unread_time"), SECONDS, Reason.BLOCKED, "time without a byte read", _unread, needs_lag=True,
    ),
    "drain_share": MeterInfo(
        attrgetter("drain_share"), SHARE, Reason.DRAIN_RATE, "share taken of what was offered",
        lambda value, limit, sample: f"only {value} of what was offered was taken (at least {limit} asked)",
        needs_lag=True, floor=True,
    ),
    "catching_up": MeterInfo(
        attrgetter("catching_up"), NEVER, Reason.DRAIN_RATE, "time until all that waits is taken", _catch_up,
        needs_lag=True,
    ),
    "credit_exhausted_time": MeterInfo(
        attrgetter("overdue_credit_time"), SECONDS, Reason.CREDIT_EXHAUSTED, "time with a full window",
        lambda value, limit, sample:
            f"its window full for {value} (limit {limit}) with {records(sample.in_flight)} unacknowledged",
        needs_lag=True,
    ),
    "unacknowledged_time": MeterInfo(
        attrgetter("overdue_unacknowledged_time"), SECONDS, Reason.ACK_AGE, "time without an acknowledgement",
        _unacknowledged,
    ),
    "slow_count": MeterInfo(
        attrgetter("slow_count"), COUNT, Reason.SLOW_COUNT, "times marked slow",
        lambda value, limit, sample: f"marked slow {value} times (limit {limit})",
    ),
    "ack_age": MeterInfo(
        attrgetter("ack_age"), SECONDS, Reason.ACK_AGE, "age of the oldest unacknowledged record",
        lambda value, limit, sample:
            f"the oldest of {records(sample.in_flight)} unacknowledged for {value} (limit {limit})",
    ),
    "pool_share": MeterInfo(
        attrgetter("pool_share"), SHARE, Reason.POOL_SHARE, "share of the pool",
        lambda value, limit, sample: f"{value} of the pool held (limit {limit})",
    ),
    "slow_fraction": MeterInfo(
        attrgetter("slow_fraction"), SHARE, Reason.SLOW_FRACTION, "slow consumers of the topic",
        lambda value, limit, sample: f"{value} of the topic's consumers slow (limit {limit})", own=False,
    ),
}, beside=("all", "any"))  # fmt: skip
