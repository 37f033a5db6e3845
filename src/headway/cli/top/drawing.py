"""Drawings of `headway top`: the list, as high and as wide as the terminal has room for."""

from __future__ import annotations

from typing import Any

from rich.console import Console, Group
from rich.text import Text

from headway.cli import figures
from headway.cli.top.columns import BY_LAG, PUBLISHER, QUEUE, WIDE, consumers, table
from headway.cli.top.picture import Picture
from headway.cli.top.view import View
from headway.console import many, printable
from headway.core.base import format_count, format_duration, format_rate, format_size

QUEUES_SHOWN = 5
LOW = 30
"""Below this height only the first publisher and queue are shown."""
ROWS_MIN = 3
ONCE_ROWS = 50
BAR_CHARS = 8
CONSOLE_LAG_S_SHOWN = 2.0
LATE_MS_SHOWN = 10
"""The least lateness of the loop that is shown."""
KEYS = (("q", "quit"), ("/", "filter"), ("< >", "sort"), ("r", "reverse"), ("enter", "details"), ("p", "pause"),
        ("?", "help"))  # fmt: skip


def draw(
    picture: Picture, before: Picture | None, console: Console, view: View | None = None, trouble: str = "",
    live: bool = False,
) -> Group:  # fmt: skip
    """``live``: on all of the screen, with a chosen row and a line of keys."""
    view = View() if view is None else view
    width, height = console.width, console.height
    arranged = view.arrange(picture.consumers)
    head: list[Any] = _headlines(picture, before, view, width)
    head += [*(_pool_line(pool, width >= WIDE) for pool in picture.broker.get("pools", [])), Text()]
    tail = _others(picture, 1 if live and height < LOW else QUEUES_SHOWN)
    foot = [_foot(view, trouble, width)] if live or trouble else []
    room = height - len(head) - _height(tail) - len(foot) - 2
    rows = max(ROWS_MIN, room) if live else ONCE_ROWS
    view.page_rows = rows
    first = view.first(rows) if live else 0
    shown = arranged[first : first + rows]
    chosen = view.place - first if live and arranged else -1
    parts = [*head, consumers(shown, width, sort=view.sort if live else "", descends=view.descends, chosen=chosen)]
    parts.append(_rest(picture, view, first, len(shown)))
    return Group(*parts, *tail, *foot)


def _rest(picture: Picture, view: View, first: int, shown: int) -> Text:
    """Says how many there are that the list does not show."""
    total = max(len(picture.consumers), picture.broker.get("subscriptions", 0))  # not all of many are listed
    if view.filter:
        what = f"{format_count(len(view.rows))} of {many(len(picture.consumers), 'consumer')} match {view.filter}"
        return Text(printable(what), style="dim")
    above, below = first, max(0, total - first - shown)
    if above:
        return Text(f"{format_count(above)} above, {format_count(below)} below", style="dim")
    ordered = "with less lag" if view.sort == BY_LAG and view.descends else "below"
    return Text(f"and {format_count(below)} more {ordered}" if below else "", style="dim")


def _others(picture: Picture, most: int) -> list[Any]:
    """The queues with something in them, and the publishers."""
    publishers = sorted(picture.publishers, key=lambda one: one.get("published_bytes", 0), reverse=True)
    queues = [one for one in picture.queues if one.get("records") or one.get("unacknowledged")]
    parts: list[Any] = []
    if queues:
        parts += [Text(), table(queues[:most], QUEUE)]
        if len(picture.queues) > len(queues[:most]):
            more = format_count(len(picture.queues) - len(queues[:most]))
            parts.append(Text(f"and {more} more queues", style="dim"))
    if publishers:
        parts += [Text(), table(publishers[:most], PUBLISHER)]
    if len(publishers) > most:
        parts.append(Text(f"and {format_count(len(publishers) - most)} more publishers", style="dim"))
    return parts


def _height(parts: list[Any]) -> int:
    return sum(1 if isinstance(one, Text) else one.row_count + 1 for one in parts)


def _foot(view: View, trouble: str, width: int) -> Text:
    """The last line: what is wrong, or what is typed, or the keys."""
    if trouble:
        return Text(printable(trouble), style="bold red", no_wrap=True, overflow="ellipsis")
    if view.typing:
        line = Text("filter: ", style="bold", no_wrap=True, overflow="ellipsis")
        return line.append(printable(view.filter), style="not bold").append("█  ").append(
            "enter keeps it, esc ends it", style="dim not bold")  # fmt: skip
    line = Text(no_wrap=True, overflow="ellipsis")
    for key, word in KEYS:
        line.append(key, style="reverse").append(f" {word}  ")
    return line


def _headlines(picture: Picture, before: Picture | None, view: View, width: int) -> list[Any]:
    """Two lines of the whole broker; what has no room at their ends is left out."""
    broker = picture.broker
    late_ms = broker.get("loop", {}).get("late_ms_lately", 0)
    gaps = figures.total(broker.get("gap_records"))
    first = [
        f"up {format_duration(float(broker.get('uptime_s', 0)))}",
        many(broker.get("connections", 0), "connection"), many(broker.get("subscriptions", 0), "subscription"),
        f"process {_of(broker, 'memory_rss_bytes')}, peak {_of(broker, 'memory_peak_bytes')}",
    ]  # fmt: skip
    second = [
        f"in {_flow(picture, before, 'published')}", f"out {_flow(picture, before, 'delivered')}",
        f"{many(gaps, 'record')} skipped",
        *_consoles(broker.get("console", {}).get("consoles", [])),
        *([f"loop late by {figures.millis(late_ms)} at most lately"] if late_ms >= LATE_MS_SHOWN else []),
    ]  # fmt: skip
    name = f"headway {printable(broker.get('version', '?'))}"
    line = Text(name, style="bold", no_wrap=True, overflow="ellipsis")
    if view.paused:
        line.append("  PAUSED", style="bold yellow")
    line.append("  " + _fitting(first, width - line.cell_len - 2), style="not bold")
    return [line, Text(_fitting(second, width), no_wrap=True, overflow="ellipsis")]


def _consoles(consoles: list[dict[str, Any]]) -> list[str]:
    """Those who look at the board are consumers, too."""
    lag_s = max((one.get("lag_s", 0.0) for one in consoles), default=0.0)
    behind = f", the slowest {format_duration(lag_s)} behind" if lag_s >= CONSOLE_LAG_S_SHOWN else ""
    return [f"{many(len(consoles), 'console')}{behind}"] if consoles else []


def _fitting(parts: list[str], width: int) -> str:
    while len(parts) > 1 and len(" · ".join(parts)) > width:
        parts = parts[:-1]
    return " · ".join(parts)


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


def _bar(full: float) -> str:
    filled = min(BAR_CHARS, max(round(full * BAR_CHARS), 1 if full > 0 else 0))
    return "█" * filled + "░" * (BAR_CHARS - filled)
