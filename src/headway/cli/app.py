"""The commands: what there is, and where. A command's module is imported when it is called, so that each starts as fast
as what it needs: the broker, Spark and the readers of other systems' configurations take a second to import.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from headway import __version__

# -- outline -----------------------------------------------------------------------------------------------------------
#
# Commands that are known by an outline, and imported when they are called.


class Outline(NamedTuple):
    place: str
    """The module, and what in it is the command: a function, or a ``typer.Typer`` with commands of its own."""
    short_help: str
    hidden: bool = False


class _Loaded(Mapping[str, Any]):
    """The commands by name, each made of its outline when it is asked for."""

    def __init__(self, outlines: Mapping[str, Outline]) -> None:
        self._outlines = outlines
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _command(name, self._outlines[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outlines)

    def __len__(self) -> int:
        return len(self._outlines)


class Outlined(TyperGroup):
    """A group of commands with ``outlines``."""

    outlines: Mapping[str, Outline] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Loaded(self.outlines)  # type: ignore[assignment]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Lists the commands by their outlines; none is imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.short_help) for name, one in self.outlines.items() if not one.hidden])


def _command(name: str, outline: Outline) -> Any:
    module, _, attribute = outline.place.partition(":")
    found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        command: Any = get_group(found)
    else:
        alone = typer.Typer(rich_markup_mode=None, add_completion=False)
        settings = {"allow_extra_args": True, "ignore_unknown_options": True} if outline.hidden else None
        alone.command(name, hidden=outline.hidden, context_settings=settings)(found)
        command = get_command(alone)
    command.name = name
    return command


# -- app ---------------------------------------------------------------------------------------------------------------


COMMANDS = {
    "serve": Outline("headway.cli.serve:serve", "Run the broker."),
    "check": Outline("headway.cli.check:check", "Find every mistake in a config."),
    "doctor": Outline("headway.cli.doctor:doctor", "Is everything here that the broker needs?"),
    "import": Outline("headway.cli.imports:import_config", "Read the configuration of another system."),
    "passwd": Outline("headway.cli.passwd:passwd", "Make a user's line for [auth.users]."),
    "certs": Outline("headway.cli.certs:certs", "Make certificates for trying out TLS."),
    "top": Outline("headway.cli.top:top", "Consumers by lag, live."),
    "why": Outline("headway.cli.why:why", "What was decided about a client, and why."),
    "verdicts": Outline("headway.cli.verdicts:verdicts", "What was decided lately: last night's verdicts."),
    "consumer": Outline("headway.cli.consumer:consumer", "Skip, conflate, kick one consumer, or be patient with it."),
    "query": Outline("headway.cli.state:query", "The latest record per key: filtered, ordered, live."),
    "export": Outline("headway.cli.export:export", "Take recorded records out: Parquet or JSON lines."),
    "journal": Outline("headway.cli.journal:journal", "Show, verify or compact the files of a journal."),
    "pipeline": Outline("headway.cli.pipeline:pipeline", "What telemetry says of slow consumers; views."),
    "lab": Outline("headway.cli.lab:lab", "What other policies would have done with recorded traffic."),
    "trouble": Outline("headway.cli.trouble.command:trouble", "Slow consumers made to order, for any broker."),
    "completion": Outline("headway.cli.shell:completion", "Completion for bash, zsh or fish."),
    "man": Outline("headway.cli.shell:man", "The man page."),
    "demo": Outline("headway.cli.shell:demo", "", hidden=True),
}


class _Commands(Outlined):
    outlines = COMMANDS


app = typer.Typer(
    name="headway",
    cls=_Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headway {__version__}")
        raise typer.Exit


@app.callback()
def headway(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Headway: a message broker whose slow consumers cost the others nothing.

    \b
    Run it:
      headway serve                     MQTT, AMQP and STOMP on their ports of 127.0.0.1, nothing to configure
      headway serve --print-config >headway.toml
      headway check headway.toml        find every mistake, before it is needed
      headway doctor headway.toml       is everything here that it needs?
      headway import activemq.xml       start from another broker's configuration
      headway serve --config headway.toml
    \b
    Look at it while it runs:
      headway top                       consumers by lag
      headway why CLIENT                what was decided about a client, and why
      headway verdicts --since 8h       what happened last night
      headway consumer skip CLIENT      act on one consumer; http://127.0.0.1:9883/ is a console to do it in
      headway query 'flights/#'         the latest record per key
      headway export TOPIC -o x.parquet what is recorded of a topic; headway journal looks into the files
    \b
    Try it, or any other broker:
      headway trouble mqtt://127.0.0.1:1883    slow consumers made to order, beside healthy ones

    `headway COMMAND --help` has examples of each. Exit codes: 0 all is well, 1 nothing found, 2 something to put right.
    """
