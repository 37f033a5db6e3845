"""`headway doctor`: is everything here that the broker needs? Each trouble comes with the command that mends it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.doctor.finding import Finding, State
from headway.cli.doctor.machine import machine
from headway.cli.doctor.software import software
from headway.cli.errors import MISTAKE, plainly
from headway.console import printable
from headway.server.config import load_settings

_SIGNS = {State.GOOD: "  ", State.DOUBTFUL: "? ", State.BAD: "! "}


@plainly
def doctor(
    config: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The config, in TOML; without it, the default.",
                                    show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only what is doubtful or bad.")] = False,
) -> None:
    """Look at this machine and this installation: would the broker run well with this config?

    Versions of Python, Headway and its packages; Java and Spark, where they are asked for; open files, memory, disks,
    the kernel's limits for sockets; whether the ports are free. Run it as the user that the broker runs as, while
    the broker does not run: its own ports are taken otherwise. Nothing is changed.

    Exit code 2 if something is bad (!): the broker would not start, or lose what it should keep. What is doubtful (?)
    is only said.

    \b
    Examples:
      headway doctor
      headway doctor headway.toml
      headway doctor headway.toml --json | jq -r '.[] | select(.state == "bad") | .mend'
    """
    settings = load_settings(config)
    found = [*software(settings), *machine(settings)]
    if as_json:
        typer.echo(json.dumps([one._asdict() for one in found], indent=2))
    else:
        _tell([one for one in found if not quiet or one.state is not State.GOOD])
    if any(one.state is State.BAD for one in found):
        raise typer.Exit(MISTAKE)


def _tell(found: list[Finding]) -> None:
    width = max((len(one.subject) for one in found), default=0)
    for one in found:
        typer.echo(f"{_SIGNS[one.state]}{one.subject:<{width}}  {printable(one.text)}")
        if one.mend:
            typer.echo(f"  {'':<{width}}  {printable(one.mend)}")
