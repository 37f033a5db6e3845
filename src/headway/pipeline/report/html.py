"""One HTML page that needs nothing but itself: text, tables and plots, in light and dark, on paper and on a phone.

Rules:
- All text is escaped; what comes from strangers is made printable first (``words``).
- plotly.js stands in the page once. The plots' data stands in it as JSON, and no part of it can end the script.
- The page asks nobody for anything: no font, style, script or picture from elsewhere, and a policy that forbids it.
- It is written under another name and renamed when it is whole.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from headway.pipeline.output import output
from headway.pipeline.report import words

Column = tuple[str, str, Callable[[Any], str]]
"""A column of a table: its key in the rows, its heading, and the words for its values."""
ROWS_MAX = 25
_NUMBERS = frozenset((
    words.count, words.size, words.share, words.seconds, words.ms, words.rate, words.held, words.ratio,
    words.moment,
))  # fmt: skip


class Document:
    """A page that is being put together, from the top down."""

    def __init__(self, title: str, answer: str, tone: str = "good") -> None:
        """``answer``: the one sentence to take away; ``tone``: ``good``, ``mind`` or ``bad``."""
        self._title = title
        self._parts = [f"<header><h1>{_text(title)}</h1><p class='answer {tone}'>{_text(answer)}</p></header>"]
        self._plots: list[dict[str, Any]] = []
        self._sections = 0

    def section(self, heading: str, *paragraphs: str) -> None:
        if self._sections:
            self._parts.append("</section>")
        self._sections += 1
        name = f"section-{self._sections}"
        self._parts.append(f"<section aria-labelledby='{name}'><h2 id='{name}'>{_text(heading)}</h2>")
        for paragraph in paragraphs:
            self.say(paragraph)

    def say(self, paragraph: str, style: str = "") -> None:
        self._parts.append(f"<p class='{style}'>{_text(paragraph)}</p>" if style else f"<p>{_text(paragraph)}</p>")

    def nothing(self, sentence: str) -> None:
        """In place of a plot or table that would be empty."""
        self.say(sentence, "nothing")

    def facts(self, facts: Mapping[str, str]) -> None:
        rows = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in facts.items())
        self._parts.append(f"<dl>{rows}</dl>")

    def items(self, lines: Sequence[str]) -> None:
        self._parts.append(f"<ul>{''.join(f'<li>{_text(line)}</li>' for line in lines)}</ul>")

    def plot(self, figure: go.Figure, caption: str, alt: str) -> None:
        """``caption``: how to read it and what would be normal. ``alt``: what it shows, for who does not see it."""
        number = len(self._plots)
        self._plots.append(json.loads(figure.to_json()))
        height = figure.layout.height or 400
        self._parts.append(
            f"<figure><div class='plot' id='plot-{number}' role='img' aria-label='{_text(alt)}' "
            f"style='min-height:{height}px'></div><figcaption>{_text(caption)}</figcaption></figure>"
        )

    def table(
        self,
        rows: Sequence[Mapping[str, Any]],
        columns: Sequence[Column],
        caption: str,
        rows_max: int = ROWS_MAX,
        marked: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> None:
        """The first rows of many; ``marked`` ones stand out."""
        heads = "".join(
            f"<th scope='col'{_aligned(words_of)}>{_text(heading)}</th>" for _, heading, words_of in columns
        )
        lines = []
        for row in rows[:rows_max]:
            cells = "".join(
                f"<td{_aligned(words_of)}>{_text(words_of(row.get(key)))}</td>" for key, _, words_of in columns
            )
            lines.append(f"<tr class='marked'>{cells}</tr>" if marked and marked(row) else f"<tr>{cells}</tr>")
        others = f" The first {rows_max}; and {len(rows) - rows_max:,} others." if len(rows) > rows_max else ""
        self._parts.append(
            f"<div class='scroll' tabindex='0' role='region' aria-label='{_text(caption)}'><table><caption>"
            f"{_text(caption + others)}</caption><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody>"
            "</table></div>"
        )

    def code(self, text: str) -> None:
        lines = "\n".join(words.plain(line) for line in text.splitlines())
        self._parts.append(f"<pre><code>{_text(lines)}</code></pre>")

    def beside(self, *texts: tuple[str, str]) -> None:
        """Headed texts of code, side by side where there is room."""
        self._parts.append("<div class='beside'>")
        for heading, text in texts:
            self._parts.append(f"<div><h3>{_text(heading)}</h3>")
            self.code(text)
            self._parts.append("</div>")
        self._parts.append("</div>")

    def write(self, out: Path) -> Path:
        """Write the page to ``out`` and return it."""
        with output(out) as partial:
            partial.write_text(self._whole(), encoding="utf-8")
        return out

    def _whole(self) -> str:
        body = "\n".join(self._parts) + ("</section>" if self._sections else "")
        scripts = ""
        if self._plots:
            data = json.dumps(self._plots).replace("<", "\\u003c")
            scripts = (
                "<noscript><p>The plots need JavaScript; the tables say the same in numbers.</p></noscript>"
                f"<script type='application/json' id='plots'>{data}</script>"
                f"<script>{get_plotlyjs()}</script><script>{_SCRIPT}</script>"
            )
        return (
            "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            "<meta name='viewport' content='width=device-width, initial-scale=1'>"
            f"<title>{_text(self._title)}</title><style>{_STYLE}</style></head>\n"
            f"<body><main>\n{body}\n</main>{scripts}</body></html>\n"
        )


def _text(text: str) -> str:
    return html.escape(text, quote=True)


def _aligned(words_of: Callable[[Any], str]) -> str:
    return " class='number'" if words_of in _NUMBERS else ""


_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)

_STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1d2733; --soft: #5a6775; --line: #d7dde3; --tint: #f4f6f8;
  --good: #00724f; --mind: #9a5b00; --bad: #b3400a; }
@media (prefers-color-scheme: dark) { :root { --ground: #14181d; --ink: #e4e9ee; --soft: #a3afbb; --line: #37414b;
  --tint: #1d232a; --good: #3fc79a; --mind: #f0b04f; --bad: #ff8a55; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 70rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; overflow-wrap: anywhere; }
h1 { font-size: 1.1rem; font-weight: 600; color: var(--soft); margin: 0; }
h2 { font-size: 1.35rem; margin: 2.6rem 0 .4rem; padding-top: .9rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: .8rem 0 .3rem; }
p { margin: .5rem 0; max-width: 46rem; }
.answer { font-size: 1.45rem; line-height: 1.35; font-weight: 600; max-width: none; padding-left: .8rem;
  border-left: .35rem solid var(--good); margin: .7rem 0 1rem; }
.answer.mind { border-color: var(--mind); } .answer.bad { border-color: var(--bad); }
.nothing { color: var(--soft); font-style: italic; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: .6rem 1.2rem; margin: .8rem 0; }
dt { color: var(--soft); font-size: .85rem; } dd { margin: 0; font-weight: 600; }
figure { margin: 1rem 0; } .plot { width: 100%; }
figcaption, caption { color: var(--soft); font-size: .9rem; text-align: left; max-width: 46rem; }
caption { padding: .3rem 0; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .88rem; min-width: 100%; overflow-wrap: normal; }
th, td { text-align: left; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td:first-child { min-width: 11rem; max-width: 26rem; overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.marked td { font-weight: 700; background: var(--tint); }
pre { background: var(--tint); border: 1px solid var(--line); border-radius: 6px; padding: .8rem; overflow-x: auto;
  font-size: .85rem; margin: .4rem 0; }
.beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 0 1.2rem; }
.beside > div { min-width: 0; }
@media print { main { max-width: none; padding: 0; } h2 { break-after: avoid; } figure, tr, pre { break-inside: avoid; }
  .scroll { overflow: visible; } table { font-size: .62rem; } pre { white-space: pre-wrap; }
  :root { --ground: #fff; --ink: #000; --soft: #444; --line: #bbb; --tint: #f4f6f8; } }
@media (max-width: 40rem) { .answer { font-size: 1.2rem; } }
"""

# The plots take the page's colours, again when those change, and light ones on paper.
_SCRIPT = """
"use strict";
const plots = JSON.parse(document.getElementById("plots").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
function colours(night) {
  const ink = night ? "#e4e9ee" : "#1d2733", line = night ? "#37414b" : "#dde2e7";
  const change = { "font.color": ink, "hoverlabel.bgcolor": night ? "#2a323b" : "#ffffff", "hoverlabel.font.color": ink,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", "legend.bgcolor": "rgba(0,0,0,0)" };
  for (const axis of ["xaxis", "yaxis", "xaxis2", "yaxis2"]) {
    change[axis + ".gridcolor"] = line; change[axis + ".linecolor"] = line; change[axis + ".zerolinecolor"] = line;
  }
  return change;
}
function paint(night) {
  plots.forEach((plot, number) => {
    const change = Object.fromEntries(Object.entries(colours(night)).filter(
      ([key]) => !/axis/.test(key) || plot.layout[key.split(".")[0]]));
    Plotly.relayout("plot-" + number, change);
  });
}
plots.forEach((plot, number) => Plotly.newPlot("plot-" + number, plot.data, plot.layout, { responsive: true,
  displayModeBar: false }));
paint(dark.matches);
dark.addEventListener("change", () => paint(dark.matches));
window.addEventListener("beforeprint", () => paint(false));
window.addEventListener("afterprint", () => paint(dark.matches));
"""
