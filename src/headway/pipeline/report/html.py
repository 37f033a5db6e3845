"""One self-contained HTML page: text, tables and plots, in light and dark, on paper and on a phone.

Rules:
- The page is made by ``page.html``, which escapes all text; strangers' text is made printable first (``words``).
- plotly.js stands in the page once. The plots' data stands in it as JSON, and no part of it can end the script.
- The page asks nobody for anything: no font, style, script or picture from elsewhere, and a policy that forbids it.
- It is written under another name and renamed when it is whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from headway.console import printable
from headway.pipeline.lake import output
from headway.pipeline.report import words

# -- html --------------------------------------------------------------------------------------------------------------


Column = tuple[str, str, Callable[[Any], str]]
"""A column of a table: its key in the rows, its heading, and the words for its values."""
ROWS_MAX = 25
_NUMBERS = frozenset((
    words.count, words.size, words.share, words.seconds, words.ms, words.rate, words.held, words.ratio,
    words.moment,
))  # fmt: skip
_LOOKS: Mapping[Callable[[Any], str], str] = {words.shown: "name", words.candidate: "candidate"}
"""Classes of the page's style for columns of names."""
_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
    lstrip_blocks=True,
)  # fmt: skip


class Document:
    """A page that is being put together, from the top down. A section comes first."""

    def __init__(self, kind: str, title: str, answer: str, tone: str = "good") -> None:
        """``kind``: a word by which the console knows a report; ``answer``: the one sentence to take away; ``tone``:
        ``good``, ``mind`` or ``bad``."""
        self._head = {"report": kind, "title": title, "answer": answer, "tone": tone}
        self._sections: list[tuple[str, list[dict[str, Any]]]] = []
        self._plots: list[dict[str, Any]] = []

    def section(self, heading: str, *paragraphs: str) -> None:
        self._sections.append((heading, []))
        for paragraph in paragraphs:
            self.say(paragraph)

    def _add(self, kind: str, **values: Any) -> None:
        """Adds a part; ``page.html`` has a macro for each kind, which gets the values."""
        self._sections[-1][1].append({"kind": kind, **values})

    def say(self, paragraph: str) -> None:
        self._add("paragraph", text=paragraph)

    def nothing(self, sentence: str) -> None:
        """Adds a sentence in place of a plot or table that would be empty."""
        self._add("nothing", text=sentence)

    def facts(self, facts: Mapping[str, str]) -> None:
        self._add("facts", facts=facts)

    def items(self, lines: Sequence[str]) -> None:
        self._add("items", lines=lines)

    def plot(self, figure: go.Figure, caption: str, alt: str) -> None:
        """Adds a plot. ``caption``: how to read it and what would be normal. ``alt``: what it shows, as text."""
        self._add("plot", number=len(self._plots), height=figure.layout.height or 400, caption=caption, alt=alt)
        self._plots.append(json.loads(figure.to_json()))

    def table(
        self,
        rows: Sequence[Mapping[str, Any]],
        columns: Sequence[Column],
        caption: str,
        rows_max: int = ROWS_MAX,
        marked: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> None:
        """Adds a table of the first rows; ``marked`` ones stand out."""
        cells = [[words_of(row.get(key)) for key, _, words_of in columns] for row in rows[:rows_max]]
        self._add(
            "table", caption=caption, headings=[heading for _, heading, _ in columns], rows=cells,
            looks=["number" if words_of in _NUMBERS else _LOOKS.get(words_of, "") for _, _, words_of in columns],
            more=max(0, len(rows) - rows_max),
            marked=[marked is not None and marked(row) for row in rows[:rows_max]],
        )  # fmt: skip

    def beside(self, *texts: tuple[str, str]) -> None:
        """Adds headed texts of code, side by side where there is room."""
        lines = [(heading, "\n".join(map(printable, text.splitlines()))) for heading, text in texts]
        self._add("beside", texts=lines)

    def write(self, out: Path) -> Path:
        """Writes the page to ``out`` and returns it."""
        page = _TEMPLATES.get_template("page.html").render(
            self._head, sections=self._sections, plots=self._plots, plotly=Markup(get_plotlyjs())
        )
        with output(out) as partial:
            partial.write_text(page, encoding="utf-8")
        return out


# -- hover -------------------------------------------------------------------------------------------------------------
#
# Hover texts of bars and marks in plots; HTML as far as plotly knows it, names escaped.


def episode(row: dict[str, Any]) -> str:
    length = (row["end"] - row["start"]).total_seconds()
    done = f"<br>{words.label(words.action(row['action']))}" if row["action"] else ""
    going = ", and still so at the end" if row["open"] else ""
    return (
        f"<b>{words.label(row['client'])}</b> on {words.label(row['filter'])}<br>"
        f"{words.clock(row['start'])} for "
        f"{words.seconds(length)}{going}<br>{words.label(words.cause(row['cause']))}<br>up to "
        f"{words.many(row['lag_records_peak'], 'record')} ({words.size(row['lag_bytes_peak'])}) waited, the oldest "
        f"{words.ms(row['lag_age_peak_ms'])}{done}"
    )


def offender(row: dict[str, Any]) -> str:
    others = f" and {row['filters'] - 1} more" if row["filters"] > 1 else ""
    return (
        f"<b>{words.label(row['client'])}</b> on {words.label(row['filter'])}{others}<br>"
        f"{words.many(row['episodes'], 'episode')}, {words.ms(row['slow_ms'])} in "
        f"all<br>{words.held(row['held_byte_seconds'])} held"
    )


def filling(row: dict[str, Any]) -> str:
    return f"{words.size(row['used_bytes'])} of {words.size(row['limit_bytes'])}, {_when(row)}"


def _when(row: dict[str, Any]) -> str:
    if not words.missing(row["seconds_to_limit"]):
        return f"full in {words.until(row['soonest_s'], row['latest_s'])}" if row["seconds_to_limit"] else "full"
    if row["seen_s"] < words.FORECAST_FROM_S:
        return f"too little seen for a forecast ({words.seconds(row['seen_s'])})"
    return "not growing steadily" if row["growth_bytes_per_s"] >= 1 else "not growing"


def candidate(row: dict[str, Any]) -> str:
    policy = [words.label(line, 70) for line in str(row["policy"]).splitlines()[:24] if line.strip()]
    return (
        f"<b>{words.label(row['candidate'], 70)}</b><br>{words.many(row['hit'], 'consumer')} hit, "
        f"{words.count(row['false_positives'])} of them wrongly<br>at most {words.size(row['memory_peak_bytes'])} in "
        f"memory, {words.size(row['disk_peak_bytes'])} on disk<br>{words.many(row['records_lost'], 'record')} lost, "
        f"publishers held back for {words.ms(row['producer_stall_ms'])}<br><br>" + "<br>".join(policy)
    )
