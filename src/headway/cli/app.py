"""The commands: what there is, and where. A command's module is imported when it is called, so that each starts as fast
as what it needs: the broker, Spark and the readers of other systems' configurations take a second to import."""

from __future__ import annotations

from typing import Annotated

import typer

from headway import __version__
from headway.cli.outline import Outline, Outlined

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
    "pipeline": Outline("headway.cli.pipeline.command:pipeline", "What telemetry says of slow consumers; views."),
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
