"""`headway why`: in words, the verdicts about a client, how its connections ended, and what it was denied."""

from __future__ import annotations

import difflib
import json
import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from headway.cli import options as figures
from headway.cli.admin import AdminClient, NotFound
from headway.cli.options import NOTHING_FOUND, AdminOption, CaOption, JsonOption, plainly, say
from headway.console import printable
from headway.core.base import ConfigError, format_duration


@plainly
def why(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The client's name (MQTT client id).", show_default=False)
    ],
    admin: AdminOption = None,
    ca: CaOption = None,
    as_json: JsonOption = False,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="At most N verdicts.")] = 5,
) -> None:
    """Explains the decisions about a client, also long after it was disconnected.

    \b
    Examples:
      headway why display-7
      headway why display-7 --json | jq '.verdicts[0].readings'
    """
    broker = AdminClient(admin, ca=ca)
    try:
        answer = broker.why(name)
    except NotFound as error:
        names = near(broker, name)
        say(str(error) + (f" (did you mean {', '.join(names)}?)" if names else ""))
        raise typer.Exit(NOTHING_FOUND) from None
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        tell(Console(), answer, last)


def tell(console: Console, answer: dict[str, Any], last: int) -> None:
    """The verdicts, newest first; then how connections ended, and what was denied, newest first."""
    name = printable(answer.get("client", "?"))
    verdicts = answer.get("verdicts") or []
    here = "is connected" if answer.get("connected") else "is not connected"
    wait_s = answer.get("readmitted_in_s") or 0
    line = Text(name, style="bold").append(f" {here}", style="not bold")
    if wait_s > 0:
        line.append(f"; it was cut off too often and is readmitted in {format_duration(wait_s)}", style="not bold")
    if not verdicts:
        line.append("; nothing was ever decided about it", style="not bold")
    console.print(line, soft_wrap=True)
    for one in answer.get("conflated") or []:
        told = f"{one.get('filter', '?')}: given the latest record per key only, by {one.get('by', '?')}"
        console.print(Text("  " + printable(told)), soft_wrap=True)
    for verdict in verdicts[:last]:
        _tell_one(console, verdict)
    if len(verdicts) > last:
        console.print(Text(f"\nand {len(verdicts) - last} older (--last {len(verdicts)} shows all)", style="dim"))
    ends = answer.get("ends") or []
    if ends:
        console.print(Text("\nits connections"), soft_wrap=True)
    for end in ends[:last]:
        _tell_end(console, end)
    denied = answer.get("denied") or []
    if denied:
        console.print(Text("\nwhat it was denied"), soft_wrap=True)
    for request in denied[:last]:
        _tell_denied(console, request)


def _when(told: dict[str, Any], before: str = "") -> Text:
    """Begins a line with its time."""
    wall_s = float(told.get("wall_s", 0))
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall_s))
    return Text(f"{before}{when} ({figures.ago(wall_s)} ago)  ", style="dim")


def _tell_denied(console: Console, request: dict[str, Any]) -> None:
    console.print(_when(request).append(printable(request.get("text", "")), style="not dim"), soft_wrap=True)


def _tell_one(console: Console, verdict: dict[str, Any]) -> None:
    head = _when(verdict, "\n")
    head.append(figures.deed(verdict), style="not dim bold")
    if verdict.get("filter"):
        head.append(printable(f"  {verdict['filter']}"), style="not dim")
    console.print(head, soft_wrap=True)
    console.print(Text("  " + printable(verdict.get("text", ""))), soft_wrap=not console.is_terminal)
    facts = [f"reason {verdict.get('reason', '?')}"]
    facts += [f"cause {verdict['cause']}"] if verdict.get("cause") else []
    policy = verdict.get("policy")
    facts.append(f"policy {policy!r}, rule {verdict.get('rule')}" if policy else "decided by the broker itself")
    console.print(Text("  " + printable(" · ".join(facts)), style="dim"), soft_wrap=True)
    for reading in verdict.get("readings") or []:
        console.print(Text("    " + figures.reading_line(reading)), soft_wrap=True)


def _tell_end(console: Console, end: dict[str, Any]) -> None:
    done = f"ended after {format_duration(end.get('lasted_s', 0))}" if end.get("admitted") else "was not admitted"
    where = f"{end.get('listener', '?')}, {end.get('address', '?')}"
    where += f", user {end['username']}" if end.get("username") else ""
    line = _when(end)
    line.append(printable(f"{done}, {end.get('reason', '?')}"), style="not dim bold")
    text = f": {end['text']}" if end.get("text") else ""
    console.print(line.append(printable(f"{text} ({where})"), style="not dim"), soft_wrap=True)


def near(admin: AdminClient, name: str) -> list[str]:
    """Returns clients with names like this one."""
    try:
        known = {str(one.get("client", "")) for one in [*admin.consumers(), *admin.publishers()]}
    except ConfigError:
        return []
    return difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.6)
