"""`headway verdicts`: what was decided lately, from the broker or from the files of its history."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.cli import options as figures
from headway.cli.admin import AdminClient, NoBroker
from headway.cli.options import NOTHING_FOUND, AdminOption, plainly, say
from headway.console import printable
from headway.core.base import Cause, ConfigError, format_count, format_duration
from headway.core.policy import ActionKind
from headway.store.history import EntryKind, HistoryEntry, Query, decode_entry, files_of, parse_moment, search

# -- episodes ----------------------------------------------------------------------------------------------------------
#
# Episodes: entries of the history as rows for people. A verdict and the one that steps it back are one episode;
# episodes of a consumer that goes to and fro are folded into one row with a count.


_FINAL = ("disconnect", "delete_subscription")
FOLD_S = 600.0
"""Episodes with less than this between them are folded."""


class _Key(NamedTuple):
    """The things that two episodes must have in common to be folded."""

    run: str
    client: str
    filter: str
    policy: str
    rule: int
    action: str
    which: str
    enforced: bool | None
    kind: EntryKind


class Row:
    """One row: an episode, or several that were folded."""

    def __init__(self, entry: HistoryEntry) -> None:
        self.last = entry
        """The latest entry that fired, or the clear where the fire was earlier; it has the sentence."""
        self.began_s = self.ended_s = entry.wall_s
        """When the first episode began, and when the last one was last heard of."""
        self.count = 1
        self.seconds = 0.0
        """How long the rule was active, all episodes together, as far as their ends were recorded."""
        self.open = False
        """The end of the last episode is not recorded."""
        self.cleared = False
        """The rule stepped back."""
        self._causes: Counter[str] = Counter([str(entry.cause)] if entry.cause is not None else ())

    @property
    def cause(self) -> str:
        """The commonest cause; empty if none is known."""
        return self._causes.most_common(1)[0][0] if self._causes else ""

    def step_back(self, clear: HistoryEntry) -> None:
        self.count += max(0, clear.relapses - self.last.relapses)  # those that the broker has folded
        self.seconds, self.ended_s = clear.held_s, clear.wall_s
        self.open, self.cleared = False, True

    def cut(self, wall_s: float) -> None:
        """Ends an open episode, because the consumer went."""
        self.seconds, self.ended_s, self.open = wall_s - self.began_s, wall_s, False

    def fold(self, later: Row) -> None:
        self.last, self.ended_s, self.open = later.last, later.ended_s, later.open
        self.count += later.count
        self.seconds += later.seconds
        self._causes += later._causes


def to_rows(entries: Iterable[HistoryEntry], fold: bool = True) -> list[Row]:
    """Returns rows in the order of their ends. ``entries``: the oldest first."""
    rows: list[Row] = []
    latest: dict[_Key, Row] = {}
    open_of: dict[str, list[Row]] = {}
    """Rows of each client whose end is not known yet."""
    for entry in entries:
        key = _key(entry)
        before = latest.get(key)
        if entry.decision == "clear" and before is not None and not before.cleared:
            before.step_back(entry)
            continue
        row = latest[key] = Row(entry)
        rows.append(row)
        if entry.decision == "clear":  # it fired before the time that was asked for
            row.step_back(entry)
            row.began_s = entry.wall_s - entry.held_s
        elif entry.fires and _lasts(entry):
            row.open = True
            open_of.setdefault(entry.client, []).append(row)
        elif entry.kind is EntryKind.END:
            row.seconds = entry.lasted_s
        if entry.kind is EntryKind.END or (entry.enforced and entry.action in _FINAL):
            for one in open_of.pop(entry.client, []):
                if one.open and entry.filter in ("", one.last.filter) and one.last.run == entry.run:
                    one.cut(entry.wall_s)
    return sorted(_folded(rows) if fold else rows, key=lambda row: row.ended_s)


def _key(entry: HistoryEntry) -> _Key:
    return _Key(entry.run, entry.client, entry.filter, entry.policy, entry.rule, entry.action, entry.which,
                entry.enforced, entry.kind)


def _lasts(entry: HistoryEntry) -> bool:
    if entry.cause is Cause.OPERATOR:
        return False  # it was done once
    return entry.action not in list(ActionKind) or ActionKind(entry.action).stateful


def _folded(rows: list[Row]) -> list[Row]:
    kept: list[Row] = []
    latest: dict[_Key, Row] = {}
    for row in rows:
        key = _key(row.last)
        before = latest.get(key)
        if before is not None and row.began_s - before.ended_s <= FOLD_S:
            before.fold(row)
        else:
            latest[key] = row
            kept.append(row)
    return kept


# -- verdicts ----------------------------------------------------------------------------------------------------------


ENTRIES_MAX = 10_000
"""As many as one question to the broker answers."""
WIDE = 120
"""From this width on the sentence has a column of its own; else it is below its row."""


@plainly
def verdicts(
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="From then on: 8h (ago), 03:00, \"2026-11-23 03:00\".")
    ] = "24h",
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Up to then; as --since, and may be later today.")
    ] = None,
    client: Annotated[
        str, typer.Option("--client", metavar="NAME", help="A client's name, or a pattern such as 'display-*'.")
    ] = "",
    cause: Annotated[str, typer.Option("--cause", metavar="CAUSE", help=f"One of {', '.join(Cause)}.")] = "",
    action: Annotated[str, typer.Option("--action", metavar="ACTION", help="Such as disconnect.")] = "",
    ends: Annotated[bool, typer.Option("--ends", help="Show how connections ended, too.")] = False,
    all: Annotated[bool, typer.Option("--all", help="Show each verdict; do not fold those that come and go.")] = False,
    last: Annotated[int | None, typer.Option("--last", "-n", min=1, help="Only the last N rows.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The entries as JSON, one a line, for programs.")] = False,
    admin: AdminOption = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE", help="Read the history that this config names.")
    ] = None,
    path: Annotated[
        Path | None, typer.Option("--path", metavar="FOLDER", help="Read the history in this folder.")
    ] = None,
) -> None:  # fmt: skip
    """Decisions about slow consumers, the latest at the bottom: last night's, for a start.

    With --config or --path the files are read, also while no broker runs.

    \b
    DONE      the action; (dry run): it was not carried out; x 22: so many times, folded (--all shows each)
    HOW LONG  how long the rule was active, in all, or the connection lasted; open: no end of it was recorded

    \b
    Examples:
      headway verdicts --since 8h
      headway verdicts --since 22:00 --until 06:00 --client 'display-*'
      headway verdicts --cause network --action disconnect --json | jq .client
      headway verdicts --config headway.toml --since 2d         no broker has to run
    """
    now = time.time()
    kinds = (EntryKind.VERDICT, EntryKind.END) if ends else (EntryKind.VERDICT,)
    until_s = parse_moment(until, now, since) if until else inf
    query = Query(parse_moment(since, now), until_s, client, cause=_cause(cause), action=action, kinds=kinds)
    most = last if as_json and last is not None else ENTRIES_MAX
    folder = _folder(config, path)
    found = _in_files(folder, query, most) if folder is not None else _from_broker(AdminClient(admin), query, most)
    if len(found) == ENTRIES_MAX:
        say(f"only the latest {format_count(ENTRIES_MAX)} entries: ask for less, with --since or --client")
    if not found:
        say(f"nothing was decided{_about(query)} since {_when(query.since_s, now)}")
        raise typer.Exit(NOTHING_FOUND)
    if as_json:
        _print_json(line for _, line in reversed(found))
    else:
        rows = to_rows((entry for entry, _ in reversed(found)), fold=not all)
        show(Console(), rows[-last:] if last is not None else rows, now)


def _print_json(lines: Iterable[str | bytes]) -> None:
    for line in lines:
        typer.echo(json.dumps(json.loads(line)))  # in ASCII: nothing in it can steer the terminal


# -- where from -------------------------------------------------------------------------------------------------------


def _cause(word: str) -> str:
    cause = word.replace("-", "_")
    if cause and cause not in list(Cause):
        raise ConfigError(f"--cause {word}: one of {', '.join(Cause)}")
    return cause


def _folder(config: Path | None, path: Path | None) -> Path | None:
    """Returns the folder to read; None: the broker is asked. Raises ConfigError."""
    if config is not None:
        from headway.server.config import load_settings

        history = load_settings(config).history
        if not history.enabled:
            raise ConfigError(f"{config}: there is no history: add [history], or a [journal]")
        path = history.folder
    if path is not None and not any(files_of(path, kind) for kind in EntryKind):
        raise ConfigError(f"{path}: there is no history in this folder")
    return path


def _in_files(folder: Path, query: Query, most: int) -> list[tuple[HistoryEntry, str]]:
    """Returns the latest entries that match, newest first. Raises ConfigError."""
    found: list[tuple[HistoryEntry, str]] = []
    try:
        for one in search(folder, query):
            if one is not None:
                found.append((one.entry, one.line.decode()))
                if len(found) == most:
                    break
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be read: {error.strerror or error}") from None
    return found


def _from_broker(broker: AdminClient, query: Query, most: int) -> list[tuple[HistoryEntry, str]]:
    """Returns the latest entries that match, newest first. Raises ConfigError."""
    words = {"limit": str(most), "kind": "all" if len(query.kinds) > 1 else "verdict"}
    words |= {"since": f"{query.since_s:.3f}"} if query.since_s > -inf else {}
    words |= {"until": f"{query.until_s:.3f}"} if query.until_s < inf else {}
    asked = {"client": query.client, "cause": query.cause, "action": query.action}
    words |= {name: value for name, value in asked.items() if value}
    try:
        state, lines = broker.verdicts(words)
    except NoBroker as error:
        raise ConfigError(f"{error}\nthe files can be read without it: headway verdicts --config FILE") from None
    if state == "off":
        say("this broker keeps no history: this is what it remembers since its start ([history] keeps it)")
    elif state == "failing":
        say("the history cannot be written now: the log and GET /v1/broker say why")
    return [(entry, line.decode()) for line in lines if (entry := decode_entry(line)) is not None]


# -- the table --------------------------------------------------------------------------------------------------------


def show(console: Console, rows: Iterable[Row], now: float) -> None:
    """Draws the rows, the latest at the bottom."""
    wide = console.width >= WIDE
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("WHEN", "CONSUMER", "DONE", "CAUSE", "HOW LONG"):
        table.add_column(name, justify="right" if name == "HOW LONG" else "left", no_wrap=not wide, overflow="fold")
    if wide:
        table.add_column("WHY", ratio=1, overflow="fold")
    lines = [(_cells(row, now), Text(_why(row.last))) for row in rows]
    if wide:
        for cells, why in lines:
            table.add_row(*cells, why)
        console.print(table)
        return
    widths = [max(cells[at].cell_len for cells, _ in lines) for at in range(len(lines[0][0]))] if lines else []
    for cells, why in lines:
        for cell, width in zip(cells, widths, strict=True):
            cell.pad_right(width - cell.cell_len)
        console.print(Text("  ").join(cells), soft_wrap=True)
        console.print(Text("    ").append(why), soft_wrap=not console.is_terminal, style="dim")


def _cells(row: Row, now: float) -> list[Text]:
    last = row.last
    when = _when(row.began_s, now)
    if row.ended_s - row.began_s >= 1:
        when += f" to {time.strftime('%H:%M:%S', time.localtime(row.ended_s))}"
    who = last.client or last.user or "?"
    who += f" ({last.filter})" if last.filter else ""
    seconds = format_duration(round(row.seconds, 1 if row.seconds < 60 else 0)) if row.seconds else ""
    how_long = " + ".join([*([seconds] if seconds else []), *(["open"] if row.open else [])]) or "·"
    client, cause = Text(printable(who), style="bold"), Text(printable(_cause_word(row)))
    return [Text(when), client, _done(row), cause, Text(how_long)]


def _done(row: Row) -> Text:
    last = row.last
    if last.kind is EntryKind.END:
        words, style = "connection ended" if last.admitted is not False else "not admitted", "dim"
    else:
        words = figures.deed(last.verdict())
        style = "dim" if last.enforced is False else "bold red" if last.action in _FINAL else "yellow"
    return Text(words + (f" x {format_count(row.count)}" if row.count > 1 else ""), style=style)


def _cause_word(row: Row) -> str:
    if row.last.kind is EntryKind.END:
        return row.last.reason.replace("_", " ")
    return row.cause.replace("_", "-") or "·"


def _why(entry: HistoryEntry) -> str:
    """Returns the sentence, without the names that other columns have."""
    text = entry.text.removeprefix(f"{entry.client} on {entry.filter}: ")
    if entry.kind is EntryKind.END:
        user = f"user {entry.user}" if entry.user else ""
        where = ", ".join(part for part in (entry.listener, entry.address, user) if part)
        text = f"{text} ({where})" if text else where
    return printable(text)


def _about(query: Query) -> str:
    return f" about {query.client}" if query.client else ""


def _when(wall_s: float, now: float) -> str:
    """Returns the local time, with the day unless it is today."""
    then, today = time.localtime(wall_s), time.localtime(now)
    form = "%H:%M:%S" if then[:3] == today[:3] else "%m-%d %H:%M:%S" if then[0] == today[0] else "%Y-%m-%d %H:%M:%S"
    return time.strftime(form, then)
