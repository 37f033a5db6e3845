"""The verdict on a run: whether the healthy consumers were harmed, in plain words."""

from __future__ import annotations

from typing import Any, NamedTuple

HARM_FACTOR = 2.0
"""The controls' p99 may grow to so many times what it was."""
LATE_SHARE = 0.5
"""Where this program's own lateness is this part of what the controls' delay grew by, it may be the reason."""
BUSY_SHARE = 0.9
"""The share of a core from which on this program counts as saturated."""
RATE_SHARE = 0.9
"""A publisher that had less than this part of the rate that it had before was held back."""


class Verdict(NamedTuple):
    harmed: bool | None
    """None: nobody can tell."""
    words: list[str]


def judge(found: dict[str, Any], tolerate_s: float) -> Verdict:
    """``found``: the findings of a run, without the verdict."""
    controls = found["controls"]
    harms: list[str] = []
    unclear: list[str] = []
    if controls["lost"]:
        harms.append(f"healthy consumers lost {controls['lost']:,} records")
    if controls["cut"]:
        harms.append(f"{controls['cut']} of {controls['clients']} healthy consumers were cut: {controls['words']}")
    held = _held_back(found)
    latency = _latency(found, tolerate_s)
    busy = _own_fault(found)
    if held:
        (unclear if busy else harms).append(held)
    if latency is not None and latency.harmed:
        (unclear if busy else harms).extend(latency.words)
    if harms:
        return Verdict(True, [*harms, *unclear, *([busy] if busy else [])])
    if unclear:
        return Verdict(None, [*unclear, f"nobody can tell whether that is the broker's doing: {busy}"])
    if latency is None:
        fine = "healthy consumers were not cut, and that is all that can be told: the traffic is not this run's own"
        return Verdict(False, [fine if found["listens"] else "healthy consumers got nothing to measure a delay by"])
    return Verdict(False, [*latency.words, *([f"with care, as {busy}"] if busy else [])])


def _latency(found: dict[str, Any], tolerate_s: float) -> Verdict | None:
    before, beside = (found["controls"][when]["p99_ms"] for when in ("before", "beside"))
    if before is None or beside is None:
        return None
    harmed = beside > max(HARM_FACTOR * before, before + tolerate_s * 1000)
    figures = f"p99 {millis(before)} before, {millis(beside)} beside the trouble"
    return Verdict(harmed, [f"healthy consumers noticed{'' if harmed else ' nothing that matters'}: {figures}"])


def _held_back(found: dict[str, Any]) -> str:
    told = found["publisher"]
    if told is None or not told["before"]["rate"]:
        return ""
    before, beside = told["before"]["rate"], told["beside"]["rate"]
    if beside >= RATE_SHARE * before:
        return ""
    return (f"the publisher was held back: {before:,.0f} records a second before, {beside:,.0f} beside the trouble, "
            f"blocked for {told['beside']['blocked_s']:.1f} s")  # fmt: skip


def _own_fault(found: dict[str, Any]) -> str:
    """Says how this program, or its machine, is itself the slow one; empty: it is not."""
    machine, controls = found["machine"], found["controls"]
    if machine["cpu_share"] > BUSY_SHARE:
        return f"this program used {machine['cpu_share']:.0%} of a core; ask for less with --rate or --kinds"
    late = machine["late_beside_p99_ms"]
    before, beside = (controls[when]["p99_ms"] for when in ("before", "beside"))
    if late is None or before is None or beside is None or late < LATE_SHARE * max(1.0, beside - before):
        return ""
    return f"this program itself woke up late, p99 {millis(late)}: its machine is busy"


def millis(value: float) -> str:
    """``2.1 ms``, ``1,240 ms``."""
    return f"{value:,.1f} ms" if value < 100 else f"{value:,.0f} ms"
