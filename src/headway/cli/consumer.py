"""``headway consumer``: moves that an operator makes on one consumer."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.admin import AdminClient
from headway.cli.options import AdminOption, CaOption, plainly
from headway.console import printable

consumer = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]}, help=(
    "Moves that you make on one consumer, at once. Each is a verdict with the cause operator, so `headway why NAME` "
    "says who made it. They need the right to change: [auth.admin] change."
))  # fmt: skip
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The client's name.", show_default=False)]
FilterOption = Annotated[str, typer.Option("--filter", "-f", metavar="FILTER", help="Which, if it has several.")]


@consumer.command(short_help="Leave out all that waits for it.")
@plainly
def skip(name: NameArgument, filter: FilterOption = "", admin: AdminOption = None, ca: CaOption = None) -> None:
    """Move a consumer to the end of its log: what waits is left out, counted as a gap, and told.

    \b
    Example:
      headway consumer skip display-7
    """
    _move(AdminClient(admin, ca=ca), move="skip", client=name, filter=filter)


@consumer.command(short_help="Send the latest record per key of what waits.")
@plainly
def conflate(name: NameArgument, filter: FilterOption = "", admin: AdminOption = None, ca: CaOption = None) -> None:
    """Send a consumer the latest record per key in the place of what waits. Its topics need a [[topic]] with a key.

    \b
    Example:
      headway consumer conflate display-7 --filter 'quotes/#'
    """
    _move(AdminClient(admin, ca=ca), move="conflate", client=name, filter=filter)


@consumer.command(short_help="No rule judges it for so long.")
@plainly
def patience(
    name: NameArgument,
    time: Annotated[str, typer.Argument(metavar="TIME", help="Such as 10m; 0s takes it back.", show_default=False)],
    filter: FilterOption = "", admin: AdminOption = None, ca: CaOption = None,
) -> None:  # fmt: skip
    """Have no rule judge a consumer for so long. The limits of memory and disk stay in force.

    \b
    Example:
      headway consumer patience display-7 10m
    """
    _move(AdminClient(admin, ca=ca), move="patience", client=name, filter=filter, patience=time)


@consumer.command(short_help="Close its client's connection.")
@plainly
def kick(name: NameArgument, admin: AdminOption = None, ca: CaOption = None) -> None:
    """Disconnect a client, with all its consumers. It may connect again at once.

    \b
    Example:
      headway consumer kick display-7
    """
    _move(AdminClient(admin, ca=ca), move="kick", client=name)


def _move(broker: AdminClient, **wanted: str) -> None:
    typer.echo(printable(broker.move(wanted)))
