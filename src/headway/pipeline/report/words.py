"""Numbers and names in words, for reports.

Names come from strangers: ``printable`` makes any text one line of printable characters, ``shown`` shortens it, too.
A page escapes what it writes; a plot understands a few tags and entities of its own, so its texts go through ``label``.
"""

from __future__ import annotations

import datetime as dt
import html
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headway import console
from headway.console import printable
from headway.core.base import format_count, format_duration, format_share, format_size

NAME_MAX = 36
CANDIDATE_MAX = 160
"""Candidates of one grid differ anywhere in their names, so these are hardly ever shortened."""
FORECAST_FROM_S = 180.0
"""There is no forecast from less than this (``pipeline/measures.py``)."""
CAUSES = {
    "network": "network",
    "application": "application does not read",
    "over_subscription": "offered more than it takes",
    "producer_burst": "burst of a producer",
    "broker": "the broker itself",
    "network_or_application": "takes nothing (network or application)",
}
ACTIONS = {
    "notify": "reported",
    "conflate": "conflated",
    "discard": "had records discarded",
    "offline": "offlined to disk",
    "block_publishers": "held publishers back",
    "return": "relieved of records",
    "close_consumer": "asked to close",
    "disconnect": "disconnected",
    "delete_subscription": "unsubscribed",
}
CATCH_UP = {"yes": "yes: a false positive", "no": "no", "unknown": "nobody can tell"}


def shown(text: object, length: int = NAME_MAX) -> str:
    """Shortens the text in the middle, made printable: names differ at both ends."""
    line = printable(text)
    if len(line) <= length:
        return line
    half = (length - 1) // 2
    return f"{line[: length - 1 - half]}…{line[-half:]}"


def candidate(name: object) -> str:
    return shown(name, CANDIDATE_MAX)


def label(text: object, length: int = NAME_MAX) -> str:
    """Makes a text fit for a plot: nothing in it is taken for a tag or an entity."""
    return html.escape(shown(text, length), quote=False)


def apart(names: Sequence[str], length: int = NAME_MAX) -> list[str]:
    """Labels for a plot, in order, no two alike: where shortening in the middle makes names alike, what they all begin
    with is left out; a number tells the rest apart."""
    made = [label(one, length) for one in names]
    if len(set(made)) < len(set(names)):
        common = _alike([printable(one) for one in names])
        made = [label(f"…{printable(one)[common:]}" if common > 1 else one, length) for one in names]
    found: list[str] = []
    for one in made:
        number, unlike = 1, one
        while unlike in found:
            number += 1
            unlike = f"{one} ({number})"
        found.append(unlike)
    return found


def _alike(names: Sequence[str]) -> int:
    """Returns how many characters all of them begin with."""
    first, last = min(names), max(names)
    return next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))


def missing(value: Any) -> bool:
    """Whether there is no such figure: None, not-a-number, not-a-time, or beyond all bounds."""
    return value is None or bool(value != value) or (isinstance(value, float) and math.isinf(value))


def _or_dash(form: Callable[[float], str]) -> Callable[[Any], str]:
    return lambda value: "–" if missing(value) else form(value)


count = _or_dash(format_count)
size = _or_dash(format_size)
share = _or_dash(format_share)
seconds = _or_dash(format_duration)
ms = _or_dash(lambda value: format_duration(value / 1000) if value >= 100 or not value else f"{value:.2g} ms")
rate = _or_dash(lambda value: f"{format_size(value)}/s" if value >= 0 else f"−{format_size(-value)}/s")
held = _or_dash(lambda value: f"{format_size(value)}·s")
ratio = _or_dash(lambda value: f"{value:.2f} ×")


def _named(names: Mapping[str, str], nothing: str) -> Callable[[Any], str]:
    return lambda value: names.get(str(value or ""), printable(value or nothing))


cause, action, catch_up = _named(CAUSES, "unknown"), _named(ACTIONS, "–"), _named(CATCH_UP, "–")


def yes(value: Any) -> str:
    return "yes" if value else "no"


def moment(value: Any) -> str:
    """Writes a time to the second, in UTC."""
    if missing(value):
        return "–"
    at = value if value.tzinfo is None else value.astimezone(dt.UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}"


def clock(value: Any) -> str:
    """Writes the time of day alone, where the date stands elsewhere."""
    return moment(value)[11:] or "–"


def many(number: float, noun: str) -> str:
    """Counts a noun: ``1 consumer``, ``3 consumers``, ``no consumers``."""
    return console.many(number, noun) if number else console.many(0, noun).replace("0", "no", 1)


def change(now: Any, then: Any, form: Callable[[Any], str], words_of: tuple[str, str] = ("less", "more")) -> str:
    """Tells how ``now`` differs from ``then``: ``the same``, ``12 fewer (40 %)``, ``3 MB more (4 times)``."""
    if missing(now) or missing(then):
        return "–"
    if now == then:
        return "the same"
    by = f"{form(abs(now - then))} {words_of[0] if now < then else words_of[1]}"
    if not then:
        return by
    part = abs(now - then) / then
    return f"{by} ({format_share(part)})" if part < 10 else f"{by} ({now / then:,.0f} times as much)"


def until(soonest_s: Any, latest_s: Any) -> str:
    """Tells a forecast with its uncertainty: ``10 min to 14 min``; one figure where both are alike."""
    if missing(soonest_s) or missing(latest_s):
        return "–"
    first, last = seconds(soonest_s), seconds(latest_s)
    return first if first == last else f"{first} to {last}"


def fact(key: str, value: Any) -> str:
    """Writes a fact given by others, as it is, or in the unit that its name ends with."""
    if isinstance(value, dt.datetime) or _ISO_TIME.match(str(value)):
        return moment(value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(value))
    if isinstance(value, int | float):
        unit = next((form for ending, form in _ENDINGS.items() if key.endswith(ending)), count)
        return unit(value)
    if isinstance(value, dict):
        return "; ".join(f"{name(key)} {fact(str(key), one)}" for key, one in value.items())
    return printable(value)


def name(key: object) -> str:
    """Writes ``memory_peak_bytes`` as people say it: ``memory peak``."""
    text = printable(key)
    ending = next((ending for ending in _ENDINGS if text.endswith(ending) and text != ending[1:]), "")
    return text.removesuffix(ending).replace("_", " ")


_ISO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?[+-]\d\d:\d\d$")
_ENDINGS = {"_bytes": size, "_ms": ms, "_s": seconds, "_share": share, "seconds": seconds}
