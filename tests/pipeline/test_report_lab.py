"""Reports of the lab: what is recommended, and what is shown of the candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.pipeline.pages import Page, candidate, unpacked

# -- lab ------------------------------------------------------------------------------------------------------------

BEST = candidate(
    "cut: for=2s",
    hit=3,
    false_positives=1,
    memory_peak_bytes=40_000_000,
    records_lost=12,
    recommended=True,
    pareto=True,
)
RAN = candidate("as it ran", "ran", hit=12, false_positives=4, memory_peak_bytes=130_000_000, disk_peak_bytes=2_000_000)


def test_the_lab_report_recommends_and_compares(lab: Callable[..., Page]) -> None:
    page = lab([BEST, RAN, candidate("xap", "preset", hit=20)], goal={"memory_bytes": 64_000_000, "stall_ms": 0.0},
               check={"verdicts_alike": 7})  # fmt: skip
    assert "Take “cut: for=2s”: it hits 3 consumers, 1 of them wrongly, and holds at most 40 MB in memory." in page.text
    assert (
        "What ran hit 12 consumers, 4 of them wrongly, and held at most 130 MB in memory and 2 MB on disk." in page.text
    )
    assert "memory at most 64 MB, stall at most 0 s" in page.text
    assert "verdicts alike 7" in page.text
    assert page.row("consumers hit") == ["consumers hit", "12", "3", "9 fewer (75 %)"]
    assert page.row("records lost") == ["records lost", "0", "12", "12 more"]
    assert page.row("most held on disk")[-1] == "2 MB less (100 %)"
    assert 'name = "grid"' in page.sections["Recommended, and what ran"]
    assert 'name = "ran"' in page.sections["Recommended, and what ran"]


def test_the_trade_off_shows_every_candidate_where_it_lies(lab: Callable[..., Page]) -> None:
    page = lab([BEST, RAN, candidate("xap", "preset", hit=20, memory_peak_bytes=10_000_000)])
    marks = {
        (x, y) for trace in page.plots[0]["data"] if trace.get("customdata") for x, y in points(trace)
    }  # fmt: skip
    assert marks == {(40.0, 3.0), (132.0, 12.0), (10.0, 20.0)}
    (star,) = [trace for trace in page.plots[0]["data"] if trace.get("name") == "recommended"]
    assert points(star) == [(40.0, 3.0)]
    labels = " ".join(text for trace in page.plots[0]["data"] for text in trace.get("text") or [])
    assert all(label in labels for label in ("recommended", "as it ran", "xap"))


def points(trace: dict[str, Any]) -> list[tuple[float, float]]:
    """The points of a trace; plotly packs long numeric columns as base64."""
    x, y = (unpacked(trace[axis]) for axis in "xy")
    return list(zip(x, y, strict=True))


def test_those_hit_wrongly_come_first(lab: Callable[..., Page]) -> None:
    outcomes = [
        {"candidate": BEST["candidate"], "client": client, "action": "disconnect", "would_catch_up": would}
        for client, would in (("dead", "no"), ("odd", "unknown"), ("innocent", "yes"))
    ]
    page = lab([BEST, RAN], outcomes)
    clients = [row[0] for row in page.rows if row[0] in ("dead", "odd", "innocent")]
    assert clients == ["innocent", "odd", "dead"]
    assert page.row("innocent")[5] == "yes: a false positive"
    assert "As it ran: nobody was hit." in page.sections["Who would have been hit"]


@pytest.mark.parametrize(
    ("candidates", "said"),
    [
        ([], "There was no candidate to try."),
        ([RAN | {"recommended": True}], "Keep what ran: no candidate does better."),
        ([candidate("x", within_goal=False), RAN | {"within_goal": False}], "None of the candidates keeps to the goal"),
        (
            [BEST | {"within_goal": False}, RAN],
            "None of the candidates keeps to the goal. The nearest is “cut: for=2s”",
        ),
        ([BEST | {"hit": 0, "false_positives": 0}], "it hits nobody and holds"),
    ],
)
def test_other_answers(lab: Callable[..., Page], candidates: list[dict[str, Any]], said: str) -> None:
    assert said in lab(candidates).text


def test_many_candidates_are_counted_and_the_recommended_stands_out(lab: Callable[..., Page]) -> None:
    page = lab([*(candidate(f"c{number}", hit=number) for number in range(2000)), BEST, RAN])
    assert "and 1,962 others." in page.text
    marked = [attrs for tag, attrs in page.tags if tag == "tr" and attrs.get("class") == "marked"]
    assert len(marked) == 1
