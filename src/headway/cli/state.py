"""``headway query``: the state of a keyed topic."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headway.cli.admin import AdminClient, NoBroker
from headway.cli.options import NOTHING_FOUND, AdminOption, CaOption, plainly
from headway.console import many, printable
from headway.core.base import ConfigError

ANSWER_S = 60.0
COLUMNS_MAX = 14
OTHER_LINES = 4
FORMATS = ("table", "json", "jsonl")


@plainly
def query(
    filter: Annotated[str, typer.Argument(metavar="FILTER", help="A keyed topic, or a filter.", show_default=False)],
    where: Annotated[str, typer.Option("--where", metavar="SELECTOR", help="Only records that match.")] = "",
    order_by: Annotated[str, typer.Option("--order-by", metavar="TERMS", help="Such as '/delay DESC, topic'.")] = "",
    top: Annotated[int, typer.Option("--top", "-n", min=0, max=10_000, help="At most N records.")] = 20,
    skip: Annotated[int, typer.Option("--skip", min=0, help="After so many others.")] = 0,
    select: Annotated[
        str, typer.Option("--select", metavar="COLUMNS", help="Such as '/carrier, avg(/delay) AS delay, count(*)'.")
    ] = "",
    at: Annotated[
        str, typer.Option("--at", metavar="WHEN", help="As it was at an offset, a time, or -5m: a recorded topic.")
    ] = "",
    group_by: Annotated[str, typer.Option("--group-by", metavar="FIELDS", help="Such as /carrier.")] = "",
    format: Annotated[str, typer.Option("--format", metavar="table|json|jsonl", help="How it is printed.")] = "table",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Ask again and again, until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=1.0, max=3600.0, help="Seconds between two looks of --watch.")
    ] = 1.0,
    admin: AdminOption = None,
    ca: CaOption = None,
) -> None:  # fmt: skip
    """The state of a keyed topic: the latest record per key, as of one offset.

    --watch asks the broker again every second, and never sooner than the last answer took, so it costs the broker at
    most half of one core. It does not subscribe: what changes twice between two looks is seen once.

    \b
    Examples:
      headway query 'flights/#'
      headway query 'flights/#' --where 'delay > 15' --order-by '/delay DESC' --top 10 --watch
      headway query 'flights/#' --select '/carrier, avg(/delay) AS delay, count(*)' --group-by /carrier
      headway query 'flights/#' --at -1h
      headway query 'flights/#' --format jsonl | jq -r .key
    """
    if watch and at:
        raise ConfigError("--watch shows the state as it is now: without --at, or without --watch")
    if format not in FORMATS:
        raise ConfigError(f"--format {format}: there are {', '.join(FORMATS)}")
    if watch and format != "table":
        raise ConfigError(f"--watch draws a table: without --format {format}, or without --watch")
    asked = {
        "where": where, "order_by": order_by, "top": str(top), "skip": str(skip), "select": select,
        "group_by": group_by, "at": at,
    }  # fmt: skip
    broker, console = AdminClient(admin, ANSWER_S, ca=ca), Console()
    words = {name: value for name, value in asked.items() if value}
    if watch:
        redraw(broker, filter, words, console, interval)
        return
    answer = broker.state(filter, words)
    records = answer.get("records", [])
    if format == "json":
        typer.echo(json.dumps(answer, indent=2))
    elif format == "jsonl":
        for record in records:
            typer.echo(json.dumps(record))
    else:
        console.print(draw(answer))
    if not records:
        raise typer.Exit(NOTHING_FOUND)


def redraw(
    broker: AdminClient, filter: str, words: dict[str, str], console: Console, interval_s: float,
    wait: Callable[[float], object] = time.sleep, clock: Callable[[], float] = time.monotonic,
) -> None:  # fmt: skip
    """Draws until interrupted. A broker that stops answering leaves its last answer on the screen, and a line below."""
    began_s = clock()
    answer = broker.state(filter, words)
    with Live(draw(answer, console.height), console=console, screen=console.is_terminal, auto_refresh=False) as live:
        live.refresh()
        while True:
            wait(max(interval_s, clock() - began_s))
            began_s, trouble = clock(), ""
            try:
                answer = broker.state(filter, words)
            except NoBroker as error:
                trouble = str(error)
            live.update(draw(answer, console.height, trouble), refresh=True)


def draw(answer: dict[str, Any], height: int = 0, trouble: str = "") -> Group:
    """The answer as a table: the columns that were selected; else topic, key, and the fields of the payloads."""
    records = answer.get("records", [])
    shown = records[: max(1, height - OTHER_LINES)] if height else records
    columns = answer.get("columns")
    rows = shown if columns is not None else [_whole(record) for record in shown]
    names = columns or list(dict.fromkeys(["TOPIC", "KEY", *(name for row in rows for name in row)]))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names[:COLUMNS_MAX]:
        table.add_column(printable(name), no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(_words(row.get(name))) for name in names[:COLUMNS_MAX]))
    keys = f" of {many(answer['keys'], 'key')}" if "keys" in answer else ""  # not who may read a part of the state only
    count = many(len(records), "record" if columns is None else "row")
    foot = f"{count}{keys}, as of offset {answer.get('offset')}"
    if len(shown) < len(records):
        foot += f"; the screen has room for {len(shown)}"
    if answer.get("evicted_keys"):
        evicted = answer["evicted_keys"]
        evicted = many(evicted, "key") if isinstance(evicted, int) else f"{evicted} keys"
        foot += f"; {evicted} evicted since the broker started, for want of memory"
    parts: list[Any] = [table, Text(foot, style="dim")]
    if trouble:
        parts.append(Text(printable(trouble), style="bold red"))
    return Group(*parts)


def _whole(record: dict[str, Any]) -> dict[str, Any]:
    return {"TOPIC": record.get("topic"), "KEY": record.get("key")} | _fields(record)


def _fields(record: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of a payload; one that is no JSON object is one field."""
    text = record.get("payload")
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    return {"payload": text if isinstance(text, str) else record.get("payload_base64", "")}


def _words(cell: object) -> str:
    if cell is None:
        return ""
    return printable(cell if isinstance(cell, str) else json.dumps(cell))
