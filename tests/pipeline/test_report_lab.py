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
    goal = {"memory_bytes": 64_000_000, "disk_bytes": 0, "stall_ms": 0.0}
    page = lab([BEST, RAN, candidate("xap", "preset", hit=20)], goal=goal, check={"verdicts_alike": 7})
    assert "Take “cut: for=2s”: it hits 3 consumers, 1 of them wrongly, and holds at most 40 MB in memory." in page.text
    assert (
        "What ran hit 12 consumers, 4 of them wrongly, and held at most 130 MB in memory and 2 MB on disk." in page.text
    )
    assert "memory at most 64 MB, disk at most 0 B, stall at most 0 s" in page.text
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
    assert "3 consumers hit, 1 of them wrongly, of 1 nobody can tell; these come first." in page.text
    assert "As it ran: nobody was hit." in page.sections["Who would have been hit"]


@pytest.mark.parametrize(
    ("candidates", "said"),
    [
        ([RAN | {"recommended": True}], "Keep what ran: no candidate does better."),
        (
            [BEST | {"within_goal": False}, RAN],
            "None of the candidates keeps to the goal. The nearest is “cut: for=2s”",
        ),
        ([BEST | {"hit": 0, "false_positives": 0}, RAN], "it hits nobody and holds"),
    ],
)
def test_other_answers(lab: Callable[..., Page], candidates: list[dict[str, Any]], said: str) -> None:
    assert said in lab(candidates).text


def test_many_candidates_are_counted_and_the_recommended_stands_out(lab: Callable[..., Page]) -> None:
    page = lab([*(candidate(f"c{number}", hit=number) for number in range(2000)), BEST, RAN])
    assert "and 1,962 others." in page.text
    marked = [attrs for tag, attrs in page.tags if tag == "tr" and attrs.get("class") == "marked"]
    assert len(marked) == 1


def test_words_agree_with_figures_that_are_nought(lab: Callable[..., Page]) -> None:
    """Nobody was found, cut off or hit wrongly: then no time stands for that, and nobody comes first."""
    outcomes = [{"candidate": BEST["candidate"], "client": "dead", "action": "disconnect", "would_catch_up": "no"}]
    page = lab([BEST | {"false_positives": 0}, RAN | {"false_positives": 0}], outcomes)
    assert page.row("time to find who never catches up (median)")[1:] == ["–", "–", "–"]
    assert page.row("longest until one that takes nothing was cut off")[1:] == ["–", "–", "–"]
    assert "1 consumer hit, none of them wrongly." in page.text
    assert "None of them hits anybody wrongly." in page.text
    assert "would have caught up by themselves" not in page.sections["The trade-off"]


def test_candidates_of_one_grid_are_told_apart_by_their_values(lab: Callable[..., Page]) -> None:
    names = [f"tuned for the whole of the market: blocked_time={n}s, lag_records=8000, lag_age=2s" for n in (4, 7, 15)]
    page = lab([*(candidate(name, recommended=name == names[0]) for name in names), RAN])
    assert names[0] in page.text.split("What was replayed")[0]
    assert set(names) <= {row[0] for row in page.rows if row}
