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
                f"<script>{get_plotlyjs()}</script><script>\n{_resource('page.js')}</script>"
            )
        return (
            "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            "<meta name='viewport' content='width=device-width, initial-scale=1'>"
            f"<title>{_text(self._title)}</title><style>\n{_resource('page.css')}</style></head>\n"
            f"<body><main>\n{body}\n</main>{scripts}</body></html>\n"
        )


def _resource(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _text(text: str) -> str:
    return html.escape(text, quote=True)


def _aligned(words_of: Callable[[Any], str]) -> str:
    return " class='number'" if words_of in _NUMBERS else ""


_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
