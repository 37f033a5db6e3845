"""`headway top`: consumers as a list that is sorted, filtered and looked into; once, or live."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from headway.cli import options as figures
from headway.cli.admin import AdminClient, NotFound
from headway.cli.options import AdminOption, CaOption, JsonOption, plainly
from headway.cli.why import tell
from headway.console import many, printable
from headway.core.base import ConfigError, format_count, format_duration, format_rate, format_size, unknown

# -- columns -----------------------------------------------------------------------------------------------------------
#
# Columns of the tables of `headway top`: which, in which order, and by what the consumers are sorted.


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


# -- details -----------------------------------------------------------------------------------------------------------
#
# Pages of `headway top` beside the list: one consumer's details, and the help.


FIGURES = (
    ("lag", "lag_records", figures.count), ("lag bytes", "lag_bytes", figures.size),
    ("oldest waiting", "lag_age_ms", figures.millis), ("sees, old", "view_age_ms", figures.millis),
    ("holds", "held_bytes", figures.size), ("offered", "offered_rate", figures.rate),
    ("drained", "drain_rate", figures.rate), ("delivered", "delivered_records", figures.count),
    ("blocked", "blocked_ms", figures.millis), ("no credit", "credit_exhausted_ms", figures.millis),
    ("in flight", "in_flight", figures.count), ("last ack", "ack_age_ms", figures.millis),
    ("skipped", "gap_records", lambda counts: figures.count(figures.total(counts))),
    ("publishers held", "producer_stall_ms", figures.millis), ("times slow", "slow_count", figures.count),
    ("patience", "patience_ms", figures.millis),
)  # fmt: skip
VERDICTS_SHOWN = 20

HELP = """\
up, down, PgUp, PgDn, Home, End   choose a consumer
Enter       its details             Esc, q   back
/ or F4     filter as you type: a name, a topic, a state; Enter keeps it
> < or F6   sort by the next or the previous column
L A H D     sort by lag, age, bytes held, drain;  N S: by name, by state
r           reverse the order
p or space  pause, and go on        q        quit

LAG     records that wait for it    HOLDS    bytes kept on its account
AGE     of the oldest of them       DRAIN    what it takes, bytes a second
SEES    how old the records are that it reads now
STATE   ok, behind, slow, conflating, discarding, offline (it reads from disk),
        away (not connected; these stand last)
BLOCKED    its socket takes no bytes
NO CREDIT  records wait, but it has not acknowledged enough
SKIPPED    records it was not given
STALLS     for how long it has held up publishers"""


def help_page() -> Group:
    return Group(Text("headway top: keys and columns", style="bold"), Text(), Text(HELP, no_wrap=True))


def details(consumer: Mapping[str, Any], why: Mapping[str, Any] | None, trouble: str = "") -> Group:
    """``why``: the broker's answer about the client; None: it has not come yet. ``trouble``: why it cannot come."""
    state = str(consumer.get("state", "?"))
    head = Text(printable(consumer.get("client", "?")), style="bold")
    head.append("  ").append(printable(state), style=figures.STYLES.get(state, ""))
    about = [f"{name} {printable(consumer[name])}" for name in ("filter", "protocol", "listener", "policy", "user")
             if consumer.get(name)]  # fmt: skip
    table = Table(box=None, pad_edge=False, show_header=False)
    for justify in ("left", "right") * 2:
        table.add_column(justify=justify, no_wrap=True)
    cells = [(name, form(consumer.get(key))) for name, key, form in FIGURES]
    half = (len(cells) + 1) // 2
    for left, right in zip(cells[:half], [*cells[half:], ("", "")], strict=False):
        table.add_row(Text(left[0], style="dim"), left[1], Text(f"   {right[0]}", style="dim"), right[1])
    parts: list[Any] = [head, Text(" · ".join(about)), Text(), table, Text()]
    if trouble:
        parts.append(Text(printable(trouble), style="bold red"))
    elif why is None:
        parts.append(Text("asking the broker why ...", style="dim"))
    else:
        parts.append(_Told(why))
    return Group(*parts)


class _Told:
    """Draws the words of `headway why`."""

    def __init__(self, why: Mapping[str, Any]) -> None:
        self._why = why

    def __rich_console__(self, console: Console, options: Any) -> Any:
        inner = Console(width=options.max_width, file=None, force_terminal=False)
        with inner.capture() as captured:
            tell(inner, dict(self._why), VERDICTS_SHOWN)
        yield Text(captured.get().rstrip())


# -- keys --------------------------------------------------------------------------------------------------------------
#
# Keys of a terminal, by their names, without waiting for the end of a line.


try:
    import termios
    import tty
except ImportError:  # on Windows there are none: the list is drawn, and Ctrl-C ends it
    termios = tty = None  # type: ignore[assignment]

SEQUENCES = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left", "\x1bOA": "up", "\x1bOB": "down",
    "\x1bOC": "right", "\x1bOD": "left", "\x1b[5~": "pgup", "\x1b[6~": "pgdn", "\x1b[H": "home", "\x1b[F": "end",
    "\x1bOH": "home", "\x1bOF": "end", "\x1b[1~": "home", "\x1b[4~": "end", "\x1bOP": "f1", "\x1b[11~": "f1",
    "\x1bOS": "f4", "\x1b[14~": "f4", "\x1b[17~": "f6", "\x1b[21~": "f10",
}  # fmt: skip
CHARS = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace", "\x03": "ctrl-c", "\x1b": "esc"}
LONGEST = max(map(len, SEQUENCES))
READ_BYTES = 1024


def names(text: str) -> list[str]:
    """Returns the keys of what a terminal has sent at once; an unknown sequence is none."""
    found, at = [], 0
    while at < len(text):
        for size in range(min(LONGEST, len(text) - at), 1, -1):
            if (known := SEQUENCES.get(text[at : at + size])) is not None:
                found.append(known)
                at += size
                break
        else:
            if text[at] == "\x1b" and at + 1 < len(text) and text[at + 1] in "[O":
                at = _behind(text, at + 2)
                continue
            found.append(CHARS.get(text[at], text[at]))
            at += 1
    return found


def _behind(text: str, at: int) -> int:
    """Returns the place behind an unknown sequence."""
    while at < len(text) and not text[at].isalpha() and text[at] != "~":
        at += 1
    return at + 1


class Keys:
    """The keys of standard input while it is open. Where that is no terminal there are none."""

    def __init__(self) -> None:
        self._file: int | None = sys.stdin.fileno() if termios is not None and sys.stdin.isatty() else None
        self._before: list[object] = []
        self._woken, self._wakes = os.pipe()
        self._open = threading.Lock()
        self._closed = False

    def __enter__(self) -> Keys:
        if self._file is not None:
            self._before = termios.tcgetattr(self._file)
            tty.setcbreak(self._file)
            signal.signal(signal.SIGWINCH, lambda *_: self.wake())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._file is not None:
            termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]
            signal.signal(signal.SIGWINCH, signal.SIG_DFL)
        with self._open:
            self._closed = True
            os.close(self._woken)
            os.close(self._wakes)

    def wake(self) -> None:
        """Ends a ``wait``; from any thread, also when these keys are closed."""
        with self._open:
            if not self._closed:
                os.write(self._wakes, b"\0")

    def wait(self, seconds: float) -> list[str]:
        """Returns what was pressed, as soon as something is, or after so long, or when woken."""
        files = [self._woken, *([] if self._file is None else [self._file])]
        ready = select.select(files, [], [], seconds)[0]
        if self._woken in ready:
            os.read(self._woken, READ_BYTES)
        if self._file is None or self._file not in ready:
            return []
        data = os.read(self._file, READ_BYTES)
        if not data:  # the terminal is gone
            return ["ctrl-c"]
        return names(data.decode(errors="replace"))


# -- picture -----------------------------------------------------------------------------------------------------------
#
# A picture: the broker's figures at one moment.


class Picture(NamedTuple):
    time_s: float
    broker: dict[str, Any]
    consumers: list[dict[str, Any]]
    publishers: list[dict[str, Any]]
    queues: list[dict[str, Any]]

    def json(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self._fields if name != "time_s"}, indent=2)


def take(admin: AdminClient) -> Picture:
    """Asks the broker for all of it. Raises ConfigError."""
    return Picture(time.monotonic(), admin.broker(), admin.consumers(), admin.publishers(), admin.queues())


# -- view --------------------------------------------------------------------------------------------------------------
#
# The view of `headway top`: how the list is sorted and filtered, which row is chosen, and what keys do to that.
#
# Rules:
# - Consumers that are away stand behind all others, whatever the order: nobody is there to be helped. Sorted by state
#   they stand where their word puts them.
# - Names go up, figures go down, unless reversed.
# - The chosen row is a consumer, not a place: it stays chosen where the order changes.


Consumer = dict[str, Any]
LETTERS = {"L": "lag", "A": "age", "H": "holds", "D": "drain", "N": "consumer", "S": "state"}
"""Keys that sort at once."""
CHARS_MAX = 200


class Page(Enum):
    LIST = "list"
    DETAILS = "details"
    HELP = "help"


class View:
    def __init__(self, sort: str = BY_LAG, reverse: bool = False, filter: str = "") -> None:
        self.sort, self.reverse, self.filter = sort, reverse, filter
        self.page = Page.LIST
        self.typing = False
        """A filter is being typed."""
        self.paused = False
        self.over = False
        self.scroll = 0
        """Lines of the details that are above the screen."""
        self.chosen: tuple[str, str] | None = None
        self.rows: list[Consumer] = []
        """The consumers as they stand now."""
        self.page_rows = 10
        """Rows that the screen has room for."""

    # -- the list -----------------------------------------------------------------------------------------------------

    @property
    def descends(self) -> bool:
        return SORTS[self.sort].left == self.reverse

    def arrange(self, consumers: Sequence[Consumer]) -> list[Consumer]:
        """Filters and sorts; what is equal stays in the broker's order."""
        word = self.filter.casefold()
        found = [one for one in consumers if word in f"{one.get('client')} {one.get('filter')} {one.get('state')} "
                 f"{one.get('protocol')} {one.get('listener')}".casefold()]  # fmt: skip
        found.sort(key=lambda one: sort_value(one, self.sort), reverse=self.descends)
        if self.sort != "state":
            found.sort(key=lambda one: one.get("state") == "away")
        self.rows = found
        return found

    @property
    def place(self) -> int:
        """The chosen row; the first where the one that was chosen is not there."""
        return next((at for at, one in enumerate(self.rows) if key_of(one) == self.chosen), 0)

    @property
    def row(self) -> Consumer | None:
        return self.rows[self.place] if self.rows else None

    def first(self, rows: int) -> int:
        """Returns the first row of a screen that has so many."""
        return min(max(0, self.place - rows // 2), max(0, len(self.rows) - rows))

    # -- keys ---------------------------------------------------------------------------------------------------------

    def press(self, key: str) -> None:
        if key in ("ctrl-c", "f10"):
            self.over = True
        elif self.typing:
            self._type(key)
        elif self.page is Page.LIST:
            self._list_key(key)
        else:
            self._page_key(key)

    def _type(self, key: str) -> None:
        if key == "enter":
            self.typing = False
        elif key == "esc":
            self.typing, self.filter = False, ""
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter = (self.filter + key)[:CHARS_MAX]
        else:
            self._move(key)

    def _list_key(self, key: str) -> None:
        match key:
            case "q":
                self.over = True
            case "/" | "f4":
                self.typing = True
            case "esc":
                self.filter = ""
            case ">" | "f6":
                self._next_sort(1)
            case "<":
                self._next_sort(-1)
            case "r" | "I":
                self.reverse = not self.reverse
            case "p" | " " | "Z":
                self.paused = not self.paused
            case "enter":
                self._open()
            case "?" | "h" | "f1":
                self.page, self.scroll = Page.HELP, 0
            case _ if key in LETTERS:
                self.sort, self.reverse = LETTERS[key], self.reverse and self.sort == LETTERS[key]
            case _:
                self._move(key)

    def _open(self) -> None:
        if self.row is not None:
            self.chosen = key_of(self.row)
            self.page, self.scroll = Page.DETAILS, 0

    def _next_sort(self, step: int) -> None:
        names = list(SORTS)
        self.sort, self.reverse = names[(names.index(self.sort) + step) % len(names)], False

    def _move(self, key: str) -> None:
        if not self.rows:
            return
        last, at = len(self.rows) - 1, self.place
        places = {
            "up": at - 1, "k": at - 1, "down": at + 1, "j": at + 1, "pgup": at - self.page_rows,
            "pgdn": at + self.page_rows, "home": 0, "g": 0, "end": last, "G": last,
        }  # fmt: skip
        if key in places and not (self.typing and len(key) == 1):
            self.chosen = key_of(self.rows[min(max(places[key], 0), last)])

    def _page_key(self, key: str) -> None:
        if key in ("q", "esc", "enter", "backspace", "left"):
            self.page = Page.LIST
        elif key in ("?", "h", "f1"):
            self.page = Page.LIST if self.page is Page.HELP else Page.HELP
        elif key in ("p", " ", "Z"):
            self.paused = not self.paused
        else:
            steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -self.page_rows, "pgdn": self.page_rows,
                     "home": -self.scroll}  # fmt: skip
            self.scroll = max(0, self.scroll + steps.get(key, 0))


def key_of(consumer: Consumer) -> tuple[str, str]:
    return str(consumer.get("client")), str(consumer.get("filter"))


# -- drawing -----------------------------------------------------------------------------------------------------------
#
# Drawings of `headway top`: the list, as high and as wide as the terminal has room for.


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


# -- watch -------------------------------------------------------------------------------------------------------------
#
# The live list: pictures are taken in a thread, so that keys are answered while the broker is not.
#
# A broker that stops answering leaves its last picture on the screen, with a line of what is wrong; the thread asks
# again at each interval.


IDLE_S = 1.0
"""The screen is drawn anew at least so often, as its size may have changed."""


class Taker:
    """Takes pictures, and asks about the client whose details are open."""

    def __init__(self, admin: AdminClient, first: Picture, interval_s: float, view: View, keys: Keys) -> None:
        self._admin, self._interval_s, self._view, self._keys = admin, interval_s, view, keys
        self._stop = threading.Event()
        self._soon = threading.Event()
        self.before: Picture | None = None
        self.picture = first
        self.why: tuple[str, dict[str, Any]] | None = None
        """A client's name, and what the broker answered about it."""
        self.trouble = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ask_now(self) -> None:
        """Does not wait for the interval's end."""
        self._soon.set()

    def stop(self) -> None:
        self._stop.set()
        self._soon.set()

    def _run(self) -> None:
        while True:
            self._soon.wait(self._interval_s)
            self._soon.clear()
            if self._stop.is_set():
                return
            try:
                self._take()
                self.trouble = ""
            except ConfigError as error:
                self.trouble = str(error)
            if not self._stop.is_set():
                self._keys.wake()

    def _take(self) -> None:
        """Raises ConfigError."""
        if not self._view.paused:
            picture = take(self._admin)
            self.before, self.picture = self.picture, picture
        name = self._view.chosen[0] if self._view.page is Page.DETAILS and self._view.chosen else None
        if name is not None:
            try:
                self.why = name, self._admin.why(name)
            except NotFound:  # such as a cursor over HTTP
                self.why = name, {"client": name, "connected": True}


class _Scrolled:
    """Lines of a page from one on, as many as the screen has room for."""

    def __init__(self, page: Group, view: View, height: int) -> None:
        self._page, self._view, self._height = page, view, height

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._page, options.update(height=None), pad=False)
        self._view.scroll = min(self._view.scroll, max(0, len(lines) - self._height))
        for line in lines[self._view.scroll :][: self._height]:
            yield from line
            yield Segment.line()


def watch(admin: AdminClient, console: Console, interval_s: float, view: View | None = None) -> None:
    """Draws until a key or Ctrl-C ends it. Raises ConfigError if the broker does not answer at first."""
    view = View() if view is None else view
    first = take(admin)
    with Keys() as keys:
        taker = Taker(admin, first, interval_s, view, keys)
        try:
            with Live(console=console, screen=True, auto_refresh=False) as live:
                while not view.over:
                    live.update(_screen(taker, view, console), refresh=True)
                    page = view.page
                    for key in keys.wait(IDLE_S):
                        view.press(key)
                    if view.page is not page:
                        taker.ask_now()
        finally:
            taker.stop()


def _screen(taker: Taker, view: View, console: Console) -> Group:
    view.arrange(taker.picture.consumers)
    if view.page is Page.HELP:
        return Group(_Scrolled(help_page(), view, console.height - 1))
    row = next((one for one in taker.picture.consumers if view.chosen == (one.get("client"), one.get("filter"))), None)
    if view.page is Page.DETAILS and view.chosen is not None:
        name, filter = view.chosen
        why = taker.why[1] if taker.why is not None and taker.why[0] == name else None
        shown = row or {"client": name, "filter": filter, "state": "gone"}
        return Group(_Scrolled(details(shown, why, taker.trouble), view, console.height - 1))
    return draw(taker.picture, taker.before, console, view, taker.trouble, live=True)


# -- command -----------------------------------------------------------------------------------------------------------
#
# `headway top`: consumers by lag, once or live.


@plainly
def top(
    admin: AdminOption = None,
    ca: CaOption = None,
    once: Annotated[bool, typer.Option("--once", help="Print one table and end.")] = False,
    as_json: JsonOption = False,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.1, max=3600.0, help="Seconds between looks.")
    ] = 1.0,
    sort: Annotated[str, typer.Option("--sort", metavar="COLUMN", help="Such as lag, age, holds, consumer.")] = "lag",
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="The other way round.")] = False,
    filter: Annotated[str, typer.Option("--filter", metavar="TEXT", help="Only with this in name, topic, state.")] = "",
) -> None:
    """Consumers by lag: what each holds, its state, and the last verdict about it. Those that are away stand last.

    Keys: q quits, / filters as you type, < and > sort, r reverses, enter shows details, p pauses, ? has them all.

    \b
    LAG     records that wait for it         HOLDS      bytes kept on its account; all together, what is kept
    AGE     of the oldest of them            DRAIN      what it takes, bytes per second
    STATE   ok, behind, slow, conflating, discarding, offline (it reads from disk), away (not connected)
    In a wide terminal:
    BLOCKED    its socket takes no bytes     NO CREDIT  records wait, but it has not acknowledged enough
    SKIPPED    records it was not given      STALLS     for how long it has held up publishers
    Queues with something in them follow: how much waits, and how much is with consumers and may come back.

    \b
    Examples:
      headway top
      headway top --once --sort age --filter display     or into a pipe
      headway top --json | jq '.consumers[] | select(.slow) | .client'
    """
    broker = AdminClient(admin, ca=ca)
    if as_json:
        typer.echo(take(broker).json())
        return
    if sort not in SORTS:
        raise ConfigError(f"--sort: {unknown('column', sort, list(SORTS))}")
    console, view = Console(), View(sort, reverse, filter)
    if once or not console.is_terminal:
        console.print(draw(take(broker), None, console, view))
        return
    try:
        watch(broker, console, interval, view)
    except KeyboardInterrupt:
        return
