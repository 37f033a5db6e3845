"""Reports on health: what every page keeps to, and what the page of health says."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.pages import AT, Page, candidate, table, unpacked

from headway.core.base.errors import ConfigError
from headway.pipeline.report import words
from headway.pipeline.report.health import health_report

EVIL = "</script><script>alert(1)</script>"
EVIL_LINK = "<a href='http://evil.example/'>x</a>\n\x1b[31m"
HEALTH = ("slow_episodes", "offenders", "costs", "isolation", "forecast")


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
                         "growth_bytes_per_s": 1000.0, "seconds_to_limit": 50_000.0, "soonest_s": 40_000.0,
                         "latest_s": 60_000.0, "seen_s": 300.0},
            {"run": "r", "kind": "disk", "used_bytes": 0, "limit_bytes": 1_000_000_000, "seconds_to_limit": None,
             "seen_s": 300.0},
        ),
    }  # fmt: skip


@pytest.fixture
def health(tmp_path: Path) -> Callable[..., Page]:
    def make(tables: dict[str, pa.Table], **about: Any) -> Page:
        return Page(health_report(tables, {"consumers": 50_000} | about, tmp_path / "health.html"))

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
        health(health_tables([EVIL, EVIL_LINK]), lake=EVIL, brokers=EVIL_LINK, **{EVIL: EVIL}),
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
        health_report(health_tables(["a"]), {"consumers": 1}, tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    out = health_report(health_tables(["a"]), {"consumers": 1}, tmp_path / "new" / "report.html")
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
    assert forecast["data"][0]["text"] == [
        "50 MB of 100 MB,<br>full in 11 h 6 min to 16 h 40 min", "0 B of 1 GB,<br>not growing",
    ]  # fmt: skip


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
        "soonest_s": 90.0, "latest_s": 110.0,
    })  # fmt: skip
    page = health(tables)
    assert "Disk is full in 90 s to 110 s if it goes on so." in page.text
    assert ("p", {"class": "answer bad"}) in page.tags


def test_of_forty_thousand_the_first_are_shown_and_the_others_counted(health: Callable[..., Page]) -> None:
    page = health(health_tables([f"c-{number:05d}" for number in range(40_000)]))
    assert "40,000 consumers of 50,000 were slow" in page.text
    assert "Not drawn: 39,980 consumers" in page.text
    assert "and 39,975 others." in page.text
    assert max(len(trace.get("y", [])) for figure in page.plots for trace in figure["data"]) <= 20
    assert len(page.rows) < 100


def test_names_that_shorten_alike_stay_apart(health: Callable[..., Page]) -> None:
    names = [f"a-very-long-name-of-a-fleet/{number}/and-the-same-end-of-it" for number in range(3)]
    page = health(health_tables(names))
    shown = page.plots[1]["data"][0]["y"]
    assert len(set(shown)) == 3
    assert all(f"…{number}/and" in name for number, name in enumerate(shown))


def test_one_client_on_two_filters_is_one_bar(health: Callable[..., Page]) -> None:
    tables = health_tables(["a"])
    tables["offenders"] = table(
        "offenders", *({"client": "a", "filter": f, "held_byte_seconds": 1.0, "share_of_cost": 0.5} for f in ("x", "y"))
    )
    tables["slow_episodes"] = health_tables(["a", "b"])["slow_episodes"]
    page = health(tables)
    assert "a alone caused 100 % of what was held back." in page.text  # as the bar has it
    (bars,) = page.plots[1]["data"]
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
        (words.fact("goal", {"disk_bytes": 1000, "all": 7}), "disk 1 kB; all 7"),
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
