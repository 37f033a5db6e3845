"""Columns of the tables of `headway top`: which, in which order, and by what the consumers are sorted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from headway.cli import figures
from headway.console import printable

WIDE = 110
"""The width from which on there is room for more."""
UP, DOWN = "▲", "▼"


def _text(value: Any) -> Text:
    return Text(printable("?" if value is None else value))


def _total(counts: Any) -> str:
    return figures.count(figures.total(counts))


def _state(value: Any) -> Text:
    return Text(printable(value or "?"), style=figures.STYLES.get(value, ""))


def _waits(publisher: dict[str, Any]) -> Text:
    """Says whether the publisher is read, and if not, what for."""
    why = printable(publisher.get("waits_for", ""))
    said = "" if not publisher.get("paused") else f"not read now: {why}" if why else "not read now"
    return Text(said, style="yellow")


def _last(consumer: dict[str, Any]) -> Text:
    """Returns why it is sent no more, if that is a limit of its user, or else the last verdict on it, or else who has
    it conflated."""
    why = printable(consumer.get("waits_for", ""))
    if why:
        return Text(why, style="yellow")
    if not consumer.get("last_verdict") and consumer.get("conflated_by"):
        return Text(printable(f"conflated by {consumer['conflated_by']}"), style="dim")
    return Text(figures.verdict_line(consumer.get("last_verdict")))


class Column(NamedTuple):
    heading: str
    name: str
    """The figure's name; empty: all of the row."""
    words: Callable[[Any], Text | str]
    width_min: int = 0
    """The terminal's width from which on the column is shown."""

    @property
    def left(self) -> bool:
        return self.words in (_text, _state, _waits, _last)


CONSUMER = (
    Column("CONSUMER", "client", _text), Column("FILTER", "filter", _text), Column("STATE", "state", _state),
    Column("LAG", "lag_records", figures.count), Column("AGE", "lag_age_ms", figures.millis),
    Column("SEES", "view_age_ms", figures.millis, 90), Column("HOLDS", "held_bytes", figures.size),
    Column("DRAIN", "drain_rate", figures.rate), Column("OFFERED", "offered_rate", figures.rate, WIDE),
    Column("BLOCKED", "blocked_ms", figures.millis, 120),
    Column("NO CREDIT", "credit_exhausted_ms", figures.millis, 130),
    Column("IN FLIGHT", "in_flight", figures.count, 160), Column("SKIPPED", "gap_records", _total, 140),
    Column("STALLS", "producer_stall_ms", figures.millis, 170),
)  # fmt: skip
LAST_VERDICT = Column("LAST VERDICT", "", _last)
QUEUE = (
    Column("QUEUE", "name", _text), Column("WAITING", "records", figures.count), Column("BYTES", "bytes", figures.size),
    Column("AGE", "age_ms", figures.millis), Column("IN FLIGHT", "unacknowledged", figures.count),
    Column("CONSUMERS", "consumers", figures.count), Column("SLOW", "slow_consumers", figures.count),
    Column("DROPPED", "dropped_records", _total),
)  # fmt: skip
PUBLISHER = (
    Column("PUBLISHER", "client", _text), Column("RECORDS", "published_records", figures.count),
    Column("BYTES", "published_bytes", figures.size), Column("STALLED", "stalled_ms", figures.millis),
    Column("SKIPPED", "lost_records", _total), Column("", "", _waits),
)  # fmt: skip

SORTS = {column.heading.lower().replace(" ", "-"): column for column in CONSUMER}
"""Names of the columns that consumers can be sorted by, in their order."""
BY_LAG = "lag"


def sort_value(consumer: Mapping[str, Any], sort: str) -> Any:
    """Returns what a consumer is sorted by."""
    column = SORTS[sort]
    value = consumer.get(column.name)
    if column.left:
        return str(value or "").casefold()
    return figures.total(value) if isinstance(value, Mapping) else value or 0


def table(
    rows: Sequence[dict[str, Any]], columns: Sequence[Column], *, sort: str = "", descends: bool = True,
    chosen: int = -1,
) -> Table:  # fmt: skip
    """``sort``: the column that gets the arrow; ``chosen``: the row that is marked. Figures are never cut short."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    lines = [[_cell(column, row) for column in columns] for row in rows]
    for at, column in enumerate(columns):
        sorted_by = sort and SORTS[sort] is column
        heading = column.heading + (DOWN if descends else UP) if sorted_by else column.heading
        width = max([len(heading), *(line[at].cell_len for line in lines)])
        shown = Text(heading, style="reverse" if sorted_by else "")
        made.add_column(shown, justify="left" if column.left else "right", no_wrap=True, overflow="ellipsis",
                        min_width=None if column.left else width)  # fmt: skip
    for at, (row, cells) in enumerate(zip(rows, lines, strict=True)):
        away = row.get("state") == "away"
        made.add_row(*cells, style="reverse" if at == chosen else "dim" if away else "")
    return made


def _cell(column: Column, row: dict[str, Any]) -> Text:
    words = column.words(row.get(column.name) if column.name else row)
    return words if isinstance(words, Text) else Text(words)


def consumers(
    rows: Sequence[dict[str, Any]], width: int, *, sort: str = "", descends: bool = True, chosen: int = -1
) -> Table:
    """The table of consumers, with as many columns as the width has room for."""
    columns = [column for column in CONSUMER if column.width_min <= width]
    made = table(rows, [*columns, LAST_VERDICT], sort=sort, descends=descends, chosen=chosen)
    made.expand = True
    for at in (0, 1):
        made.columns[at].max_width = max(10, width // 5)
    made.columns[2].min_width = max([len("STATE"), *(len(str(row.get("state", "?"))) for row in rows)])
    made.columns[-1].ratio = 1
    if not rows:
        made.add_row(Text("none", style="dim"))
    return made
