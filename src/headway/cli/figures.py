"""Figures of the admin API for people: short, in units, blank where there is nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from headway.console import printable
from headway.core.base import format_count, format_duration, format_rate, format_size
from headway.core.policy import METERS

STYLES = {
    "ok": "green", "behind": "cyan", "slow": "bold yellow", "offline": "magenta", "conflating": "blue",
    "discarding": "red", "away": "dim",
}  # fmt: skip


def _or_dot(form: Callable[[float], str]) -> Callable[[Any], str]:
    return lambda value: form(value) if value else "·"


count, size, rate = _or_dot(format_count), _or_dot(format_size), _or_dot(format_rate)
millis = _or_dot(lambda value: format_duration(value / 1000))


def total(counts: Any) -> int:
    return sum(counts.values()) if isinstance(counts, Mapping) else 0


def ago(wall_s: float) -> str:
    """Returns an age such as ``12 s``; clocks that differ do not make it negative."""
    return format_duration(max(0.0, round(time.time() - wall_s)))


def deed(verdict: Mapping[str, Any]) -> str:
    """``disconnect``, ``discard oldest (dry run)``, ``notify: over``."""
    action = verdict.get("action") or {}
    words = str(action.get("name") or action.get("kind", "?")).replace("_", " ")
    if action.get("which"):
        words += f" {str(action['which']).replace('_', ' ')}"
    if verdict.get("kind") == "clear":
        words += ": over"
    return printable(words) + ("" if verdict.get("enforced", True) else " (dry run)")


def verdict_line(verdict: Mapping[str, Any] | None) -> str:
    """``12 s ago: disconnect, blocked (network)``."""
    if not verdict:
        return ""
    line = f"{ago(verdict.get('wall_s', 0))} ago: {deed(verdict)}"
    if verdict.get("kind") == "clear":
        return line
    cause = f" ({str(verdict['cause']).replace('_', '-')})" if verdict.get("cause") else ""
    return printable(f"{line}, {str(verdict.get('reason', '?')).replace('_', ' ')}{cause}")


def reading_line(reading: Mapping[str, Any]) -> str:
    """``blocked_time  31.2 s > 30 s``."""
    meter = str(reading.get("meter", "?"))
    form = METERS[meter].unit.format if meter in METERS else str
    value, threshold = form(reading.get("value", 0)), form(reading.get("threshold", 0))
    held = "" if reading.get("held", True) else "   (did not hold)"
    return printable(f"{meter:<22} {value} {reading.get('op', '>')} {threshold}{held}")
