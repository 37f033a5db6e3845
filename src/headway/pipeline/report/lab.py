"""The lab's report: what other policies would have done with the recorded traffic, and which to take.

It is made of the candidates (among them the one that ran, and one recommended), what they did to whom, how much was
held over time, and ``about``: ``lake``, ``first``, ``last``, ``consumers``, ``seconds``, ``goal`` (``memory_bytes``,
``disk_bytes``, ``stall_ms``, maybe ``cut_stuck_ms``),
``check`` (how far the replay of what ran agrees with what was recorded), ``why`` (what speaks for the recommended) and
``limits`` (sentences: what the figures do not say); what else is in it is shown under its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from headway.console import printable
from headway.pipeline.report import plots, words
from headway.pipeline.report.health import facts
from headway.pipeline.report.html import Column, Document

OUTCOMES_MAX = 50
_FACTS = {
    "first": "recorded from (UTC)", "last": "to (UTC)", "consumers": "consumers", "candidates": "candidates tried",
    "lake": "lake", "seconds": "worked out in",
}  # fmt: skip
_SAID_ELSEWHERE = {"goal", "check", "limits", "recommended", "why"}
_LIMITS = (
    "Consumers behave as they did when they were recorded. One that was cut in the replay might in truth have come "
    "back at once, or have done better afterwards.",
    "What a consumer would have done after the broker really cut or conflated it is not in a recording. Where the "
    "replay had to go on from there it extrapolates, and says so; where it cannot tell, it says “nobody can tell”.",
    "There is one sample a second: what comes and goes faster is seen in part.",
    "A candidate that fits this recording fits traffic like it. Record the busiest day, not the quietest.",
)
_FEWER = ("fewer", "more")
_MEASURES: tuple[tuple[str, str, Callable[[Any], str], tuple[str, str]], ...] = (
    ("false_verdicts", "false verdicts: hit, or told of, and soon caught up", words.count, _FEWER),
    ("missed", "missed: no verdict, and never caught up", words.count, _FEWER),
    ("find_ms", "time to find who never catches up (median)", words.ms, ("less", "more")),
    ("find_worst_ms", "… the longest", words.ms, ("less", "more")),
    ("cut_stuck_worst_ms", "longest until one that takes nothing was cut off", words.ms, ("less", "more")),
    ("hit", "consumers hit", words.count, _FEWER),
    ("false_positives", "… of them wrongly (they would have caught up)", words.count, _FEWER),
    ("unknown", "… of them nobody can tell", words.count, _FEWER),
    ("by_pressure", "… of them because a pool was full", words.count, _FEWER),
    ("noticed", "consumers with any verdict", words.count, _FEWER),
    ("records_lost", "records lost", words.count, _FEWER),
    ("records_conflated", "records conflated", words.count, _FEWER),
    ("memory_peak_bytes", "most held in memory", words.size, ("less", "more")),
    ("disk_peak_bytes", "most held on disk", words.size, ("less", "more")),
    ("producer_stall_ms", "publishers held back for", words.ms, ("less", "more")),
)


def lab_report(candidates: pa.Table, outcomes: pa.Table, curve: pa.Table, about: Mapping[str, Any], out: Path) -> Path:
    """Writes the report of a lab run to ``out`` and returns it. Raises ConfigError where it cannot."""
    frame = _known(candidates.to_pandas())
    ran, best = _first(frame, frame["kind"] == "ran"), _first(frame, frame["recommended"])
    answer, tone = _answer(ran, best)
    page = Document("lab", "Headway: which policy", answer, tone)
    page.section("What was replayed")
    page.facts(facts({key: value for key, value in about.items() if key not in _SAID_ELSEWHERE}, _FACTS))
    page.say(f"The goal, which a candidate should keep to: {_goal(about['goal'])}.")
    check = about["check"]
    if any(check.values()):
        page.say(f"How far the replay of what ran agrees with what was recorded: {words.fact('check', check)}.")
    _recommendation(page, ran, best, about["why"])
    _trade_off(page, frame)
    _curves(page, frame, curve.to_pandas(), about["goal"])
    _outcomes(page, outcomes.to_pandas(), ran, best)
    _candidates(page, frame)
    page.section("What these figures do not say")
    page.items([*_LIMITS, *(printable(line) for line in about["limits"])])
    return page.write(out)


def _known(frame: pd.DataFrame) -> pd.DataFrame:
    """Takes out times of what never happened: to find somebody, where nobody was found; to cut somebody off, where
    nobody was stuck."""
    found, stuck = frame["noticed"] > 0, frame["stuck"] > 0
    times = {name: frame[name].where(found) for name in ("find_ms", "find_worst_ms")}
    return frame.assign(**times, cut_stuck_worst_ms=frame["cut_stuck_worst_ms"].where(stuck))


def _first(frame: pd.DataFrame, which: pd.Series) -> dict[str, Any]:
    row: dict[str, Any] = frame[which].iloc[:1].to_dict("records")[0]
    return row


def _goal(goal: Mapping[str, Any]) -> str:
    return ", ".join(f"{words.name(key)} at most {words.fact(str(key), value)}" for key, value in goal.items())


def _answer(ran: Mapping[str, Any], best: Mapping[str, Any]) -> tuple[str, str]:
    """Says which policy to take and why, in a sentence or two, and how good the news are."""
    does = f"{_hits(best, 'hits')} and holds at most {_held(best)}"
    tone = "good" if best["within_goal"] else "mind"
    take = "Take" if best["within_goal"] else "None of the candidates keeps to the goal. The nearest is"
    if best["candidate"] == ran["candidate"]:
        keep = "Keep what ran: no candidate does better." if best["within_goal"] else f"{take} what ran."
        return f"{keep} It {does}.", tone
    return (
        f"{take} “{words.candidate(best['candidate'])}”: it {does}. What ran {_hits(ran, 'hit')} and held at most "
        f"{_held(ran)}."
    ), tone


def _hits(row: Mapping[str, Any], verb: str) -> str:
    if not row["hit"]:
        return f"{verb} nobody"
    wrong = row["false_positives"]
    return f"{verb} {words.many(row['hit'], 'consumer')}, {words.count(wrong) if wrong else 'none'} of them wrongly,"


def _held(row: Mapping[str, Any]) -> str:
    disk = f" and {words.size(row['disk_peak_bytes'])} on disk" if row["disk_peak_bytes"] else ""
    return f"{words.size(row['memory_peak_bytes'])} in memory{disk}"


def _recommendation(page: Document, ran: Mapping[str, Any], best: Mapping[str, Any], why: str) -> None:
    page.section("Recommended, and what ran", f"What speaks for it: {printable(why)}.")
    rows = [
        {"what": what, "best": form(best[key]), "ran": form(ran[key]),
         "change": words.change(best[key], ran[key], form, than)}
        for key, what, form, than in _MEASURES
    ]  # fmt: skip
    columns: list[Column] = [("what", "", str), ("best", "recommended", str)]
    texts = [("Recommended", best["policy"] or "# no policy")]
    if ran["candidate"] != best["candidate"]:
        columns = [columns[0], ("ran", "as it ran", str), columns[1], ("change", "difference", str)]
        texts.append(("As it ran", ran["policy"] or "# no policy"))
    page.table(rows, columns, f"“{words.candidate(best['candidate'])}” on the recorded traffic.")
    page.beside(*texts)


def _trade_off(page: Document, frame: pd.DataFrame) -> None:
    page.section("The trade-off")
    page.plot(
        plots.trade_off(frame),
        "Each mark is a candidate. To the right: it lets more pile up in memory and on disk. Up: more consumers feel "
        f"it. {_dark(frame)} On the dotted line nothing can be had in one respect without paying in another. Point at "
        "a mark to see the policy.",
        f"{words.many(len(frame), 'candidate')} by peak of memory and disk ({words.size(_peak(frame).min())} to "
        f"{words.size(_peak(frame).max())}) and consumers hit ({frame['hit'].min()} to {frame['hit'].max()}).",
    )  # fmt: skip


def _dark(frame: pd.DataFrame) -> str:
    if not frame["false_positives"].max():
        return "None of them hits anybody wrongly. So the best lie at the lower left."
    return (
        "Dark and large: more of those would have caught up by themselves. So the best lie at the lower left, small "
        "and light."
    )


def _peak(frame: pd.DataFrame) -> pd.Series:
    return frame["memory_peak_bytes"] + frame["disk_peak_bytes"]


def _curves(page: Document, frame: pd.DataFrame, curve: pd.DataFrame, goal: Mapping[str, Any]) -> None:
    page.section("What would have been held")
    drawn, kind = set(curve["candidate"]), frame["kind"]
    names: dict[str, str] = {}
    for which, what in ((frame["recommended"], "recommended"), (kind == "ran", "as it ran"),
                        (kind == "nothing", "no policy at all")):  # fmt: skip
        for name in drawn.intersection(frame["candidate"][which]):
            names[name] = f"{names[name]}, {what}" if name in names else what
    if not names:
        page.nothing("There is no course over time to draw.")
        return
    page.plot(
        plots.curves(curve, list(names.items()), goal["memory_bytes"] + goal["disk_bytes"]),
        "Memory and disk together, over the recorded time. Normal: up and down again. A line that only rises is "
        "somebody who never catches up; where it drops at once, that consumer was cut, or caught up.",
        f"Bytes held over time for: {', '.join(names.values())}.",
    )  # fmt: skip


def _outcomes(page: Document, outcomes: pd.DataFrame, ran: Mapping[str, Any], best: Mapping[str, Any]) -> None:
    page.section("Who would have been hit")
    shown = {best["candidate"]: "With the recommended policy"}
    shown.setdefault(ran["candidate"], "As it ran")
    for candidate, heading in shown.items():
        part = outcomes[outcomes["candidate"] == candidate]
        if part.empty:
            page.nothing(f"{heading}: nobody was hit.")
            continue
        order = {"yes": 0, "unknown": 1, "no": 2}
        rows = part.assign(order=part["would_catch_up"].map(order)).sort_values(["order", "time"], kind="stable")
        page.table(rows.to_dict("records"), [
            ("client", "consumer", words.shown), ("filter", "reads", words.shown), ("time", "when (UTC)", words.moment),
            ("action", "what was done", words.action), ("reason", "reason", words.name),
            ("would_catch_up", "would catch up?", words.catch_up),
            ("lag_bytes_peak", "most waiting", words.size), ("records_lost", "lost", words.count),
            ("records_conflated", "conflated", words.count), ("stall_ms", "publishers held", words.ms),
            ("by_pressure", "pool full", words.yes), ("extrapolated", "extrapolated", words.yes),
        ], f"{heading}: {words.many(len(part), 'consumer')} hit, {_wrongly(part)}.", OUTCOMES_MAX)  # fmt: skip


def _wrongly(part: pd.DataFrame) -> str:
    counts = part["would_catch_up"].value_counts()
    wrong, unknown = int(counts.get("yes", 0)), int(counts.get("unknown", 0))
    told = [f"{words.count(wrong)} of them wrongly" if wrong else "none of them wrongly as far as can be told"
            if unknown else "none of them wrongly"]  # fmt: skip
    told += [f"of {words.count(unknown)} nobody can tell"] if unknown else []
    return ", ".join(told) + ("; these come first" if wrong or unknown else "")


def _candidates(page: Document, frame: pd.DataFrame) -> None:
    page.section("All candidates")
    first = (frame["recommended"] * 4 + (frame["kind"] == "ran") * 2 + (frame["kind"] != "grid")).astype(int)
    rows = frame.assign(first=first, peak=_peak(frame)).sort_values(
        ["first", "within_goal", "false_verdicts", "missed", "find_ms", "hit", "peak"],
        ascending=[False, False, True, True, True, True, True], kind="stable",
    )  # fmt: skip
    page.table(rows.to_dict("records"), [
        ("candidate", "candidate", words.candidate), ("false_verdicts", "false", words.count),
        ("missed", "missed", words.count), ("find_ms", "found in", words.ms), ("hit", "hit", words.count),
        ("false_positives", "wrongly", words.count), ("unknown", "unknown", words.count),
        ("memory_peak_bytes", "memory", words.size),
        ("disk_peak_bytes", "disk", words.size), ("records_lost", "lost", words.count),
        ("producer_stall_ms", "publishers held", words.ms), ("within_goal", "within the goal", words.yes),
        ("pareto", "not bettered", words.yes),
    ], "Recommended, as it ran, no policy and presets first; then the candidates, the best on top.", 40,
        marked=lambda row: bool(row["recommended"]))  # fmt: skip
