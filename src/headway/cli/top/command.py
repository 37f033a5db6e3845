"""`headway top`: consumers by lag, once or live."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from headway.cli.admin import AdminClient
from headway.cli.errors import plainly
from headway.cli.options import AdminOption, CaOption, JsonOption
from headway.cli.top.columns import SORTS
from headway.cli.top.drawing import draw
from headway.cli.top.picture import take
from headway.cli.top.view import View
from headway.cli.top.watch import watch
from headway.core.base import ConfigError, unknown


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
