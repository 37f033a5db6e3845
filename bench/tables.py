"""Results as tables: medians over the rounds, the spread of the headline, ratios. For the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.errors import BenchError
from bench.machine import machine_line
from bench.peers.every import EVERY as PEERS
from bench.results import Document, figures_of, matching
from bench.workloads.every import EVERY as WORKLOADS
from bench.workloads.workload import Column, Workload

LIMIT = "limit"
NONE, OVER = "–", "> "
MARKS = ("<!-- figures -->", "<!-- /figures -->")


class Table(NamedTuple):
    title: str
    note: str
    head: list[str]
    rows: list[list[str]]
    errors: list[str]


def tables(document: Document) -> Iterator[Table]:
    """Yields a table for each workload that the document has."""
    done = {run["workload"] for run in document["runs"]}
    for name, workload in WORKLOADS.items():
        if name in done:
            yield _table(document, workload)


def _table(document: Document, workload: Workload) -> Table:
    runs = [run for run in document["runs"] if run["workload"] == workload.name]
    cases = list(dict.fromkeys(run["case"] for run in runs))
    errors = list(dict.fromkeys(f"{run['case']}, {run['peer']}: {run['error']}" for run in runs if "error" in run))
    rows = []
    columns = _present(document, workload, cases)
    for case in cases:
        headline = headline_of(document, workload, case)
        if headline is None:
            continue
        for peer in [name for name in PEERS if any(matching(document, workload.name, case, name))]:
            figures = figures_of(document, workload.name, case, peer)
            ratios = _ratios(document, workload, case, peer, headline)
            rows.append([case, PEERS[peer].title, *ratios, *_cells(columns, figures)])
    head = ["case", "broker", "of best peer", "of limit", *(["of own"] if workload.base_case else [])]
    return Table(workload.name, workload.about, head + [column.title for column in columns], rows, errors)


def headline_of(document: Document, workload: Workload, case: str) -> Column | None:
    """Returns the first column that any peer has a figure for in this case."""
    for column in workload.columns:
        for peer in PEERS:
            if value(document, workload.name, case, peer, column.key) is not None:
                return column
    return None


def value(document: Document, workload: str, case: str, peer: str, key: str) -> float | None:
    """Returns the median over the rounds; None: not measured, or never."""
    found = [row[key] for row in figures_of(document, workload, case, peer) if isinstance(row.get(key), int | float)]
    return median(found) if found else None


def best(document: Document, workload: str, case: str, column: Column) -> tuple[str, float] | None:
    """Returns the best of the others: neither Headway nor the limit."""
    values = [
        (peer, found)
        for peer, about in PEERS.items()
        if not about.is_ours
        and not about.is_limit
        and (found := value(document, workload, case, peer, column.key)) is not None
    ]
    if not values:
        return None
    return (max if column.better == "high" else min)(values, key=lambda pair: pair[1])


def _ratios(document: Document, workload: Workload, case: str, peer: str, headline: Column) -> list[str]:
    own = value(document, workload.name, case, peer, headline.key)
    top = best(document, workload.name, case, headline)
    others = [top[1] if top else None, value(document, workload.name, case, LIMIT, headline.key)]
    if workload.base_case:
        others.append(value(document, workload.name, workload.base_case, peer, headline.key))
    return [ratio(own, other) for other in others]


def ratio(own: float | None, other: float | None) -> str:
    return NONE if own is None or not other else f"{own / other:.2f}"


def _present(document: Document, workload: Workload, cases: list[str]) -> list[Column]:
    """Returns the columns that any peer has a figure for."""
    every = [row for case in cases for peer in PEERS for row in figures_of(document, workload.name, case, peer)]
    return [column for column in workload.columns if any(column.key in row for row in every)]


def _cells(columns: list[Column], figures: list[dict[str, Any]]) -> list[str]:
    cells = []
    for number, column in enumerate(columns):
        found = [row[column.key] for row in figures if row.get(column.key) is not None]
        if not found:
            cells.append(NONE)
        elif column.unit == "word":
            cells.append(", ".join(dict.fromkeys(found)))
        else:
            show = SHOWN[column.unit]
            spread = f" ({show(min(found))} … {show(max(found))})" if number == 0 and len(found) > 1 else ""
            over = OVER if column.key == "drain_s" and any(row.get("drained") is False for row in figures) else ""
            cells.append(over + show(median(found)) + spread)
    return cells


def _in_units(number: float, units: Sequence[tuple[float, str]], last: str) -> str:
    """Writes a number in the first unit that it fills; ``last``: the unit of small ones."""
    for unit, name in units:
        if abs(number) >= unit:
            return _short(number / unit) + name
    return f"{number:.0f}{last}"


def _short(number: float) -> str:
    """Writes three digits."""
    return f"{number:.0f}" if abs(number) >= 100 else f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}"


SHOWN: dict[str, Callable[[float], str]] = {
    "rate": lambda number: _in_units(number, ((1e6, " M"), (1e3, " k")), ""),
    "bytes": lambda number: _in_units(number, ((1e9, " GB"), (1e6, " MB"), (1e3, " kB")), " B"),
    "ns": lambda number: _in_units(number, ((1e9, " s"), (1e6, " ms"), (1e3, " µs")), " ns"),
    "s": _short, "count": lambda number: f"{number:,.0f}",
    "share": lambda number: f"{number:.2f}",
}  # fmt: skip


def heading(document: Document) -> list[str]:
    """Returns the machine's line, the versions, and what was left out."""
    versions = [f"{PEERS[peer].title} {version}" for peer, version in document["versions"].items() if peer != LIMIT]
    return [
        machine_line(document["machine"]),
        ", ".join(versions),
        f"medians of {document['rounds']} rounds of {document['seconds']:g} s, {document['date'][:10]}",
        *(f"left out: {PEERS[peer].title}, not installed: {install}" for peer, install in document["missing"].items()),
        *_unsuited(document),
    ]


def _unsuited(document: Document) -> Iterator[str]:
    """Names the peers that were there and that a workload does not suit, for those workloads that say why."""
    for name in dict.fromkeys(run["workload"] for run in document["runs"]):
        workload, cases = WORKLOADS[name], WORKLOADS[name].cases(document["tiny"])
        out = [peer for peer in document["versions"] if not any(workload.suits(PEERS[peer], case) for case in cases)]
        if workload.unsuited and out:
            yield f"left out of {name}, {workload.unsuited}: {', '.join(PEERS[peer].title for peer in out)}"


def insert(text: str, page: Path) -> None:
    """Puts the text between the page's marks. Raises BenchError where it has none."""
    try:
        before, _, rest = page.read_text().partition(MARKS[0])
    except OSError as error:
        raise BenchError(f"{page}: {error.strerror}") from None
    _, mark, after = rest.partition(MARKS[1])
    if not mark:
        raise BenchError(f"{page} has no {MARKS[0]} and {MARKS[1]}")
    page.write_text(f"{before}{MARKS[0]}\n\n{text}\n{mark}{after}")


def markdown(document: Document) -> str:
    parts = ["\n".join(f"- {line}" for line in heading(document))]
    for table in tables(document):
        lines = [f"### `{table.title}`", "", table.note, ""]
        lines += ["| " + " | ".join(table.head) + " |", "|" + "---|" * len(table.head)]
        lines += ["| " + " | ".join(row) + " |" for row in table.rows]
        lines += ["", *(f"- failed: {error}" for error in table.errors)]
        parts.append("\n".join(lines).rstrip())
    return "\n\n".join(parts) + "\n"
