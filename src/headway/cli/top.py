"""`headway top`: consumers by lag, what they hold, and the last verdicts about them; once, or live."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headway.cli import figures
from headway.cli.admin import AdminClient, NoBroker
from headway.console import printable
from headway.core.base import format_count, format_duration, format_rate, format_size

WIDE, WIDER = 110, 140
"""The widths from which on there is room for more columns."""
OTHER_LINES = 9
PUBLISHERS_SHOWN = QUEUES_SHOWN = 5
ONCE_ROWS = 50
LATE_MS_SHOWN = 10
"""The least lateness of the loop that is shown."""


class Picture(NamedTuple):
    """The broker's figures at one moment."""

    time_s: float
    broker: dict[str, Any]
    consumers: list[dict[str, Any]]
    publishers: list[dict[str, Any]]
    queues: list[dict[str, Any]]

    def json(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self._fields if name != "time_s"}, indent=2)


def take(admin: AdminClient) -> Picture:
    return Picture(time.monotonic(), admin.broker(), admin.consumers(), admin.publishers(), admin.queues())


def watch(
    admin: AdminClient, console: Console, interval_s: float, wait: Callable[[float], object] = time.sleep
) -> None:
    """Draws until interrupted. A broker that stops answering leaves its last picture on the screen, and a line
    below."""
    before = picture = take(admin)
    with Live(draw(picture, None, console), console=console, screen=console.is_terminal, auto_refresh=False) as live:
        live.refresh()
        while True:
            wait(interval_s)
            trouble = ""
            try:
                before, picture = picture, take(admin)
            except NoBroker as error:
                trouble = str(error)
            live.update(draw(picture, before, console, trouble), refresh=True)


def draw(picture: Picture, before: Picture | None, console: Console, trouble: str = "") -> Group:
    """The picture as a table as high as the console has room for."""
    publishers = sorted(picture.publishers, key=lambda one: one.get("published_bytes", 0), reverse=True)
    shown_publishers = publishers[:PUBLISHERS_SHOWN]
    pools = picture.broker.get("pools", [])
    queues = [one for one in picture.queues if one.get("records") or one.get("unacknowledged")][:QUEUES_SHOWN]
    room = console.height - OTHER_LINES - len(pools) - len(shown_publishers) - (len(queues) + 3 if queues else 0)
    rows = max(3, room) if console.is_terminal and before is not None else ONCE_ROWS
    pool_lines = [_pool_line(pool, console.width >= WIDE) for pool in pools]
    parts: list[Any] = [_headline(picture, before), *pool_lines, Text()]
    parts.append(_consumers(picture.consumers[:rows], console.width))
    consumers = max(len(picture.consumers), picture.broker.get("subscriptions", 0))  # not all of many are listed
    if consumers > rows:
        parts.append(Text(f"and {format_count(consumers - rows)} more with less lag", style="dim"))
    if queues:
        parts += [Text(), _table(queues, QUEUE)]
        if len(picture.queues) > len(queues):
            parts.append(Text(f"and {format_count(len(picture.queues) - len(queues))} more queues", style="dim"))
    if shown_publishers:
        parts += [Text(), _table(shown_publishers, PUBLISHER)]
    if len(publishers) > len(shown_publishers):
        parts.append(Text(f"and {format_count(len(publishers) - len(shown_publishers))} more publishers", style="dim"))
    if trouble:
        parts.append(Text(printable(trouble), style="bold red"))
    return Group(*parts)


def _headline(picture: Picture, before: Picture | None) -> Text:
    broker = picture.broker
    line = Text(f"headway {printable(broker.get('version', '?'))}", style="bold")
    uptime = format_duration(float(broker.get("uptime_s", 0)))
    gaps = figures.total(broker.get("gap_records"))
    late_ms = broker.get("loop", {}).get("late_ms_lately", 0)
    rest = [
        f"up {uptime}",
        f"{format_count(broker.get('connections', 0))} connections",
        f"{format_count(broker.get('subscriptions', 0))} subscriptions",
        f"in {_flow(picture, before, 'published')}",
        f"out {_flow(picture, before, 'delivered')}",
        f"{format_count(gaps)} records skipped",
        *([f"loop late by {figures.millis(late_ms)} at most lately"] if late_ms >= LATE_MS_SHOWN else []),
        f"process {_of(broker, 'memory_rss_bytes')}, peak {_of(broker, 'memory_peak_bytes')}",
    ]
    line.append("  " + " · ".join(rest), style="not bold")
    return line


def _of(broker: dict[str, Any], name: str) -> str:
    return format_size(broker.get(name, 0))


def _flow(picture: Picture, before: Picture | None, what: str) -> str:
    """Returns records and bytes per second since the picture before; without one, or after a restart, all."""
    records, volume = picture.broker.get(f"{what}_records", 0), picture.broker.get(f"{what}_bytes", 0)
    if before is not None and picture.time_s > before.time_s:
        seconds = picture.time_s - before.time_s
        new_records = records - before.broker.get(f"{what}_records", 0)
        new_bytes = volume - before.broker.get(f"{what}_bytes", 0)
        if new_records >= 0 and new_bytes >= 0:
            return f"{format_count(round(new_records / seconds))}/s ({format_rate(new_bytes / seconds)})"
    return f"{format_count(records)} ({format_size(volume)})"


def _pool_line(pool: dict[str, Any], wide: bool) -> Text:
    line = Text(f"pool {printable(pool.get('name') or 'global')}: ", no_wrap=True, overflow="ellipsis")
    for what in ("memory", "disk"):
        used, limit = pool.get(f"{what}_bytes", 0), pool.get(f"{what}_limit_bytes", 0)
        full = used / limit if limit else 0.0
        style = "bold red" if full > 0.9 else "yellow" if full > 0.5 else "green"
        peak = f", peak {_of(pool, f'{what}_peak_bytes')}" if wide else ""
        line.append(f"{what} ").append(_bar(full), style=style)
        line.append(f" {format_size(used)} of {format_size(limit)}{peak}   ")
    clients, limit = pool.get("clients_bytes", 0), pool.get("clients_limit_bytes", 0)
    if limit and (wide or clients > limit / 2):
        line.append(f"clients {format_size(clients)} of {format_size(limit)}")
    return line


def _bar(full: float, width: int = 8) -> str:
    filled = min(width, max(round(full * width), 1 if full > 0 else 0))
    return "█" * filled + "░" * (width - filled)


Column = tuple[str, str, Callable[[Any], Text | str]]
"""A column: its heading, the name of a figure (empty: all of the row), and its words."""


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


CONSUMER: tuple[Column, ...] = (
    ("CONSUMER", "client", _text), ("FILTER", "filter", _text), ("STATE", "state", _state),
    ("LAG", "lag_records", figures.count), ("AGE", "lag_age_ms", figures.millis),
    ("SEES", "view_age_ms", figures.millis), ("HOLDS", "held_bytes", figures.size),
    ("DRAIN", "drain_rate", figures.rate),
)  # fmt: skip
CONSUMER_WIDE: tuple[Column, ...] = (
    ("OFFERED", "offered_rate", figures.rate), ("BLOCKED", "blocked_ms", figures.millis),
    ("NO CREDIT", "credit_exhausted_ms", figures.millis),
)  # fmt: skip
CONSUMER_WIDER: tuple[Column, ...] = (
    ("IN FLIGHT", "in_flight", figures.count), ("SKIPPED", "gap_records", _total),
    ("STALLS", "producer_stall_ms", figures.millis),
)  # fmt: skip
QUEUE: tuple[Column, ...] = (
    ("QUEUE", "name", _text), ("WAITING", "records", figures.count), ("BYTES", "bytes", figures.size),
    ("AGE", "age_ms", figures.millis), ("IN FLIGHT", "unacknowledged", figures.count),
    ("CONSUMERS", "consumers", figures.count), ("SLOW", "slow_consumers", figures.count),
    ("DROPPED", "dropped_records", _total),
)  # fmt: skip
PUBLISHER: tuple[Column, ...] = (
    ("PUBLISHER", "client", _text), ("RECORDS", "published_records", figures.count),
    ("BYTES", "published_bytes", figures.size), ("STALLED", "stalled_ms", figures.millis),
    ("SKIPPED BY CONSUMERS", "lost_records", _total), ("", "", _waits),
)  # fmt: skip


def _consumers(consumers: list[dict[str, Any]], width: int) -> Table:
    wide, wider = CONSUMER_WIDE * (width >= WIDE), CONSUMER_WIDER * (width >= WIDER)
    table = _table(consumers, (*CONSUMER, *wide, *wider, ("LAST VERDICT", "", _last)))
    table.expand = not wide
    table.columns[-1].ratio = None if wide else 1
    if not consumers:
        table.add_row(Text("none", style="dim"))
    return table


def _table(rows: list[dict[str, Any]], columns: Sequence[Column]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, _, words in columns:
        left = words in (_text, _state, _waits, _last)
        table.add_column(heading, justify="left" if left else "right", no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(words(row.get(name) if name else row) for _, name, words in columns))
    return table
