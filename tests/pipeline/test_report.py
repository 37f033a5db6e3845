"""The reports: readable, complete, sufficient to themselves, and safe with names that strangers chose."""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headway.core.base.errors import ConfigError
from headway.pipeline.report import words
from headway.pipeline.report.health import health_report
from headway.pipeline.report.lab import lab_report

AT = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
EVIL = "</script><script>alert(1)</script>"
EVIL_LINK = "<a href='http://evil.example/'>x</a>\n\x1b[31m"
VOID = {"meta", "br", "link", "img", "hr", "input"}
TEXT, NUMBER, SHARE, TIME, FLAG = pa.string(), pa.int64(), pa.float64(), pa.timestamp("us", tz="UTC"), pa.bool_()
SCHEMAS: dict[str, dict[str, pa.DataType]] = {
    "slow_episodes": {
        "run": TEXT, "broker": TEXT, "client": TEXT, "filter": TEXT, "lane": TEXT, "subscription": NUMBER,
        "start": TIME, "end": TIME, "open": FLAG, "cause": TEXT, "reason": TEXT, "action": TEXT,
        "lag_records_peak": NUMBER, "lag_bytes_peak": NUMBER, "lag_age_peak_ms": SHARE, "held_byte_seconds": SHARE,
        "stall_ms": SHARE, "records_skipped": NUMBER, "ended": TEXT,
    },
    "offenders": {
        "client": TEXT, "filter": TEXT, "episodes": NUMBER, "slow_ms": SHARE, "lag_bytes_peak": NUMBER,
        "held_byte_seconds": SHARE, "stall_ms": SHARE, "verdicts": NUMBER, "disconnects": NUMBER,
        "records_skipped": NUMBER, "share_of_cost": SHARE, "last_seen": TIME,
    },
    "costs": {
        "run": TEXT, "client": TEXT, "filter": TEXT, "hour": TIME, "held_byte_seconds": SHARE, "stall_ms": SHARE,
        "skipped_records": NUMBER,
    },
    "isolation": {
        "run": TEXT, "seconds_with": NUMBER, "seconds_without": NUMBER, "p50_with_ms": SHARE, "p99_with_ms": SHARE,
        "max_with_ms": SHARE, "p50_without_ms": SHARE, "p99_without_ms": SHARE, "max_without_ms": SHARE,
        "ratio_p99": SHARE,
    },
    "forecast": {
        "run": TEXT, "kind": TEXT, "client": TEXT, "filter": TEXT, "used_bytes": NUMBER, "limit_bytes": NUMBER,
        "growth_bytes_per_s": SHARE, "seconds_to_limit": SHARE,
    },
    "candidates": {
        "candidate": TEXT, "kind": TEXT, "consumers": NUMBER, "hit": NUMBER, "noticed": NUMBER, "by_pressure": NUMBER,
        "false_verdicts": NUMBER, "find_ms": SHARE, "find_worst_ms": SHARE, "cut_stuck_worst_ms": SHARE,
        "false_positives": NUMBER, "unknown": NUMBER, "missed": NUMBER, "records_lost": NUMBER,
        "records_conflated": NUMBER, "memory_peak_bytes": NUMBER, "disk_peak_bytes": NUMBER, "producer_stall_ms": SHARE,
        "within_goal": FLAG, "recommended": FLAG, "pareto": FLAG, "policy": TEXT,
    },
    "outcomes": {
        "candidate": TEXT, "run": TEXT, "client": TEXT, "filter": TEXT, "subscription": NUMBER, "time": TIME,
        "action": TEXT, "reason": TEXT, "policy": TEXT, "rule": NUMBER, "records_lost": NUMBER,
        "records_conflated": NUMBER, "stall_ms": SHARE, "would_catch_up": TEXT, "lag_bytes_peak": NUMBER,
        "by_pressure": FLAG, "extrapolated": FLAG,
    },
    "curve": {"candidate": TEXT, "time": TIME, "memory_bytes": NUMBER, "disk_bytes": NUMBER},
}  # fmt: skip
EMPTY = {TEXT: "", NUMBER: 0, SHARE: 0.0, TIME: AT, FLAG: False}
HEALTH = ("slow_episodes", "offenders", "costs", "isolation", "forecast")


def table(name: str, *rows: dict[str, Any]) -> pa.Table:
    """A table of made-up rows; what is not given is nought."""
    schema = pa.schema(SCHEMAS[name])
    assert all(set(row) <= set(schema.names) for row in rows)
    return pa.Table.from_pylist([{f.name: row.get(f.name, EMPTY[f.type]) for f in schema} for row in rows], schema)


def health_tables(clients: list[str], **isolation: Any) -> dict[str, pa.Table]:
    """One episode, one offender and one cost per client; the first costs most."""
    costs = [float(len(clients) - number) * 1e9 for number in range(len(clients))]
    total = sum(costs)
    return {
        "slow_episodes": table("slow_episodes", *(
            {"client": client, "filter": "t/#", "start": AT, "end": AT + dt.timedelta(seconds=65), "cause": "network",
             "action": "notify", "lag_records_peak": 1234, "lag_bytes_peak": 5_600_000, "held_byte_seconds": cost}
            for client, cost in zip(clients, costs, strict=True)
        )),
        "offenders": table("offenders", *(
            {"client": client, "filter": "t/#", "episodes": 1, "slow_ms": 65_000.0, "held_byte_seconds": cost,
             "share_of_cost": cost / total}
            for client, cost in zip(clients, costs, strict=True)
        )),
        "costs": table("costs", *(
            {"client": client, "hour": AT, "held_byte_seconds": cost}
            for client, cost in zip(clients, costs, strict=True)
        )),
        "isolation": table("isolation", {
            "run": "", "seconds_with": 60, "seconds_without": 60, "p50_with_ms": 0.5, "p99_with_ms": 2.2,
            "max_with_ms": 9.0, "p50_without_ms": 0.5, "p99_without_ms": 2.0, "max_without_ms": 8.0, "ratio_p99": 1.1,
        } | isolation),
        "forecast": table(
            "forecast", {"run": "r", "kind": "memory", "used_bytes": 50_000_000, "limit_bytes": 100_000_000,
                         "growth_bytes_per_s": 1000.0, "seconds_to_limit": 50_000.0},
            {"run": "r", "kind": "disk", "used_bytes": 0, "limit_bytes": 1_000_000_000, "seconds_to_limit": None},
        ),
    }  # fmt: skip


def candidate(name: str, kind: str = "grid", **given: Any) -> dict[str, Any]:
    return {"candidate": name, "kind": kind, "policy": f'[[policy]]\nname = "{kind}"\n', "within_goal": True} | given


class Page(HTMLParser):
    """What a reader's browser makes of a report."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.sections: dict[str, str] = {}
        self.scripts: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.scripts[-1] += data
            return
        if "style" in self.open:
            return
        self.text += data
        if "h2" in self.open:
            self.sections[data] = ""
        elif self.sections:
            self.sections[next(reversed(self.sections))] += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    @property
    def plots(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.scripts[0])
        return found

    def row(self, first: str) -> list[str]:
        return next(row for row in self.rows if row and row[0] == first)


@pytest.fixture
def health(tmp_path: Path) -> Callable[..., Page]:
    def make(tables: dict[str, pa.Table], **about: Any) -> Page:
        return Page(health_report(tables, about, tmp_path / "health.html"))

    return make


@pytest.fixture
def lab(tmp_path: Path) -> Callable[..., Page]:
    def make(candidates: list[dict[str, Any]], outcomes: list[dict[str, Any]] | None = None, **about: Any) -> Page:
        curve = [
            {"candidate": row["candidate"], "time": AT + dt.timedelta(seconds=s), "memory_bytes": s * 1000}
            for row in candidates for s in range(5)
        ]  # fmt: skip
        tables = table("candidates", *candidates), table("outcomes", *outcomes or []), table("curve", *curve)
        return Page(lab_report(*tables, about, tmp_path / "lab.html"))

    return make


def texts_of(figure: dict[str, Any]) -> list[str]:
    """Every text in a plot's data that plotly would look for tags in."""
    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list | dict):
            for one in value.values() if isinstance(value, dict) else value:
                walk(one)

    walk(figure["data"])
    return found


# -- what every page keeps to ---------------------------------------------------------------------------------------


def hostile_pages(health: Callable[..., Page], lab: Callable[..., Page]) -> list[Page]:
    return [
        health(health_tables([EVIL, EVIL_LINK]), lake=EVIL, brokers=[EVIL_LINK], **{EVIL: EVIL}),
        lab(
            [candidate(EVIL, recommended=True, policy=EVIL), candidate(EVIL_LINK, "ran", policy=EVIL_LINK)],
            [{"candidate": EVIL, "client": EVIL, "filter": EVIL_LINK, "reason": EVIL, "action": EVIL_LINK}],
            lake=EVIL, limits=[EVIL],
        ),
    ]  # fmt: skip


def test_names_of_strangers_are_text_and_nothing_else(health: Callable[..., Page], lab: Callable[..., Page]) -> None:
    for page in hostile_pages(health, lab):
        assert not [attrs for tag, attrs in page.tags if tag == "a"]
        assert len(page.scripts) == 3
        assert not any("alert(1)" in script for script in page.scripts[1:])
        assert "alert(1)" in page.text  # it is shown, as what it is
        assert "\x1b" not in page.text
        for figure in page.plots:
            for text in texts_of(figure):
                assert set(re.findall(r"</?\s*(\w+)", text)) <= {"b", "br", "extra"}, text
                assert "\x1b" not in text


def test_a_page_asks_nobody_for_anything(health: Callable[..., Page], lab: Callable[..., Page]) -> None:
    for page in hostile_pages(health, lab):
        for tag, attrs in page.tags:
            assert not {"src", "href", "srcset", "action", "data", "background", "poster"} & set(attrs), tag
            assert tag not in ("link", "iframe", "object", "embed", "base", "form", "img")
        (policy,) = [
            attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"
        ]
        assert policy.startswith("default-src 'none'")


def test_plots_are_drawn_where_there_is_a_place_and_say_what_they_show(
    health: Callable[..., Page], lab: Callable[..., Page]
) -> None:
    pages = [health(health_tables(["a", "b"])), lab([candidate("x", recommended=True), candidate("as it ran", "ran")])]
    for page, count in zip(pages, (5, 2), strict=True):
        places = [attrs for tag, attrs in page.tags if "plot" in attrs.get("class", "").split()]
        assert [place["id"] for place in places] == [f"plot-{number}" for number in range(len(page.plots))]
        assert len(page.plots) == count
        assert all(place["role"] == "img" and len(place["aria-label"]) > 20 for place in places)
        assert sum(1 for tag, _ in page.tags if tag == "figcaption") == count
        assert all(figure["data"] for figure in page.plots)
        assert sum("Plotly.newPlot" in script for script in page.scripts) == 1
        assert sum(len(script) > 1_000_000 for script in page.scripts) == 1  # plotly.js itself, once


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(ConfigError, match="cannot be written"):
        health_report(health_tables(["a"]), {}, tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    out = health_report(health_tables(["a"]), {}, tmp_path / "new" / "report.html")
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]


# -- health ---------------------------------------------------------------------------------------------------------


def test_the_health_report_begins_with_the_answer_and_the_facts(health: Callable[..., Page]) -> None:
    page = health(
        health_tables(["worst", "other"]), consumers=40, first=AT, rows=123_456, seconds=75.0, odd_thing="here"
    )
    assert (
        "2 consumers of 40 were slow, 2 times in all. The others did not notice. worst alone caused 66.7 %" in page.text
    )
    facts = page.sections["What was recorded"]
    for fact in ("2026-03-01 12:00:00", "123,456", "75 s", "odd thing", "here"):
        assert fact in facts


def test_the_numbers_are_those_of_the_tables(health: Callable[..., Page]) -> None:
    page = health(health_tables(["worst", "other"]))
    row = page.row("worst")
    assert row[1:7] == ["t/#", "1", "65 s", "0 B", "2 GB·s", "66.7 %"]
    assert page.row("network") == ["network", "2", "2", "2 min 10 s", "65 s", "3 GB·s"]
    timeline, shares, isolation, costs, forecast = page.plots
    assert timeline["data"][0]["x"] == [65_000, 65_000]
    assert timeline["data"][0]["base"] == ["2026-03-01 12:00:00.000"] * 2
    assert shares["data"][0]["y"] == ["worst", "other"]
    assert [trace["text"] for trace in isolation["data"]] == [["0.5 ms", "2 ms", "8 ms"], ["0.5 ms", "2.2 ms", "9 ms"]]
    assert [trace["text"] for trace in costs["data"]] == [["2 GB·s"], ["1 GB·s"]]
    assert forecast["data"][0]["text"] == ["50 MB of 100 MB, full in 13 h 53 min", "0 B of 1 GB, is not growing"]


def test_what_the_others_noticed_is_said(health: Callable[..., Page]) -> None:
    noticed = health(health_tables(["a", "b"], p99_with_ms=20.0, ratio_p99=10.0))
    assert (
        "The others noticed: 99 % of the deliveries took up to 20 ms with slow peers and 2 ms without." in noticed.text
    )
    short = health(health_tables(["a", "b"], p99_with_ms=20.0, ratio_p99=10.0, seconds_without=3))
    assert "It cannot be said whether the others noticed." in short.text
    small = health(health_tables(["a", "b"], p99_with_ms=3.5, ratio_p99=1.75))
    assert "The others did not notice." in small.text
    assert "too small to be noticed" in small.text
    never = health(health_tables(["a", "b"], p99_without_ms=None, ratio_p99=None, seconds_without=0))
    assert "That cannot be said" in never.sections["Did the others notice?"]


def test_what_is_full_soon_is_part_of_the_answer(health: Callable[..., Page]) -> None:
    tables = health_tables(["a"])
    tables["forecast"] = table("forecast", {
        "kind": "disk", "used_bytes": 900, "limit_bytes": 1000, "growth_bytes_per_s": 1.0, "seconds_to_limit": 100.0,
    })  # fmt: skip
    page = health(tables)
    assert "Disk is full in 100 s." in page.text
    assert ("p", {"class": "answer bad"}) in page.tags


def test_of_forty_thousand_the_first_are_shown_and_the_others_counted(health: Callable[..., Page]) -> None:
    page = health(health_tables([f"c-{number:05d}" for number in range(40_000)]))
    assert "40,000 consumers were slow" in page.text
    assert "Not drawn: 39,980 consumers" in page.text
    assert "and 39,975 others." in page.text
    assert max(len(trace.get("y", [])) for figure in page.plots for trace in figure["data"]) <= 20
    assert len(page.rows) < 100


def test_names_that_shorten_alike_stay_apart(health: Callable[..., Page]) -> None:
    names = [f"a-very-long-name-of-a-fleet/{number}/and-the-same-end-of-it" for number in range(3)]
    page = health(health_tables(names))
    assert len(set(page.plots[1]["data"][0]["y"])) == 3


def test_one_client_on_two_filters_is_one_bar(health: Callable[..., Page]) -> None:
    tables = health_tables(["a"])
    tables["offenders"] = table(
        "offenders", *({"client": "a", "filter": f, "held_byte_seconds": 1.0, "share_of_cost": 0.5} for f in ("x", "y"))
    )
    (bars,) = health(tables).plots[1]["data"]
    assert (unpacked(bars["x"]), bars["y"]) == ([100.0], ["a"])


def test_where_there_is_nothing_it_says_so(health: Callable[..., Page]) -> None:
    page = health({name: table(name) for name in HEALTH}, consumers=7)
    assert "Nobody of 7 consumers was slow." in page.text
    for section, said in (
        ("Who was slow, and when", "Nobody was slow"), ("Who cost most", "Nobody cost"),
        ("Did the others notice?", "cannot be said"), ("What it cost, hour by hour", "Nothing had to be held"),
        ("How long until it is full", "no figures"),
    ):  # fmt: skip
        assert said in page.sections[section]
    assert not page.scripts


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


def unpacked(values: Any) -> list[float]:
    if not isinstance(values, dict):
        return [float(value) for value in values]
    return [float(value) for value in np.frombuffer(base64.b64decode(values["bdata"]), dtype=values["dtype"])]


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


# -- words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (words.many(0, "consumer"), "no consumers"),
        (words.many(1, "consumer"), "1 consumer"),
        (words.many(1200, "episode"), "1,200 episodes"),
        (words.change(3, 12, words.count, ("fewer", "more")), "9 fewer (75 %)"),
        (words.change(200, 2, words.count), "198 more (100 times as much)"),
        (words.change(5, 5, words.size), "the same"),
        (words.change(None, 5, words.size), "–"),
        (words.fact("memory_peak_bytes", 2_000_000), "2 MB"),
        (words.fact("stall_ms", 1500.0), "1.5 s"),
        (words.fact("limit_share", 0.5), "50 %"),
        (words.fact("runs", [f"r{n}" for n in range(10)]), "r0, r1, r2, r3, r4, r5, r6, r7 and 2 others"),
        (words.fact("goal", {"disk_bytes": 1000, "all": True}), "disk 1 kB; all yes"),
        (words.fact("first", "2026-03-01T12:00:00+00:00"), "2026-03-01 12:00:00"),
        (words.name("memory_peak_bytes"), "memory peak"),
        (words.shown("x" * 100, 11), "xxxxx…xxxxx"),
        (words.label("<b>&amp;"), "&lt;b&gt;&amp;amp;"),
        (words.moment(AT.astimezone(dt.timezone(dt.timedelta(hours=5)))), "2026-03-01 12:00:00"),
        (words.ms(float("nan")), "–"),
        (words.seconds(None), "–"),
    ],
)
def test_words(made: str, said: str) -> None:
    assert made == said
